#include "core/quantize/smooth_quant.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace inlay {
namespace {

// Of the largest: inputs that are hardly ever there would get scales that no
// 16-bit norm holds.
constexpr float kLeastShare = 1e-5f;

}  // namespace

std::vector<float> SmoothScales(absl::Span<const float> inputs,
                                absl::Span<const float> weights, float alpha) {
  const float least_input =
      kLeastShare * *std::max_element(inputs.begin(), inputs.end());
  const float least_weight =
      kLeastShare * *std::max_element(weights.begin(), weights.end());
  std::vector<float> scales(inputs.size(), 1.0f);
  for (size_t i = 0; i < scales.size(); ++i) {
    if (inputs[i] == 0.0f || weights[i] == 0.0f) continue;
    scales[i] = std::pow(std::max(inputs[i], least_input), alpha) /
                std::pow(std::max(weights[i], least_weight), 1.0f - alpha);
  }
  return scales;
}

}  // namespace inlay
