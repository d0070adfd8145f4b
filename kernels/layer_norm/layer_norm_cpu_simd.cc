// layer_norm, the vector row: mean, then variance about it, then the
// scaling; three passes over a row that is in cache.
#include "kernels/simd_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/layer_norm/layer_norm_cpu_simd.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <cmath>
#include <cstdint>

#include "kernels/layer_norm/layer_norm.h"
#include "kernels/simd_float-inl.h"
#include "memory/device/thread_pool.h"

HWY_BEFORE_NAMESPACE();
namespace inlay {
namespace HWY_NAMESPACE {
namespace layer_norm {

// Calls fn(offset, count) for each vector of a row; count < kLanes in the last
// where the width asks for it.
template <typename Fn>
HWY_INLINE void ForEachVector(size_t width, Fn fn) {
  size_t i = 0;
  for (; i + kLanes <= width; i += kLanes) fn(i, kLanes);
  if (i < width) fn(i, width - i);
}

HWY_INLINE VF LoadSome(const float* p, size_t count) {
  return count == kLanes ? LoadWide(p) : LoadWideTail(p, count);
}

void NormalizeRow(const LayerNormDesc& desc, const LayerNormParams& params,
                  int64_t row) {
  const DF d;
  const float* x = params.x.row<float>(row);
  float* y = params.y.row<float>(row);
  const auto width = static_cast<size_t>(desc.width);
  VF sum = hn::Zero(d);
  ForEachVector(width, [&](size_t i, size_t count) HWY_ATTR {
    sum = hn::Add(sum, LoadSome(x + i, count));
  });
  const VF mean = hn::Set(
      d, hn::GetLane(hn::SumOfLanes(d, sum)) / static_cast<float>(desc.width));
  VF squares = hn::Zero(d);
  ForEachVector(width, [&](size_t i, size_t count) HWY_ATTR {
    const VF v = hn::Sub(LoadSome(x + i, count), mean);
    // Lanes beyond the width would add the mean's square.
    const VF own = hn::IfThenElseZero(hn::FirstN(d, count), v);
    squares = hn::MulAdd(own, own, squares);
  });
  const float variance =
      hn::GetLane(hn::SumOfLanes(d, squares)) / static_cast<float>(desc.width);
  const VF factor = hn::Set(d, 1.0f / std::sqrt(variance + params.epsilon));
  ForEachVector(width, [&](size_t i, size_t count) HWY_ATTR {
    VF v = hn::Mul(hn::Sub(LoadSome(x + i, count), mean), factor);
    if (params.weight != nullptr) {
      v = hn::Mul(v, LoadSome(params.weight + i, count));
    }
    if (params.bias != nullptr) {
      v = hn::Add(v, LoadSome(params.bias + i, count));
    }
    if (count == kLanes) {
      hn::StoreU(v, d, y + i);
    } else {
      StoreTail(v, y + i, count);
    }
  });
}

}  // namespace layer_norm

void RunLayerNorm(const LayerNormDesc& desc, const LayerNormParams& params,
                  ThreadPool& pool) {
  pool.ParallelFor(params.x.rows(), 4,
                   [&](int64_t begin, int64_t end) HWY_ATTR {
                     for (int64_t row = begin; row < end; ++row) {
                       layer_norm::NormalizeRow(desc, params, row);
                     }
                   });
}

}  // namespace HWY_NAMESPACE
}  // namespace inlay
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace inlay {
HWY_EXPORT(RunLayerNorm);

absl::Status RunLayerNormCpuSimd(const LayerNormDesc& desc,
                                 const LayerNormParams& params,
                                 Stream& stream) {
  HWY_DYNAMIC_DISPATCH(RunLayerNorm)(desc, params, *stream.thread_pool());
  return absl::OkStatus();
}

}  // namespace inlay
#endif  // HWY_ONCE
