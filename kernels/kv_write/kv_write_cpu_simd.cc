// kv_write, the vector row: writes the bytes that EncodeKvRow (kv_row.h)
// writes. Narrowing is done in integers, the same on every target, because
// what conversion instructions do with NaN differs.
#include "kernels/simd_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/kv_write/kv_write_cpu_simd.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <cstdint>
#include <cstring>

#include "kernels/kv_write/kv_row.h"
#include "kernels/kv_write/kv_write.h"
#include "kernels/simd_float-inl.h"
#include "memory/device/thread_pool.h"

HWY_BEFORE_NAMESPACE();
namespace inlay {
namespace HWY_NAMESPACE {
namespace kv_write {

using DI = hn::RebindToSigned<DF>;
using VI = hn::Vec<DI>;

HWY_INLINE VI Bits(VF x) { return hn::BitCast(DI(), x); }
HWY_INLINE VI Integer(int32_t value) { return hn::Set(DI(), value); }
HWY_INLINE VI Magnitude(VF x) { return hn::And(Bits(x), Integer(0x7fffffff)); }
// The sign bit moved down by kShift.
template <int kShift>
HWY_INLINE VI Sign(VF x) {
  return hn::And(hn::ShiftRight<kShift>(Bits(x)),
                 Integer(static_cast<int32_t>(0x80000000u >> kShift)));
}
// What rounding to nearest even adds before the lowest kShift bits are dropped.
template <int kShift>
HWY_INLINE VI RoundUp(VI bits) {
  const VI odd = hn::And(hn::ShiftRight<kShift>(bits), Integer(1));
  return hn::Add(odd, Integer((1 << (kShift - 1)) - 1));
}

// The vector forms of memory/dtype.h's F32ToF16, F32ToBF16 and F32ToF8E4M3 (the
// last for magnitudes up to 448); results in the low bits of each lane.
HWY_INLINE VI ToF16(VF x) {
  const VI magnitude = Magnitude(x);
  const VI rounded = hn::Add(magnitude, RoundUp<13>(magnitude));
  const VI normal = hn::ShiftRight<13>(hn::Sub(rounded, Integer(0x38000000)));
  const VF aligned = hn::Add(hn::BitCast(DF(), magnitude), hn::Set(DF(), 0.5f));
  const VI subnormal = hn::Sub(Bits(aligned), Integer(0x3f000000));
  VI half =
      hn::IfThenElse(hn::Lt(magnitude, Integer(0x38800000)), subnormal, normal);
  half = hn::IfThenElse(hn::Gt(magnitude, Integer(0x477fefff)), Integer(0x7c00),
                        half);
  half = hn::IfThenElse(hn::Gt(magnitude, Integer(0x7f800000)), Integer(0x7e00),
                        half);
  return hn::Or(half, Sign<16>(x));
}

HWY_INLINE VI ToBF16(VF x) {
  const VI magnitude = Magnitude(x);
  // Magnitudes stay below 2^31, so that the sum cannot overflow.
  const VI rounded =
      hn::ShiftRight<16>(hn::Add(magnitude, RoundUp<16>(magnitude)));
  const VI quiet = hn::Or(hn::ShiftRight<16>(magnitude), Integer(0x40));
  const VI bits =
      hn::IfThenElse(hn::Gt(magnitude, Integer(0x7f800000)), quiet, rounded);
  return hn::Or(bits, Sign<16>(x));
}

HWY_INLINE VI ToF8(VF x) {
  const VI magnitude = Magnitude(x);
  const VI rounded = hn::Add(magnitude, RoundUp<20>(magnitude));
  const VI normal = hn::ShiftRight<20>(hn::Sub(rounded, Integer(0x3c000000)));
  const VF aligned =
      hn::Add(hn::BitCast(DF(), magnitude), hn::Set(DF(), 0x1p14f));
  const VI subnormal = hn::Sub(Bits(aligned), Integer(0x46800000));
  return hn::Or(
      hn::IfThenElse(hn::Lt(magnitude, Integer(0x3c800000)), subnormal, normal),
      Sign<24>(x));
}

// to[0 .. count) = convert(x), whose lanes are in the range of T.
template <typename T, class Convert>
HWY_INLINE void NarrowRow(const float* x, size_t count, T* to,
                          Convert convert) {
  const hn::Rebind<T, DF> d;
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    hn::StoreU(hn::DemoteTo(d, convert(LoadWide(x + i))), d, to + i);
  }
  if (i == count) return;
  T tail[kLanes];
  hn::StoreU(hn::DemoteTo(d, convert(LoadWideTail(x + i, count - i))), d, tail);
  std::memcpy(to + i, tail, (count - i) * sizeof(T));
}

// The largest magnitude of the row, or NaN where that is too large.
HWY_INLINE float Most(const float* x, size_t count) {
  VI most = hn::Zero(DI());
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    most = hn::Max(most, Magnitude(LoadWide(x + i)));
  }
  if (i < count) {
    most = hn::Max(most, Magnitude(LoadWideTail(x + i, count - i)));
  }
  const auto bits =
      static_cast<uint32_t>(hn::GetLane(hn::MaxOfLanes(DI(), most)));
  return bits < kKvNotFiniteBits ? std::bit_cast<float>(bits) : kKvNan;
}

// Rounded to integers; the low bits of the lanes are theirs.
HWY_INLINE VI ToInteger(VF x) {
  return Bits(hn::Add(x, hn::Set(DF(), kKvToInteger)));
}

template <DType kKv>
HWY_INLINE void EncodeBytes(const float* x, size_t count, std::byte* row) {
  const size_t bytes = KvRowBytes(kKv, static_cast<int>(count));
  std::memset(row + bytes - 4, 0, 4);
  const float most = Most(x, count);
  if (!(most >= 0.0f)) {
    std::memset(row, 0, bytes);
    std::memcpy(row, &kKvNan, sizeof(kKvNan));
    return;
  }
  const KvScale scale = kKv == DType::kI8 ? KvI8Scale(most) : KvF8Scale(most);
  std::memcpy(row, &scale.scale, sizeof(scale.scale));
  const VF inverse = hn::Set(DF(), scale.inverse);
  NarrowRow(x, count, reinterpret_cast<uint8_t*>(row + kKvScaleBytes),
            [inverse](VF v) HWY_ATTR {
              const VF y = hn::Mul(v, inverse);
              if constexpr (kKv == DType::kF8E4M3) return ToF8(y);
              return hn::And(ToInteger(y), Integer(0xff));
            });
}

HWY_INLINE void EncodeGroup(const float* x, std::byte* group) {
  const DF d;
  const hn::Rebind<uint8_t, DF> d8;
  constexpr size_t kHalf = kKvQ4Group / 2;
  VF low = LoadWide(x);
  VF high = low;
  for (size_t i = kLanes; i < kKvQ4Group; i += kLanes) {
    low = hn::Min(low, LoadWide(x + i));
    high = hn::Max(high, LoadWide(x + i));
  }
  const KvQ4Scale scale = KvQ4GroupScale(hn::GetLane(hn::MinOfLanes(d, low)),
                                         hn::GetLane(hn::MaxOfLanes(d, high)));
  std::memcpy(group, &scale.scale_bits, 2);
  std::memcpy(group + 2, &scale.least_bits, 2);
  const VF least = hn::Set(d, scale.least);
  const VF inverse = hn::Set(d, scale.inverse);
  const auto code = [&](const float* from) HWY_ATTR {
    const VF y = hn::Mul(hn::Sub(LoadWide(from), least), inverse);
    return hn::And(ToInteger(y), Integer(15));
  };
  for (size_t j = 0; j < kHalf; j += kLanes) {
    const VI pair = hn::Or(code(x + j), hn::ShiftLeft<4>(code(x + kHalf + j)));
    hn::StoreU(hn::DemoteTo(d8, pair), d8,
               reinterpret_cast<uint8_t*>(group + 4 + j));
  }
}

HWY_INLINE void EncodeQ4(const float* x, size_t count, std::byte* row) {
  constexpr size_t kBytes = KvRowBytes(DType::kKvQ4, kKvQ4Group);
  if (!(Most(x, count) >= 0.0f)) {
    // Rare, and the same bytes.
    return EncodeKvRow(DType::kKvQ4, x, static_cast<int>(count), row);
  }
  size_t i = 0;
  for (; i + kKvQ4Group <= count; i += kKvQ4Group, row += kBytes) {
    EncodeGroup(x + i, row);
  }
  if (i == count) return;
  float group[kKvQ4Group];
  for (size_t j = 0; j < kKvQ4Group; ++j) {
    group[j] = x[HWY_MIN(i + j, count - 1)];
  }
  EncodeGroup(group, row);
}

template <DType kKv>
HWY_INLINE void EncodeRow(const float* x, size_t count, std::byte* row) {
  if constexpr (kKv == DType::kF32) {
    std::memcpy(row, x, count * sizeof(float));
  } else if constexpr (kKv == DType::kF16) {
    NarrowRow(x, count, reinterpret_cast<uint16_t*>(row),
              [](VF v) HWY_ATTR { return ToF16(v); });
  } else if constexpr (kKv == DType::kBF16) {
    NarrowRow(x, count, reinterpret_cast<uint16_t*>(row),
              [](VF v) HWY_ATTR { return ToBF16(v); });
  } else if constexpr (kKv == DType::kKvQ4) {
    EncodeQ4(x, count, row);
  } else {
    EncodeBytes<kKv>(x, count, row);
  }
}

template <DType kKv>
HWY_NOINLINE void WriteTokens(const KvWriteDesc& desc,
                              const KvWriteParams& params, int64_t begin,
                              int64_t end) {
  const auto dim = static_cast<size_t>(desc.head_dim);
  for (int64_t token = begin; token < end; ++token) {
    const int64_t row = KvRowSlot(params.slots[token], desc.row_tokens);
    if (desc.row_tokens > 1 && row < 0) continue;
    const int64_t block = row / params.kv.block_size;
    const auto slot = static_cast<int>(row % params.kv.block_size);
    const float* k = params.k.row<float>(token);
    for (int head = 0; head < desc.num_kv_heads; ++head, k += dim) {
      EncodeRow<kKv>(k, dim, params.kv.KeyRow(block, head, slot));
    }
    if (desc.keys_only) continue;
    const float* v = params.v.row<float>(token);
    for (int head = 0; head < desc.num_kv_heads; ++head, v += dim) {
      EncodeRow<kKv>(v, dim, params.kv.ValueRow(block, head, slot));
    }
  }
}

}  // namespace kv_write

void RunKvWrite(const KvWriteDesc& desc, const KvWriteParams& params,
                ThreadPool& pool) {
  const auto run = [&](auto write) {
    pool.ParallelFor(params.k.rows(), 4, [&](int64_t begin, int64_t end) {
      write(desc, params, begin, end);
    });
  };
  switch (desc.kv) {
    case DType::kF16:
      return run(kv_write::WriteTokens<DType::kF16>);
    case DType::kBF16:
      return run(kv_write::WriteTokens<DType::kBF16>);
    case DType::kI8:
      return run(kv_write::WriteTokens<DType::kI8>);
    case DType::kF8E4M3:
      return run(kv_write::WriteTokens<DType::kF8E4M3>);
    case DType::kKvQ4:
      return run(kv_write::WriteTokens<DType::kKvQ4>);
    default:
      return run(kv_write::WriteTokens<DType::kF32>);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace inlay
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace inlay {
HWY_EXPORT(RunKvWrite);

absl::Status RunKvWriteCpuSimd(const KvWriteDesc& desc,
                               const KvWriteParams& params, Stream& stream) {
  HWY_DYNAMIC_DISPATCH(RunKvWrite)(desc, params, *stream.thread_pool());
  return absl::OkStatus();
}

}  // namespace inlay
#endif  // HWY_ONCE
