#include "kernels/quant/grid.h"

#include <algorithm>

#include "kernels/quant/nearest_levels.h"
#include "kernels/quant/quant.h"

namespace inlay {

void EncodeOnGrid(const BlockGrid& grid, const float* src, const float* weights,
                  int64_t blocks, std::byte* dst) {
  constexpr int64_t kAtOnce = 16;
  GridScales scales[kAtOnce];
  for (int64_t first = 0; first < blocks; first += kAtOnce) {
    const int64_t some = std::min(kAtOnce, blocks - first);
    grid.fit(src, weights, some, scales);
    for (int64_t b = 0; b < some; ++b) {
      int8_t levels[kMaxBlockElements];
      NearestLevels(grid, scales[b], src, levels);
      grid.pack(scales[b], levels, dst);
      src += grid.elements;
      dst += grid.block_bytes;
    }
    if (weights != nullptr) weights += some * grid.elements;
  }
}

}  // namespace inlay
