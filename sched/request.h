// SchedRequest: what the scheduler knows of one generation.
// Plain data; no tokens, models or devices.
#ifndef INLAY_SCHED_REQUEST_H_
#define INLAY_SCHED_REQUEST_H_

#include <cstdint>

#include "memory/kv/block_table.h"

namespace inlay {

using RequestId = uint64_t;
using SessionId = uint64_t;

enum class RequestState : uint8_t {
  kWaiting,    // submitted, not admitted yet; may hold KV of its session's
               // earlier turns
  kRunning,    // admitted: gets tokens of the steps
  kPreempted,  // was running, lost its KV, waits at the head of its priority to
               // recompute it
  kFinished,   // ended or cancelled; forgotten by the end of the step in flight
};

struct SchedRequest {
  // Set by the submitter.
  RequestId id = 0;  // unique among the requests that the scheduler holds
  SessionId session_id = 0;
  int32_t priority =
      0;  // higher first; first come, first served inside a priority
  int64_t num_tokens_total =
      0;  // tokens known so far: the prompt, and later what was generated
  int64_t num_computed =
      0;  // of these, tokens whose KV is valid; less than num_tokens_total
  int64_t max_new_tokens =
      0;  // tokens that may still be generated; 0: only compute the prompt
  KvBlockTable* table = nullptr;  // the session's, not owned; null: KV is
                                  // counted, not looked at (tests)

  // Kept by the scheduler.
  uint64_t arrival = 0;  // order of submission
  int64_t max_total_tokens =
      0;  // num_tokens_total + max_new_tokens at submission
  RequestState state = RequestState::kWaiting;

  int64_t pending() const { return num_tokens_total - num_computed; }
};

}  // namespace inlay

#endif  // INLAY_SCHED_REQUEST_H_
