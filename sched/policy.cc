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

namespace {

// What a sequence with a window holds at most: the window, a step's chunk, and
// the parts of blocks at both ends.
int64_t Windowed(int64_t tokens, int64_t chunk, const SchedulerConfig& config) {
  if (config.window == 0) return tokens;
  return std::min(tokens, config.window + chunk + 2 * config.block_size);
}

}  // namespace

int64_t AdmissionTokens(const SchedRequest& request, int64_t chunk,
                        const SchedulerConfig& config) {
  // A preempted request lost a race for blocks once. Were it let in for one
  // chunk, it would lose again in the middle of its recomputation, step after
  // step.
  return request.state == RequestState::kPreempted
             ? Windowed(request.pending(), chunk, config)
             : chunk;
}

int64_t PeakKvTokens(const SchedRequest& request,
                     const SchedulerConfig& config) {
  // The last generated token ends the request: its own KV is never computed.
  const int64_t tokens =
      std::max(request.num_tokens_total, request.max_total_tokens - 1);
  return Windowed(tokens, config.max_batch_tokens, config);
}

}  // namespace inlay
