// The scheduler's rules as pure functions of a request: order, chunking, how
// much KV a request may come to hold.
#ifndef INLAY_SCHED_POLICY_H_
#define INLAY_SCHED_POLICY_H_

#include <cstdint>

#include "sched/config.h"
#include "sched/request.h"

namespace inlay {

// Who goes first: the higher priority, then the earlier arrival. Total, and
// fixed for a request's life, so that the first in rank stays first until it
// ends: the reason why there is no livelock and no starvation inside a
// priority.
inline bool RanksBefore(const SchedRequest& a, const SchedRequest& b) {
  return a.priority != b.priority ? a.priority > b.priority
                                  : a.arrival < b.arrival;
}

// One token to compute: a decode, or the short rest of a prompt, which costs a
// step the same.
inline bool IsDecode(const SchedRequest& request) {
  return request.pending() == 1;
}

// Tokens of the request's next chunk when `budget` (>= 0) tokens of the step
// are left.
int32_t ChunkTokens(const SchedRequest& request, int64_t budget,
                    const SchedulerConfig& config);

// Tokens whose KV must find room before the request is admitted with a first
// chunk of `chunk` tokens.
int64_t AdmissionTokens(const SchedRequest& request, int64_t chunk);

// The most tokens of KV that the request can come to hold, by num_tokens_total
// and max_total_tokens.
int64_t PeakKvTokens(const SchedRequest& request);

}  // namespace inlay

#endif  // INLAY_SCHED_POLICY_H_
