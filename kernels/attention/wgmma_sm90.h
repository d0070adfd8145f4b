// wgmma, the matrix instruction of a warpgroup: d [64, N] += a [64, 16]
// b [16, N], float32 accumulators. Thread t of the warpgroup holds, as d[4 j +
// i], row 16 (t / 32) + t % 32 / 4 + 8 (i / 2), column 8 j + t % 4 * 2 + i % 2;
// its part of `a` in registers is that of mma.m16n8k16. Source: PTX ISA 9.0,
// 9.7.15.
//
// Between Issue and Wait nobody may touch d or a's registers.
#ifndef INLAY_KERNELS_ATTENTION_WGMMA_SM90_H_
#define INLAY_KERNELS_ATTENTION_WGMMA_SM90_H_

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

namespace inlay::sm90 {

__device__ inline void WgmmaFence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ inline void WgmmaCommit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
// Until at most kPending committed groups are unfinished.
template <int kPending>
__device__ inline void WgmmaWait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}
// Keeps the compiler from reading or writing `d` on the other side of a wait or
// an issue: to it they are unrelated.
template <int kCount>
__device__ inline void PinRegisters(float (&d)[kCount]) {
#pragma unroll
  for (float& x : d) asm volatile("" : "+f"(x)::"memory");
}

// A matrix in shared memory in the 128-byte swizzle. Rows along k (kMajor):
// eight rows of 128 bytes every 1024. Otherwise rows along n, 64 columns each,
// eight rows every 1024 and the next 64 columns `slab_bytes` on.
__device__ inline uint64_t MatrixDescriptor(uint32_t address,
                                            uint32_t slab_bytes = 16) {
  return uint64_t{(address & 0x3ffff) >> 4} | uint64_t{slab_bytes >> 4} << 16 |
         uint64_t{1024 >> 4} << 32 | uint64_t{1} << 62;
}

// Issue(d, a, b, accumulate): `a` a descriptor (rows along k, as b), or four
// registers (b's rows along n where kRowsAlongN is 1). d is overwritten where
// `accumulate` is 0.
template <typename T, int kN>
struct Wgmma;

// Eight accumulators as operands.
#define INLAY_D8(i)                                                           \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), \
      "+f"(d[i + 5]), "+f"(d[i + 6]), "+f"(d[i + 7])
#define INLAY_D32(i) \
  INLAY_D8(i), INLAY_D8(i + 8), INLAY_D8(i + 16), INLAY_D8(i + 24)

#define INLAY_S0 "%0, %1, %2, %3, %4, %5, %6, %7"
#define INLAY_S8 "%8, %9, %10, %11, %12, %13, %14, %15"
#define INLAY_S16 "%16, %17, %18, %19, %20, %21, %22, %23"
#define INLAY_S24 "%24, %25, %26, %27, %28, %29, %30, %31"
#define INLAY_S32 "%32, %33, %34, %35, %36, %37, %38, %39"
#define INLAY_S40 "%40, %41, %42, %43, %44, %45, %46, %47"
#define INLAY_S48 "%48, %49, %50, %51, %52, %53, %54, %55"
#define INLAY_S56 "%56, %57, %58, %59, %60, %61, %62, %63"
#define INLAY_S64 "%64, %65, %66, %67, %68, %69, %70, %71"
#define INLAY_S72 "%72, %73, %74, %75, %76, %77, %78, %79"
#define INLAY_S80 "%80, %81, %82, %83, %84, %85, %86, %87"
#define INLAY_S88 "%88, %89, %90, %91, %92, %93, %94, %95"
#define INLAY_S96 "%96, %97, %98, %99, %100, %101, %102, %103"
#define INLAY_S104 "%104, %105, %106, %107, %108, %109, %110, %111"
#define INLAY_S112 "%112, %113, %114, %115, %116, %117, %118, %119"
#define INLAY_S120 "%120, %121, %122, %123, %124, %125, %126, %127"

// kN, d's operand numbers, d's operands, then the numbers of what follows d.
#define INLAY_WGMMA(n, numbers, operands, e0, e1, e2, e3, e4, e5, e6)       \
  template <typename T>                                                     \
  struct Wgmma<T, n> {                                                      \
    __device__ static void Issue(float (&d)[n / 2], uint64_t a, uint64_t b, \
                                 int accumulate) {                          \
      if constexpr (std::is_same_v<T, __half>) {                            \
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" e2                \
                     ", 0;\n"                                               \
                     "wgmma.mma_async.sync.aligned.m64n" #n                 \
                     "k16.f32.f16.f16 "                                     \
                     "{" numbers "}, %" e0 ", %" e1 ", p, 1, 1, 0, 0;\n}\n" \
                     : operands                                             \
                     : "l"(a), "l"(b), "r"(accumulate));                    \
      } else {                                                              \
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" e2                \
                     ", 0;\n"                                               \
                     "wgmma.mma_async.sync.aligned.m64n" #n                 \
                     "k16.f32.bf16.bf16 {" numbers "}, %" e0 ", %" e1       \
                     ", p, 1, 1, 0, 0;\n}\n"                                \
                     : operands                                             \
                     : "l"(a), "l"(b), "r"(accumulate));                    \
      }                                                                     \
    }                                                                       \
    template <int kRowsAlongN>                                              \
    __device__ static void Issue(float (&d)[n / 2], const uint32_t (&a)[4], \
                                 uint64_t b, int accumulate) {              \
      if constexpr (std::is_same_v<T, __half>) {                            \
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" e5                \
                     ", 0;\n"                                               \
                     "wgmma.mma_async.sync.aligned.m64n" #n                 \
                     "k16.f32.f16.f16 "                                     \
                     "{" numbers "}, {%" e0 ", %" e1 ", %" e2 ", %" e3      \
                     "}, %" e4 ", p, 1, 1, %" e6 ";\n}\n"                   \
                     : operands                                             \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b),  \
                       "r"(accumulate), "n"(kRowsAlongN));                  \
      } else {                                                              \
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" e5                \
                     ", 0;\n"                                               \
                     "wgmma.mma_async.sync.aligned.m64n" #n                 \
                     "k16.f32.bf16.bf16 {" numbers "}, {%" e0 ", %" e1      \
                     ", %" e2 ", %" e3 "}, %" e4 ", p, 1, 1, %" e6 ";\n}\n" \
                     : operands                                             \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b),  \
                       "r"(accumulate), "n"(kRowsAlongN));                  \
      }                                                                     \
    }                                                                       \
  };

#define INLAY_N64 INLAY_S0 ", " INLAY_S8 ", " INLAY_S16 ", " INLAY_S24
#define INLAY_N80 INLAY_N64 ", " INLAY_S32
#define INLAY_N96 INLAY_N80 ", " INLAY_S40
#define INLAY_N112 INLAY_N96 ", " INLAY_S48
#define INLAY_N128 INLAY_N112 ", " INLAY_S56
#define INLAY_N192 \
  INLAY_N128 ", " INLAY_S64 ", " INLAY_S72 ", " INLAY_S80 ", " INLAY_S88
#define INLAY_N256 \
  INLAY_N192 ", " INLAY_S96 ", " INLAY_S104 ", " INLAY_S112 ", " INLAY_S120
#define INLAY_ARGS(...) __VA_ARGS__
INLAY_WGMMA(64, INLAY_N64, INLAY_ARGS(INLAY_D32(0)), "32", "33", "34", "35",
            "36", "37", "38")
INLAY_WGMMA(80, INLAY_N80, INLAY_ARGS(INLAY_D32(0), INLAY_D8(32)), "40", "41",
            "42", "43", "44", "45", "46")
INLAY_WGMMA(96, INLAY_N96, INLAY_ARGS(INLAY_D32(0), INLAY_D8(32), INLAY_D8(40)),
            "48", "49", "50", "51", "52", "53", "54")
INLAY_WGMMA(112, INLAY_N112,
            INLAY_ARGS(INLAY_D32(0), INLAY_D8(32), INLAY_D8(40), INLAY_D8(48)),
            "56", "57", "58", "59", "60", "61", "62")
INLAY_WGMMA(128, INLAY_N128, INLAY_ARGS(INLAY_D32(0), INLAY_D32(32)), "64",
            "65", "66", "67", "68", "69", "70")
INLAY_WGMMA(192, INLAY_N192,
            INLAY_ARGS(INLAY_D32(0), INLAY_D32(32), INLAY_D32(64)), "96", "97",
            "98", "99", "100", "101", "102")
INLAY_WGMMA(256, INLAY_N256,
            INLAY_ARGS(INLAY_D32(0), INLAY_D32(32), INLAY_D32(64),
                       INLAY_D32(96)),
            "128", "129", "130", "131", "132", "133", "134")

#undef INLAY_ARGS
#undef INLAY_WGMMA
#undef INLAY_D8
#undef INLAY_D32
#undef INLAY_N64
#undef INLAY_N80
#undef INLAY_N96
#undef INLAY_N112
#undef INLAY_N128
#undef INLAY_N192
#undef INLAY_N256
#undef INLAY_S0
#undef INLAY_S8
#undef INLAY_S16
#undef INLAY_S24
#undef INLAY_S32
#undef INLAY_S40
#undef INLAY_S48
#undef INLAY_S56
#undef INLAY_S64
#undef INLAY_S72
#undef INLAY_S80
#undef INLAY_S88
#undef INLAY_S96
#undef INLAY_S104
#undef INLAY_S112
#undef INLAY_S120

}  // namespace inlay::sm90

#endif  // INLAY_KERNELS_ATTENTION_WGMMA_SM90_H_
