#include "kernels/attention/attention_cut.h"

#include <algorithm>
#include <limits>

#include "kernels/attention/attention_mask.h"

namespace inlay {
namespace {

// Tiles of keys begin at multiples of this, in all kernels that run items.
constexpr int64_t kKeyTile = 64;
// Chunks are at least so long, and up to four times that where there would be
// many: each costs a merge of a CTA's warps.
constexpr int64_t kLeastChunk = 128;
// Of more rows than CTAs, at most so many chunks each.
constexpr int64_t kFewChunks = 8;
// Everything is one chunk.
constexpr int32_t kNoChunks = 1 << 30;

// Into how many chunks rows are cut, `pairs` of them in the sequence, so that
// the sequence alone keeps all CTAs equally busy. More chunks than CTAs only
// where that saves a twentieth.
int64_t ChunksFor(const AttentionPlanShape& shape, int64_t pairs) {
  int64_t best = 1;
  int64_t best_share = CeilDiv(pairs, shape.grid);
  for (int64_t count = 2; count <= std::max(shape.grid / pairs, kFewChunks);
       ++count) {
    const int64_t share = CeilDiv(pairs * count, shape.grid);
    if (20 * share * best < 19 * best_share * count) {
      best = count;
      best_share = share;
    }
  }
  return best;
}

KeyRange KeysOfRows(const AttentionMask& mask, int64_t first, int64_t last) {
  KeyRange range;
  for (int64_t i = first; i <= last; ++i) {
    const AttentionRowKeys& row = mask.rows[static_cast<size_t>(i)];
    if (row.begin == row.end) continue;
    const bool none = range.begin == range.end;
    range.begin = none ? row.begin : std::min<int64_t>(range.begin, row.begin);
    range.end = std::max<int64_t>(range.end, row.end);
  }
  return range;
}

}  // namespace

KeyRange KeysOf(const AttentionPlanShape& shape, const AttentionMask* mask,
                const AttentionSequence& sequence, int64_t first,
                int64_t last) {
  if (mask != nullptr) {
    return KeysOfRows(*mask, sequence.q_begin + first, sequence.q_begin + last);
  }
  const int64_t start = int64_t{sequence.kv_len} - sequence.q_len;
  KeyRange range;
  range.end = shape.causal ? start + last + 1 : sequence.kv_len;
  if (shape.window > 0) {
    range.begin = std::max<int64_t>(0, start + first + 1 - shape.window);
  }
  return range;
}

int64_t MaxChunks(const AttentionPlanShape& shape) {
  // A window may begin anywhere in its first chunk.
  return std::max<int64_t>(shape.grid / shape.num_kv_heads, kFewChunks) + 2;
}

int64_t Chunker::ChunkOf(const AttentionSequence& sequence) {
  if (shape_.whole_rows) return kNoChunks;
  const int64_t pairs = shape_.num_kv_heads * RowTiles(shape_, sequence.q_len);
  if (pairs != pairs_) {
    pairs_ = pairs;
    chunks_ = ChunksFor(shape_, pairs);
  }
  const KeyRange keys = KeysOf(shape_, mask_, sequence, 0, sequence.q_len - 1);
  const int64_t length = keys.end - keys.begin;
  const int64_t few = std::clamp(length / 4, kLeastChunk, 2 * kLeastChunk);
  const int64_t least = std::clamp(length / 8, few, 4 * kLeastChunk);
  const int64_t even = CeilDiv(length, chunks_);
  return std::min<int64_t>(RoundUp(std::max(even, least), kKeyTile), kNoChunks);
}

void Dealer::Add(AttentionItem item, KeyRange keys, int64_t chunk) {
  const int64_t cut = shape_.batch_invariant ? chunk : kKeyTile;
  item.chunk = shape_.batch_invariant ? static_cast<int32_t>(chunk) : kNoChunks;
  const int32_t begin = num_items_;
  const int64_t first = keys.begin / cut;
  const int64_t last = CeilDiv(keys.end, cut);
  int64_t at = first;
  while (at < last) {
    const int64_t end = std::clamp(CutBefore(keys.begin, cut), at, last);
    if (end > at) {
      item.key_begin = static_cast<int32_t>(std::max(keys.begin, at * cut));
      item.key_end = static_cast<int32_t>(std::min(keys.end, end * cut));
      item.first_chunk = static_cast<int32_t>(at - first);
      items_[num_items_++] = item;
    }
    at = end;
    if (at < last) cta_items_[++cta_] = num_items_;
  }
  if (keys.begin == keys.end) items_[num_items_++] = item;
  cost_ += keys.end - keys.begin + kItemOverhead;
  Join(begin);
}

void Dealer::Finish() {
  while (cta_ < shape_.grid) cta_items_[++cta_] = num_items_;
}

int64_t Dealer::CutBefore(int64_t begin, int64_t cut) const {
  if (cta_ + 1 == shape_.grid) return std::numeric_limits<int64_t>::max();
  const int64_t limit = total_ * (cta_ + 1) / shape_.grid;
  const int64_t keys = limit - cost_ - kItemOverhead;
  return std::max<int64_t>(0, begin + keys + cut / 2) / cut;
}

void Dealer::Join(int32_t begin) {
  const bool invariant = shape_.batch_invariant;
  const AttentionItem& last = items_[num_items_ - 1];
  const int32_t chunks =
      invariant ? last.first_chunk + ChunksOf(last) : num_items_ - begin;
  const int32_t group =
      chunks <= kAttentionFewChunks ? kAttentionFewChunks : kAttentionFoldGroup;
  for (int32_t i = begin; i < num_items_; ++i) {
    AttentionItem& item = items_[i];
    if (!invariant) item.first_chunk = i - begin;
    item.num_chunks = chunks;
    item.slot = num_items_ - begin == 1 ? -1 : num_slots_;
    item.arrival = num_arrivals_;
  }
  if (num_items_ - begin == 1) return;
  for (int32_t i = begin; i < num_items_; ++i) {
    const auto [first, last] = GroupsOf(items_[i], group);
    items_[i].first_group_items = ItemsOf(first, i, begin, group);
    items_[i].last_group_items = ItemsOf(last, i, begin, group);
  }
  const auto groups = static_cast<int32_t>(CeilDiv(chunks, group));
  num_slots_ += chunks + groups;
  num_arrivals_ += 1 + groups;
}

int32_t Dealer::ChunksOf(const AttentionItem& item) {
  return (item.key_end - 1) / item.chunk - item.key_begin / item.chunk + 1;
}

std::pair<int32_t, int32_t> Dealer::GroupsOf(const AttentionItem& item,
                                             int32_t group) {
  return {item.first_chunk / group,
          (item.first_chunk + ChunksOf(item) - 1) / group};
}

int32_t Dealer::ItemsOf(int32_t of, int32_t at, int32_t begin,
                        int32_t group) const {
  int32_t from = at;
  while (from > begin && GroupsOf(items_[from - 1], group).second == of) {
    --from;
  }
  int32_t to = at + 1;
  while (to < num_items_ && GroupsOf(items_[to], group).first == of) ++to;
  return to - from;
}

}  // namespace inlay
