// Chunking and sizes.
#include "sched/policy.h"

#include <algorithm>

namespace inlay {

int32_t ChunkTokens(const SchedRequest& request, int64_t budget,
                    const SchedulerConfig& config) {
  if (request.whole) {
    return request.pending() <= budget
               ? static_cast<int32_t>(request.pending())
               : 0;
  }
  const int64_t cap = config.max_prefill_chunk > 0 ? config.max_prefill_chunk
                                                   : config.max_batch_tokens;
  return static_cast<int32_t>(std::min({request.pending(), budget, cap}));
}

namespace {

// What a sequence with a window holds at most: the window, a step's chunk, and
// the parts of blocks at both ends. A step that begins in a state's block has
// that one besides.
int64_t Windowed(int64_t tokens, int64_t chunk, const KvGroup& group) {
  if (group.window == 0) return tokens;
  return std::min(tokens, group.window + chunk + 2 * group.block_size) +
         (group.is_state ? group.block_size : 0);
}

}  // namespace

int64_t AdmissionTokens(const SchedRequest& request, int64_t chunk,
                        const KvGroup& group) {
  // A preempted request lost a race for blocks once. Were it let in for one
  // chunk, it would lose again in the middle of its recomputation, step after
  // step.
  return request.state == RequestState::kPreempted
             ? Windowed(request.pending(), chunk, group)
             : chunk;
}

int64_t PeakKvTokens(const SchedRequest& request, const SchedulerConfig& config,
                     const KvGroup& group) {
  // The last generated token ends the request: its own KV is never computed.
  const int64_t tokens =
      std::max(request.num_tokens_total, request.max_total_tokens - 1);
  return Windowed(tokens, config.max_batch_tokens, group);
}

int64_t PeakKvBlocks(const SchedRequest& request,
                     const SchedulerConfig& config) {
  return PeakKvBlocks(
      std::max(request.num_tokens_total, request.max_total_tokens - 1), config);
}

int64_t PeakKvBlocks(int64_t num_tokens, const SchedulerConfig& config) {
  int64_t blocks = 0;
  for (const KvGroup& group : config.groups) {
    blocks += KvBlocksFor(Windowed(num_tokens, config.max_batch_tokens, group),
                          group.block_size);
  }
  return blocks;
}

int64_t MostKvTokens(int64_t num_blocks, int64_t limit,
                     const SchedulerConfig& config) {
  int64_t fits = 0;
  while (fits < limit) {
    const int64_t middle = fits + (limit - fits + 1) / 2;
    if (PeakKvBlocks(middle, config) <= num_blocks) {
      fits = middle;
    } else {
      limit = middle - 1;
    }
  }
  return fits;
}

}  // namespace inlay
