#include "kernels/indexer/index_plan.h"

#include <algorithm>

namespace inlay {

size_t IndexPlanBytes(int64_t rows, int64_t blocks) {
  return static_cast<size_t>(rows) * sizeof(IndexQuery) +
         static_cast<size_t>(blocks) * sizeof(int32_t);
}

IndexPlan BuildIndexPlan(absl::Span<const AttentionSequence> sequences,
                         int block_size, int64_t rows, std::byte* image,
                         const std::byte* device) {
  const size_t blocks_at = IndexPlanBytes(rows, 0);
  auto* const queries = reinterpret_cast<IndexQuery*>(image);
  auto* const blocks = reinterpret_cast<int32_t*>(image + blocks_at);
  std::fill_n(queries, rows, IndexQuery{0, 0});
  int32_t num_blocks = 0;
  for (const AttentionSequence& sequence : sequences) {
    if (sequence.q_len == 0) continue;
    for (int32_t i = 0; i < sequence.q_len; ++i) {
      queries[sequence.q_begin + i] = {sequence.kv_len - sequence.q_len + i + 1,
                                       num_blocks};
    }
    const int32_t count = (sequence.kv_len + block_size - 1) / block_size;
    std::copy_n(sequence.blocks, count, blocks + num_blocks);
    num_blocks += count;
  }
  IndexPlan plan;
  plan.queries = reinterpret_cast<const IndexQuery*>(device);
  plan.blocks = reinterpret_cast<const int32_t*>(device + blocks_at);
  plan.used_bytes = IndexPlanBytes(rows, num_blocks);
  return plan;
}

}  // namespace inlay
