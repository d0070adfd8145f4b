// wgmma over codes of 8 bits: d [64, N] += a [64, 32] b [32, N], as
// attention/wgmma_sm90.h has it for 16 bits. Of `a` lane 4 g + t of a warp has,
// in four registers of four columns, rows g, g + 8, g, g + 8 and columns 4 t,
// 4 t, 16 + 4 t, 16 + 4 t on. e4m3's sums keep some 14 bits, which are few for
// many columns: add them up elsewhere (arXiv:2412.19437, 3.3.2). Source: PTX
// ISA 9.0, 9.7.15.
#ifndef INLAY_KERNELS_GEMM_QUANTISED_WGMMA_CODES_SM90_CUH_
#define INLAY_KERNELS_GEMM_QUANTISED_WGMMA_CODES_SM90_CUH_

#include <cstdint>

namespace inlay {

// Issue(d, a, b, accumulate): d is overwritten where `accumulate` is 0. kN 64
// or 128.
template <typename Sum, int kN>
struct WgmmaCodes;

#define INLAY_C8(kind, i)                                                     \
  "+" kind(d[i]), "+" kind(d[i + 1]), "+" kind(d[i + 2]), "+" kind(d[i + 3]), \
      "+" kind(d[i + 4]), "+" kind(d[i + 5]), "+" kind(d[i + 6]),             \
      "+" kind(d[i + 7])
#define INLAY_C32(kind, i)                                          \
  INLAY_C8(kind, i), INLAY_C8(kind, i + 8), INLAY_C8(kind, i + 16), \
      INLAY_C8(kind, i + 24)
#define INLAY_C64(kind, i) INLAY_C32(kind, i), INLAY_C32(kind, i + 32)

// The sums' type and constraint, types in the instruction, what it says of
// signs, then operand numbers: d's, a's, b's and of `accumulate`.
#define INLAY_WGMMA_CODES(sum, kind, n, types, signs, operands, numbers, as, \
                          b_at, accumulate_at)                               \
  template <>                                                                \
  struct WgmmaCodes<sum, n> {                                                \
    __device__ static void Issue(sum (&d)[n / 2], const uint32_t (&a)[4],    \
                                 uint64_t b, int accumulate) {               \
      asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " accumulate_at         \
                   ", 0;\nwgmma.mma_async.sync.aligned.m64n" #n "k32." types \
                   " {" numbers "}, {" as "}, " b_at ", p" signs ";\n}\n"    \
                   : operands(kind, 0)                                       \
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b),     \
                     "r"(accumulate));                                       \
    }                                                                        \
  };

#define INLAY_NUMBERS_64                                                   \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, " \
  "%30, %31"
#define INLAY_NUMBERS_128                                                    \
  INLAY_NUMBERS_64                                                           \
  ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, " \
  "%46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, "   \
  "%60, %61, %62, %63"

INLAY_WGMMA_CODES(float, "f", 64, "f32.e4m3.e4m3", ", 1, 1", INLAY_C32,
                  INLAY_NUMBERS_64, "%32, %33, %34, %35", "%36", "%37")
INLAY_WGMMA_CODES(float, "f", 128, "f32.e4m3.e4m3", ", 1, 1", INLAY_C64,
                  INLAY_NUMBERS_128, "%64, %65, %66, %67", "%68", "%69")
INLAY_WGMMA_CODES(int32_t, "r", 64, "s32.s8.s8", "", INLAY_C32,
                  INLAY_NUMBERS_64, "%32, %33, %34, %35", "%36", "%37")
INLAY_WGMMA_CODES(int32_t, "r", 128, "s32.s8.s8", "", INLAY_C64,
                  INLAY_NUMBERS_128, "%64, %65, %66, %67", "%68", "%69")

#undef INLAY_WGMMA_CODES
#undef INLAY_NUMBERS_64
#undef INLAY_NUMBERS_128
#undef INLAY_C8
#undef INLAY_C32
#undef INLAY_C64

}  // namespace inlay

#endif  // INLAY_KERNELS_GEMM_QUANTISED_WGMMA_CODES_SM90_CUH_
