// activation, the scalar reference row.
#include <cmath>
#include <numbers>

#include "kernels/activation/activation.h"
#include "memory/device/thread_pool.h"

namespace inlay {
namespace {

float Apply(Activation function, float x) {
  switch (function) {
    case Activation::kSilu:
      return x / (1.0f + std::exp(-x));
    case Activation::kGelu:
      return 0.5f * x *
             (1.0f + std::erf(x * (std::numbers::sqrt2_v<float> / 2)));
    case Activation::kGeluTanh: {
      // sqrt(2 / pi) and 0.044715: Hendrycks and Gimpel, arXiv:1606.08415.
      const float inner = 0.7978845608028654f * (x + 0.044715f * x * x * x);
      return 0.5f * x * (1.0f + std::tanh(inner));
    }
    case Activation::kRelu:
      return x < 0.0f ? 0.0f : x;  // NaN stays
    case Activation::kReluSquared:
      return x < 0.0f ? 0.0f : x * x;
    case Activation::kClampedSilu:
    case Activation::kLimitedSilu:
    case Activation::kCappedSilu:
      break;  // of two arguments
  }
  return x;
}

// NaN stays.
float ClampedSilu(Activation function, float limit, float gate, float up) {
  up = up > limit ? limit : up;
  up = up < -limit ? -limit : up;
  if (function == Activation::kCappedSilu) {
    const float value = Apply(Activation::kSilu, gate);
    return (value > limit ? limit : value) * up;
  }
  gate = gate > limit ? limit : gate;
  if (function == Activation::kLimitedSilu) {
    return gate / (1.0f + std::exp(-gate)) * up;
  }
  return gate / (1.0f + std::exp(-kClampedSiluSlope * gate)) * (up + 1.0f);
}

}  // namespace

absl::Status RunActivationCpuScalar(const ActivationDesc& desc,
                                    const ActivationParams& params,
                                    Stream& stream) {
  const auto run_row = [&](int64_t row) {
    const float* x = params.x.row<float>(row);
    float* y = params.y.row<float>(row);
    for (int64_t i = 0; i < desc.width; ++i) {
      if (HasLimit(desc.function)) {
        y[i] = ClampedSilu(desc.function, desc.limit, x[i], x[desc.width + i]);
        continue;
      }
      const float value = Apply(desc.function, x[i]);
      y[i] = desc.gated ? value * x[desc.width + i] : value;
    }
  };
  stream.thread_pool()->ParallelFor(
      params.x.rows(), 1, [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row) run_row(row);
      });
  return absl::OkStatus();
}

}  // namespace inlay
