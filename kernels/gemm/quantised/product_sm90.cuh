// gemm over quantised weights for up to 8 rows of x on Hopper: streams the
// packed weights (layout.h) once, as fast as memory gives them. Included by the
// product_*_sm90.cu, each of which instantiates some forms.
//
// Mapping: a job is two consecutive tiles of 16 rows of w. A cluster of C
// blocks shares K, a block's W warps are `lanes` that take jobs in turn times W
// / lanes that share the block's part of K. A warp is on its own: its first
// lane copies units into the warp's ring (one bulk copy a tile a stage), all
// multiply what arrives, and the stage is filled again: no warp waits for
// another. Another warp finishes jobs: adds up the slices of K, bias and
// residual. The blocks of a cluster finish jobs in turn.
//
// Arithmetic: mma.m16n8k16 of levels (exact) and x, float32 sums of a group of
// columns, then times its scale. Sums of x, which minima are multiplied by,
// come from an mma with ones. Slices are added in ascending order.
//
// Shared memory: barriers, rings [warps][stages], the block's columns of x
// (rows 16 bytes more than a multiple of 128 apart: ldmatrix meets all banks),
// partial sums [slots][C * W / lanes slices] of jobs that this block finishes.
//
// Barriers (all mbarriers): full a stage, waited for by its warp; x_full;
// partial_full a slot, at the block that finishes, counts bytes stored;
// partial_empty a slot of each block of the cluster, at every block that writes
// there. Nothing is sent to a block that does not wait for it, so blocks end
// without a barrier.
//
// Overlap: rings are filled before the previous kernel's end is awaited.
//
// Roofline: packed bytes over the copy bandwidth. QUANTISED.md: how far off.
#ifndef INLAY_KERNELS_GEMM_QUANTISED_PRODUCT_SM90_CUH_
#define INLAY_KERNELS_GEMM_QUANTISED_PRODUCT_SM90_CUH_

#include <algorithm>

#include "kernels/cuda_float.cuh"
#include "kernels/cuda_launch.cuh"
#include "kernels/gemm/gemv_mma.cuh"
#include "kernels/gemm/gemv_sm90.cuh"
#include "kernels/gemm/quantised/product_ring_sm90.cuh"
#include "kernels/gemm/quantised/product_store.cuh"
#include "kernels/gemm/quantised/product_unit_sm90.cuh"
#include "kernels/gemm/quantised/quant_shape.h"

namespace inlay {
namespace {

// Columns of `units` of x's m rows into shared memory, zeros beyond K. All
// threads that multiply call it.
template <typename T>
__device__ void FillQuantX(const TensorView& view, const int32_t* permutation,
                           const QuantShape& shape, QuantRange units,
                           std::byte* to, uint32_t barrier, uint32_t address) {
  const int first = units.begin;
  const int end = units.end;
  const int threads = 32 * shape.warps;
  const int64_t column = int64_t{first} * kQuantColumns;
  const int64_t stop = min(int64_t{end} * kQuantColumns, shape.k);
  const CudaMatrix<const T> x(view);
  const int zeros = end * kQuantColumns - static_cast<int>(stop);
#pragma unroll 1
  for (int i = threadIdx.x; i < zeros * shape.m; i += threads) {
    reinterpret_cast<T*>(
        to + i / zeros * shape.x_stride)[stop - column + i % zeros] = T(0.0f);
  }
  if (shape.copies_x) {
    if (threadIdx.x == 0 && stop > column) {
      WaitForPrevious();
      const auto bytes = static_cast<uint32_t>(stop - column) * 2;
      Expect(barrier, shape.m * bytes);
#pragma unroll 1
      for (int r = 0; r < shape.m; ++r) {
        CopyRow(address + r * shape.x_stride, x.row(r) + column, bytes,
                barrier);
      }
    }
  } else {
    WaitForPrevious();
    const auto width = static_cast<int>(stop - column);
#pragma unroll 1
    for (int r = 0; r < shape.m; ++r) {
#pragma unroll 4
      for (int i = threadIdx.x; i < width; i += threads) {
        const int64_t from =
            permutation == nullptr ? column + i : permutation[column + i];
        reinterpret_cast<T*>(to + r * shape.x_stride)[i] = x.row(r)[from];
      }
    }
  }
  asm volatile("bar.sync 1, %0;" ::"r"(threads) : "memory");
  if (shape.copies_x && stop > column) Await(barrier, 0);
}

// Of x, what ldmatrix of a lane needs; rows that x has not are zeros.
struct QuantX {
  __device__ uint32_t At(int, int product) const {
    return row + ((column + product * 32) & mask);
  }
  uint32_t row;
  uint32_t mask;
  uint32_t column;  // of the unit, in bytes
};

template <class Form, typename T>
__device__ void ConsumeQuant(const QuantShape& shape, const QuantPlaces& at,
                             uint8_t* shared, uint32_t base, QuantRing& ring,
                             const LevelBytes& levels, int rank, int cluster) {
  const int warp = threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  const int shares = shape.warps >> shape.log_lanes;
  const int slices = shape.cluster * shares;
  const int slice = rank * shares + (warp >> shape.log_lanes);
  const int row = lane % 8;
  QuantX x;
  x.mask = row < shape.m ? ~0u : 0u;
  x.row = row < shape.m ? base + at.x + row * shape.x_stride + lane / 8 * 16
                        : base + at.kZeros;
  const uint32_t my_ring = at.rings + warp * shape.stages * shape.stage_bytes;
  const uint32_t full = base + at.kFull + warp * shape.stages * 8;
  int stage = 0;
  uint32_t parity = 0;
  const int first = QuantUnitsOf(shape, rank).begin;
  const QuantRange range = ring.units();
#pragma unroll 1
  for (int sequence = warp & (shape.lanes - 1);
       QuantJobOf(shape, cluster, sequence) < shape.jobs;
       sequence += shape.lanes) {
    QuantSums<1> sums;
#pragma unroll 1
    for (int unit = range.begin; unit < range.end; unit += shape.stage_units) {
      const int count = min(shape.stage_units, range.end - unit);
      const uint8_t* units[2];
      units[0] = shared + my_ring + stage * shape.stage_bytes;
      units[1] = units[0] + shape.stage_bytes / 2;
      Await(full + 8 * stage, parity);
#pragma unroll 1
      for (int i = 0; i < count; ++i) {
        x.column = (unit - first + i) * kQuantColumns * 2;
        MultiplyQuantUnit<Form, T, 1>(units, x, levels, sums);
        units[0] += shape.unit_bytes;
        units[1] += shape.unit_bytes;
      }
      __syncwarp();
      if (lane == 0) ring.Feed(stage);
      if (++stage == shape.stages) {
        stage = 0;
        parity ^= 1;
      }
    }
    const QuantTurn turn(shape, sequence);
    Await(base + at.kPartialEmpty + 8 * turn.barrier, turn.parity ^ 1);
    const uint32_t to = base + at.partials +
                        (turn.slot * slices + slice) * kQuantSlice + lane * 16;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      StoreAt(to + r * 512, base + at.kPartialFull + 8 * turn.slot, turn.owner,
              sums.v[r][0]);
    }
  }
}

template <typename T>
__device__ void FinishQuant(const QuantShape& shape, const QuantPlaces& at,
                            uint32_t base, const std::byte* w, unsigned rank,
                            int cluster, const float* bias,
                            const TensorView& residual, const TensorView& y) {
  const int lane = threadIdx.x % 32;
  const int slices = shape.cluster * (shape.warps >> shape.log_lanes);
  const int turns = shape.cluster * shape.slots;
#pragma unroll 1
  for (int sequence = static_cast<int>(rank);; sequence += shape.cluster) {
    const int job = QuantJobOf(shape, cluster, sequence);
    if (job >= shape.jobs) break;
    const QuantTurn turn(shape, sequence);
    const uint32_t full = base + at.kPartialFull + 8 * turn.slot;
    if (lane == 0) Expect(full, slices * kQuantSlice);
    float factors[2][2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const auto* head = reinterpret_cast<const float*>(
          w + int64_t{QuantTileOf(shape, job, r)} * shape.tile_bytes);
      factors[r][0] = head[lane / 4];
      factors[r][1] = head[lane / 4 + 8];
    }
    Await(full, turn.parity);
    QuantSums<1> sums;
    const uint32_t from =
        base + at.partials + turn.slot * slices * kQuantSlice + lane * 16;
#pragma unroll 4
    for (int s = 0; s < slices; ++s) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const uint4 v = LoadShared16(from + s * kQuantSlice + r * 512);
        sums.v[r][0][0] += __uint_as_float(v.x);
        sums.v[r][0][1] += __uint_as_float(v.y);
        sums.v[r][0][2] += __uint_as_float(v.z);
        sums.v[r][0][3] += __uint_as_float(v.w);
      }
    }
    __syncwarp();
    // Only where the slot is used again and the arrival waited for.
    if (lane < shape.cluster &&
        QuantJobOf(shape, cluster, sequence + turns) < shape.jobs) {
      ArriveAt(base + at.kPartialEmpty + 8 * turn.barrier, lane);
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      if (2 * job + r >= shape.tiles) continue;
#pragma unroll
      for (int i = 0; i < 4; ++i) sums.v[r][0][i] *= factors[r][i / 2];
      StoreQuantTile<T>(shape,
                        QuantTileOf(shape, job, r) * kQuantRows + lane / 4,
                        lane % 4 * 2, sums.v[r][0], bias, residual, y);
    }
  }
}

template <class Form, typename T>
__global__ void __launch_bounds__(32 * (kMostQuantWarps + 1), 1)
    QuantProduct(const __grid_constant__ TensorView x,
                 const std::byte* __restrict__ w, const float* bias,
                 const int32_t* permutation,
                 const __grid_constant__ TensorView residual,
                 const __grid_constant__ TensorView y,
                 const __grid_constant__ LevelBytes levels,
                 const __grid_constant__ QuantShape shape) {
  extern __shared__ __align__(1024) uint8_t quant_shared[];
  LetNextBegin();
  const QuantPlaces at(shape);
  const auto base =
      static_cast<uint32_t>(__cvta_generic_to_shared(quant_shared));
  const unsigned rank = ClusterRank();
  const int cluster = static_cast<int>(blockIdx.x) >> shape.log_cluster;
  if (threadIdx.x == 0) {
    InitBarrier(base + at.kXFull, 1);
#pragma unroll 1
    for (int s = 0; s < shape.slots; ++s) {
      InitBarrier(base + at.kPartialFull + 8 * s, 1);
    }
#pragma unroll 1
    for (int s = 0; s < shape.slots * shape.cluster; ++s) {
      InitBarrier(base + at.kPartialEmpty + 8 * s, 1);
    }
    *reinterpret_cast<uint4*>(quant_shared + at.kZeros) =
        make_uint4(0, 0, 0, 0);
  }
  const int warp = static_cast<int>(threadIdx.x) / 32;
  QuantRing ring(shape, w, QuantJobOf(shape, cluster, warp & (shape.lanes - 1)),
                 static_cast<int>(rank), warp >> shape.log_lanes,
                 base + at.rings + warp * shape.stages * shape.stage_bytes,
                 base + at.kFull + warp * shape.stages * 8);
  if (warp < shape.warps && threadIdx.x % 32 == 0) {
#pragma unroll 1
    for (int s = 0; s < shape.stages; ++s) {
      InitBarrier(base + at.kFull + (warp * shape.stages + s) * 8, 1);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#pragma unroll 1
    for (int s = 0; s < shape.stages; ++s) ring.Feed(s);
  }
  __syncthreads();
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  ClusterArrive();  // the barriers can be used, by the other blocks too
  if (warp < shape.warps) {
    const int own = static_cast<int>(rank);
    FillQuantX<T>(x, permutation, shape, QuantUnitsOf(shape, own),
                  reinterpret_cast<std::byte*>(quant_shared) + at.x,
                  base + at.kXFull, base + at.x);
    ClusterWait();
    ConsumeQuant<Form, T>(shape, at, quant_shared, base, ring, levels, own,
                          cluster);
  } else {
    WaitForPrevious();
    ClusterWait();
    FinishQuant<T>(shape, at, base, w, rank, cluster, bias, residual, y);
  }
}

template <class Form, typename T>
absl::Status LaunchQuant(const GemmParams& params, const QuantShape& shape,
                         const QuantForm& form, CudaStream& stream) {
  CudaGrid grid;
  grid.blocks = int64_t{shape.num_clusters} * shape.cluster;
  grid.threads = 32 * (shape.warps + 1);
  grid.shared_bytes = shape.shared_bytes;
  grid.cluster = shape.cluster;
  const std::byte* w = params.w.data;
  return LaunchCuda("quantised gemm", stream, grid, QuantProduct<Form, T>,
                    params.x, w, params.bias, params.permutation,
                    params.residual, params.y, LevelBytesOf<T>(form), shape);
}

}  // namespace

template <class Form>
absl::Status LaunchQuantForm(const GemmParams& params, const QuantForm& form,
                             const QuantShape& shape, CudaStream& stream) {
  return params.x.dtype == DType::kF16
             ? LaunchQuant<Form, __half>(params, shape, form, stream)
             : LaunchQuant<Form, __nv_bfloat16>(params, shape, form, stream);
}

}  // namespace inlay

#endif  // INLAY_KERNELS_GEMM_QUANTISED_PRODUCT_SM90_CUH_
