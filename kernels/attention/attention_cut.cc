#include "kernels/attention/attention_cut.h"

#include <algorithm>

#include "kernels/attention/attention_mask.h"
#include "kernels/attention/attention_unpack.h"

namespace inlay {
namespace {

// Of more rows than CTAs, at most so many chunks each.
constexpr int64_t kFewChunks = 8;

// Partial results of wide heads take much room (33 KB for 16 rows of 512): few
// rows keep no more CTAs busy than this.
constexpr int64_t kWideChunks = 64;

// `ctas`: for each of the rows, were they alone.
int64_t MostChunks(const AttentionPlanShape& shape, int64_t ctas) {
  constexpr int kWide = 256;
  const int64_t most =
      shape.head_dim > kWide ? std::min(ctas, kWideChunks) : ctas;
  return std::max(most, kFewChunks);
}

// Into how many chunks rows are cut, `pairs` of them in the sequence, so that
// the sequence alone keeps all CTAs equally busy. More chunks than CTAs only
// where that saves a twentieth.
int64_t ChunksFor(const AttentionPlanShape& shape, int64_t pairs) {
  int64_t best = 1;
  int64_t best_share = CeilDiv(pairs, shape.grid);
  const int64_t most = MostChunks(shape, shape.grid / pairs);
  for (int64_t count = 2; count <= most; ++count) {
    const int64_t share = CeilDiv(pairs * count, shape.grid);
    if (20 * share * best < 19 * best_share * count) {
      best = count;
      best_share = share;
    }
  }
  return best;
}

// In company, merges cost more than CTAs that idle; a multiple of what a CTA's
// warps work on at a time.
int64_t ChunkInCompany(const AttentionPlanShape& shape, int64_t length,
                       int64_t most_chunks) {
  constexpr int64_t kStep = 2 * kKeyTile;
  const int64_t uncut = RoundUp(kUncutInCompany * 128 / shape.head_dim, kStep);
  if (length <= uncut) return uncut;
  const int64_t chunks =
      2 * length <= 3 * uncut ? 2 : CeilDiv(length, uncut / 2);
  return RoundUp(CeilDiv(length, std::min(chunks, most_chunks)), kStep);
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

AttentionItem RowTileItem(const AttentionPlanShape& shape,
                          const AttentionSequence& sequence, int64_t row) {
  const int64_t rows = int64_t{sequence.q_len} * shape.group;
  AttentionItem item = {};
  item.q_begin = sequence.q_begin;
  item.q_len = sequence.q_len;
  item.kv_len = sequence.kv_len;
  item.row_begin = static_cast<int32_t>(row);
  item.num_rows =
      static_cast<int16_t>(std::min<int64_t>(shape.item_rows, rows - row));
  return item;
}

KeyRange KeysOf(const AttentionPlanShape& shape, const AttentionMask* mask,
                const AttentionSequence& sequence, const AttentionItem& item) {
  const int64_t last = int64_t{item.row_begin} + item.num_rows - 1;
  return KeysOf(shape, mask, sequence, item.row_begin / shape.group,
                last / shape.group);
}

bool BecomesItems(const AttentionPlanShape& shape, const AttentionMask* mask,
                  const AttentionSequence& sequence) {
  if (shape.piece_keys > 0) return false;
  return shape.tile_tokens == 0 || sequence.q_len <= 1 ||
         int64_t{sequence.q_len} * shape.group <= kAttentionSplitRows ||
         !CanBeTiles(shape, mask, sequence);
}

int64_t CostAlone(const AttentionPlanShape& shape, const AttentionMask* mask,
                  const AttentionSequence& sequence) {
  if (!BecomesItems(shape, mask, sequence)) return 0;
  int64_t cost = 0;
  for (int64_t row = 0; row < int64_t{sequence.q_len} * shape.group;
       row += shape.item_rows) {
    const KeyRange keys =
        KeysOf(shape, mask, sequence, RowTileItem(shape, sequence, row));
    cost += shape.num_kv_heads * (keys.end - keys.begin + kItemOverhead);
  }
  return cost;
}

int64_t MaxChunks(const AttentionPlanShape& shape) {
  if (shape.whole_rows || CutsAnywhere(shape)) return 1;
  // A window may begin anywhere in its first chunk.
  return MostChunks(shape, shape.grid / shape.num_kv_heads) + 2;
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
  // Of those that decode_attention would take, were there fewer.
  if (shape_.FewOf(1) != nullptr && mask_ == nullptr && sequence.q_len == 1 &&
      sequence.kv_len <= kMostInCompany) {
    return ChunkInCompany(shape_, length, chunks_);
  }
  const int64_t few =
      length <= kUncut ? kUncut
                       : std::clamp(length / 4, kLeastChunk, 2 * kLeastChunk);
  const int64_t least = std::clamp(length / 8, few, kUncut);
  const int64_t even = CeilDiv(length, chunks_);
  const int64_t share = share_ >= 2 * even ? share_ : 0;
  return std::min<int64_t>(RoundUp(std::max({even, least, share}), kKeyTile),
                           kNoChunks);
}

void Dealer::Add(const AttentionItem& item, KeyRange keys, int64_t chunk) {
  AttentionItem all = item;
  const bool anywhere = CutsAnywhere(shape_);
  all.chunk = anywhere ? kNoChunks : static_cast<int32_t>(chunk);
  const int64_t cut = anywhere ? kKeyTile : chunk;
  const int32_t begin = shape_.wide_items() && anywhere
                            ? CutWide(all, keys)
                            : Cut(all, keys, cut, kItemOverhead);
  const bool one = num_items_ - begin == 1;
  for (int32_t i = begin; i < num_items_; ++i) {
    AttentionItem& piece = items_[i];
    if (anywhere) {
      piece.first_chunk = i - begin;
      piece.num_chunks = num_items_ - begin;
    }
    piece.slot = one ? -1 : num_slots_;
    piece.arrival = num_arrivals_;
  }
  if (one) return;
  const int32_t chunks = items_[begin].num_chunks;
  const auto groups = static_cast<int32_t>(ChunkGroups(chunks));
  num_slots_ += chunks + groups;
  num_arrivals_ += 1 + groups;
}

void Dealer::AddShared(const AttentionItem& item, int64_t keys, int64_t cost,
                       int64_t members, int64_t own_chunks) {
  AttentionItem all = item;
  all.chunk = kNoChunks;
  shared_ = Cut(all, {0, keys}, kKeyTile, cost, kSharedKeyWeight);
  const int32_t chunks = num_items_ - shared_;
  const int64_t most = chunks + own_chunks;
  const int64_t groups = ChunkGroups(most);
  for (int32_t i = shared_; i < num_items_; ++i) {
    AttentionItem& piece = items_[i];
    piece.first_chunk = i - shared_;
    piece.num_chunks = chunks;
    piece.slot = num_slots_;
    piece.arrival = num_arrivals_;
    piece.unit_slots = static_cast<int16_t>(most + groups);
    piece.member_counters = static_cast<uint8_t>(1 + groups);
  }
  num_slots_ += static_cast<int32_t>(item.num_units * (most + groups));
  num_arrivals_ += static_cast<int32_t>(members * (1 + groups));
}

void Dealer::AddRest(const AttentionItem& item, KeyRange keys, int64_t chunk,
                     int64_t cost, int64_t member, int64_t unit) {
  const AttentionItem& shared = items_[shared_];
  AttentionItem all = item;
  all.chunk = static_cast<int32_t>(chunk);
  all.slot = shared.slot + static_cast<int32_t>(unit) * shared.unit_slots;
  all.arrival =
      shared.arrival + static_cast<int32_t>(member) * shared.member_counters;
  for (int32_t i = Cut(all, keys, chunk, cost); i < num_items_; ++i) {
    items_[i].first_chunk += shared.num_chunks;
    items_[i].num_chunks += shared.num_chunks;
  }
}

void Dealer::Finish() {
  while (cta_ < shape_.grid) NextCta();
}

void Dealer::NextCta() {
  cta_items_[++cta_] = num_items_;
  wide_lists_.NextCta();
  share_end_ =
      cta_ + 1 < shape_.grid ? total_ * (cta_ + 1) / shape_.grid : kNoEnd;
}

int32_t Dealer::Cut(AttentionItem item, KeyRange keys, int64_t cut,
                    int64_t overhead, int64_t weight) {
  const int32_t begin = num_items_;
  // Most rows lie in one chunk: divisions take most of a plan's time.
  const int64_t first = keys.begin < cut ? 0 : keys.begin / cut;
  const int64_t last = keys.begin == keys.end ? first
                       : keys.end <= cut      ? 1
                                              : CeilDiv(keys.end, cut);
  item.num_chunks = static_cast<int32_t>(last - first);
  // The last chunk may be shorter than others, and much.
  const int64_t last_middle =
      (std::max(keys.begin, (last - 1) * cut) + keys.end) / 2;
  int64_t at = first;
  while (at < last) {
    // In keys of the sequence, where the CTA's share ends.
    const int64_t share_end = std::max<int64_t>(
        0, keys.begin + (share_end_ - cost_ - overhead) * kKeyWeight / weight);
    const int64_t end =
        share_end >= last_middle
            ? last
            : std::clamp((share_end + cut / 2) / cut, at, last - 1);
    if (end > at) {
      item.key_begin = static_cast<int32_t>(std::max(keys.begin, at * cut));
      item.key_end = static_cast<int32_t>(std::min(keys.end, end * cut));
      item.first_chunk = static_cast<int32_t>(at - first);
      items_[num_items_++] = item;
    }
    at = end;
    if (at < last) NextCta();
  }
  if (keys.begin == keys.end) {
    item.num_chunks = 1;
    items_[num_items_++] = item;
  }
  cost_ += (keys.end - keys.begin) * weight / kKeyWeight + overhead;
  return begin;
}

int32_t Dealer::CutWide(AttentionItem item, KeyRange keys) {
  const int32_t begin = num_items_;
  for (int64_t at = keys.begin;;) {
    const int64_t count = wide_lists_.Take(at, keys.end, at > keys.begin);
    if (count > 0 || keys.begin == keys.end) {
      item.key_begin = static_cast<int32_t>(at);
      item.key_end = static_cast<int32_t>(at + count);
      items_[num_items_++] = item;
    }
    at += count;
    if (at == keys.end) return begin;
    NextCta();
  }
}

}  // namespace inlay
