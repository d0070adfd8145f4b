// What product_sm90.cuh's warps do around their products: where things lie in
// shared memory, which jobs there are and when, the thread that copies weights,
// the rows of x. Knows no forms. Source: PTX ISA, "Asynchronous copy".
#ifndef INLAY_KERNELS_GEMM_QUANTISED_PRODUCT_COPY_SM90_CUH_
#define INLAY_KERNELS_GEMM_QUANTISED_PRODUCT_COPY_SM90_CUH_

#include "kernels/cuda_float.cuh"
#include "kernels/cuda_launch.cuh"
#include "kernels/gemm/gemv_sm90.cuh"
#include "kernels/gemm/quantised/quant_shape.h"

namespace inlay {
namespace {

// Where things lie in shared memory, as offsets.
struct QuantPlaces {
  __device__ explicit QuantPlaces(const QuantShape& shape)
      : rings(kQuantSharedHead),
        x(rings + shape.lanes * shape.stages * shape.stage_bytes),
        partials(x + shape.m * shape.x_stride) {}
  static constexpr uint32_t kZeros = 0;  // a unit's columns of a row of x
  static constexpr uint32_t kXFull = 512;
  static constexpr uint32_t kPartialFull = 576;
  static constexpr uint32_t kPartialEmpty = 640;
  static constexpr uint32_t kFull = 1024;
  static constexpr uint32_t kEmpty = kFull + 8 * kMostQuantStages;
  uint32_t rings, x, partials;
};

// The sequence-th job of a cluster. Cuts are powers of two: nothing is divided.
struct QuantJob {
  __device__ QuantJob(const QuantShape& shape, int cluster, int sequence)
      : index(sequence * shape.num_clusters + cluster) {}
  __device__ QuantJob(const QuantShape& shape, int cluster, int round, int lane)
      : QuantJob(shape, cluster, (round << shape.log_lanes) + lane) {}
  __device__ bool Exists(const QuantShape& shape) const {
    return index < shape.jobs;
  }
  __device__ int Tile(int which) const { return 2 * index + which; }
  // One beyond the last is the one before, whose sums are left out.
  __device__ int64_t Offset(const QuantShape& shape, int which) const {
    return int64_t{min(Tile(which), shape.tiles - 1)} * shape.tile_bytes;
  }
  int index;
};

// Sums of a slice in a slot: only of columns that y has, 16 bytes for two.
struct QuantSlice {
  __device__ explicit QuantSlice(const QuantShape& shape)
      : lane(threadIdx.x % 32 / 4 * shape.columns + threadIdx.x % 4),
        exists(static_cast<int>(threadIdx.x % 4) < shape.columns),
        tile_bytes(128 * shape.columns) {}
  uint32_t lane;
  bool exists;
  uint32_t tile_bytes;
};

// Where and when the sums of a job go: the block that finishes it, its slot
// there, and the turn of that slot.
struct QuantTurn {
  __device__ QuantTurn(const QuantShape& shape, int sequence)
      : owner(static_cast<unsigned>(sequence & (shape.cluster - 1))),
        slot(sequence >> shape.log_cluster & (shape.slots - 1)),
        barrier(sequence & (shape.cluster * shape.slots - 1)),
        parity(sequence >> (shape.log_cluster + shape.log_slots) & 1) {}
  unsigned owner;
  int slot;
  int barrier;
  uint32_t parity;
};

// A bulk copy of weights, which nothing reads again before all others have been
// read: they leave the level-2 cache first.
__device__ inline void CopyQuantUnits(uint32_t to, const std::byte* from,
                                      uint32_t bytes, uint32_t barrier) {
  asm volatile(
      "{\n.reg .b64 policy;\n"
      "createpolicy.fractional.L2::evict_first.b64 policy, 1.0;\n"
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes."
      "L2::cache_hint [%0], [%1], %2, [%3], policy;\n}" ::"r"(to),
      "l"(from), "r"(bytes), "r"(barrier)
      : "memory");
}

// One thread: units [first, end) of every job, a turn of the warps a stage.
__device__ inline void ProduceQuant(const QuantShape& shape, const std::byte* w,
                                    const QuantPlaces& at, uint32_t base,
                                    int cluster, int first, int end) {
  int stage = 0;
  uint32_t parity = 0;
  const int turn = shape.turn_units;
#pragma unroll 1
  for (int round = 0; QuantJob(shape, cluster, round, 0).Exists(shape);
       ++round) {
#pragma unroll 1
    for (int unit = first; unit < end; unit += turn) {
      const uint32_t bytes = min(turn, end - unit) * shape.unit_bytes;
      const std::byte* from =
          w + kQuantHeadBytes + int64_t{unit} * shape.unit_bytes;
#pragma unroll 1
      for (int lane = 0; lane < shape.lanes; ++lane) {
        const QuantJob job(shape, cluster, round, lane);
        if (!job.Exists(shape)) break;
        const uint32_t full = base + at.kFull + 8 * lane * shape.stages;
        const uint32_t empty = base + at.kEmpty + 8 * lane * shape.stages;
        const uint32_t to =
            base + at.rings + (lane * shape.stages + stage) * shape.stage_bytes;
        Await(empty + 8 * stage, parity ^ 1);
        Expect(full + 8 * stage, 2 * bytes);
        CopyQuantUnits(to, from + job.Offset(shape, 0), bytes,
                       full + 8 * stage);
        CopyQuantUnits(to + shape.stage_bytes / 2, from + job.Offset(shape, 1),
                       bytes, full + 8 * stage);
      }
      if (++stage == shape.stages) {
        stage = 0;
        parity ^= 1;
      }
    }
  }
}

// Columns [first, end) units of x's m rows into shared memory, zeros beyond K.
// All threads that multiply call it.
template <typename T>
__device__ void FillQuantX(const TensorView& view, const int32_t* permutation,
                           const QuantShape& shape, int first, int end,
                           std::byte* to, uint32_t barrier, uint32_t address) {
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

// One warp: barriers and zeros.
__device__ inline void PrepareQuant(const QuantShape& shape,
                                    const QuantPlaces& at, uint8_t* shared,
                                    uint32_t base) {
  const int lane = threadIdx.x % 32;
  reinterpret_cast<uint2*>(shared + at.kZeros)[lane] = make_uint2(0, 0);
#pragma unroll 1
  for (int s = lane; s < shape.lanes * shape.stages; s += 32) {
    InitBarrier(base + at.kFull + 8 * s, 1);
    InitBarrier(base + at.kEmpty + 8 * s, shape.warps >> shape.log_lanes);
  }
  if (lane == 0) InitBarrier(base + at.kXFull, 1);
  if (lane < shape.slots) InitBarrier(base + at.kPartialFull + 8 * lane, 1);
  if (lane < shape.slots * shape.cluster) {
    InitBarrier(base + at.kPartialEmpty + 8 * lane, 1);
  }
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

}  // namespace
}  // namespace inlay

#endif  // INLAY_KERNELS_GEMM_QUANTISED_PRODUCT_COPY_SM90_CUH_
