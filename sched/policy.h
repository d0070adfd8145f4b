// The scheduler's rules as pure functions of a request: order, chunking, how
// much KV a request may come to hold.
#ifndef INLAY_SCHED_POLICY_H_
#define INLAY_SCHED_POLICY_H_

#include <cstdint>

#include "sched/config.h"
#include "sched/request.h"

namespace inlay {

// Whether `a` may stop `b` from running to get in itself: it has waited too
// long, or its priority is higher.
inline bool ClassAbove(const SchedRequest& a, const SchedRequest& b) {
  // Among the starved priority must not count, as it does not in RanksBefore().
  if (a.starved || b.starved) return !b.starved;
  return a.priority > b.priority;
}

// Who goes first: the starved, the higher priority, the earlier deadline, the
// one with the smaller share so far, the earlier arrival. Total, and fixed for
// a request's life but for `starved`, which only rises: so the first in rank
// stays first until it ends, the reason why there is no livelock.
inline bool RanksBefore(const SchedRequest& a, const SchedRequest& b) {
  if (a.starved != b.starved) return a.starved;
  // Among the starved only time counts, or a stream of urgent ones would starve
  // them again.
  if (a.starved) return a.arrival < b.arrival;
  if (a.priority != b.priority) return a.priority > b.priority;
  if (a.deadline_us != b.deadline_us) return a.deadline_us < b.deadline_us;
  if (a.share_tag != b.share_tag) return a.share_tag < b.share_tag;
  return a.arrival < b.arrival;
}

// One token to compute: a decode, or the short rest of a prompt, which costs a
// step the same.
inline bool IsDecode(const SchedRequest& request) {
  return request.pending() == 1;
}

// Whether it could have tokens in a step: not while its KV is on the way.
inline bool CanCompute(const SchedRequest& request) {
  return request.num_coming == 0;
}

// Tokens of the request's next chunk when `budget` (>= 0) tokens of the step
// are left; 0 where it takes no part of itself.
int32_t ChunkTokens(const SchedRequest& request, int64_t budget,
                    const SchedulerConfig& config);

// Tokens whose KV must find room in `group` before the request is admitted with
// a first chunk of `chunk` tokens.
int64_t AdmissionTokens(const SchedRequest& request, int64_t chunk,
                        const KvGroup& group);

// The most tokens of KV that the request can come to hold in `group`, by
// num_tokens_total and max_total_tokens.
int64_t PeakKvTokens(const SchedRequest& request, const SchedulerConfig& config,
                     const KvGroup& group);
// The blocks that they fill in all groups.
int64_t PeakKvBlocks(const SchedRequest& request,
                     const SchedulerConfig& config);
// The same of a sequence of num_tokens tokens with KV.
int64_t PeakKvBlocks(int64_t num_tokens, const SchedulerConfig& config);

// The most tokens with KV, up to `limit` (>= 0), of a sequence that has
// `num_blocks` blocks to itself.
int64_t MostKvTokens(int64_t num_blocks, int64_t limit,
                     const SchedulerConfig& config);

}  // namespace inlay

#endif  // INLAY_SCHED_POLICY_H_
