// gated_norm, the scalar reference row: sums in double.
#include <cmath>

#include "kernels/gated_norm/gated_norm.h"
#include "memory/device/thread_pool.h"

namespace inlay {
namespace {

// Beyond 40 log(1 + e^x) is x, and further e^x is infinite.
double SoftplusGate(double x) { return x > 40.0 ? x : std::log1p(std::exp(x)); }

double Gate(const GatedNormDesc& desc, const float* z, int64_t i) {
  if (desc.gate == GateFunction::kNone) return 1.0;
  const double scaled = double{desc.gate_scale} * z[desc.group_gates ? 0 : i];
  if (desc.gate == GateFunction::kSoftplus) return SoftplusGate(scaled);
  const double sigmoid = 1.0 / (1.0 + std::exp(-scaled));
  return desc.gate == GateFunction::kSilu ? scaled * sigmoid : sigmoid;
}

// x, z and y are of the group.
void NormalizeGroup(const GatedNormDesc& desc, const GatedNormParams& params,
                    const float* x, const float* z, const float* weight,
                    float* y) {
  const bool before = desc.gate_first;
  double factor = 1.0;
  if (desc.normalise) {
    double squares = 0.0;
    for (int64_t i = 0; i < desc.width; ++i) {
      const double v = x[i] * (before ? Gate(desc, z, i) : 1.0);
      squares += v * v;
    }
    factor = 1.0 / std::sqrt(squares / static_cast<double>(desc.width) +
                             params.epsilon);
  }
  for (int64_t i = 0; i < desc.width; ++i) {
    const double scale = weight == nullptr ? factor : factor * weight[i];
    y[i] = static_cast<float>(x[i] * scale * Gate(desc, z, i));
  }
}

}  // namespace

absl::Status RunGatedNormCpuScalar(const GatedNormDesc& desc,
                                   const GatedNormParams& params,
                                   Stream& stream) {
  stream.thread_pool()->ParallelFor(
      params.x.rows(), 1, [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row) {
          for (int64_t g = 0; g < desc.groups; ++g) {
            const int64_t first = g * desc.width;
            const float* weight = params.weight;
            if (weight != nullptr && !desc.shared_weight) weight += first;
            const float* z = nullptr;
            if (desc.gate != GateFunction::kNone) {
              z = params.z.row<const float>(row) +
                  (desc.group_gates ? g : first);
            }
            NormalizeGroup(desc, params, params.x.row<const float>(row) + first,
                           z, weight, params.y.row<float>(row) + first);
          }
        }
      });
  return absl::OkStatus();
}

}  // namespace inlay
