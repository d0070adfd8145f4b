// wgmma for few rows of x: d [64, kN] += a [64, 16] b [16, kN], both operands
// in shared memory, rows along k; what a thread holds of d is wgmma_sm90.h's.
// Source: PTX ISA 9.0, 9.7.15.
#ifndef INLAY_KERNELS_GEMM_SKINNY_WGMMA_CUH_
#define INLAY_KERNELS_GEMM_SKINNY_WGMMA_CUH_

#include <cstdint>

#include "kernels/attention/wgmma_sm90.h"

namespace inlay::sm90 {

#define INLAY_D4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define INLAY_D16(i) \
  INLAY_D4(i), INLAY_D4(i + 4), INLAY_D4(i + 8), INLAY_D4(i + 12)
#define INLAY_SKINNY(n, type, numbers, operands, a_number, b_number)          \
  asm volatile("wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." type         \
               " {" numbers "}, %" a_number ", %" b_number ", 1, 1, 1, 0, 0;" \
               : operands                                                     \
               : "l"(a), "l"(b))
#define INLAY_OPERANDS(...) __VA_ARGS__
#define INLAY_S0_3 "%0, %1, %2, %3"
#define INLAY_S0 "%0, %1, %2, %3, %4, %5, %6, %7"
#define INLAY_S8 "%8, %9, %10, %11, %12, %13, %14, %15"

template <typename T, int kN>
__device__ inline void SkinnyWgmma(float (&d)[kN / 2], uint64_t a, uint64_t b) {
  constexpr bool kHalf = std::is_same_v<T, __half>;
  if constexpr (kN == 8) {
    if constexpr (kHalf) {
      INLAY_SKINNY(8, "f16.f16", INLAY_S0_3, INLAY_OPERANDS(INLAY_D4(0)), "4",
                   "5");
    } else {
      INLAY_SKINNY(8, "bf16.bf16", INLAY_S0_3, INLAY_OPERANDS(INLAY_D4(0)), "4",
                   "5");
    }
  } else if constexpr (kN == 16) {
    if constexpr (kHalf) {
      INLAY_SKINNY(16, "f16.f16", INLAY_S0,
                   INLAY_OPERANDS(INLAY_D4(0), INLAY_D4(4)), "8", "9");
    } else {
      INLAY_SKINNY(16, "bf16.bf16", INLAY_S0,
                   INLAY_OPERANDS(INLAY_D4(0), INLAY_D4(4)), "8", "9");
    }
  } else if constexpr (kN == 32) {
    if constexpr (kHalf) {
      INLAY_SKINNY(32, "f16.f16", INLAY_S0 ", " INLAY_S8,
                   INLAY_OPERANDS(INLAY_D16(0)), "16", "17");
    } else {
      INLAY_SKINNY(32, "bf16.bf16", INLAY_S0 ", " INLAY_S8,
                   INLAY_OPERANDS(INLAY_D16(0)), "16", "17");
    }
  } else {
    Wgmma<T, kN>::Issue(d, a, b, 1);
  }
}

#undef INLAY_D4
#undef INLAY_D16
#undef INLAY_SKINNY
#undef INLAY_OPERANDS
#undef INLAY_S0_3
#undef INLAY_S0
#undef INLAY_S8

}  // namespace inlay::sm90

#endif  // INLAY_KERNELS_GEMM_SKINNY_WGMMA_CUH_
