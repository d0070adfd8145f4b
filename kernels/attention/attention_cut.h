// How a plan cuts rows x keys into items: chunks of keys at positions that
// follow from the sequence alone, dealt out to CTAs in equal shares. Internal
// to attention_plan.cc. Source: lean attention (arXiv:2405.10480).
#ifndef INLAY_KERNELS_ATTENTION_ATTENTION_CUT_H_
#define INLAY_KERNELS_ATTENTION_ATTENTION_CUT_H_

#include <algorithm>
#include <cstdint>

#include "kernels/attention/attention_plan.h"
#include "kernels/attention/attention_wide_lists.h"

namespace inlay {

// Tiles of keys begin at multiples of this, in all kernels that run items.
inline constexpr int64_t kKeyTile = 64;
// Chunks are at least so long, and up to four times that where there would be
// many: each costs a merge of a CTA's warps.
inline constexpr int64_t kLeastChunk = 128;
// So many keys are not cut: folding would take longer than one CTA does.
inline constexpr int64_t kUncut = 4 * kLeastChunk;
// Where decode_attention has the sequences that are alone, others of 128
// elements a row are not cut up to so many keys; half as many more are cut in
// two, and chunks of more are half as long or longer.
inline constexpr int64_t kUncutInCompany = 1024;
// .. of sequences of so many keys at most.
inline constexpr int32_t kMostInCompany = 3072;
// Over caches of bytes, where batches may matter, chunks are no shorter than a
// CTA's share of the step's keys: with eight warps to merge shorter ones cost
// more than they gain where every CTA has enough to do (twice what it would
// have of the sequence alone). They are multiples of what eight warps take at a
// time
inline constexpr int64_t kShareStep = 256;
// .. up to so many keys.
inline constexpr int64_t kMostShareChunk = 2048;
// Everything is one chunk.
inline constexpr int32_t kNoChunks = 1 << 30;
// What an item costs beside its keys, in keys: its queries, its epilogue.
inline constexpr int64_t kItemOverhead = 48;
// A key of an item's own is the measure of costs; one that a unit shares takes
// longer, for there the arithmetic takes the time.
inline constexpr int64_t kKeyWeight = 8;
inline constexpr int64_t kSharedKeyWeight = 12;

constexpr int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }
constexpr int64_t RoundUp(int64_t a, int64_t b) { return CeilDiv(a, b) * b; }

struct KeyRange {
  int64_t begin = 0;
  int64_t end = 0;
};

// From the first key that the tokens [first, last] of `sequence` see to the
// last; empty where a mask (may be null) leaves them none.
KeyRange KeysOf(const AttentionPlanShape& shape, const AttentionMask* mask,
                const AttentionSequence& sequence, int64_t first, int64_t last);

// Tiles of item_rows that `q_len` queries of one KV head make.
inline int64_t RowTiles(const AttentionPlanShape& shape, int64_t q_len) {
  return CeilDiv(q_len * shape.group, shape.item_rows);
}

// The item of the row tile of `sequence` that begins at `row`, but for what
// depends on the KV head and the cut.
AttentionItem RowTileItem(const AttentionPlanShape& shape,
                          const AttentionSequence& sequence, int64_t row);
// The keys that its rows see.
KeyRange KeysOf(const AttentionPlanShape& shape, const AttentionMask* mask,
                const AttentionSequence& sequence, const AttentionItem& item);

// Whether `sequence`, which has queries, becomes items where it is in no group;
// else it becomes tiles. A function of the sequence alone.
bool BecomesItems(const AttentionPlanShape& shape, const AttentionMask* mask,
                  const AttentionSequence& sequence);

// What the sequence adds to a Dealer's cost.
int64_t CostAlone(const AttentionPlanShape& shape, const AttentionMask* mask,
                  const AttentionSequence& sequence);

// Of any rows.
int64_t MaxChunks(const AttentionPlanShape& shape);

inline bool ChunksAreShares(const AttentionPlanShape& shape) {
  return shape.unpack_bytes > 0 && !shape.expands() && !shape.batch_invariant;
}
// Items end where a CTA's share does, not at chunks.
inline bool CutsAnywhere(const AttentionPlanShape& shape) {
  return shape.cuts_anywhere() && !ChunksAreShares(shape);
}

// How long the chunks of a sequence's rows are: a function of the sequence
// alone, but where ChunksAreShares().
class Chunker {
 public:
  // `total`: what all rows cost.
  Chunker(const AttentionPlanShape& shape, const AttentionMask* mask,
          int64_t total)
      : shape_(shape),
        mask_(mask),
        share_(ChunksAreShares(shape)
                   ? std::min((total / shape.grid + kShareStep / 2) /
                                  kShareStep * kShareStep,
                              kMostShareChunk)
                   : 0) {}

  int64_t ChunkOf(const AttentionSequence& sequence);

 private:
  const AttentionPlanShape& shape_;
  const AttentionMask* mask_;
  int64_t share_;
  int64_t pairs_ = 0;
  int64_t chunks_ = 1;  // of rows of `pairs_`
};

// Partial results of so many chunks fold in so many groups.
constexpr int64_t ChunkGroups(int64_t chunks) {
  return chunks <= kAttentionFewChunks ? 1
                                       : CeilDiv(chunks, kAttentionFoldGroup);
}

// Cuts rows x keys into items and deals them out to the CTAs, in order, each
// chunk to the CTA in whose share of the whole its middle lies; wide items as
// WideLists says.
class Dealer {
 public:
  // `total`: what all rows cost; `wide_share`: WideShare() of wide items.
  Dealer(const AttentionPlanShape& shape, int64_t total, int64_t wide_share,
         AttentionItem* items, int32_t* cta_items)
      : shape_(shape),
        total_(total),
        wide_lists_(wide_share, shape.grid),
        items_(items),
        cta_items_(cta_items),
        num_slots_(shape.grid * AttentionCtaSlots(shape)),
        share_end_(shape.grid > 1 ? total_ / shape.grid : kNoEnd) {
    cta_items_[0] = 0;
  }

  // `item` is complete but for what depends on the cut. Of rows without keys
  // there is one item, which has none.
  void Add(const AttentionItem& item, KeyRange keys, int64_t chunk);

  // Items for the first `keys` keys, which `members` share in item.num_units
  // units; each will have at most `own_chunks` more. Cut anywhere: each is a
  // chunk.
  void AddShared(const AttentionItem& item, int64_t keys, int64_t cost,
                 int64_t members, int64_t own_chunks);
  // Items for the rest of a member of the last AddShared(), in its unit.
  void AddRest(const AttentionItem& item, KeyRange keys, int64_t chunk,
               int64_t cost, int64_t member, int64_t unit);

  void Finish();
  // Slots and counters used so far.
  int32_t num_slots() const { return num_slots_; }
  int32_t num_arrivals() const { return num_arrivals_; }

 private:
  // Cuts at multiples of `cut`; returns the first of the items.
  // `weight`: what a key costs, in kKeyWeight.
  int32_t Cut(AttentionItem item, KeyRange keys, int64_t cut, int64_t overhead,
              int64_t weight = kKeyWeight);
  // Likewise of wide items.
  int32_t CutWide(AttentionItem item, KeyRange keys);
  // To the next CTA.
  void NextCta();

  static constexpr int64_t kNoEnd = int64_t{1} << 50;

  const AttentionPlanShape& shape_;
  int64_t total_;
  WideLists wide_lists_;
  AttentionItem* items_;
  int32_t* cta_items_;
  int32_t cta_ = 0;
  int32_t num_items_ = 0;
  int32_t num_slots_;  // the first are the CTAs'
  int32_t num_arrivals_ = 0;
  int32_t shared_ = 0;  // the first of the last AddShared()'s items
  int64_t cost_ = 0;
  int64_t share_end_;  // of the current CTA, as cost_ counts
};

}  // namespace inlay

#endif  // INLAY_KERNELS_ATTENTION_ATTENTION_CUT_H_
