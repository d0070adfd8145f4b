// How a plan with AttentionPlanShape::piece_keys cuts rows x keys: tiles of all
// queries, and tiles that would keep one CTA busy while others idle into pieces
// of their keys. Internal to attention_plan.cc.
#ifndef INLAY_KERNELS_ATTENTION_ATTENTION_PIECES_H_
#define INLAY_KERNELS_ATTENTION_ATTENTION_PIECES_H_

#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"
#include "kernels/attention/attention_cut.h"
#include "kernels/attention/attention_plan.h"
#include "kernels/attention/attention_prefix_deal.h"

namespace inlay {

// Tiles that a plan may have; its counters; what launches need of the
// workspace: each CTA's partial result of the tile it is at, then those of
// pieces. None grows with the sequences' lengths: where that room ends, tiles
// stay whole.
int64_t MaxPieceTiles(const AttentionPlanShape& shape,
                      const AttentionPlanLimits& limits);
ItemRoom PieceRoom(const AttentionPlanShape& shape);
size_t PieceWorkspaceBytes(const AttentionPlanShape& shape);

class PieceDealer {
 public:
  PieceDealer(const AttentionPlanShape& shape,
              absl::Span<const AttentionSequence> sequences);

  // The tiles of `sequence`, which has queries, behind the first `num_tiles`.
  void Add(const AttentionSequence& sequence, int32_t blocks_begin,
           AttentionTile* tiles, int& num_tiles);
  int32_t num_arrivals() const { return num_arrivals_; }

 private:
  const AttentionPlanShape& shape_;
  int64_t share_ = 0;  // keys of a CTA, if all have as many
  int32_t num_slots_ = 0;
  int32_t num_arrivals_ = 0;
};

}  // namespace inlay

#endif  // INLAY_KERNELS_ATTENTION_ATTENTION_PIECES_H_
