// Codes of a unit (layout.h) as operands of the tensor cores: levels as exact
// bf16 or f16, two a register, by arithmetic on their bits. A lane decodes what
// it loads itself.
#ifndef INLAY_KERNELS_GEMM_QUANTISED_DECODE_CUH_
#define INLAY_KERNELS_GEMM_QUANTISED_DECODE_CUH_

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#include "kernels/gemm/quantised/layout.h"

namespace inlay {

template <typename T>
inline constexpr bool kIsBf16 = std::is_same_v<T, __nv_bfloat16>;

// (a & mask) | bits.
__device__ inline uint32_t MaskOr(uint32_t a, uint32_t mask, uint32_t bits) {
  uint32_t d;
  asm("lop3.b32 %0, %1, %2, %3, 0xea;"
      : "=r"(d)
      : "r"(a), "r"(mask), "r"(bits));
  return d;
}
template <typename T>
__device__ inline uint32_t SubtractPairs(uint32_t a, uint32_t b) {
  uint32_t d;
  if constexpr (kIsBf16<T>) {
    const __nv_bfloat162 r = __hsub2(*reinterpret_cast<__nv_bfloat162*>(&a),
                                     *reinterpret_cast<__nv_bfloat162*>(&b));
    d = *reinterpret_cast<const uint32_t*>(&r);
  } else {
    const __half2 r = __hsub2(*reinterpret_cast<__half2*>(&a),
                              *reinterpret_cast<__half2*>(&b));
    d = *reinterpret_cast<const uint32_t*>(&r);
  }
  return d;
}
template <typename T>
__device__ inline uint32_t MultiplyPairs(uint32_t a, uint32_t b) {
  uint32_t d;
  if constexpr (kIsBf16<T>) {
    const __nv_bfloat162 r = __hmul2(*reinterpret_cast<__nv_bfloat162*>(&a),
                                     *reinterpret_cast<__nv_bfloat162*>(&b));
    d = *reinterpret_cast<const uint32_t*>(&r);
  } else {
    const __half2 r = __hmul2(*reinterpret_cast<__half2*>(&a),
                              *reinterpret_cast<__half2*>(&b));
    d = *reinterpret_cast<const uint32_t*>(&r);
  }
  return d;
}

// The 16 levels of a table as bytes of their 16-bit floats.
struct LevelBytes {
  uint32_t low[4];
  uint32_t high[4];
  bool e2m1;  // twice the floats that the codes are (kernels/quant/fp4.h)
};
template <typename T>
__host__ __device__ inline LevelBytes LevelBytesOf(const QuantForm& form) {
  constexpr float kE2M1[] = {0, 1, 2, 3, 4, 6, 8, 12};
  LevelBytes bytes = {};
  bytes.e2m1 = form.codes == QuantCodes::kTable4;
  for (int i = 0; i < 16; ++i) {
    bytes.e2m1 =
        bytes.e2m1 && form.levels[i] == (i < 8 ? kE2M1[i] : -kE2M1[i - 8]);
    const auto level = static_cast<T>(form.levels[i]);
    const auto bits = *reinterpret_cast<const uint16_t*>(&level);
    bytes.low[i / 4] |= static_cast<uint32_t>(bits & 0xff) << 8 * (i % 4);
    bytes.high[i / 4] |= static_cast<uint32_t>(bits >> 8) << 8 * (i % 4);
  }
  return bytes;
}

// Four codes, nibbles of `codes` without their top bits, which `choose` has as
// selectors of halves of the table.
__device__ inline uint32_t LookUp4(const uint32_t* table, uint32_t codes,
                                   uint32_t choose) {
  return __byte_perm(__byte_perm(table[0], table[1], codes),
                     __byte_perm(table[2], table[3], codes), choose);
}

// Of 16 columns, whose codes are `word`. `low`, `high`: of LevelBytes.
__device__ inline void LookUpOperand(uint32_t word, const uint32_t* low,
                                     const uint32_t* high, uint32_t (&a)[4]) {
  const uint32_t codes = word & 0x77777777u;
  const uint32_t choose = MaskOr(word >> 1, 0x44444444u, 0x32103210u);
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const uint32_t lower = LookUp4(low, codes >> 16 * i, choose >> 16 * i);
    const uint32_t upper = LookUp4(high, codes >> 16 * i, choose >> 16 * i);
    a[i] = __byte_perm(lower, upper, 0x5140);
    a[i + 2] = __byte_perm(lower, upper, 0x7362);
  }
}

// Two codes of e4m3 in the upper bytes of halves as floats whose fields are
// theirs: T's exponent has another bias, so that they are less by 2^120 in bf16
// and 2^8 in f16. Numbers below the normal ones are so here, too.
template <typename T>
__device__ inline uint32_t E4M3Fields(uint32_t upper_bytes) {
  constexpr int kDown = kIsBf16<T> ? 4 : 1;
  constexpr uint32_t kMask = kIsBf16<T> ? 0x07f007f0u : 0x3f803f80u;
  return MaskOr(upper_bytes, 0x80008000u, upper_bytes >> kDown & kMask);
}

// The words of 64 columns that a lane has: Load, then Operand for each 16.
// kFolded: levels have an offset left in them (kOffset), which saves its
// subtraction.
template <QuantCodes kCodes, typename T, bool kFolded = false>
struct QuantDecoder;

// Integers in the mantissa of a power of two: 128 in bf16, 1024 in f16.
template <typename T>
struct QuantMagic {
  static constexpr float kOffset = kIsBf16<T> ? 128.0f : 1024.0f;
  static constexpr uint32_t kBits = kIsBf16<T> ? 0x43004300u : 0x64006400u;
  // kOffset + middle.
  __host__ __device__ static constexpr uint32_t Middle(uint32_t middle) {
    return kBits + middle * 0x00010001u;
  }
};

template <typename T, bool kFolded>
struct QuantDecoder<QuantCodes::kLinear4, T, kFolded> {
  using Magic = QuantMagic<T>;
  static constexpr float kOffset = kFolded ? Magic::kOffset + 8.0f : 0.0f;
  __device__ void Load(const uint8_t* unit, int lane, int piece,
                       const LevelBytes&) {
    const uint4 v =
        *reinterpret_cast<const uint4*>(unit + piece * 512 + lane * 16);
    words[0] = v.x, words[1] = v.y, words[2] = v.z, words[3] = v.w;
  }
  __device__ void Operand(int q, uint32_t (&a)[4]) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      a[i] = MaskOr(words[q] >> 4 * i, 0x000f000fu, Magic::kBits);
      if (!kFolded) a[i] = SubtractPairs<T>(a[i], Magic::Middle(8));
    }
  }
  uint32_t words[4];
};

template <typename T, bool kFolded>
struct QuantDecoder<QuantCodes::kLinear6, T, kFolded> {
  using Magic = QuantMagic<T>;
  static constexpr float kOffset = kFolded ? Magic::kOffset + 32.0f : 0.0f;
  __device__ void Load(const uint8_t* unit, int lane, int piece,
                       const LevelBytes&) {
    const uint4 v =
        *reinterpret_cast<const uint4*>(unit + piece * 512 + lane * 16);
    const uint2 h =
        *reinterpret_cast<const uint2*>(unit + 1024 + lane * 16 + piece * 8);
    words[0] = v.x, words[1] = v.y, words[2] = v.z, words[3] = v.w;
    high[0] = h.x, high[1] = h.y;
  }
  __device__ void Operand(int q, uint32_t (&a)[4]) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int shift = 8 * (q % 2) + 2 * i - 4;  // to bit 4
      const uint32_t two =
          shift < 0 ? high[q / 2] << -shift : high[q / 2] >> shift;
      a[i] = MaskOr(two, 0x00300030u,
                    MaskOr(words[q] >> 4 * i, 0x000f000fu, Magic::kBits));
      if (!kFolded) a[i] = SubtractPairs<T>(a[i], Magic::Middle(32));
    }
  }
  uint32_t words[4];
  uint32_t high[2];
};

template <typename T>
struct QuantDecoder<QuantCodes::kTable4, T, false> {
  static constexpr float kOffset = 0.0f;
  __device__ void Load(const uint8_t* unit, int lane, int piece,
                       const LevelBytes& levels) {
    const uint4 v =
        *reinterpret_cast<const uint4*>(unit + piece * 512 + lane * 16);
    words[0] = v.x, words[1] = v.y, words[2] = v.z, words[3] = v.w;
    table = levels;
  }
  __device__ void Operand(int q, uint32_t (&a)[4]) const {
    LookUpOperand(words[q], table.low, table.high, a);
  }
  uint32_t words[4];
  LevelBytes table;
};

// A table of LevelBytes::e2m1 by arithmetic, a good half of the instructions:
// exponent and mantissa moved to those of T, then 2^127 or 2^15 for the
// difference of their biases and for twice: exact, 1 (half of 2) too.
template <typename T>
struct E2M1Decoder {
  static constexpr float kOffset = 0.0f;
  static constexpr uint32_t kUp = kIsBf16<T> ? 6 : 9;
  static constexpr uint32_t kMask = kIsBf16<T> ? 0x01c001c0u : 0x0e000e00u;
  static constexpr uint32_t kFactor = kIsBf16<T> ? 0x7f007f00u : 0x78007800u;
  __device__ void Load(const uint8_t* unit, int lane, int piece,
                       const LevelBytes&) {
    const uint4 v =
        *reinterpret_cast<const uint4*>(unit + piece * 512 + lane * 16);
    words[0] = v.x, words[1] = v.y, words[2] = v.z, words[3] = v.w;
  }
  __device__ void Operand(int q, uint32_t (&a)[4]) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      // The lower nibble where the lower half wants it, and the upper one,
      // four bits on, where the upper half does.
      const int byte = i % 2 * 2 + i / 2;  // QuantCodeAt
      const uint32_t two =
          byte == 3 ? words[q] >> 24 : __byte_perm(words[q], 0, 0x4440 + byte);
      const uint32_t moved = two * (1u << kUp | 1u << (kUp + 12));
      a[i] = MultiplyPairs<T>(
          MaskOr(moved << (12 - kUp), 0x80008000u, moved & kMask), kFactor);
    }
  }
  uint32_t words[4];
};

// What forms of 8 bits share: 16 bytes for 32 columns.
struct QuantBytes8 {
  static constexpr float kOffset = 0.0f;
  __device__ void Load(const uint8_t* unit, int lane, int piece,
                       const LevelBytes&) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const uint4 v = *reinterpret_cast<const uint4*>(
          unit + (piece * 2 + i) * 512 + lane * 16);
      words[4 * i] = v.x, words[4 * i + 1] = v.y;
      words[4 * i + 2] = v.z, words[4 * i + 3] = v.w;
    }
  }
  uint32_t words[8];
};

template <typename T>
struct QuantDecoder<QuantCodes::kInt8, T, false> : QuantBytes8 {
  // In each half's low byte.
  __device__ static uint32_t Level(uint32_t w) {
    using Magic = QuantMagic<T>;
    if constexpr (kIsBf16<T>) {
      // Seven bits above 128, less 128 or, where the eighth is set, 256.
      return SubtractPairs<T>(MaskOr(w, 0x007f007fu, Magic::kBits),
                              MaskOr(w, 0x00800080u, Magic::kBits));
    } else {
      return SubtractPairs<T>(
          MaskOr(w ^ 0x00800080u, 0x00ff00ffu, Magic::kBits),
          Magic::Middle(128));
    }
  }
  __device__ void Operand(int q, uint32_t (&a)[4]) const {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      a[2 * i] = Level(words[2 * q + i]);
      a[2 * i + 1] = Level(words[2 * q + i] >> 8);
    }
  }
};

template <typename T>
struct QuantDecoder<QuantCodes::kE4M3, T, false> : QuantBytes8 {
  // 2^120 or 2^8.
  static constexpr uint32_t kFactor = kIsBf16<T> ? 0x7b807b80u : 0x5c005c00u;
  __device__ static uint32_t Level(uint32_t upper_bytes) {
    return MultiplyPairs<T>(E4M3Fields<T>(upper_bytes), kFactor);
  }
  __device__ void Operand(int q, uint32_t (&a)[4]) const {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      a[2 * i] = Level(words[2 * q + i] << 8);
      a[2 * i + 1] = Level(words[2 * q + i]);
    }
  }
};

}  // namespace inlay

#endif  // INLAY_KERNELS_GEMM_QUANTISED_DECODE_CUH_
