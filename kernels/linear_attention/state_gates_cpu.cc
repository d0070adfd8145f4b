// state_gates, the scalar row, the only one: a few numbers a head and token.
#include <algorithm>
#include <cmath>

#include "kernels/linear_attention/state_gates.h"
#include "memory/device/thread_pool.h"

namespace inlay {
namespace {

// Beyond 40 log(1 + e^x) is x, and further e^x is infinite.
double Softplus(double x) { return x > 40.0 ? x : std::log1p(std::exp(x)); }

double Sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

void GateRow(const StateGatesDesc& desc, const StateGatesParams& params,
             int64_t row) {
  const float* x = params.x.row<const float>(row);
  const float* b = params.b.empty() ? nullptr : params.b.row<const float>(row);
  float* decay = params.decay.row<float>(row);
  float* beta = params.beta.row<float>(row);
  for (int64_t head = 0; head < desc.num_heads; ++head) {
    const double rate = std::exp(double{params.a_log[head]});
    double step = 0.0;
    for (int64_t i = head * desc.channels; i < (head + 1) * desc.channels;
         ++i) {
      const double raw = double{desc.x_scale} * x[i] + params.bias[i];
      step = std::clamp<double>(Softplus(raw), desc.least, desc.most);
      decay[i] = static_cast<float>(std::exp(
          desc.bound < 0.0f ? desc.bound * Sigmoid(rate * raw) : -rate * step));
    }
    beta[head] =
        static_cast<float>(b == nullptr ? step : Sigmoid(double{b[head]}));
  }
}

}  // namespace

absl::Status RunStateGatesCpuScalar(const StateGatesDesc& desc,
                                    const StateGatesParams& params,
                                    Stream& stream) {
  stream.thread_pool()->ParallelFor(
      params.x.rows(), 4, [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row) {
          GateRow(desc, params, row);
        }
      });
  return absl::OkStatus();
}

}  // namespace inlay
