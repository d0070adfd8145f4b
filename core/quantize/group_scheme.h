// GroupScheme: how many elements of a row share a scale where that is not what
// a format's blocks say: blocks of ours repeat it. Knows no layouts of files.
#ifndef INLAY_CORE_QUANTIZE_GROUP_SCHEME_H_
#define INLAY_CORE_QUANTIZE_GROUP_SCHEME_H_

#include <cstddef>
#include <cstdint>

#include "kernels/quant/grid.h"
#include "memory/dtype.h"

namespace inlay {

// Of u4_g* and i8_g*, whose grids fit a whole zero point for each block, with
// scales of f16.
struct GroupScheme {
  const BlockGrid* grid = nullptr;  // of the blocks
  int64_t group = 0;                // elements, whole blocks; 0: the row
  bool symmetric = false;           // 0 is the middle code
  DType scale = DType::kF16;        // or bf16, f32

  // Whether that is what the grid does by itself.
  bool is_grids() const {
    return group == grid->elements && !symmetric && scale == DType::kF16;
  }
};

// Scales of all blocks of a row [inputs]; `scales` [inputs / block], those of
// one group alike. `weights`: [inputs] as BlockGrid::fit has them, or null.
void FitGroups(const GroupScheme& scheme, const float* x, const float* weights,
               int64_t inputs, GridScales* scales);

// One row, codes to nearest. Takes no memory: threads of a pool call it.
void EncodeInGroups(const GroupScheme& scheme, const float* x,
                    const float* weights, int64_t inputs, std::byte* encoded);

}  // namespace inlay

#endif  // INLAY_CORE_QUANTIZE_GROUP_SCHEME_H_
