// What the kernels of linear_attention by chunks compute with: tiles of bf16 in
// shared memory, products of matrices on the matrix units (mma.m16n8k16, sums
// in float32), copies that are waited for later. Knows no recurrence.
#ifndef INLAY_KERNELS_LINEAR_ATTENTION_CHUNK_TILES_CUH_
#define INLAY_KERNELS_LINEAR_ATTENTION_CHUNK_TILES_CUH_

#include <cuda_bf16.h>

#include <cstdint>

#include "kernels/cuda_float.cuh"

namespace inlay::chunks {

using Element = __nv_bfloat16;

constexpr int kPad = 8;  // elements between rows: no bank twice in a matrix

__device__ inline uint32_t SharedAddress(const void* at) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(at));
}

__device__ inline void LoadMatrix4(uint32_t (&r)[4], const Element* from) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(SharedAddress(from))
               : "memory");
}
__device__ inline void LoadMatrix4Transposed(uint32_t (&r)[4],
                                             const Element* from) {
  asm volatile(
      "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
      : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
      : "r"(SharedAddress(from))
      : "memory");
}

__device__ inline void Multiply(float (&d)[4], const uint32_t (&a)[4],
                                uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, "
      "{%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// A matrix in shared memory whose rows the lanes of a warp read 8 x 8 at a
// time. The 16 x 16 at (row, column) as operands:
template <int kWidth>
struct Tile {
  static constexpr int kStride = kWidth + kPad;

  // a of m16n8k16, rows its m.
  __device__ static void LoadA(const Element* m, int row, int column,
                               uint32_t (&a)[4]) {
    const int lane = threadIdx.x % 32;
    LoadMatrix4(a, m + (row + lane % 16) * kStride + column + lane / 16 * 8);
  }
  // a, rows its k.
  __device__ static void LoadTransposedA(const Element* m, int row, int column,
                                         uint32_t (&a)[4]) {
    const int lane = threadIdx.x % 32;
    LoadMatrix4Transposed(a, m + (row + lane / 16 * 8 + lane % 8) * kStride +
                                 column + lane / 8 % 2 * 8);
  }
  // b of two products, rows their k: {0, 1} and {2, 3}.
  __device__ static void LoadB(const Element* m, int row, int column,
                               uint32_t (&b)[4]) {
    const int lane = threadIdx.x % 32;
    LoadMatrix4Transposed(
        b, m + (row + lane % 16) * kStride + column + lane / 16 * 8);
  }
  // b of two products, rows their n.
  __device__ static void LoadTransposedB(const Element* m, int row, int column,
                                         uint32_t (&b)[4]) {
    const int lane = threadIdx.x % 32;
    LoadMatrix4(b, m + (row + lane / 16 * 8 + lane % 8) * kStride + column +
                       lane / 8 % 2 * 8);
  }
};

__device__ inline void StorePair(Element* to, float low, float high) {
  *reinterpret_cast<uint32_t*>(to) = NarrowPair<Element>(low, high);
}

// 16 bytes to shared memory; zeros where not `there`.
__device__ inline void CopyAsync(void* to, const void* from, bool there) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
               :
               : "r"(SharedAddress(to)), "l"(from), "r"(there ? 16 : 0)
               : "memory");
}

// Rows [0, count) of kWidth columns; zeros to kRows.
template <int kRows, int kWidth, int kThreads>
__device__ void CopyRows(Element* to, const Element* from, int64_t stride,
                         int count) {
  constexpr int kPieces = kWidth / 8;
  for (int i = threadIdx.x; i < kRows * kPieces; i += kThreads) {
    const int row = i / kPieces, piece = i % kPieces * 8;
    const bool there = row < count;
    CopyAsync(to + row * (kWidth + kPad) + piece,
              from + (there ? row * stride : 0) + piece, there);
  }
}

__device__ inline void WaitForCopies() {
  asm volatile("cp.async.wait_all;" ::: "memory");
}
// The thread's copies since the last call are a group, one that may be empty.
__device__ inline void GroupCopies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
// For all groups but the last one.
__device__ inline void WaitForCopiesButOneGroup() {
  asm volatile("cp.async.wait_group 1;" ::: "memory");
}

}  // namespace inlay::chunks

#endif  // INLAY_KERNELS_LINEAR_ATTENTION_CHUNK_TILES_CUH_
