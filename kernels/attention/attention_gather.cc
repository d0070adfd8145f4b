#include "kernels/attention/attention_gather.h"

namespace inlay {
namespace {

bool IsGathered(const AttentionSequence& sequence, int block_size,
                const AttentionRowKeys& keys) {
  return keys.bits >= 0 && keys.end == sequence.kv_len &&
         (int64_t{1} << keys.key_shift) % block_size == 0;
}

}  // namespace

void SeenBlocks::Gather(absl::Span<const AttentionSequence> sequences,
                        int block_size, const AttentionMask& mask) {
  sequences_.assign(sequences.begin(), sequences.end());
  mask_.rows = mask.rows;
  mask_.bits = mask.bits;
  size_t most = 0;
  for (const AttentionSequence& sequence : sequences_) {
    if (sequence.q_len != 1) continue;
    most += static_cast<size_t>((sequence.kv_len - 1) / block_size + 1);
  }
  blocks_.clear();
  blocks_.reserve(most);  // so that tables stay where they are
  for (AttentionSequence& sequence : sequences_) {
    if (sequence.q_len != 1) continue;
    AttentionRowKeys& keys = mask_.rows[static_cast<size_t>(sequence.q_begin)];
    if (!IsGathered(sequence, block_size, keys)) continue;
    const int32_t* table = blocks_.data() + blocks_.size();
    const int32_t last = (sequence.kv_len - 1) / block_size;
    const int32_t first = keys.begin / block_size;
    for (int32_t i = first; i <= last; ++i) {
      if (mask.BitOf(keys, int64_t{i} * block_size)) {
        blocks_.push_back(sequence.blocks[i]);
      }
    }
    const auto count =
        static_cast<int32_t>(blocks_.data() + blocks_.size() - table);
    sequence.blocks = table;
    sequence.kv_len -= (last + 1 - count) * block_size;
    keys = {keys.begin - first * block_size, sequence.kv_len};
  }
}

}  // namespace inlay
