// Per target: KV rows (memory/kv/kv_format.h) as float32 vectors, bit for bit
// what DecodeKvRow of kernels/kv_write/kv_row.h gives. Included by the SIMD
// rows inside their foreach_target loop.
#if defined(INLAY_KERNELS_SIMD_KV_ROW_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef INLAY_KERNELS_SIMD_KV_ROW_INL_H_
#undef INLAY_KERNELS_SIMD_KV_ROW_INL_H_
#else
#define INLAY_KERNELS_SIMD_KV_ROW_INL_H_
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/simd_float-inl.h"
#include "memory/kv/kv_layout.h"

HWY_BEFORE_NAMESPACE();
namespace inlay {
namespace HWY_NAMESPACE {

// kLanes codes at `codes`, times `scale`.
HWY_INLINE VF ScaleI8(const uint8_t* codes, VF scale) {
  const hn::Rebind<int8_t, DF> d8;
  const hn::RebindToSigned<DF> di;
  const auto code = hn::LoadU(d8, reinterpret_cast<const int8_t*>(codes));
  return hn::Mul(hn::ConvertTo(DF(), hn::PromoteTo(di, code)), scale);
}

// The same; `scale` is 2^8 times the row's, because the bits of e4m3, moved to
// where a half has its own, say 2^-8 of the value. Subnormals included, the NaN
// codes are not: rows have none.
HWY_INLINE VF ScaleF8(const uint8_t* codes, VF scale) {
  const hn::Rebind<uint8_t, DF> d8;
  const hn::Rebind<uint16_t, DF> d16;
  const hn::Rebind<hwy::float16_t, DF> dh;
  const auto code = hn::PromoteTo(d16, hn::LoadU(d8, codes));
  const auto sign = hn::And(code, hn::Set(d16, 0x80));
  const auto magnitude = hn::And(code, hn::Set(d16, 0x7f));
  const auto half = hn::Or(hn::ShiftLeft<8>(sign), hn::ShiftLeft<7>(magnitude));
  return hn::Mul(hn::PromoteTo(DF(), hn::BitCast(dh, half)), scale);
}

template <bool kFloat>
HWY_INLINE void WidenBytesRow(const std::byte* row, size_t count, float* to,
                              size_t padded) {
  float scalar;
  std::memcpy(&scalar, row, sizeof(scalar));
  const VF scale = hn::Set(DF(), kFloat ? scalar * 256.0f : scalar);
  const auto* codes = reinterpret_cast<const uint8_t*>(row + kKvScaleBytes);
  const auto widen = [scale](const uint8_t* from) HWY_ATTR {
    return kFloat ? ScaleF8(from, scale) : ScaleI8(from, scale);
  };
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    hn::Store(widen(codes + i), DF(), to + i);
  }
  if (i < count) {
    uint8_t tail[kLanes] = {};
    std::memcpy(tail, codes + i, count - i);
    hn::Store(widen(tail), DF(), to + i);
    i += kLanes;
  }
  for (; i < padded; i += kLanes) hn::Store(hn::Zero(DF()), DF(), to + i);
}

HWY_INLINE void WidenQ4Row(const std::byte* row, float* to, size_t padded) {
  const DF d;
  const hn::Rebind<uint8_t, DF> d8;
  const hn::RebindToSigned<DF> di;
  constexpr size_t kHalf = kKvQ4Group / 2;
  static_assert(kHalf % kLanes == 0);
  for (size_t begin = 0; begin < padded; begin += kKvQ4Group) {
    uint16_t bits[2];
    std::memcpy(bits, row, sizeof(bits));
    const VF scale = hn::Set(d, BF16ToF32(bits[0]));
    const VF least = hn::Set(d, BF16ToF32(bits[1]));
    const auto* codes = reinterpret_cast<const uint8_t*>(row + sizeof(bits));
    const bool whole = begin + kHalf < padded;
    for (size_t j = 0; j < kHalf; j += kLanes) {
      const auto pair = hn::PromoteTo(di, hn::LoadU(d8, codes + j));
      const auto low = hn::And(pair, hn::Set(di, 15));
      const auto high = hn::ShiftRight<4>(pair);
      // The product is exact: fused or not is the same.
      hn::Store(hn::MulAdd(hn::ConvertTo(d, low), scale, least), d,
                to + begin + j);
      if (!whole) continue;
      hn::Store(hn::MulAdd(hn::ConvertTo(d, high), scale, least), d,
                to + begin + kHalf + j);
    }
    row += sizeof(bits) + kHalf;
  }
}

// Widens the row of `count` elements into `to` [0, padded), padded being count
// rounded up to a multiple of 2 * kLanes. What lies beyond count is finite
// unless the row is NaN.
template <DType kKv>
HWY_INLINE void WidenKvRow(const std::byte* row, size_t count, float* to,
                           size_t padded) {
  if constexpr (kKv == DType::kI8) {
    WidenBytesRow<false>(row, count, to, padded);
  } else if constexpr (kKv == DType::kF8E4M3) {
    WidenBytesRow<true>(row, count, to, padded);
  } else if constexpr (kKv == DType::kKvQ4) {
    WidenQ4Row(row, to, padded);
  } else if constexpr (kKv == DType::kF16) {
    WidenRow(reinterpret_cast<const hwy::float16_t*>(row), count, to, padded);
  } else if constexpr (kKv == DType::kBF16) {
    WidenRow(reinterpret_cast<const hwy::bfloat16_t*>(row), count, to, padded);
  } else {
    static_assert(kKv == DType::kF32);
    WidenRow(reinterpret_cast<const float*>(row), count, to, padded);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace inlay
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
