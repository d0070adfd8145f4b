#include "core/quantize/group_scheme.h"

#include <algorithm>
#include <vector>

#include "kernels/quant/fit.h"
#include "kernels/quant/quant.h"

namespace inlay {

void FitGroups(const GroupScheme& scheme, const float* x, const float* weights,
               int64_t inputs, GridScales* scales) {
  const BlockGrid& grid = *scheme.grid;
  const int64_t group = scheme.group == 0 ? inputs : scheme.group;
  ZeroPointRule rule;
  rule.most = grid.most - grid.least;
  rule.zero = scheme.symmetric ? (rule.most + 1) / 2 : 0;
  rule.scale = scheme.scale;
  for (int64_t first = 0; first < inputs; first += group) {
    const int64_t count = std::min(group, inputs - first);
    GridScales* const of_group = scales + first / grid.elements;
    const float* const w = weights == nullptr ? nullptr : weights + first;
    if (scheme.is_grids()) {
      grid.fit(x + first, w, of_group);
      continue;
    }
    const ZeroPoint fit = FitZeroPoint(x + first, w, count, rule);
    GridScales one;
    one.scale[0] = fit.scale;
    one.min[0] = -fit.scale * static_cast<float>(fit.zero + grid.least);
    std::fill_n(of_group, count / grid.elements, one);
  }
}

void EncodeInGroups(const GroupScheme& scheme, const float* x,
                    const float* weights, int64_t inputs, std::byte* encoded) {
  const BlockGrid& grid = *scheme.grid;
  std::vector<GridScales> scales(static_cast<size_t>(inputs / grid.elements));
  FitGroups(scheme, x, weights, inputs, scales.data());
  for (const GridScales& of_block : scales) {
    int8_t levels[kMaxBlockElements];
    for (int i = 0; i < grid.elements; ++i) {
      levels[i] = static_cast<int8_t>(grid.NearestLevel(of_block, i, x[i]));
    }
    grid.pack(of_block, levels, encoded);
    x += grid.elements;
    encoded += grid.block_bytes;
  }
}

}  // namespace inlay
