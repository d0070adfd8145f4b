// Tiles over caches of bytes: their kernel reads 16 bits, so what it needs of
// the cache is unpacked into the workspace first, as a cache of 16 bits of the
// same block size. There is room for so many bytes at a time: rounds of
// sequences, each in turn for as many KV heads as fit. What a tile computes is
// the same in any round. Internal to the plan and to those who launch it.
#ifndef INLAY_KERNELS_ATTENTION_ATTENTION_UNPACK_H_
#define INLAY_KERNELS_ATTENTION_ATTENTION_UNPACK_H_

#include <cstdint>

#include "kernels/attention/attention_cut.h"
#include "kernels/attention/attention_expand.h"
#include "kernels/attention/attention_plan.h"

namespace inlay {

// AttentionPlanShape::unpack_bytes of caches of bytes: 32k tokens of 8 KV heads
// of 128.
inline constexpr int64_t kUnpackBytes = int64_t{128} << 20;

// Entries of the block table of `sequence` that hold keys its rows see.
KeyRange BlocksSeen(const AttentionPlanShape& shape, const AttentionMask* mask,
                    const AttentionSequence& sequence);

// Whether tiles of `sequence` can read what they need, unpacked or not: one KV
// head of it fits. One tile that would run on a few CTAs, with a long cache to
// unpack for it alone, had better be items, which spread over all.
bool CanBeTiles(const AttentionPlanShape& shape, const AttentionMask* mask,
                const AttentionSequence& sequence);

// KV heads that are unpacked at a time where one has `blocks` blocks: all, or
// equal shares as far as they go.
int UnpackedHeads(const AttentionPlanShape& shape, int64_t blocks);

// What rounds may take of the workspace where a step has at most `tokens`
// queries.
int64_t MaxUnpackedBytes(const AttentionPlanShape& shape, int64_t tokens);

// Writes a plan's rounds, and the tables that go with them.
class UnpackRounds {
 public:
  // `blocks`: the plan's, tables of `num_blocks` entries in it; there is room
  // for as many again.
  UnpackRounds(const AttentionPlanShape& shape, const AttentionMask* mask,
               int32_t* blocks, int32_t num_blocks)
      : shape_(shape), mask_(mask), blocks_(blocks), end_(num_blocks) {}

  // The plan's next tiles will be those of `sequence`, which fits. Returns
  // which of the round's blocks is its first.
  int32_t Add(const AttentionSequence& sequence, int32_t blocks_begin,
              AttentionPlan& plan);
  // The plan has all its tiles. Returns the entries of `blocks`.
  int32_t Finish(AttentionPlan& plan);

 private:
  void EndRound(AttentionPlan& plan) const;

  const AttentionPlanShape& shape_;
  const AttentionMask* mask_;
  int32_t* blocks_;
  int32_t end_;
  ExpandedWork work_;  // of the round, where the shape expands
};

}  // namespace inlay

#endif  // INLAY_KERNELS_ATTENTION_ATTENTION_UNPACK_H_
