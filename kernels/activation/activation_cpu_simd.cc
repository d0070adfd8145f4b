// activation, the vector row.
#include "kernels/simd_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/activation/activation_cpu_simd.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <cstdint>
#include <type_traits>

#include "kernels/activation/activation.h"
#include "kernels/simd_float-inl.h"
#include "kernels/simd_math-inl.h"
#include "memory/device/thread_pool.h"

HWY_BEFORE_NAMESPACE();
namespace inlay {
namespace HWY_NAMESPACE {
namespace activation {

struct Silu {
  static HWY_INLINE VF Apply(VF x) { return hn::Mul(x, Sigmoid(x)); }
};

struct Gelu {
  static HWY_INLINE VF Apply(VF x) {
    const DF d;
    const VF erf = OnePlusErf(hn::Mul(x, hn::Set(d, 0.707106781f)));
    return hn::Mul(hn::Mul(x, hn::Set(d, 0.5f)), erf);
  }
};

struct TanhGelu {
  static HWY_INLINE VF Apply(VF x) { return GeluTanh(x); }
};

struct Relu {
  static HWY_INLINE VF Apply(VF x) {
    return hn::IfThenZeroElse(hn::Lt(x, hn::Zero(DF())), x);
  }
};

struct ReluSquared {
  static HWY_INLINE VF Apply(VF x) {
    const VF y = Relu::Apply(x);
    return hn::Mul(y, y);
  }
};

// NaN stays.
template <Activation kFunction>
struct ClampedSilu {
  static HWY_INLINE VF ApplyGated(VF gate, VF up, float limit) {
    const DF d;
    const VF most = hn::Set(d, limit);
    const VF least = hn::Set(d, -limit);
    up = hn::IfThenElse(hn::Gt(up, most), most, up);
    up = hn::IfThenElse(hn::Lt(up, least), least, up);
    if constexpr (kFunction == Activation::kCappedSilu) {
      const VF value = Silu::Apply(gate);
      return hn::Mul(hn::IfThenElse(hn::Gt(value, most), most, value), up);
    }
    gate = hn::IfThenElse(hn::Gt(gate, most), most, gate);
    if constexpr (kFunction == Activation::kLimitedSilu) {
      return hn::Mul(Silu::Apply(gate), up);
    }
    const VF slope = hn::Set(d, kClampedSiluSlope);
    const VF value = hn::Mul(gate, Sigmoid(hn::Mul(gate, slope)));
    return hn::Mul(value, hn::Add(up, hn::Set(d, 1.0f)));
  }
};

template <typename Function>
inline constexpr bool kIsClamped = false;
template <Activation kFunction>
inline constexpr bool kIsClamped<ClampedSilu<kFunction>> = true;

template <typename Function>
HWY_INLINE VF Gated(VF gate, VF up, float limit) {
  if constexpr (kIsClamped<Function>) {
    return Function::ApplyGated(gate, up, limit);
  } else {
    return hn::Mul(Function::Apply(gate), up);
  }
}

template <typename Function>
HWY_INLINE VF Alone(VF x) {
  if constexpr (kIsClamped<Function>) {
    return x;  // there is none
  } else {
    return Function::Apply(x);
  }
}

// Columns [begin, begin + count) of one row.
template <typename Function>
void RunSpan(const ActivationDesc& desc, const ActivationParams& params,
             int64_t row, size_t begin, size_t count) {
  const float* x = params.x.row<float>(row) + begin;
  const float* up = x + desc.width;
  float* y = params.y.row<float>(row) + begin;
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const VF v = LoadWide(x + i);
    hn::StoreU(desc.gated ? Gated<Function>(v, LoadWide(up + i), desc.limit)
                          : Alone<Function>(v),
               DF(), y + i);
  }
  if (const size_t rest = count - i; rest != 0) {
    const VF v = LoadWideTail(x + i, rest);
    StoreTail(desc.gated
                  ? Gated<Function>(v, LoadWideTail(up + i, rest), desc.limit)
                  : Alone<Function>(v),
              y + i, rest);
  }
}

// Rows are cut into spans, so that one wide row still feeds every thread.
constexpr int64_t kSpan = 1024;

template <typename Function>
void Run(const ActivationDesc& desc, const ActivationParams& params,
         ThreadPool& pool) {
  const int64_t spans = (desc.width + kSpan - 1) / kSpan;
  pool.ParallelFor(
      params.x.rows() * spans, 4, [&](int64_t begin, int64_t end) HWY_ATTR {
        for (int64_t i = begin; i < end; ++i) {
          const int64_t column = i % spans * kSpan;
          RunSpan<Function>(
              desc, params, i / spans, static_cast<size_t>(column),
              static_cast<size_t>(HWY_MIN(desc.width - column, kSpan)));
        }
      });
}

}  // namespace activation

void RunActivation(const ActivationDesc& desc, const ActivationParams& params,
                   ThreadPool& pool) {
  switch (desc.function) {
    case Activation::kSilu:
      return activation::Run<activation::Silu>(desc, params, pool);
    case Activation::kGelu:
      return activation::Run<activation::Gelu>(desc, params, pool);
    case Activation::kGeluTanh:
      return activation::Run<activation::TanhGelu>(desc, params, pool);
    case Activation::kRelu:
      return activation::Run<activation::Relu>(desc, params, pool);
    case Activation::kReluSquared:
      return activation::Run<activation::ReluSquared>(desc, params, pool);
    case Activation::kClampedSilu:
      return activation::Run<activation::ClampedSilu<Activation::kClampedSilu>>(
          desc, params, pool);
    case Activation::kLimitedSilu:
      return activation::Run<activation::ClampedSilu<Activation::kLimitedSilu>>(
          desc, params, pool);
    case Activation::kCappedSilu:
      return activation::Run<activation::ClampedSilu<Activation::kCappedSilu>>(
          desc, params, pool);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace inlay
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace inlay {
HWY_EXPORT(RunActivation);

absl::Status RunActivationCpuSimd(const ActivationDesc& desc,
                                  const ActivationParams& params,
                                  Stream& stream) {
  HWY_DYNAMIC_DISPATCH(RunActivation)(desc, params, *stream.thread_pool());
  return absl::OkStatus();
}

}  // namespace inlay
#endif  // HWY_ONCE
