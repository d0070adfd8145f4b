#include "kernels/simd_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/quant/row_floats.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/quant/row_floats.h"
#include "kernels/simd_float-inl.h"

HWY_BEFORE_NAMESPACE();
namespace inlay {
namespace HWY_NAMESPACE {
namespace row_floats {

using DU = hn::RebindToUnsigned<DF>;
using VU = hn::Vec<DU>;

// F16ToF32 by integers: the conversion of instructions makes NaN quiet, and not
// all targets have one.
HWY_INLINE VF OfF16(VU bits) {
  const DF d;
  const DU du;
  const hn::RebindToSigned<DF> di;
  const VU exponent = hn::And(bits, hn::Set(du, 0x7c00));
  const VU mantissa = hn::And(bits, hn::Set(du, 0x3ff));
  const VU sign = hn::ShiftLeft<16>(hn::And(bits, hn::Set(du, 0x8000)));
  // From a bias of 15 to one of 127, and all ones stay all ones.
  const VU wide = hn::ShiftLeft<13>(hn::Or(exponent, mantissa));
  const VU bias = hn::Set(du, uint32_t{112} << 23);
  const VU largest = hn::Set(du, 0x7c00);
  const VU normal = hn::Add(
      hn::Add(wide, bias), hn::IfThenElseZero(hn::Eq(exponent, largest), bias));
  const VU subnormal =
      hn::BitCast(du, hn::Mul(hn::ConvertTo(d, hn::BitCast(di, mantissa)),
                              hn::Set(d, 0x1p-24f)));
  const VU magnitude =
      hn::IfThenElse(hn::Eq(exponent, hn::Zero(du)), subnormal, normal);
  return hn::BitCast(d, hn::Or(sign, magnitude));
}

HWY_INLINE VF OfBF16(VU bits) {
  return hn::BitCast(DF(), hn::ShiftLeft<16>(bits));
}

template <class Widen>
HWY_INLINE void WidenAll(const std::byte* row, int64_t count, float* values,
                         const Widen& widen) {
  const hn::Rebind<uint16_t, DF> d16;
  constexpr auto kStep = static_cast<int64_t>(kLanes);
  int64_t i = 0;
  for (; i + kStep <= count; i += kStep, row += 2 * kLanes) {
    uint16_t bits[kLanes];
    std::memcpy(bits, row, sizeof(bits));
    hn::StoreU(widen(hn::PromoteTo(DU(), hn::LoadU(d16, bits))), DF(),
               values + i);
  }
  if (i == count) return;
  uint16_t bits[kLanes] = {};
  std::memcpy(bits, row, static_cast<size_t>(count - i) * 2);
  StoreTail(widen(hn::PromoteTo(DU(), hn::LoadU(d16, bits))), values + i,
            static_cast<size_t>(count - i));
}

// Element i is summed up in place i % kPlaces, on every target.
constexpr size_t kPlaces = 16;
using DD = hn::ScalableTag<double>;
constexpr size_t kDoubles = hn::MaxLanes(DD());

HWY_INLINE void AddSquares(const float* values, const float* rounded,
                           double* differences, double* squares) {
  const DD dd;
  const hn::Rebind<float, DD> df;
  HWY_UNROLL(16)
  for (size_t at = 0; at < kPlaces; at += kDoubles) {
    const auto value = hn::PromoteTo(dd, hn::LoadU(df, values + at));
    const auto got = hn::PromoteTo(dd, hn::LoadU(df, rounded + at));
    const auto off = hn::Sub(value, got);
    hn::Store(hn::Add(hn::Load(dd, differences + at), hn::Mul(off, off)), dd,
              differences + at);
    hn::Store(hn::Add(hn::Load(dd, squares + at), hn::Mul(value, value)), dd,
              squares + at);
  }
}

}  // namespace row_floats

void RunWidenFloats(DType dtype, const std::byte* row, int64_t count,
                    float* values) {
  if (dtype == DType::kF32) {
    std::memcpy(values, row, static_cast<size_t>(count) * sizeof(float));
  } else if (dtype == DType::kF16) {
    row_floats::WidenAll(row, count, values, [](auto bits) HWY_ATTR {
      return row_floats::OfF16(bits);
    });
  } else {
    row_floats::WidenAll(row, count, values, [](auto bits) HWY_ATTR {
      return row_floats::OfBF16(bits);
    });
  }
}

SquareSums RunSumSquares(const float* values, const float* rounded,
                         int64_t count) {
  constexpr auto kStep = static_cast<int64_t>(row_floats::kPlaces);
  alignas(64) double differences[kStep] = {};
  alignas(64) double squares[kStep] = {};
  int64_t i = 0;
  for (; i + kStep <= count; i += kStep) {
    row_floats::AddSquares(values + i, rounded + i, differences, squares);
  }
  if (i < count) {
    float last[kStep] = {}, last_rounded[kStep] = {};
    std::copy(values + i, values + count, last);
    std::copy(rounded + i, rounded + count, last_rounded);
    row_floats::AddSquares(last, last_rounded, differences, squares);
  }
  SquareSums sums;
  for (int64_t place = 0; place < kStep; ++place) {
    sums.differences += differences[place];
    sums.values += squares[place];
  }
  return sums;
}

}  // namespace HWY_NAMESPACE
}  // namespace inlay
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace inlay {
HWY_EXPORT(RunWidenFloats);
HWY_EXPORT(RunSumSquares);

void WidenFloats(DType dtype, const std::byte* row, int64_t count,
                 float* values) {
  HWY_DYNAMIC_DISPATCH(RunWidenFloats)(dtype, row, count, values);
}

SquareSums SumSquares(const float* values, const float* rounded,
                      int64_t count) {
  return HWY_DYNAMIC_DISPATCH(RunSumSquares)(values, rounded, count);
}

}  // namespace inlay
#endif  // HWY_ONCE
