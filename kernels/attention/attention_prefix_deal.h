// How groups that share keys become items: what they cost, whether there is
// room for their partial results, and the items and units themselves. Internal
// to attention_plan.cc. Pure.
#ifndef INLAY_KERNELS_ATTENTION_ATTENTION_PREFIX_DEAL_H_
#define INLAY_KERNELS_ATTENTION_ATTENTION_PREFIX_DEAL_H_

#include "kernels/attention/attention_prefix.h"

namespace inlay {

// Items, and slots and counters of their partial results.
struct ItemRoom {
  int64_t items = 0;
  int64_t slots = 0;
  int64_t counters = 0;
};

// In `blocks`, a unit takes so many entries.
inline constexpr int32_t kUnitWords = sizeof(AttentionUnit) / sizeof(int32_t);

// What groups may take where a step has so many sequences, before borders
// between CTAs cut shared keys; and what that adds: a cut is one more chunk of
// each unit (and may be one more group of chunks), and every eighth cut one
// more group of chunks of each member.
ItemRoom GroupRoom(const AttentionPlanShape& shape, int64_t sequences);
ItemRoom CutRoom(const AttentionPlanShape& shape, int64_t sequences);

class GroupDealer {
 public:
  GroupDealer(const AttentionPlanShape& shape,
              absl::Span<const AttentionSequence> sequences,
              PrefixFinder& finder)
      : shape_(shape), sequences_(sequences), finder_(finder) {}

  // The cost of all items, where those of sequences outside of groups cost
  // `others`. Dissolves groups that there is no room for.
  int64_t Admit(int64_t others, const ItemRoom& room);

  // Adds what Admit() has left; whether that is any. Units go to
  // blocks[num_blocks ..).
  bool Deal(Dealer& dealer, int32_t* blocks, int32_t& num_blocks);

 private:
  int64_t CostOf(const PrefixGroup& group);
  ItemRoom RoomOf(const PrefixGroup& group);
  void DealGroup(const PrefixGroup& group, Dealer& dealer, int32_t* blocks,
                 int32_t& num_blocks);
  // How the keys are cut that are a piece's own, and into how many chunks.
  int64_t RestChunk(const KeyRange& rest) const;
  int64_t RestChunks(const KeyRange& rest) const;
  // Writes `units` AttentionUnits.
  void WriteUnits(absl::Span<const PrefixPiece> pieces, int units,
                  int32_t* to) const;

  const AttentionPlanShape& shape_;
  absl::Span<const AttentionSequence> sequences_;
  PrefixFinder& finder_;
  int64_t share_ = 0;  // of a CTA, in keys
};

}  // namespace inlay

#endif  // INLAY_KERNELS_ATTENTION_ATTENTION_PREFIX_DEAL_H_
