// Packed weights as operands of the tensor cores that are rounded to x's type:
// what kernels with one order of sums for all numbers of rows multiply, each
// the same bits. Weights come without their rows' factors and times 2^-20 in
// bf16, 2^-8 in f16 (kRoundedFactor).
//
// f16: levels as decode.cuh has them, times scales, plus minima.
//
// bf16: codes as they lie are numbers. A code in the lower bits of a float
// whose other bits are zero is 2^-133 times the code; up to 8 bits, for the
// numbers of the lowest exponent have the same spacing. scale times 2^113
// makes up for it, and what codes are to be less by (`kMiddle`) is subtracted
// with it in one operation, exactly, whose result is rounded once. With a
// minimum it is that less kMiddle times the rounded scale that is rounded: off
// by u |min - kMiddle scale|. So int8 with minima has its levels first.
#ifndef INLAY_KERNELS_GEMM_QUANTISED_ROUNDED_CODES_CUH_
#define INLAY_KERNELS_GEMM_QUANTISED_ROUNDED_CODES_CUH_

#include <type_traits>

#include "kernels/cuda_float.cuh"
#include "kernels/gemm/quantised/decode.cuh"
#include "kernels/gemm/quantised/operand_scales.cuh"

namespace inlay {

// What sums of these weights times x are to be multiplied by.
template <typename T>
inline constexpr float kRoundedFactor = kIsBf16<T> ? 0x1p20f : 256.0f;

// 2^exponent.
__host__ __device__ constexpr float PowerOfTwo(int exponent) {
  float power = 1.0f;
  for (int i = 0; i < exponent; ++i) power *= 2.0f;
  for (int i = 0; i > exponent; --i) power *= 0.5f;
  return power;
}

// Codes as numbers of bf16: level = 2^kDown number - kMiddle, of a tile's
// upper eight rows 2^(kDown - kUpper) number - kMiddle.
template <QuantCodes kCodes, bool kHasMin, bool kIsE2M1>
struct BareCodes;

template <bool kHasMin>
struct BareCodes<QuantCodes::kLinear4, kHasMin, false> {
  static constexpr int kDown = 133;
  static constexpr int kUpper = 4;
  static constexpr int kMiddle = 8;
  __device__ void Load(const uint8_t* unit, int lane, int piece,
                       const LevelBytes& levels) {
    decoder.Load(unit, lane, piece, levels);
  }
  __device__ void Operand(int q, uint32_t (&a)[4]) const {
    const uint32_t upper = decoder.words[q] >> 8;
    a[0] = decoder.words[q] & 0x000f000fu;
    a[1] = decoder.words[q] & 0x00f000f0u;
    a[2] = upper & 0x000f000fu;
    a[3] = upper & 0x00f000f0u;
  }
  QuantDecoder<QuantCodes::kLinear4, __nv_bfloat16> decoder;
};

template <bool kHasMin>
struct BareCodes<QuantCodes::kLinear6, kHasMin, false> {
  static constexpr int kDown = 133;
  static constexpr int kUpper = 0;
  static constexpr int kMiddle = 32;
  __device__ void Load(const uint8_t* unit, int lane, int piece,
                       const LevelBytes& levels) {
    decoder.Load(unit, lane, piece, levels);
  }
  __device__ void Operand(int q, uint32_t (&a)[4]) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int shift = 8 * (q % 2) + 2 * i - 4;  // to bit 4
      const uint32_t high = decoder.high[q / 2];
      const uint32_t two = shift < 0 ? high << -shift : high >> shift;
      a[i] = MaskOr(two, 0x00300030u, decoder.words[q] >> 4 * i & 0x000f000fu);
    }
  }
  QuantDecoder<QuantCodes::kLinear6, __nv_bfloat16> decoder;
};

template <>
struct BareCodes<QuantCodes::kInt8, false, false> : QuantBytes8 {
  static constexpr int kDown = 133;
  static constexpr int kUpper = 0;
  static constexpr int kMiddle = 128;
  __device__ void Operand(int q, uint32_t (&a)[4]) const {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const uint32_t word = words[2 * q + i];
      a[2 * i] = (word & 0x00ff00ffu) ^ 0x00800080u;
      a[2 * i + 1] = (word >> 8 & 0x00ff00ffu) ^ 0x00800080u;
    }
  }
};

template <>
struct BareCodes<QuantCodes::kInt8, true, false> : QuantBytes8 {
  static constexpr int kDown = 133;
  static constexpr int kUpper = 0;
  static constexpr int kMiddle = 0;
  // Seven bits less the eighth.
  __device__ static uint32_t Level(uint32_t word) {
    return SubtractPairs<__nv_bfloat16>(word & 0x007f007fu, word & 0x00800080u);
  }
  __device__ void Operand(int q, uint32_t (&a)[4]) const {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      a[2 * i] = Level(words[2 * q + i]);
      a[2 * i + 1] = Level(words[2 * q + i] >> 8);
    }
  }
};

template <>
struct BareCodes<QuantCodes::kE4M3, false, false> : QuantBytes8 {
  static constexpr int kDown = 120;
  static constexpr int kUpper = 0;
  static constexpr int kMiddle = 0;
  __device__ void Operand(int q, uint32_t (&a)[4]) const {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      a[2 * i] = E4M3Fields<__nv_bfloat16>(words[2 * q + i] << 8);
      a[2 * i + 1] = E4M3Fields<__nv_bfloat16>(words[2 * q + i]);
    }
  }
};

template <>
struct BareCodes<QuantCodes::kTable4, false, false>
    : QuantDecoder<QuantCodes::kTable4, __nv_bfloat16> {
  static constexpr int kDown = 0;
  static constexpr int kUpper = 0;
  static constexpr int kMiddle = 0;
};

template <>
struct BareCodes<QuantCodes::kTable4, false, true>
    : E2M1Decoder<__nv_bfloat16> {
  static constexpr int kDown = 0;
  static constexpr int kUpper = 0;
  static constexpr int kMiddle = 0;
};

// Load (a piece of 64 columns), LoadScales (of a group: `at`, of the lane's
// rows), then Operand for each 16 columns.
template <QuantCodes kCodes, bool kHasMin, bool kIsE2M1, typename T>
struct RoundedCodes {  // f16
  using Decoder =
      std::conditional_t<kIsE2M1, E2M1Decoder<T>, QuantDecoder<kCodes, T>>;
  __device__ void Load(const uint8_t* unit, int lane, int piece,
                       const LevelBytes& levels) {
    decoder.Load(unit, lane, piece, levels);
  }
  __device__ void LoadScales(const uint8_t* at) { scales.Load(at); }
  __device__ void Operand(int q, uint32_t (&a)[4]) const {
    decoder.Operand(q, a);
    scales.Apply(a);
  }
  Decoder decoder;
  OperandScales<T, kHasMin> scales;
};

template <QuantCodes kCodes, bool kHasMin, bool kIsE2M1>
struct RoundedCodes<kCodes, kHasMin, kIsE2M1, __nv_bfloat16> {
  using T = __nv_bfloat16;
  using Bare = BareCodes<kCodes, kHasMin, kIsE2M1>;
  static constexpr bool kAdds = kHasMin || Bare::kMiddle > 0;
  static constexpr float kDown = 1.0f / kRoundedFactor<T>;

  __device__ void Load(const uint8_t* unit, int lane, int piece,
                       const LevelBytes& levels) {
    bare.Load(unit, lane, piece, levels);
  }
  __device__ void LoadScales(const uint8_t* at) {
    if constexpr (kHasMin) {
      const uint2 bits = *reinterpret_cast<const uint2*>(at);
      const float2 s = WidenPair<__half>(bits.x);
      const float2 m = WidenPair<__half>(bits.y);
      SetScale<0>(s.x, m.x);
      SetScale<1>(s.y, m.y);
    } else {
      const float2 s =
          WidenPair<__half>(*reinterpret_cast<const uint32_t*>(at));
      SetScale<0>(s.x, 0.0f);
      SetScale<1>(s.y, 0.0f);
    }
  }
  __device__ void Operand(int q, uint32_t (&a)[4]) const {
    bare.Operand(q, a);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      a[i] = kAdds ? MultiplyAddPairs<T>(a[i], scale[i % 2], add[i % 2])
                   : MultiplyPairs<T>(a[i], scale[i % 2]);
    }
  }

 private:
  // Of rows g (0) or g + 8 (1).
  template <int kRow>
  __device__ void SetScale(float scale_of, float min) {
    constexpr int kUp = Bare::kDown - 20 - kRow * Bare::kUpper;
    // Of the middle, in scales that are times 2^kUp.
    constexpr float kMiddle =
        -static_cast<float>(Bare::kMiddle) * PowerOfTwo(-20) * PowerOfTwo(-kUp);
    const float up = scale_of * PowerOfTwo(kUp);
    scale[kRow] = NarrowPair<T>(up, up);
    if constexpr (kHasMin) {
      const float rounded = __uint_as_float(scale[kRow] & 0xffff0000u);
      const float least = fmaf(rounded, kMiddle, min * kDown);
      add[kRow] = NarrowPair<T>(least, least);
    } else if constexpr (kAdds) {
      const float least = __uint_as_float(scale[kRow] & 0xffff0000u) * kMiddle;
      add[kRow] = NarrowPair<T>(least, least);
    }
  }

  Bare bare;
  uint32_t scale[2];
  uint32_t add[2];
};

}  // namespace inlay

#endif  // INLAY_KERNELS_GEMM_QUANTISED_ROUNDED_CODES_CUH_
