// AltUp's ops, the scalar reference rows: sums in double.
#include <algorithm>
#include <cmath>

#include "absl/functional/function_ref.h"
#include "kernels/altup/altup.h"
#include "kernels/altup/altup_factors.h"
#include "memory/device/thread_pool.h"

namespace inlay {
namespace {

void ForRows(int64_t rows, Stream& stream,
             absl::FunctionRef<void(int64_t)> run_row) {
  stream.thread_pool()->ParallelFor(rows, 1, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) run_row(row);
  });
}

void Factors(const AltUpDesc& desc, const AltUpRouter& router, const float* v,
             int count, double* factors) {
  double products[kMaxAltUpStreams] = {};
  double squares = 0.0;
  for (int64_t i = 0; i < desc.width; ++i) {
    squares += double{v[i]} * v[i];
    for (int j = 0; j < desc.num_streams; ++j) {
      products[j] +=
          double{v[i]} * router.norm[i] * router.matrix[j * desc.width + i];
    }
  }
  AltUpFactors(desc, router, products, squares, count, factors);
}

double MeanSquare(const float* x, int64_t width) {
  double squares = 0.0;
  for (int64_t i = 0; i < width; ++i) squares += double{x[i]} * x[i];
  return squares / static_cast<double>(width);
}

}  // namespace

absl::Status RunAltUpPredictCpuScalar(const AltUpDesc& desc,
                                      const AltUpPredictParams& params,
                                      Stream& stream) {
  const int n = desc.num_streams;
  ForRows(params.x.rows(), stream, [&](int64_t row) {
    float* h = params.streams.row<float>(row);
    float* x = params.x.row<float>(row);
    double factors[kMaxAltUpStreams * kMaxAltUpStreams];
    Factors(desc, params.router, h + desc.active * desc.width, n * n, factors);
    for (int64_t i = 0; i < desc.width; ++i) {
      double sums[kMaxAltUpStreams];
      for (int k = 0; k < n; ++k) {
        sums[k] = h[k * desc.width + i];
        for (int j = 0; j < n; ++j) {
          sums[k] += factors[k * n + j] * h[j * desc.width + i];
        }
      }
      for (int k = 0; k < n; ++k) {
        h[k * desc.width + i] = static_cast<float>(sums[k]);
      }
      x[i] = h[desc.active * desc.width + i];
    }
  });
  return absl::OkStatus();
}

absl::Status RunAltUpCorrectCpuScalar(const AltUpDesc& desc,
                                      const AltUpCorrectParams& params,
                                      Stream& stream) {
  const int n = desc.num_streams;
  ForRows(params.x.rows(), stream, [&](int64_t row) {
    float* h = params.streams.row<float>(row);
    float* x = params.x.row<float>(row);
    double factors[kMaxAltUpStreams];
    Factors(desc, params.router, x, n, factors);
    for (int64_t i = 0; i < desc.width; ++i) {
      const double change = double{x[i]} - h[desc.active * desc.width + i];
      for (int k = 0; k < n; ++k) {
        float& at = h[k * desc.width + i];
        at = static_cast<float>(at + (1.0 + factors[k]) * change);
      }
      x[i] = h[desc.active * desc.width + i];
      if (params.scale != nullptr) x[i] *= params.scale[i];
    }
  });
  return absl::OkStatus();
}

absl::Status RunAltUpAddCpuScalar(const AltUpDesc& desc,
                                  const AltUpAddParams& params,
                                  Stream& stream) {
  ForRows(params.y.rows(), stream, [&](int64_t row) {
    const float* y = params.y.row<float>(row);
    float* h = params.streams.row<float>(row);
    for (int k = 1; k < desc.num_streams; ++k) {
      for (int64_t i = 0; i < desc.width; ++i) h[k * desc.width + i] += y[i];
    }
  });
  return absl::OkStatus();
}

absl::Status RunMatchMagnitudeCpuScalar(const MatchMagnitudeDesc& desc,
                                        const MatchMagnitudeParams& params,
                                        Stream& stream) {
  ForRows(params.y.rows(), stream, [&](int64_t row) {
    const float* x = params.x.row<float>(row);
    float* y = params.y.row<float>(row);
    const double own =
        std::max(MeanSquare(x, desc.width), double{desc.epsilon});
    const auto factor = static_cast<float>(
        std::sqrt(MeanSquare(params.target.row<float>(row), desc.width) / own));
    for (int64_t i = 0; i < desc.width; ++i) {
      const float value = x[i] * factor;
      y[i] = params.accumulate ? y[i] + value : value;
    }
  });
  return absl::OkStatus();
}

}  // namespace inlay
