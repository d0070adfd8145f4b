#include "core/quantize/group_scheme.h"

#include <algorithm>

#include "kernels/quant/fit_groups.h"
#include "kernels/quant/nearest_levels.h"
#include "kernels/quant/quant.h"

namespace inlay {
namespace {

int64_t GroupOf(const GroupScheme& scheme, int64_t inputs) {
  return scheme.group == 0 ? inputs : scheme.group;
}

// Of one group, for each of its blocks.
GridScales FitGroup(const GroupScheme& scheme, const float* x,
                    const float* weights, int64_t count) {
  const BlockGrid& grid = *scheme.grid;
  GridScales scales = {};
  if (scheme.is_grids()) {
    grid.fit(x, weights, /*blocks=*/1, &scales);
    return scales;
  }
  ZeroPointRule rule;
  rule.most = grid.most - grid.least;
  rule.zero = scheme.symmetric ? (rule.most + 1) / 2 : 0;
  rule.scale = scheme.scale;
  const ZeroPoint fit = FitGroupZeroPoint(x, weights, count, rule);
  scales.scale[0] = fit.scale;
  scales.min[0] = -fit.scale * static_cast<float>(fit.zero + grid.least);
  return scales;
}

}  // namespace

void FitGroups(const GroupScheme& scheme, const float* x, const float* weights,
               int64_t inputs, GridScales* scales) {
  const int64_t group = GroupOf(scheme, inputs);
  const int elements = scheme.grid->elements;
  for (int64_t first = 0; first < inputs; first += group) {
    std::fill_n(
        scales + first / elements, group / elements,
        FitGroup(scheme, x + first,
                 weights == nullptr ? nullptr : weights + first, group));
  }
}

void EncodeInGroups(const GroupScheme& scheme, const float* x,
                    const float* weights, int64_t inputs, std::byte* encoded) {
  const BlockGrid& grid = *scheme.grid;
  const int64_t group = GroupOf(scheme, inputs);
  GridScales scales = {};
  for (int64_t first = 0; first < inputs; first += grid.elements) {
    if (first % group == 0) {
      scales = FitGroup(scheme, x + first,
                        weights == nullptr ? nullptr : weights + first, group);
    }
    int8_t levels[kMaxBlockElements];
    NearestLevels(grid, scales, x + first, levels);
    grid.pack(scales, levels, encoded);
    encoded += grid.block_bytes;
  }
}

}  // namespace inlay
