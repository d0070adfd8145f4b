// altup_predict and altup_correct, the vector rows. Sums over a row are in one
// accumulator a lane; the few numbers a token in float64.
#include "kernels/simd_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/altup/altup_cpu_simd.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <cstdint>

#include "kernels/altup/altup.h"
#include "kernels/altup/altup_factors.h"
#include "kernels/simd_float-inl.h"
#include "memory/device/thread_pool.h"

HWY_BEFORE_NAMESPACE();
namespace inlay {
namespace HWY_NAMESPACE {
namespace altup {

// Calls run(column, load, store) for each vector of a row of `width` columns,
// where load and store take addresses of the first column.
template <typename Run>
HWY_INLINE void ForColumns(size_t width, const Run& run) {
  size_t i = 0;
  for (; i + kLanes <= width; i += kLanes) {
    run(
        i, [](const float* p) HWY_ATTR { return LoadWide(p); },
        [](VF v, float* p) HWY_ATTR { hn::StoreU(v, DF(), p); });
  }
  if (const size_t rest = width - i; rest != 0) {
    run(
        i, [rest](const float* p) HWY_ATTR { return LoadWideTail(p, rest); },
        [rest](VF v, float* p) HWY_ATTR { StoreTail(v, p, rest); });
  }
}

void Factors(const AltUpDesc& desc, const AltUpRouter& router, const float* v,
             int count, double* factors) {
  const DF d;
  const auto width = static_cast<size_t>(desc.width);
  const auto n = static_cast<size_t>(desc.num_streams);
  VF squares = hn::Zero(d);
  VF sums[kMaxAltUpStreams];
  for (size_t j = 0; j < n; ++j) sums[j] = hn::Zero(d);
  ForColumns(width, [&](size_t i, const auto& load, const auto&) HWY_ATTR {
    const VF x = load(v + i);
    squares = hn::MulAdd(x, x, squares);
    const VF scaled = hn::Mul(x, load(router.norm + i));
    for (size_t j = 0; j < n; ++j) {
      sums[j] =
          hn::MulAdd(scaled, load(router.matrix + j * width + i), sums[j]);
    }
  });
  double products[kMaxAltUpStreams];
  for (size_t j = 0; j < n; ++j) {
    products[j] = hn::GetLane(hn::SumOfLanes(d, sums[j]));
  }
  AltUpFactors(desc, router, products, hn::GetLane(hn::SumOfLanes(d, squares)),
               count, factors);
}

void PredictRow(const AltUpDesc& desc, const AltUpPredictParams& params,
                int64_t row) {
  const DF d;
  const auto width = static_cast<size_t>(desc.width);
  const auto n = static_cast<size_t>(desc.num_streams);
  const auto active = static_cast<size_t>(desc.active);
  float* h = params.streams.row<float>(row);
  float* x = params.x.row<float>(row);
  double factors[kMaxAltUpStreams * kMaxAltUpStreams];
  Factors(desc, params.router, h + active * width,
          desc.num_streams * desc.num_streams, factors);
  ForColumns(width,
             [&](size_t i, const auto& load, const auto& store) HWY_ATTR {
               VF own[kMaxAltUpStreams];
               for (size_t j = 0; j < n; ++j) own[j] = load(h + j * width + i);
               for (size_t k = 0; k < n; ++k) {
                 VF sum = own[k];
                 for (size_t j = 0; j < n; ++j) {
                   const auto factor = static_cast<float>(factors[k * n + j]);
                   sum = hn::MulAdd(hn::Set(d, factor), own[j], sum);
                 }
                 store(sum, h + k * width + i);
                 if (k == active) store(sum, x + i);
               }
             });
}

void CorrectRow(const AltUpDesc& desc, const AltUpCorrectParams& params,
                int64_t row) {
  const DF d;
  const auto width = static_cast<size_t>(desc.width);
  const auto n = static_cast<size_t>(desc.num_streams);
  const auto active = static_cast<size_t>(desc.active);
  float* h = params.streams.row<float>(row);
  float* x = params.x.row<float>(row);
  double factors[kMaxAltUpStreams];
  Factors(desc, params.router, x, desc.num_streams, factors);
  ForColumns(width, [&](size_t i, const auto& load,
                        const auto& store) HWY_ATTR {
    const VF change = hn::Sub(load(x + i), load(h + active * width + i));
    for (size_t k = 0; k < n; ++k) {
      const auto factor = static_cast<float>(1.0 + factors[k]);
      VF at = hn::MulAdd(hn::Set(d, factor), change, load(h + k * width + i));
      store(at, h + k * width + i);
      if (k != active) continue;
      if (params.scale != nullptr) {
        at = hn::Mul(at, load(params.scale + i));
      }
      store(at, x + i);
    }
  });
}

}  // namespace altup

void RunAltUpPredict(const AltUpDesc& desc, const AltUpPredictParams& params,
                     ThreadPool& pool) {
  pool.ParallelFor(params.x.rows(), 1,
                   [&](int64_t begin, int64_t end) HWY_ATTR {
                     for (int64_t row = begin; row < end; ++row) {
                       altup::PredictRow(desc, params, row);
                     }
                   });
}

void RunAltUpCorrect(const AltUpDesc& desc, const AltUpCorrectParams& params,
                     ThreadPool& pool) {
  pool.ParallelFor(params.x.rows(), 1,
                   [&](int64_t begin, int64_t end) HWY_ATTR {
                     for (int64_t row = begin; row < end; ++row) {
                       altup::CorrectRow(desc, params, row);
                     }
                   });
}

}  // namespace HWY_NAMESPACE
}  // namespace inlay
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace inlay {
HWY_EXPORT(RunAltUpPredict);
HWY_EXPORT(RunAltUpCorrect);

absl::Status RunAltUpPredictCpuSimd(const AltUpDesc& desc,
                                    const AltUpPredictParams& params,
                                    Stream& stream) {
  HWY_DYNAMIC_DISPATCH(RunAltUpPredict)(desc, params, *stream.thread_pool());
  return absl::OkStatus();
}

absl::Status RunAltUpCorrectCpuSimd(const AltUpDesc& desc,
                                    const AltUpCorrectParams& params,
                                    Stream& stream) {
  HWY_DYNAMIC_DISPATCH(RunAltUpCorrect)(desc, params, *stream.thread_pool());
  return absl::OkStatus();
}

}  // namespace inlay
#endif  // HWY_ONCE
