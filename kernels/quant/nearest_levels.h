// What encoders do with every element of a block, with vectors; to the bit what
// block.h and BlockGrid do with one. Values that are not finite give some
// codes.
#ifndef INLAY_KERNELS_QUANT_NEAREST_LEVELS_H_
#define INLAY_KERNELS_QUANT_NEAREST_LEVELS_H_

#include <algorithm>
#include <cstdint>

#include "kernels/quant/block.h"
#include "kernels/quant/grid.h"

namespace inlay {

// BlockGrid::NearestLevel. x, levels: [grid.elements].
void NearestLevels(const BlockGrid& grid, const GridScales& scales,
                   const float* x, int8_t* levels);

// Blocks that have one scale and no sub-blocks.
inline constexpr int kPlainBlock = 32;

// Extreme and RangeOf of each block.
void FindExtremes(const float* x, int64_t blocks, float* extremes);
void FindRanges(const float* x, int64_t blocks, Range* ranges);

// code = RoundCode((x - min) * inverse + offset, least, most).
struct CodeRule {
  float offset;
  float least;
  float most;
};
struct CodeScale {
  float inverse;
  float min = 0.0f;
};
// scales: [blocks], codes: [blocks, 32].
void RoundCodes(const CodeRule& rule, const float* x, const CodeScale* scales,
                int64_t blocks, int8_t* codes);

// Encodes blocks whose scales come of Extreme or RangeOf, some at once:
// find(x, blocks, found), set(found of a block, block) gives its CodeScale and
// sets the block's, pack(codes, block) its codes.
template <typename Block, typename Found, typename Find, typename Set,
          typename Pack>
void EncodePlainBlocks(const CodeRule& rule, Find find, Set set, Pack pack,
                       const float* src, int64_t blocks, std::byte* dst) {
  constexpr int64_t kAtOnce = 16;
  Found found[kAtOnce];
  CodeScale scales[kAtOnce];
  Block block[kAtOnce];
  int8_t codes[kAtOnce * kPlainBlock];
  for (int64_t first = 0; first < blocks; first += kAtOnce) {
    const int64_t some = std::min(kAtOnce, blocks - first);
    const float* x = src + first * kPlainBlock;
    find(x, some, found);
    for (int64_t b = 0; b < some; ++b) scales[b] = set(found[b], block[b]);
    RoundCodes(rule, x, scales, some, codes);
    for (int64_t b = 0; b < some; ++b) {
      pack(codes + b * kPlainBlock, block[b]);
      StoreBlock(block[b], dst, first + b);
    }
  }
}

}  // namespace inlay

#endif  // INLAY_KERNELS_QUANT_NEAREST_LEVELS_H_
