// Levels times their scales, with their minima, as operands of the tensor
// cores: weights rounded to x's type. QUANTISED.md says what that costs.
#ifndef INLAY_KERNELS_GEMM_QUANTISED_OPERAND_SCALES_CUH_
#define INLAY_KERNELS_GEMM_QUANTISED_OPERAND_SCALES_CUH_

#include "kernels/cuda_float.cuh"
#include "kernels/gemm/quantised/decode.cuh"

namespace inlay {

// Levels that are operands are scaled by 2^-8 in f16, which scale * level would
// overflow; the rows' factors make up for it.
template <typename T>
inline constexpr float kOperandFactor = kIsBf16<T> ? 1.0f : 256.0f;

template <typename T>
__device__ inline uint32_t MultiplyAddPairs(uint32_t a, uint32_t b,
                                            uint32_t c) {
  uint32_t d;
  if constexpr (kIsBf16<T>) {
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
  } else {
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
  }
  return d;
}

// scale and min of a lane's two rows, twice each, for operands' pairs.
template <typename T, bool kHasMin>
struct OperandScales {
  __device__ static void Widen(uint32_t bits, uint32_t (&to)[2]) {
    if constexpr (kIsBf16<T>) {
      const float2 two = WidenPair<__half>(bits);
      to[0] = NarrowPair<T>(two.x, two.x);
      to[1] = NarrowPair<T>(two.y, two.y);
    } else {
      const uint32_t two = MultiplyPairs<T>(bits, 0x1c001c00u);  // 2^-8
      to[0] = __byte_perm(two, two, 0x1010);
      to[1] = __byte_perm(two, two, 0x3232);
    }
  }
  // `at`: of this lane's rows.
  __device__ void Load(const uint8_t* at) {
    if constexpr (kHasMin) {
      const uint2 bits = *reinterpret_cast<const uint2*>(at);
      Widen(bits.x, scale);
      Widen(bits.y, min);
    } else {
      Widen(*reinterpret_cast<const uint32_t*>(at), scale);
    }
  }
  __device__ void Apply(uint32_t (&a)[4]) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      a[i] = kHasMin ? MultiplyAddPairs<T>(a[i], scale[i % 2], min[i % 2])
                     : MultiplyPairs<T>(a[i], scale[i % 2]);
    }
  }
  uint32_t scale[2];
  uint32_t min[2];
};

}  // namespace inlay

#endif  // INLAY_KERNELS_GEMM_QUANTISED_OPERAND_SCALES_CUH_
