// gated_norm, the vector row: the squares in one accumulator a lane.
#include "kernels/simd_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/gated_norm/gated_norm_cpu_simd.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <cmath>
#include <cstdint>

#include "kernels/gated_norm/gated_norm.h"
#include "kernels/simd_math-inl.h"
#include "memory/device/thread_pool.h"

HWY_BEFORE_NAMESPACE();
namespace inlay {
namespace HWY_NAMESPACE {
namespace gated_norm {

// Of a group.
struct Group {
  const float* x;
  const float* z;
  const float* weight;
  float* y;
};

HWY_INLINE VF At(const float* p, size_t i, size_t width) {
  return i + kLanes <= width ? LoadWide(p + i) : LoadWideTail(p + i, width - i);
}

// v times the gate of elements [i, i + lanes).
HWY_INLINE VF Gated(const GatedNormDesc& desc, const float* z, size_t i, VF v) {
  if (desc.gate == GateFunction::kNone) return v;
  const VF gates = desc.group_gates ? hn::Set(DF(), *z)
                                    : At(z, i, static_cast<size_t>(desc.width));
  const VF scaled = hn::Mul(gates, hn::Set(DF(), desc.gate_scale));
  if (desc.gate == GateFunction::kSoftplus) {
    return hn::Mul(v, Softplus(scaled));
  }
  const VF gated = hn::Mul(v, Sigmoid(scaled));
  return desc.gate == GateFunction::kSilu ? hn::Mul(gated, scaled) : gated;
}

HWY_NOINLINE void NormalizeGroup(const GatedNormDesc& desc, float epsilon,
                                 const Group& group) {
  const DF d;
  const auto width = static_cast<size_t>(desc.width);
  VF factor = hn::Set(d, 1.0f);
  if (desc.normalise) {
    VF squares = hn::Zero(d);
    for (size_t i = 0; i < width; i += kLanes) {
      VF v = At(group.x, i, width);
      if (desc.gate_first) v = Gated(desc, group.z, i, v);
      squares = hn::MulAdd(v, v, squares);
    }
    const float mean = hn::GetLane(hn::SumOfLanes(d, squares)) /
                       static_cast<float>(desc.width);
    factor = hn::Set(d, 1.0f / std::sqrt(mean + epsilon));
  }
  for (size_t i = 0; i < width; i += kLanes) {
    VF v = hn::Mul(At(group.x, i, width), factor);
    if (group.weight != nullptr) v = hn::Mul(v, At(group.weight, i, width));
    v = Gated(desc, group.z, i, v);
    if (i + kLanes <= width) {
      hn::StoreU(v, d, group.y + i);
    } else {
      StoreTail(v, group.y + i, width - i);
    }
  }
}

}  // namespace gated_norm

void RunGatedNorm(const GatedNormDesc& desc, const GatedNormParams& params,
                  ThreadPool& pool) {
  pool.ParallelFor(params.x.rows(), 1,
                   [&](int64_t begin, int64_t end) HWY_ATTR {
                     for (int64_t row = begin; row < end; ++row) {
                       for (int64_t g = 0; g < desc.groups; ++g) {
                         const int64_t first = g * desc.width;
                         const float* weight = params.weight;
                         if (weight != nullptr && !desc.shared_weight)
                           weight += first;
                         const float* z = nullptr;
                         if (desc.gate != GateFunction::kNone) {
                           z = params.z.row<const float>(row) +
                               (desc.group_gates ? g : first);
                         }
                         gated_norm::NormalizeGroup(
                             desc, params.epsilon,
                             {params.x.row<const float>(row) + first, z, weight,
                              params.y.row<float>(row) + first});
                       }
                     }
                   });
}

}  // namespace HWY_NAMESPACE
}  // namespace inlay
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace inlay {
HWY_EXPORT(RunGatedNorm);

absl::Status RunGatedNormCpuSimd(const GatedNormDesc& desc,
                                 const GatedNormParams& params,
                                 Stream& stream) {
  HWY_DYNAMIC_DISPATCH(RunGatedNorm)(desc, params, *stream.thread_pool());
  return absl::OkStatus();
}

}  // namespace inlay
#endif  // HWY_ONCE
