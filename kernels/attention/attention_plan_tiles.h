// The tiles of a plan: which there are, what of a mask each needs, and in which
// order they run. Internal to attention_plan.cc.
#ifndef INLAY_KERNELS_ATTENTION_ATTENTION_PLAN_TILES_H_
#define INLAY_KERNELS_ATTENTION_ATTENTION_PLAN_TILES_H_

#include <cstddef>
#include <cstdint>

#include "kernels/attention/attention_plan.h"

namespace inlay {

// `sequence` becomes tiles: writes them behind the first `num_tiles`.
void AddTiles(const AttentionPlanShape& shape, const AttentionMask* mask,
              const AttentionSequence& sequence, int32_t blocks_begin,
              AttentionTile* tiles, int& num_tiles);

// Runs of keys that the sequence's tiles may need; 0 where it becomes items.
int64_t MaxKeyRuns(const AttentionPlanShape& shape, const AttentionMask& mask,
                   const AttentionSequence& sequence);

// The mask itself, and each tile's runs. Returns the bytes of runs.
size_t WriteMask(const AttentionPlan& plan, const AttentionMask& mask,
                 AttentionTile* tiles, std::byte* image);

// The dearest first, in each round.
void SortTiles(const AttentionPlan& plan, AttentionTile* tiles);

}  // namespace inlay

#endif  // INLAY_KERNELS_ATTENTION_ATTENTION_PLAN_TILES_H_
