// How a plan cuts rows x keys into items: chunks of keys at positions that
// follow from the sequence alone, dealt out to CTAs in equal shares. Internal
// to attention_plan.cc. Source: lean attention (arXiv:2405.10480).
#ifndef INLAY_KERNELS_ATTENTION_ATTENTION_CUT_H_
#define INLAY_KERNELS_ATTENTION_ATTENTION_CUT_H_

#include <cstdint>
#include <utility>

#include "kernels/attention/attention_plan.h"

namespace inlay {

// What an item costs beside its keys, in keys: its queries, its epilogue.
inline constexpr int64_t kItemOverhead = 48;

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

// Tiles of kAttentionItemRows that `q_len` queries of one KV head make.
inline int64_t RowTiles(const AttentionPlanShape& shape, int64_t q_len) {
  return CeilDiv(q_len * shape.group, kAttentionItemRows);
}

// Of any rows.
int64_t MaxChunks(const AttentionPlanShape& shape);

// How long the chunks of a sequence's rows are: a function of the sequence
// alone.
class Chunker {
 public:
  Chunker(const AttentionPlanShape& shape, const AttentionMask* mask)
      : shape_(shape), mask_(mask) {}

  int64_t ChunkOf(const AttentionSequence& sequence);

 private:
  const AttentionPlanShape& shape_;
  const AttentionMask* mask_;
  int64_t pairs_ = 0;
  int64_t chunks_ = 1;  // of rows of `pairs_`
};

// Cuts rows x keys into items and deals them out to the CTAs, in order, each
// chunk to the CTA in whose share of the whole its middle lies.
class Dealer {
 public:
  Dealer(const AttentionPlanShape& shape, int64_t total, AttentionItem* items,
         int32_t* cta_items)
      : shape_(shape),
        total_(total),
        items_(items),
        cta_items_(cta_items),
        num_slots_(shape.grid * AttentionCtaSlots(shape)) {
    cta_items_[0] = 0;
  }

  // `item` is complete but for what depends on the cut. Of rows without keys
  // there is one item, which has none.
  void Add(AttentionItem item, KeyRange keys, int64_t chunk);

  void Finish();

 private:
  // The first cut of the current rows, whose keys begin at `begin`, that the
  // current CTA does not take.
  int64_t CutBefore(int64_t begin, int64_t cut) const;

  // Items [begin, num_items_) are all of the same rows.
  void Join(int32_t begin);

  static int32_t ChunksOf(const AttentionItem& item);
  // The first and the last group that the item has chunks of.
  static std::pair<int32_t, int32_t> GroupsOf(const AttentionItem& item,
                                              int32_t group);

  // How many items, of which `at` is one, have chunks of group `of`.
  int32_t ItemsOf(int32_t of, int32_t at, int32_t begin, int32_t group) const;

  const AttentionPlanShape& shape_;
  int64_t total_;
  AttentionItem* items_;
  int32_t* cta_items_;
  int32_t cta_ = 0;
  int32_t num_items_ = 0;
  int32_t num_slots_;  // the first are the CTAs'
  int32_t num_arrivals_ = 0;
  int64_t cost_ = 0;
};

}  // namespace inlay

#endif  // INLAY_KERNELS_ATTENTION_ATTENTION_CUT_H_
