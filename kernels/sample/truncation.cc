// Threshold search for top-k, top-p, min-p. Works on bare logit values: ties
// are interchangeable until the very end, when the lower ids win.
#include "kernels/sample/truncation.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

#include "kernels/sample/sample_math.h"

namespace inlay {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kLowest = std::numeric_limits<float>::lowest();

// Keep the logits > value and the first `ties` of those equal to it.
struct Cut {
  float value;
  int64_t ties;
  bool drops_ties;  // there are more logits equal to it than that
};

// Without a branch on the logit: near a threshold it would be mispredicted.
std::vector<float> LogitsFrom(absl::Span<const float> logits,
                              const LogitBlocks& blocks, float low) {
  std::vector<float> values;
  values.reserve(kLogitBlock *
                 std::count_if(blocks.block_max.begin(), blocks.block_max.end(),
                               [low](float max) { return max >= low; }));
  const int64_t size = static_cast<int64_t>(logits.size());
  for (size_t b = 0; b < blocks.block_max.size(); ++b) {
    if (blocks.block_max[b] < low) continue;
    const int64_t first = static_cast<int64_t>(b) * kLogitBlock;
    const int64_t end = std::min(size, first + kLogitBlock);
    float kept[kLogitBlock];
    size_t num_kept = 0;
    for (int64_t i = first; i < end; ++i) {
      kept[num_kept] = logits[i];
      num_kept += logits[i] >= low;
    }
    values.insert(values.end(), kept, kept + num_kept);
  }
  return values;
}

// Shrinks `values` to its k largest (all where there are fewer), the smallest
// of them last.
Cut CutTopK(int64_t k, std::vector<float>& values) {
  k = std::min(k, static_cast<int64_t>(values.size()));
  std::nth_element(values.begin(), values.begin() + (k - 1), values.end(),
                   std::greater<float>());
  const auto end = values.begin() + k;
  const float value = end[-1];
  const bool drops_ties = std::find(end, values.end(), value) != values.end();
  values.erase(end, values.end());
  return {value, std::count(values.begin(), values.end(), value), drops_ties};
}

// One level of the mass search: bins of equal width from the largest value
// down, their masses, and the bin in which the running mass reaches a target.
class MassHistogram {
 public:
  // Every value lies in low to high, low < high.
  MassHistogram(const std::vector<float>& values, WeightScale scale, float low,
                float high)
      : high_(high),
        // In double: neither the range of two floats nor its inverse overflows.
        bins_per_unit_(kNumBins / (double{high} - double{low})) {
    float weights[kLogitBlock];
    for (size_t i = 0; i < values.size(); i += kLogitBlock) {
      const size_t n = std::min<size_t>(kLogitBlock, values.size() - i);
      Weights(&values[i], static_cast<int64_t>(n), scale, weights);
      for (size_t j = 0; j < n; ++j)
        mass_[BinOf(values[i + j])] += FixedWeight(weights[j]);
    }
  }

  int BinOf(float value) const {
    const double bin = (double{high_} - double{value}) * bins_per_unit_;
    return static_cast<int>(std::min(bin, kNumBins - 1.0));
  }

  // Adds the masses of the bins before the crossing one to `above`. All bins
  // together reach the target.
  int FindCrossing(uint64_t target, uint64_t& above) const {
    int bin = 0;
    while (bin < kNumBins - 1 && above + mass_[bin] < target) {
      above += mass_[bin++];
    }
    return bin;
  }

 private:
  static constexpr int kNumBins = 1024;

  float high_;
  double bins_per_unit_;
  uint64_t mass_[kNumBins] = {};
};

// The fewest largest values whose weights sum to `target` > 0, which all of
// them reach. Bins
// narrow the search until what is left is cheap to sort. `low` and `high` bound
// the values from outside, later levels measure them. It ends: each such level
// parts the largest value from the smallest and divides their distance by the
// number of bins, and a float's range spans fewer than 280 binary digits.
Cut CutTopP(uint64_t target, WeightScale scale, float low, float high,
            std::vector<float>& values) {
  constexpr size_t kSortAtMost = 512;
  uint64_t above = 0;
  while (values.size() > kSortAtMost && low < high) {
    const MassHistogram histogram(values, scale, low, high);
    const int crossing = histogram.FindCrossing(target, above);
    std::erase_if(values,
                  [&](float v) { return histogram.BinOf(v) != crossing; });
    const auto bounds = std::minmax_element(values.begin(), values.end());
    low = *bounds.first;
    high = *bounds.second;
  }
  if (values.size() <= kSortAtMost) {
    std::sort(values.begin(), values.end(), std::greater<float>());
  }  // else they are all equal
  std::vector<float> weights(values.size());
  Weights(values.data(), static_cast<int64_t>(values.size()), scale,
          weights.data());
  size_t end = 0;
  do {
    above += FixedWeight(weights[end++]);
  } while (end < values.size() && above < target);
  const float value = values[end - 1];
  const auto rest = values.begin() + end;
  return {value, std::count(values.begin(), rest, value),
          std::find(rest, values.end(), value) != values.end()};
}

// Where top-k is off, a logit below which all logits together weigh at most the
// 1 - p that top-p drops: each of the at most n weighs less than (1 - p) * mass
// / n, of which half a unit of fixed point is for rounding; the margin covers
// the error of the weights.
float LowerBoundOfTopP(double p, uint64_t mass, WeightScale scale, size_t n) {
  const double units =
      (1 - p) * static_cast<double>(mass) / static_cast<double>(n) - 0.5;
  if (units <= 0) return kLowest;
  const double z = std::log(std::ldexp(units, -kMassBits)) - 1e-3;
  const double low = scale.max + z / double{scale.inverse_temperature};
  return low < kLowest ? kLowest : static_cast<float>(low);
}

void DropExcessTies(Cut cut, const LogitBlocks& blocks,
                    absl::Span<float> logits) {
  ForEachLogitFrom(logits, blocks, cut.value, [&](int64_t id, float logit) {
    if (logit == cut.value && --cut.ties < 0) logits[id] = -kInf;
  });
}

// A logit that every weight >= min_p exceeds, so that whole blocks can be
// skipped; the filter's min_weight decides exactly.
float LowerBoundOfMinP(double min_p, WeightScale scale) {
  if (min_p <= 0) return -kInf;
  const double low =
      scale.max + (std::log(min_p) - 1e-3) / double{scale.inverse_temperature};
  return low < kLowest ? kLowest : static_cast<float>(low);
}

}  // namespace

WeightFilter Truncate(const SampleOptions& options, WeightScale scale,
                      const LogitBlocks& blocks, absl::Span<float> logits) {
  const bool use_top_k =
      options.top_k > 0 && static_cast<size_t>(options.top_k) < logits.size();
  const bool use_top_p = options.top_p < 1;
  WeightFilter filter = {LowerBoundOfMinP(options.min_p, scale), options.min_p};
  if (!use_top_k && !use_top_p) return filter;

  Cut cut = {};
  std::vector<float> values;
  uint64_t mass = 0;
  float low = 0;
  if (use_top_k) {
    values = LogitsFrom(logits, blocks, LowerBoundOfTop(blocks, options.top_k));
    cut = CutTopK(options.top_k, values);
    low = cut.value;
    if (use_top_p) {
      std::vector<float> weights(values.size());
      Weights(values.data(), static_cast<int64_t>(values.size()), scale,
              weights.data());
      for (float w : weights) mass += FixedWeight(w);
    }
  } else {
    mass = MassOf(logits, blocks, scale, {-kInf, 0}, nullptr);
    low = LowerBoundOfTopP(options.top_p, mass, scale, logits.size());
    values = LogitsFrom(logits, blocks, low);
  }
  if (use_top_p) {
    const bool dropped = use_top_k && cut.drops_ties;
    cut =
        CutTopP(TopPTarget(options.top_p, mass), scale, low, scale.max, values);
    // What top-k dropped no longer shows in the values.
    cut.drops_ties |= dropped && cut.value == low;
  }
  if (cut.drops_ties) DropExcessTies(cut, blocks, logits);
  filter.min_logit = std::max(filter.min_logit, cut.value);
  return filter;
}

}  // namespace inlay
