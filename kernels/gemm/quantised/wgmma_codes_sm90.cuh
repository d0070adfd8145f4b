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

// Issue(d, a, b, accumulate): d is overwritten where `accumulate` is 0. kN 64,
// 128, and other multiples of 32 up to 192.
template <typename Sum, int kN>
struct WgmmaCodes;

#define INLAY_C8(kind, i)                                                     \
  "+" kind(d[i]), "+" kind(d[i + 1]), "+" kind(d[i + 2]), "+" kind(d[i + 3]), \
      "+" kind(d[i + 4]), "+" kind(d[i + 5]), "+" kind(d[i + 6]),             \
      "+" kind(d[i + 7])
#define INLAY_C16(kind, i) INLAY_C8(kind, i), INLAY_C8(kind, i + 8)
#define INLAY_C32(kind, i) INLAY_C16(kind, i), INLAY_C16(kind, i + 16)
#define INLAY_C48(kind, i) INLAY_C32(kind, i), INLAY_C16(kind, i + 32)
#define INLAY_C64(kind, i) INLAY_C32(kind, i), INLAY_C32(kind, i + 32)
#define INLAY_C80(kind, i) INLAY_C64(kind, i), INLAY_C16(kind, i + 64)
#define INLAY_C96(kind, i) INLAY_C64(kind, i), INLAY_C32(kind, i + 64)

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
// Of both kinds.
#define INLAY_WGMMA_BOTH(n, operands, numbers, as, b_at, accumulate_at)      \
  INLAY_WGMMA_CODES(float, "f", n, "f32.e4m3.e4m3", ", 1, 1", operands,      \
                    numbers, as, b_at, accumulate_at)                        \
  INLAY_WGMMA_CODES(int32_t, "r", n, "s32.s8.s8", "", operands, numbers, as, \
                    b_at, accumulate_at)

#define INLAY_NUMBERS_32 \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define INLAY_NUMBERS_64                                                \
  INLAY_NUMBERS_32                                                      \
  ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, " \
  "%29, %30, %31"
#define INLAY_NUMBERS_96                                                \
  INLAY_NUMBERS_64                                                      \
  ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, " \
  "%45, %46, %47"
#define INLAY_NUMBERS_128                                               \
  INLAY_NUMBERS_96                                                      \
  ", %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, " \
  "%61, %62, %63"
#define INLAY_NUMBERS_160                                               \
  INLAY_NUMBERS_128                                                     \
  ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, " \
  "%77, %78, %79"
#define INLAY_NUMBERS_192                                               \
  INLAY_NUMBERS_160                                                     \
  ", %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, " \
  "%93, %94, %95"

INLAY_WGMMA_BOTH(32, INLAY_C16, INLAY_NUMBERS_32, "%16, %17, %18, %19", "%20",
                 "%21")
INLAY_WGMMA_BOTH(64, INLAY_C32, INLAY_NUMBERS_64, "%32, %33, %34, %35", "%36",
                 "%37")
INLAY_WGMMA_BOTH(96, INLAY_C48, INLAY_NUMBERS_96, "%48, %49, %50, %51", "%52",
                 "%53")
INLAY_WGMMA_BOTH(128, INLAY_C64, INLAY_NUMBERS_128, "%64, %65, %66, %67", "%68",
                 "%69")
INLAY_WGMMA_BOTH(160, INLAY_C80, INLAY_NUMBERS_160, "%80, %81, %82, %83", "%84",
                 "%85")
INLAY_WGMMA_BOTH(192, INLAY_C96, INLAY_NUMBERS_192, "%96, %97, %98, %99",
                 "%100", "%101")

#undef INLAY_WGMMA_BOTH
#undef INLAY_WGMMA_CODES
#undef INLAY_NUMBERS_32
#undef INLAY_NUMBERS_64
#undef INLAY_NUMBERS_96
#undef INLAY_NUMBERS_128
#undef INLAY_NUMBERS_160
#undef INLAY_NUMBERS_192
#undef INLAY_C8
#undef INLAY_C16
#undef INLAY_C32
#undef INLAY_C48
#undef INLAY_C64
#undef INLAY_C80
#undef INLAY_C96

}  // namespace inlay

#endif  // INLAY_KERNELS_GEMM_QUANTISED_WGMMA_CODES_SM90_CUH_
