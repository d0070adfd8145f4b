// The arithmetic that the kernels for few rows share: a tile of 16 rows of w
// against up to 8 rows of x by mma.m16n8k16 (PTX ISA, "Matrix fragments for
// mma.m16n8k16"), accumulated in float32.
//
// Of a step of 32 columns a lane has 16 bytes, columns 8 (lane % 4) on, of w's
// row g = lane / 4, of row g + 8 and of x's row g: the operands of two mma's,
// whose k is permuted alike for both.
#ifndef INLAY_KERNELS_GEMM_GEMV_MMA_CUH_
#define INLAY_KERNELS_GEMM_GEMV_MMA_CUH_

#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

namespace inlay {

inline constexpr int kGemvTile = 16;  // rows of w

template <typename T>
__device__ void MultiplyTile(float (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                             uint32_t b1) {
  if constexpr (std::is_same_v<T, __half>) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  } else {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
}

// 16 bytes of this block's shared memory.
__device__ inline uint4 LoadShared16(uint32_t address) {
  uint4 v;
  asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "r"(address)
               : "memory");
  return v;
}

// The fragments of w of one step: of the first mma, of the second. `low` and
// `high` are the lane's addresses in rows g and g + 8.
__device__ inline void LoadGemvTile(uint32_t low, uint32_t high,
                                    uint32_t (&a)[2][4]) {
  const uint4 upper = LoadShared16(low);
  const uint4 lower = LoadShared16(high);
  a[0][0] = upper.x, a[0][1] = lower.x, a[0][2] = upper.y, a[0][3] = lower.y;
  a[1][0] = upper.z, a[1][1] = lower.z, a[1][2] = upper.w, a[1][3] = lower.w;
}

}  // namespace inlay

#endif  // INLAY_KERNELS_GEMM_GEMV_MMA_CUH_
