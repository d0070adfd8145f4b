#include "kernels/attention/attention_prefix.h"

#include <algorithm>
#include <cstring>
#include <functional>

namespace inlay {
namespace {

// A group saves at least so much of the step, in keys for each CTA (4 us):
// below, partial results take longer on their way through memory. Measured.
constexpr int64_t kLeastSaved = 272;
// Of sequences that begin alike so many are tried as the first of a group.
constexpr int kMostLeaders = 8;

size_t TableSize(int64_t sequences) {
  size_t size = 4;
  while (size <= 2 * static_cast<size_t>(sequences)) size *= 2;
  return size;
}

// Equal entries that both begin with, of `count`.
int64_t CommonBlocks(const int32_t* a, const int32_t* b, int64_t count) {
  constexpr int64_t kStep = 32;
  int64_t at = 0;
  while (at + kStep <= count &&
         std::memcmp(a + at, b + at, kStep * sizeof(int32_t)) == 0) {
    at += kStep;
  }
  while (at < count && a[at] == b[at]) ++at;
  return at;
}

// In keys, of all KV heads: what `count` sequences like `sequence` save by
// sharing `keys`. The units are those of sequences of equal length.
int64_t Saved(const AttentionPlanShape& shape,
              const AttentionSequence& sequence, int64_t keys, int64_t count) {
  const int64_t rows = int64_t{sequence.q_len} * shape.group;
  const int64_t tiles = RowTiles(shape, sequence.q_len);
  const int64_t units = rows <= kAttentionItemRows
                            ? CeilDiv(count, kAttentionItemRows / rows)
                            : count * tiles;
  const int64_t items = CeilDiv(units, shape.prefix_units);
  return shape.num_kv_heads *
         (keys * count * tiles -
          items * (keys * kSharedKeyWeight / kKeyWeight + kPrefixOverhead) -
          count * tiles * (kRestOverhead - kItemOverhead));
}

}  // namespace

bool SharesPrefixes(const AttentionPlanShape& shape, int64_t sequences) {
  return shape.prefix_units > 0 && shape.batch_invariant && !shape.whole_rows &&
         shape.window == 0 && sequences > 1;
}

size_t PrefixScratchBytes(int64_t sequences) {
  const auto count = static_cast<size_t>(sequences);
  return count * (sizeof(PrefixGroup) + sizeof(PrefixNode) + sizeof(int32_t)) +
         TableSize(sequences) * sizeof(int32_t);
}

PrefixFinder::PrefixFinder(const AttentionPlanShape& shape,
                           absl::Span<const AttentionSequence> sequences,
                           std::byte* scratch)
    : shape_(shape),
      sequences_(sequences),
      groups_(reinterpret_cast<PrefixGroup*>(scratch)) {
  const size_t count = sequences.size();
  nodes_ = reinterpret_cast<PrefixNode*>(groups_ + count);
  lengths_ = reinterpret_cast<int32_t*>(nodes_ + count);
  table_ = lengths_ + count;
  table_size_ = TableSize(static_cast<int64_t>(count));
}

void PrefixFinder::Find() {
  num_groups_ = 0;
  std::fill_n(nodes_, sequences_.size(), PrefixNode());
  if (!LinkByFirstBlock()) return;
  for (size_t i = 0; i < sequences_.size(); ++i) {
    // Groups are split off from where sequences are linked; `last` says which
    // the links' beginnings were.
    if (nodes_[i].last > static_cast<int32_t>(i)) {
      Split(static_cast<int32_t>(i));
    }
  }
}

bool PrefixFinder::LinkByFirstBlock() {
  std::fill_n(table_, table_size_, -1);
  bool any = false;
  for (size_t i = 0; i < sequences_.size(); ++i) {
    const AttentionSequence& sequence = sequences_[i];
    const auto index = static_cast<int32_t>(i);
    if (sequence.q_len == 0 || MostShared(index) == 0 ||
        !BecomesItems(shape_, nullptr, sequence)) {
      continue;
    }
    const int32_t block = sequence.blocks[0];
    size_t at =
        (static_cast<uint32_t>(block) * 0x9e3779b1u >> 7) & (table_size_ - 1);
    while (table_[at] >= 0 && sequences_[table_[at]].blocks[0] != block) {
      at = (at + 1) & (table_size_ - 1);
    }
    if (table_[at] < 0) {
      table_[at] = nodes_[i].last = index;
      continue;
    }
    PrefixNode& first = nodes_[table_[at]];
    nodes_[first.last].next = index;
    first.last = index;
    any = true;
  }
  return any;
}

int64_t PrefixFinder::MostShared(int32_t sequence) const {
  // Every row sees these, and none that it sees alone.
  const AttentionSequence& s = sequences_[sequence];
  return (int64_t{s.kv_len} - s.q_len) / kKeyTile * kKeyTile;
}

int64_t PrefixFinder::CommonKeys(int32_t leader, int32_t sequence) const {
  const int64_t most = std::min(MostShared(leader), MostShared(sequence));
  const int64_t blocks =
      CommonBlocks(sequences_[leader].blocks, sequences_[sequence].blocks,
                   CeilDiv(most, shape_.block_size));
  return std::min(most, blocks * shape_.block_size / kKeyTile * kKeyTile);
}

int64_t PrefixFinder::BestLength(int32_t leader) {
  int64_t count = 0;
  for (int32_t i = nodes_[leader].next; i >= 0; i = nodes_[i].next) {
    nodes_[i].common = static_cast<int32_t>(CommonKeys(leader, i));
    if (nodes_[i].common > 0) lengths_[count++] = nodes_[i].common;
  }
  std::sort(lengths_, lengths_ + count, std::greater<>());
  int64_t best = 0;
  int64_t best_saved = 0;
  int64_t best_sharing = 1;
  for (int64_t i = 0; i < count; ++i) {
    if (i + 1 < count && lengths_[i + 1] == lengths_[i]) continue;
    const int64_t sharing = i + 2;
    const int64_t saved =
        Saved(shape_, sequences_[leader], lengths_[i], sharing);
    if (saved >= kLeastSaved * shape_.grid &&
        saved * best_sharing > best_saved * sharing) {
      best = lengths_[i];
      best_saved = saved;
      best_sharing = sharing;
    }
  }
  return best;
}

void PrefixFinder::Split(int32_t first) {
  for (int tried = 0; tried < kMostLeaders && first >= 0; ++tried) {
    const int32_t leader = first;
    const int64_t keys = BestLength(leader);
    if (keys == 0) {
      first = nodes_[leader].next;
      continue;
    }
    PrefixGroup& group = groups_[num_groups_++];
    group = {leader, 1, keys};
    nodes_[leader].grouped = true;
    int32_t end = leader;  // of the group
    int32_t rest_end = -1;
    int32_t next = nodes_[leader].next;
    first = -1;
    while (next >= 0) {
      const int32_t i = next;
      next = nodes_[i].next;
      const bool joins = nodes_[i].common >= keys;
      int32_t& link = joins          ? nodes_[end].next
                      : rest_end < 0 ? first
                                     : nodes_[rest_end].next;
      link = i;
      (joins ? end : rest_end) = i;
      if (!joins) continue;
      nodes_[i].grouped = true;
      ++group.sequences;
    }
    nodes_[end].next = -1;
    if (rest_end >= 0) nodes_[rest_end].next = -1;
  }
}

void PrefixFinder::Dissolve(PrefixGroup& group) {
  for (int32_t i = group.first; i >= 0; i = nodes_[i].next) {
    nodes_[i].grouped = false;
  }
  group = {-1, 0, 0};
}

absl::Span<PrefixPiece> PrefixPacker::Next() {
  size_t count = 0;
  num_units_ = 0;
  int taken = kAttentionItemRows;  // rows of the unit
  while (sequence_ >= 0) {
    const AttentionSequence& sequence =
        sequences_[static_cast<size_t>(sequence_)];
    const int32_t all = sequence.q_len * shape_.group;
    const int rows = std::min(all - row_, kAttentionItemRows);
    if (taken + rows > kAttentionItemRows) {
      if (num_units_ == shape_.prefix_units) break;
      ++num_units_;
      taken = 0;
    }
    PrefixPiece& piece = pieces_[count++];
    piece.sequence = sequence_;
    piece.unit = num_units_ - 1;
    piece.item = RowTileItem(shape_, sequence, row_);
    piece.item.blocks_begin = finder_.node(sequence_).blocks_begin;
    piece.item.slot_row = static_cast<int16_t>(taken);
    const int32_t last = (row_ + rows - 1) / shape_.group;
    piece.rest.begin = shared_keys_;
    piece.rest.end = shape_.causal ? sequence.kv_len - sequence.q_len + last + 1
                                   : sequence.kv_len;
    taken += rows;
    row_ += rows;
    if (row_ == all) {
      row_ = 0;
      sequence_ = finder_.node(sequence_).next;
    }
  }
  return {pieces_, count};
}

}  // namespace inlay
