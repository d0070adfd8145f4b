// rms_norm, the vector row: the squares in one accumulator a lane.
#include "kernels/simd_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/rms_norm/rms_norm_cpu_simd.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <cmath>
#include <cstdint>

#include "kernels/rms_norm/rms_norm.h"
#include "kernels/simd_float-inl.h"
#include "memory/device/thread_pool.h"

HWY_BEFORE_NAMESPACE();
namespace inlay {
namespace HWY_NAMESPACE {
namespace rms_norm {

void NormalizeRow(const RmsNormDesc& desc, const RmsNormParams& params,
                  int64_t row) {
  const DF d;
  const float* x = params.x.row<float>(row);
  float* y = params.y.row<float>(row);
  const auto width = static_cast<size_t>(desc.width);
  const size_t full = width / kLanes * kLanes;
  const size_t rest = width - full;
  VF squares = hn::Zero(d);
  for (size_t i = 0; i < full; i += kLanes) {
    const VF v = LoadWide(x + i);
    squares = hn::MulAdd(v, v, squares);
  }
  if (rest != 0) {
    const VF v = LoadWideTail(x + full, rest);
    squares = hn::MulAdd(v, v, squares);
  }
  const float mean =
      hn::GetLane(hn::SumOfLanes(d, squares)) / static_cast<float>(desc.width);
  const VF factor = hn::Set(d, 1.0f / std::sqrt(mean + params.epsilon));
  const float* weight = params.weight;
  for (size_t i = 0; i < full; i += kLanes) {
    VF v = hn::Mul(LoadWide(x + i), factor);
    if (weight != nullptr) v = hn::Mul(v, LoadWide(weight + i));
    hn::StoreU(v, d, y + i);
  }
  if (rest != 0) {
    VF v = hn::Mul(LoadWideTail(x + full, rest), factor);
    if (weight != nullptr) v = hn::Mul(v, LoadWideTail(weight + full, rest));
    StoreTail(v, y + full, rest);
  }
}

}  // namespace rms_norm

void RunRmsNorm(const RmsNormDesc& desc, const RmsNormParams& params,
                ThreadPool& pool) {
  pool.ParallelFor(params.x.rows(), 4,
                   [&](int64_t begin, int64_t end) HWY_ATTR {
                     for (int64_t row = begin; row < end; ++row) {
                       rms_norm::NormalizeRow(desc, params, row);
                     }
                   });
}

}  // namespace HWY_NAMESPACE
}  // namespace inlay
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace inlay {
HWY_EXPORT(RunRmsNorm);

absl::Status RunRmsNormCpuSimd(const RmsNormDesc& desc,
                               const RmsNormParams& params, Stream& stream) {
  HWY_DYNAMIC_DISPATCH(RunRmsNorm)(desc, params, *stream.thread_pool());
  return absl::OkStatus();
}

}  // namespace inlay
#endif  // HWY_ONCE
