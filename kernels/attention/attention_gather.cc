#include "kernels/attention/attention_gather.h"

#include <algorithm>

namespace inlay {
namespace {

bool IsGathered(const AttentionSequence& sequence, int block_size,
                absl::Span<const AttentionRowKeys> rows) {
  if (rows.back().end != sequence.kv_len) return false;
  const int shift = rows.front().key_shift;
  return (int64_t{1} << shift) % block_size == 0 &&
         std::all_of(rows.begin(), rows.end(), [&](const auto& keys) {
           return keys.bits >= 0 && keys.key_shift == shift;
         });
}

bool FewQueries(const AttentionSequence& sequence) {
  return sequence.q_len > 0 && sequence.q_len <= kMostGatheringQueries;
}

}  // namespace

void SeenBlocks::Gather(absl::Span<const AttentionSequence> sequences,
                        int block_size, const AttentionMask& mask) {
  sequences_.assign(sequences.begin(), sequences.end());
  mask_.rows = mask.rows;
  mask_.bits = mask.bits;
  size_t most = 0;
  for (const AttentionSequence& sequence : sequences_) {
    if (!FewQueries(sequence)) continue;
    most += static_cast<size_t>((sequence.kv_len - 1) / block_size + 1);
  }
  blocks_.clear();
  blocks_.reserve(most);  // so that tables stay where they are
  for (AttentionSequence& sequence : sequences_) {
    if (FewQueries(sequence)) GatherSequence(block_size, sequence);
  }
}

void SeenBlocks::GatherSequence(int block_size, AttentionSequence& sequence) {
  const auto rows = absl::MakeSpan(mask_.rows)
                        .subspan(static_cast<size_t>(sequence.q_begin),
                                 static_cast<size_t>(sequence.q_len));
  if (!IsGathered(sequence, block_size, rows)) return;
  FindUnion(rows);
  const int shift = rows.front().key_shift;
  const int each = (1 << shift) / block_size;
  const int32_t end = (sequence.kv_len - 1) / block_size + 1;
  const int32_t* table = blocks_.data() + blocks_.size();
  for (const int32_t m : union_) {
    blocks_.insert(blocks_.end(), sequence.blocks + m * each,
                   sequence.blocks + std::min(m * each + each, end));
  }
  // The last of them is the sequence's last.
  const auto hidden = union_.back() + 1 - static_cast<int32_t>(union_.size());
  sequence.blocks = table;
  sequence.kv_len -= hidden << shift;
  for (const Group& group : groups_) CompactBits(group.bits);
  for (AttentionRowKeys& keys : rows) Translate(keys);
}

void SeenBlocks::FindUnion(absl::Span<const AttentionRowKeys> rows) {
  const int shift = rows.front().key_shift;
  groups_.clear();
  for (const AttentionRowKeys& keys : rows) {
    if (keys.begin == keys.end) continue;
    if (groups_.empty() || groups_.back().bits != keys.bits) {
      groups_.push_back({keys.bits, keys.begin >> shift, 0});
    }
    Group& group = groups_.back();
    group.first = std::min(group.first, keys.begin >> shift);
    group.last = std::max(group.last, (keys.end - 1) >> shift);
  }
  int32_t first = groups_.front().first;
  int32_t last = 0;
  for (const Group& group : groups_) {
    first = std::min(first, group.first);
    last = std::max(last, group.last);
  }
  union_.clear();
  for (int32_t m = first; m <= last; ++m) {
    if (std::any_of(groups_.begin(), groups_.end(), [&](const Group& group) {
          return m >= group.first && m <= group.last && Bit(group.bits, m);
        })) {
      union_.push_back(m);
    }
  }
}

// In place: the union has no more blocks than lie before any of its blocks.
void SeenBlocks::CompactBits(int32_t bits) {
  uint32_t word = 0;
  for (size_t j = 0; j < union_.size(); ++j) {
    word |= uint32_t{Bit(bits, union_[j])} << j % 32;
    if (j % 32 < 31 && j + 1 < union_.size()) continue;
    mask_.bits[static_cast<size_t>(bits) + j / 32] = word;
    word = 0;
  }
}

void SeenBlocks::Translate(AttentionRowKeys& keys) const {
  if (keys.begin == keys.end) return;
  const int shift = keys.key_shift;
  const auto moved = [&](int32_t key) {
    const auto at =
        std::lower_bound(union_.begin(), union_.end(), key >> shift);
    return static_cast<int32_t>(at - union_.begin()) << shift |
           (key & ((1 << shift) - 1));
  };
  keys.begin = moved(keys.begin);
  keys.end = moved(keys.end - 1) + 1;
  for (int32_t j = keys.begin >> shift; j <= (keys.end - 1) >> shift; ++j) {
    if (!Bit(keys.bits, j)) return;
  }
  keys = {keys.begin, keys.end};
}

}  // namespace inlay
