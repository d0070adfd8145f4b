#include "kernels/quant/grid.h"

#include "kernels/quant/quant.h"

namespace inlay {

void EncodeOnGrid(const BlockGrid& grid, const float* src, const float* weights,
                  int64_t blocks, std::byte* dst) {
  for (int64_t b = 0; b < blocks; ++b) {
    GridScales scales;
    grid.fit(src, weights, &scales);
    int8_t levels[kMaxBlockElements];
    for (int i = 0; i < grid.elements; ++i) {
      levels[i] = static_cast<int8_t>(grid.NearestLevel(scales, i, src[i]));
    }
    grid.pack(scales, levels, dst);
    src += grid.elements;
    if (weights != nullptr) weights += grid.elements;
    dst += grid.block_bytes;
  }
}

}  // namespace inlay
