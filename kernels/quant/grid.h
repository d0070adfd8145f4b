// Blocks whose scales are chosen first and whose codes come one at a time: what
// methods need that look at more than the values (importance of inputs, errors
// of other columns). Formats with codewords of several elements have no grid.
#ifndef INLAY_KERNELS_QUANT_GRID_H_
#define INLAY_KERNELS_QUANT_GRID_H_

#include <cstddef>
#include <cstdint>

#include "kernels/quant/block.h"
#include "kernels/quant/iq4.h"
#include "memory/dtype.h"

namespace inlay {

inline constexpr int kMaxSubBlocks = 16;

// value = scale[j] * level + min[j] in sub-block j, as decode has it. The rest
// is what the block stores.
struct GridScales {
  float scale[kMaxSubBlocks];
  float min[kMaxSubBlocks];
  uint16_t block_scale = 0;  // f16, as block_min
  uint16_t block_min = 0;
  int8_t sub_scales[kMaxSubBlocks];
  uint8_t sub_mins[kMaxSubBlocks];
};

// No state; every function may run from any number of threads.
struct BlockGrid {
  int elements = 0;
  int block_bytes = 0;
  int sub_elements = 0;  // that share a scale
  // Levels are all integers from least to most, or those of iq4.h.
  int least = 0;
  int most = 0;
  bool is_iq4 = false;
  // Scales for blocks of `elements` values each. `weights` (each >= 0, some >
  // 0): of the squares of the errors, the sum of which is made small. Null: all
  // the same, by the rule of the format's encoder; u4 and i8 groups, that have
  // no such rule for whole zero points, get the values' range. Many blocks at
  // once are a lane each: 16 take little longer than one.
  void (*fit)(const float* x, const float* weights, int64_t blocks,
              GridScales* scales);
  // One block.
  void (*pack)(const GridScales& scales, const int8_t* levels, std::byte* dst);

  int NearestLevel(const GridScales& scales, int i, float value) const {
    const int j = i / sub_elements;
    const float steps = (value - scales.min[j]) * InverseScale(scales.scale[j]);
    return is_iq4 ? kIq4Levels[Iq4Code(steps)] : RoundCode(steps, least, most);
  }
  float Value(const GridScales& scales, int i, int level) const {
    const int j = i / sub_elements;
    return scales.scale[j] * static_cast<float>(level) + scales.min[j];
  }
};

// Scales by `fit`, codes to nearest. `weights`: [elements of a block] for each
// block, or null.
void EncodeOnGrid(const BlockGrid& grid, const float* src, const float* weights,
                  int64_t blocks, std::byte* dst);

}  // namespace inlay

#endif  // INLAY_KERNELS_QUANT_GRID_H_
