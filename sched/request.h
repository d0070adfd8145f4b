// SchedRequest: what the scheduler knows of one generation.
// Plain data; no tokens, models or devices.
#ifndef INLAY_SCHED_REQUEST_H_
#define INLAY_SCHED_REQUEST_H_

#include <cstdint>
#include <limits>

#include "memory/kv/tables.h"

namespace inlay {

using RequestId = uint64_t;
using SessionId = uint64_t;

enum class RequestState : uint8_t {
  kWaiting,    // submitted, not admitted yet; holds no KV
  kRunning,    // admitted: gets tokens of the steps
  kPreempted,  // was running, gave its KV up, waits to go on
  kFinished,   // ended or cancelled; forgotten by the end of the step in flight
};

inline constexpr int64_t kNoDeadline = std::numeric_limits<int64_t>::max();

struct SchedRequest {
  // Set by the submitter. Times are of the clock of PlanInput::now_us.
  RequestId id = 0;  // unique among the requests that the scheduler holds
  SessionId session_id = 0;
  int32_t priority = 0;  // higher first
  int64_t submitted_us = 0;
  int64_t deadline_us = kNoDeadline;  // it expires when this passes
  uint64_t share_key = 0;  // whose share of the engine it counts against
  int64_t num_tokens_total =
      0;  // tokens known so far: the prompt, and later what was generated
  int64_t max_new_tokens =
      0;  // tokens that may still be generated; 0: only compute the prompt
  // Computed in one step, all of it or nothing (an encoder's): at most
  // max_batch_tokens.
  bool whole = false;
  // Blocks for all of it are set aside (KvOwner::Peek counts them): it begins
  // before others, which could not have those blocks anyway.
  bool reserved = false;
  KvTables* tables = nullptr;  // the session's, empty, not owned, not null

  // Kept by the scheduler.
  int64_t num_computed = 0;       // tokens whose KV is in the tables; less than
                                  // num_tokens_total
  int64_t num_coming = 0;         // blocks of these that are still to come:
                                  // nothing is planned for it meanwhile
  int64_t num_prompt_tokens = 0;  // num_tokens_total at submission
  uint64_t arrival = 0;           // order of submission
  double share_tag = 0;  // virtual time at which its share began (fair_share.h)
  bool starved = false;  // waited longer than the bound
  int64_t waiting_since_us = 0;
  uint64_t last_step = 0;  // that it had an item in
  int64_t max_total_tokens =
      0;  // num_tokens_total + max_new_tokens at submission
  RequestState state = RequestState::kWaiting;

  int64_t pending() const { return num_tokens_total - num_computed; }
};

}  // namespace inlay

#endif  // INLAY_SCHED_REQUEST_H_
