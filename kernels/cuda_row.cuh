// Rows shared out to threads: sums over the threads of a row, in an order that
// depends on their number only.
#ifndef INLAY_KERNELS_CUDA_ROW_CUH_
#define INLAY_KERNELS_CUDA_ROW_CUH_

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda_float.cuh"
#include "kernels/cuda_launch.cuh"

namespace inlay {

// All lanes of a full warp call it and get the sum.
__device__ inline float WarpSum(float x) {
#pragma unroll
  for (int lane = 16; lane > 0; lane /= 2) {
    x += __shfl_xor_sync(0xffffffffu, x, lane);
  }
  return x;
}

// The sum over the block of whole warps, for all its threads. Two barriers;
// `scratch` holds 32 floats of shared memory and may be used again after.
__device__ inline float BlockSum(float x, float* scratch) {
  x = WarpSum(x);
  const unsigned warps = blockDim.x / 32;
  if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = x;
  __syncthreads();
  x = threadIdx.x % 32 < warps ? scratch[threadIdx.x % 32] : 0.0f;
  x = WarpSum(x);
  __syncthreads();
  return x;
}

// A row of a norm: a warp for narrow rows (heads), otherwise a block.
inline constexpr int64_t kWarpRowWidth = 512;
inline constexpr int kWarpRowThreads = 128;

template <bool kWarp>
struct RowThreads {
  __device__ RowThreads()
      : row(kWarp ? int64_t{blockIdx.x} * (kWarpRowThreads / 32) +
                        threadIdx.x / 32
                  : blockIdx.x),
        lane(kWarp ? threadIdx.x % 32 : threadIdx.x),
        count(kWarp ? 32 : blockDim.x) {}

  // All threads of the block call it.
  __device__ float Sum(float x) const {
    if constexpr (kWarp) {
      return WarpSum(x);
    } else {
      __shared__ float scratch[32];
      return BlockSum(x, scratch);
    }
  }

  int64_t row;
  int lane;
  int count;
};

// For `rows` rows of `width` elements, `vector` of them a thread at a time.
inline CudaGrid RowGrid(int64_t rows, int64_t width, int vector) {
  if (width <= kWarpRowWidth) {
    constexpr int64_t kRows = kWarpRowThreads / 32;
    return {(rows + kRows - 1) / kRows, kWarpRowThreads};
  }
  const int64_t warps = (width + 32 * vector - 1) / (32 * vector);
  return {rows, static_cast<int>(32 * (warps < 32 ? warps : 32))};
}

// Element-wise ops: a block takes kCudaMapThreads vectors of one row.
inline constexpr int kCudaMapThreads = 256;

inline int64_t MapChunks(int64_t width, int vector) {
  return (width + kCudaMapThreads * vector - 1) / (kCudaMapThreads * vector);
}

}  // namespace inlay

#endif  // INLAY_KERNELS_CUDA_ROW_CUH_
