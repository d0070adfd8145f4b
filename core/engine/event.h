// Event: what a request produced, on its way to the host. Plain data.
#ifndef INLAY_CORE_ENGINE_EVENT_H_
#define INLAY_CORE_ENGINE_EVENT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "sched/request.h"

namespace inlay {

enum class EventKind : uint8_t {
  kTokens,
  kLogits,
  kScores,
  kFinished,
  kEmbedding,
  kClassification,
};
enum class FinishReason : uint8_t { kStop, kLength, kCancelled, kError };

struct EventLogprob {
  int32_t token;
  float logprob;
};

// How a request ended and what it cost.
struct FinishInfo {
  FinishReason reason = FinishReason::kStop;
  absl::Status status;
  int32_t stop_token = -1;   // -1: none
  int32_t stop_string = -1;  // index into the request's; -1: none
  uint64_t prompt_tokens = 0;
  uint64_t cached_tokens = 0;
  uint64_t generated_tokens = 0;
  uint64_t queue_us = 0;
  uint64_t first_token_us = 0;
  uint64_t total_us = 0;
};

struct Event {
  EventKind kind = EventKind::kTokens;
  RequestId request = 0;
  uint64_t tag = 0;  // the submitter's own name for the request
  void* user_data = nullptr;

  // kTokens
  std::vector<int32_t> tokens;
  std::string text;                    // whole code points
  std::string bytes;                   // of the tokens
  std::vector<EventLogprob> logprobs;  // [tokens][1 + top_logprobs], or empty
  size_t top_logprobs = 0;

  // kLogits: of `position`; kScores: values[i] belongs to position + i;
  // kEmbedding: the vector; kClassification: the logits of the labels, and
  // their scores besides.
  int64_t position = 0;
  std::vector<float> values;
  std::vector<float> scores;

  // kFinished
  FinishInfo finish;
  std::string message;  // of finish.status
};

}  // namespace inlay

#endif  // INLAY_CORE_ENGINE_EVENT_H_
