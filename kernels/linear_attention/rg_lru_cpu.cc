// rg_lru, the scalar reference row: one channel at a time; what is not the
// state in double.
#include <cmath>
#include <numbers>

#include "kernels/linear_attention/rg_lru.h"
#include "memory/device/thread_pool.h"

namespace inlay {
namespace {

double LruSigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

// 2 sqrt(2 / pi) and 0.044715: Hendrycks and Gimpel, arXiv:1606.08415.
double LruGelu(double x) {
  constexpr double kSlope =
      2.0 * std::numbers::sqrt2 * std::numbers::inv_sqrtpi;
  return x * LruSigmoid(kSlope * (x + 0.044715 * x * x * x));
}

void RunLruChannel(const RgLruParams& params, size_t sequence,
                   int64_t channel) {
  const auto at = [channel](const TensorView& view, int64_t row) -> double {
    return view.row<const float>(row)[channel];
  };
  const double rate = params.rates[channel];
  bool loaded = false, has_past = false;
  float h = 0.0f;
  ForEachStateRun(params.state, sequence, [&](const StateRun& run) {
    if (!loaded && run.from != nullptr) {
      h = reinterpret_cast<const float*>(run.from)[channel];
      has_past = true;
    }
    loaded = true;
    for (int64_t row = run.row; row < run.row + run.count; ++row) {
      const double l = rate * LruSigmoid(at(params.recurrence, row));
      const double given =
          LruSigmoid(at(params.input, row)) * at(params.x, row);
      h = static_cast<float>(
          has_past ? std::exp(l) * h + std::sqrt(-std::expm1(2.0 * l)) * given
                   : given);
      has_past = true;
      params.y.row<float>(row)[channel] =
          static_cast<float>(h * LruGelu(at(params.z, row)));
    }
    reinterpret_cast<float*>(run.to)[channel] = h;
  });
}

}  // namespace

absl::Status RunRgLruCpuScalar(const RgLruDesc& desc, const RgLruParams& params,
                               Stream& stream) {
  const auto sequences = static_cast<int64_t>(params.state.sequences.size());
  stream.thread_pool()->ParallelFor(
      sequences * desc.channels, 16, [&](int64_t begin, int64_t end) {
        for (int64_t task = begin; task < end; ++task) {
          RunLruChannel(params, static_cast<size_t>(task / desc.channels),
                        task % desc.channels);
        }
      });
  return absl::OkStatus();
}

}  // namespace inlay
