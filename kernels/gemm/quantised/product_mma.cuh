// gemm over quantised weights for up to 32 rows of x on every GPU from sm_80
// on, by instructions that all of them have: packed weights (layout.h) are read
// once. Included by the product_mma_*.cu, each of which instantiates some
// forms.
//
// Mapping: a block of four warps has two consecutive tiles of 16 rows of w and
// all rows of x; its warps share K, every fourth unit each. Stages of four
// units of both tiles and the same columns of x come by cp.async, as many as
// shared memory has room for: two blocks a multiprocessor where that leaves
// three stages, 99 KB a block at most, which every GPU gives.
//
// Arithmetic: mma.m16n8k16 of levels (exact) and x, float32 sums of a group of
// columns, then times its scale (product_unit_sm90.cuh). Warps' sums are added
// in ascending order. So a row's bits depend on K alone, whatever rows are
// beside it.
//
// Shared memory: 16 zeros, stages [warps x two units | warps x m rows of x];
// at the end the warps' sums in their place. Barriers: cp.async groups, a
// __syncthreads a stage (x is everybody's copy; and a stage is read before it
// is filled again).
//
// Roofline: packed bytes over the copy bandwidth.
#ifndef INLAY_KERNELS_GEMM_QUANTISED_PRODUCT_MMA_CUH_
#define INLAY_KERNELS_GEMM_QUANTISED_PRODUCT_MMA_CUH_

#include <algorithm>

#include "kernels/cuda_launch.cuh"
#include "kernels/gemm/quantised/mma_shape.h"
#include "kernels/gemm/quantised/product_store.cuh"
#include "kernels/gemm/quantised/product_unit_sm90.cuh"

namespace inlay {
namespace {

constexpr int kMmaThreads = 32 * kQuantMmaWarps;
constexpr int kMmaZeros = 16;

__device__ inline void CopyMma16(uint32_t to, const void* from, int bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to),
               "l"(from), "r"(bytes)
               : "memory");
}

// Where ldmatrix of a lane finds the unit's rows of x; rows that x has not are
// zeros.
struct MmaX {
  __device__ uint32_t At(int tile, int product) const {
    return 8 * tile + row < m
               ? unit + (8 * tile + row) * kQuantMmaStride + product * 32 + part
               : zeros;
  }
  uint32_t unit;
  uint32_t zeros;
  int m;
  int row;   // lane % 8
  int part;  // of 32 columns, in bytes
};

// A block's copies, stage by stage.
struct MmaCopier {
  // The warp's units of both tiles. `chunk`: of four units.
  __device__ void CopyWeights(int chunk, uint32_t stage) const {
    const int warp = threadIdx.x / 32;
    const int unit = chunk * kQuantMmaWarps + warp;
    if (unit >= shape.units) return;
    const uint32_t to = stage + warp * shape.w_bytes;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const uint8_t* from = tiles[r] + int64_t{unit} * shape.unit_bytes;
      for (int at = threadIdx.x % 32 * 16; at < shape.unit_bytes; at += 512) {
        CopyMma16(to + r * shape.unit_bytes + at, from + at, 16);
      }
    }
  }

  // The chunk's columns of all rows of x; zeros beyond K.
  template <typename T>
  __device__ void CopyX(const CudaMatrix<const T>& x, int chunk,
                        uint32_t stage) const {
    constexpr int kParts = kQuantColumns / 8;  // of 16 bytes, in a row's unit
    const uint32_t to = stage + kQuantMmaWarps * shape.w_bytes;
    const int count = shape.m * kQuantMmaWarps * kParts;
    for (int i = threadIdx.x; i < count; i += kMmaThreads) {
      const int part = i % kParts;
      const int unit = i / kParts % kQuantMmaWarps;
      const int row = i / (kParts * kQuantMmaWarps);
      const int64_t column =
          (int64_t{chunk} * kQuantMmaWarps + unit) * kQuantColumns + part * 8;
      const int64_t there = 2 * (shape.k - column);
      const int bytes =
          there <= 0 ? 0 : static_cast<int>(min(there, int64_t{16}));
      CopyMma16(to + (unit * shape.m + row) * kQuantMmaStride + part * 16,
                x.row(row) + (bytes > 0 ? column : 0), bytes);
    }
  }

  const QuantMmaShape& shape;
  const uint8_t* tiles[2];  // their units
};

// Until all but `pending` groups are here.
__device__ inline void WaitMma(int pending) {
  switch (pending) {
    case 0:
      asm volatile("cp.async.wait_group 0;" ::: "memory");
      return;
    case 1:
      asm volatile("cp.async.wait_group 1;" ::: "memory");
      return;
    case 2:
      asm volatile("cp.async.wait_group 2;" ::: "memory");
      return;
    default:
      asm volatile("cp.async.wait_group 3;" ::: "memory");
  }
}
__device__ inline void CommitMma() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}

// The warps' sums, in ascending order, out of shared memory.
template <typename T, int kTiles>
__device__ void FinishMma(const QuantMmaShape& shape, const std::byte* w,
                          const float4* sums, const float* bias,
                          const TensorView& residual, const TensorView& y) {
  const int lane = threadIdx.x % 32;
  for (int at = threadIdx.x / 32; at < 2 * kTiles; at += kQuantMmaWarps) {
    const int tile = blockIdx.x * 2 + at / kTiles;
    if (tile >= shape.tiles) continue;
    float values[4] = {};
#pragma unroll
    for (int warp = 0; warp < kQuantMmaWarps; ++warp) {
      const float4 sum = sums[(warp * 2 * kTiles + at) * 32 + lane];
      values[0] += sum.x;
      values[1] += sum.y;
      values[2] += sum.z;
      values[3] += sum.w;
    }
    const auto* head =
        reinterpret_cast<const float*>(w + int64_t{tile} * shape.tile_bytes);
#pragma unroll
    for (int i = 0; i < 4; ++i) values[i] *= head[lane / 4 + i / 2 * 8];
    StoreQuantTile<T>(shape, tile * kQuantRows + lane / 4,
                      at % kTiles * 8 + lane % 4 * 2, values, bias, residual,
                      y);
  }
}

template <class Form, typename T, int kTiles>
__global__ void __launch_bounds__(kMmaThreads, kTiles == 1 ? 2 : 1)
    QuantMma(const __grid_constant__ TensorView x,
             const std::byte* __restrict__ w, const float* bias,
             const __grid_constant__ TensorView residual,
             const __grid_constant__ TensorView y,
             const __grid_constant__ LevelBytes levels,
             const __grid_constant__ QuantMmaShape shape) {
  extern __shared__ __align__(128) uint8_t mma_shared[];
  LetNextBegin();
  const int warp = threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  const auto base = static_cast<uint32_t>(__cvta_generic_to_shared(mma_shared));
  const auto units_of = [&](int tile) {
    return reinterpret_cast<const uint8_t*>(w) +
           int64_t{min(tile, shape.tiles - 1)} * shape.tile_bytes +
           kQuantHeadBytes;
  };
  const MmaCopier copier = {shape,
                            {units_of(2 * static_cast<int>(blockIdx.x)),
                             units_of(2 * static_cast<int>(blockIdx.x) + 1)}};
  const int chunks = (shape.units + kQuantMmaWarps - 1) / kQuantMmaWarps;
  const auto stage_of = [&](int stage) {
    return base + kMmaZeros + stage * shape.stage_bytes;
  };
  if (threadIdx.x < kMmaZeros / 4) {
    reinterpret_cast<uint32_t*>(mma_shared)[threadIdx.x] = 0;
  }
  const int ahead = shape.stages - 1;
  for (int c = 0; c < min(ahead, chunks); ++c) {
    copier.CopyWeights(c, stage_of(c));
  }
  WaitForPrevious();
  const CudaMatrix<const T> rows(x);
  for (int c = 0; c < ahead; ++c) {
    if (c < chunks) copier.CopyX(rows, c, stage_of(c));
    CommitMma();
  }
  QuantSums<kTiles> sums;
  int stage = 0;
#pragma unroll 1
  for (int c = 0; c < chunks; ++c) {
    WaitMma(ahead - 1);
    __syncthreads();
    if (c + ahead < chunks) {
      const uint32_t next = stage_of(stage == 0 ? ahead : stage - 1);
      copier.CopyWeights(c + ahead, next);
      copier.CopyX(rows, c + ahead, next);
    }
    CommitMma();
    if (c * kQuantMmaWarps + warp < shape.units) {
      const uint8_t* at = mma_shared + kMmaZeros + stage * shape.stage_bytes +
                          warp * shape.w_bytes;
      const uint8_t* const units[2] = {at, at + shape.unit_bytes};
      const MmaX mine = {stage_of(stage) + kQuantMmaWarps * shape.w_bytes +
                             warp * shape.m * kQuantMmaStride,
                         base, shape.m, lane % 8, lane / 8 * 16};
      MultiplyQuantUnit<Form, T, kTiles>(units, mine, levels, sums);
    }
    stage = stage == ahead ? 0 : stage + 1;
  }
  WaitMma(0);
  __syncthreads();
  auto* out = reinterpret_cast<float4*>(mma_shared);
#pragma unroll
  for (int r = 0; r < 2; ++r) {
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
      const auto& v = sums.v[r][t];
      out[((warp * 2 + r) * kTiles + t) * 32 + lane] = {v[0], v[1], v[2], v[3]};
    }
  }
  __syncthreads();
  FinishMma<T, kTiles>(shape, w, out, bias, residual, y);
}

template <class Form, typename T>
absl::Status LaunchMma(const GemmParams& params, const QuantForm& form,
                       const QuantMmaShape& shape, CudaStream& stream) {
  const auto launch = [&](auto kernel) {
    const size_t sums = kQuantMmaWarps * 2 * shape.x_tiles * size_t{512};
    const size_t bytes =
        std::max(sums, kMmaZeros + static_cast<size_t>(shape.stages) *
                                       shape.stage_bytes);
    const std::byte* w = params.w.data;
    return LaunchCuda("quantised gemm (mma)", stream,
                      {(shape.tiles + 1) / 2, kMmaThreads, bytes}, kernel,
                      params.x, w, params.bias, params.residual, params.y,
                      LevelBytesOf<T>(form), shape);
  };
  if (shape.x_tiles == 1) return launch(QuantMma<Form, T, 1>);
  if constexpr (QuantCodeBytes(Form::kCodes) < kQuantRows * kQuantColumns) {
    if (shape.x_tiles == 4) return launch(QuantMma<Form, T, 4>);
  }
  return launch(QuantMma<Form, T, 2>);
}

}  // namespace

template <class Form>
absl::Status LaunchMmaForm(const GemmParams& params, const QuantForm& form,
                           const QuantMmaShape& shape, CudaStream& stream) {
  return params.x.dtype == DType::kF16
             ? LaunchMma<Form, __half>(params, form, shape, stream)
             : LaunchMma<Form, __nv_bfloat16>(params, form, shape, stream);
}

}  // namespace inlay

#endif  // INLAY_KERNELS_GEMM_QUANTISED_PRODUCT_MMA_CUH_
