// elementwise, the vector row.
#include "kernels/simd_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/elementwise/elementwise_cpu_simd.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <cstdint>

#include "kernels/elementwise/elementwise.h"
#include "kernels/simd_float-inl.h"
#include "kernels/simd_math-inl.h"
#include "memory/device/thread_pool.h"

HWY_BEFORE_NAMESPACE();
namespace inlay {
namespace HWY_NAMESPACE {
namespace elementwise {

// Columns [begin, begin + count) of one row.
void RunSpan(const ElementwiseDesc& desc, const ElementwiseParams& params,
             int64_t row, size_t begin, size_t count) {
  const DF d;
  float* y = params.y.row<float>(row) + begin;
  const float* x = desc.function == Elementwise::kAdd
                       ? params.x.row<float>(row) + begin
                       : nullptr;
  const VF value = hn::Set(d, params.value);
  const auto apply = [&](VF v, VF other) HWY_ATTR {
    switch (desc.function) {
      case Elementwise::kAdd:
        return hn::Add(v, other);
      case Elementwise::kScale:
        return hn::Mul(v, value);
      case Elementwise::kSoftcap:
        return hn::Mul(value, Tanh(hn::Div(v, value)));
      case Elementwise::kClamp:
        return hn::Clamp(v, hn::Neg(value), value);
      case Elementwise::kSigmoid:
        return Sigmoid(v);
    }
    return v;
  };
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const VF other = x != nullptr ? LoadWide(x + i) : value;
    hn::StoreU(apply(LoadWide(y + i), other), d, y + i);
  }
  if (const size_t rest = count - i; rest != 0) {
    const VF other = x != nullptr ? LoadWideTail(x + i, rest) : value;
    StoreTail(apply(LoadWideTail(y + i, rest), other), y + i, rest);
  }
}

// Rows are cut into spans, so that the one row of logits feeds every thread.
constexpr int64_t kSpan = 4096;

}  // namespace elementwise

void RunElementwise(const ElementwiseDesc& desc,
                    const ElementwiseParams& params, ThreadPool& pool) {
  using elementwise::kSpan;
  const int64_t spans = (desc.width + kSpan - 1) / kSpan;
  pool.ParallelFor(
      params.y.rows() * spans, 4, [&](int64_t begin, int64_t end) HWY_ATTR {
        for (int64_t i = begin; i < end; ++i) {
          const int64_t column = i % spans * kSpan;
          elementwise::RunSpan(
              desc, params, i / spans, static_cast<size_t>(column),
              static_cast<size_t>(HWY_MIN(desc.width - column, kSpan)));
        }
      });
}

}  // namespace HWY_NAMESPACE
}  // namespace inlay
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace inlay {
HWY_EXPORT(RunElementwise);

absl::Status RunElementwiseCpuSimd(const ElementwiseDesc& desc,
                                   const ElementwiseParams& params,
                                   Stream& stream) {
  HWY_DYNAMIC_DISPATCH(RunElementwise)(desc, params, *stream.thread_pool());
  return absl::OkStatus();
}

}  // namespace inlay
#endif  // HWY_ONCE
