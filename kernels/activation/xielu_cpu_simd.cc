// xielu, the vector row.
#include "kernels/simd_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/activation/xielu_cpu_simd.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <cstdint>

#include "kernels/activation/xielu.h"
#include "kernels/simd_float-inl.h"
#include "kernels/simd_math-inl.h"
#include "memory/device/thread_pool.h"

HWY_BEFORE_NAMESPACE();
namespace inlay {
namespace HWY_NAMESPACE {
namespace xielu {

// e^x - 1 - x for x <= 0. Near 0, where the difference cancels, its series:
// what is left out is below 2^-25 of the sum for x > -0.5.
HWY_INLINE VF Curve(VF x) {
  const DF d;
  const VF series = hn::Mul(
      hn::Mul(x, x), Polynomial(x, 1.0f / 2, 1.0f / 6, 1.0f / 24, 1.0f / 120,
                                1.0f / 720, 1.0f / 5040, 1.0f / 40320));
  const VF beyond = hn::Sub(ExpNonPositive(x), hn::Add(hn::Set(d, 1.0f), x));
  return hn::IfThenElse(hn::Gt(x, hn::Set(d, -0.5f)), series, beyond);
}

// NaN stays: in the last difference, whatever Min makes of it.
HWY_INLINE VF Apply(const XieluNumbers& numbers, VF x) {
  const DF d;
  const VF beta = hn::Set(d, numbers.beta);
  const VF above = hn::Mul(x, hn::MulAdd(hn::Set(d, numbers.alpha_p), x, beta));
  const VF least = hn::Min(x, hn::Zero(d));
  const VF cut = hn::Min(least, hn::Set(d, numbers.eps));
  const VF curve = hn::Add(Curve(cut), hn::Sub(cut, x));
  const VF below =
      hn::MulAdd(hn::Set(d, numbers.alpha_n), curve, hn::Mul(beta, x));
  return hn::IfThenElse(hn::Gt(x, hn::Zero(d)), above, below);
}

// Columns [begin, begin + count) of one row.
void RunSpan(const XieluParams& params, int64_t row, size_t begin,
             size_t count) {
  const float* x = params.x.row<float>(row) + begin;
  float* y = params.y.row<float>(row) + begin;
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    hn::StoreU(Apply(params.numbers, LoadWide(x + i)), DF(), y + i);
  }
  if (const size_t rest = count - i; rest != 0) {
    StoreTail(Apply(params.numbers, LoadWideTail(x + i, rest)), y + i, rest);
  }
}

// Rows are cut into spans, so that one wide row still feeds every thread.
constexpr int64_t kSpan = 1024;

}  // namespace xielu

void RunXielu(const XieluDesc& desc, const XieluParams& params,
              ThreadPool& pool) {
  using xielu::kSpan;
  const int64_t spans = (desc.width + kSpan - 1) / kSpan;
  pool.ParallelFor(
      params.x.rows() * spans, 4, [&](int64_t begin, int64_t end) HWY_ATTR {
        for (int64_t i = begin; i < end; ++i) {
          const int64_t column = i % spans * kSpan;
          xielu::RunSpan(
              params, i / spans, static_cast<size_t>(column),
              static_cast<size_t>(HWY_MIN(desc.width - column, kSpan)));
        }
      });
}

}  // namespace HWY_NAMESPACE
}  // namespace inlay
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace inlay {
HWY_EXPORT(RunXielu);

absl::Status RunXieluCpuSimd(const XieluDesc& desc, const XieluParams& params,
                             Stream& stream) {
  HWY_DYNAMIC_DISPATCH(RunXielu)(desc, params, *stream.thread_pool());
  return absl::OkStatus();
}

}  // namespace inlay
#endif  // HWY_ONCE
