// Chunking and sizes.
#include "sched/policy.h"

#include <algorithm>

namespace inlay {

int32_t ChunkTokens(const SchedRequest& request, int64_t budget,
                    const SchedulerConfig& config) {
  const int64_t cap = config.max_prefill_chunk > 0 ? config.max_prefill_chunk
                                                   : config.max_batch_tokens;
  return static_cast<int32_t>(std::min({request.pending(), budget, cap}));
}

int64_t AdmissionTokens(const SchedRequest& request, int64_t chunk) {
  // A preempted request lost a race for blocks once. Were it let in for one
  // chunk, it would lose again in the middle of its recomputation, step after
  // step.
  return request.state == RequestState::kPreempted ? request.pending() : chunk;
}

int64_t PeakKvTokens(const SchedRequest& request) {
  // The last generated token ends the request: its own KV is never computed.
  return std::max(request.num_tokens_total, request.max_total_tokens - 1);
}

}  // namespace inlay
