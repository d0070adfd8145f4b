// gemm for few rows of x on Hopper: streams the weights once, as fast as memory
// gives them. The arithmetic is that of gemv_cuda.cu: 16 rows of w and up to 8
// rows of x in one mma.m16n8k16, of a step of 32 columns 16 bytes a lane and
// row. A column of the product depends on no other, so a row of y is the same
// in every batch.
//
// Mapping: a cluster of C blocks (2 or more: in a cluster of one there is no
// barrier in halves, and counted stores are illegal) takes tiles of 16 rows of
// w, each block a C-th of K in chunks of 256 columns. One warp copies chunks
// (the bulk copy engine, 512 bytes a row) into a ring; kConsumers warps
// multiply, each its steps of every chunk; one warp finishes tiles: adds up the
// slices, bias and residual. The blocks of a cluster finish tiles in turn.
// Shared memory: barriers, the ring, the block's columns of x, and partial sums
// [kSlots][C * kConsumers slices] of tiles that this block finishes.
// Barriers (all mbarriers, so that no warp waits for all others): full and
// empty a stage of the ring; partial_full a slot, at the block that finishes;
// partial_empty a slot of each block of the cluster, at every block that
// writes there. Accumulation: float32 in the mma, then the slices in ascending
// order.
// Overlap: the ring is filled before the previous kernel's end is awaited, and
// the next kernel may start once the last copies are under way: with shared
// memory for two blocks an SM, memory does not idle between layers.
// Roofline: n k elements of w over the copy bandwidth.
#include <algorithm>

#include "kernels/cuda_float.cuh"
#include "kernels/cuda_launch.cuh"
#include "kernels/gemm/gemv_cuda.h"
#include "kernels/gemm/gemv_mma.cuh"
#include "memory/status.h"

namespace inlay {
namespace {

constexpr int kChunk = 256;              // columns of w
constexpr int kPitch = kChunk * 2 + 64;  // bytes of a row in the ring
constexpr int kStageBytes = kGemvTile * kPitch;
constexpr int kSlots = 2;  // of partial sums
constexpr int kBarrierBytes = 512;
constexpr int kMostStages = 20;
constexpr int kPartialBytes = 512;  // a tile's sums of one slice

struct Shape {
  int64_t n;
  int64_t k;
  int m;
  int tiles;
  int chunks;
  int cluster;
  int num_clusters;
  int stages;
  int x_stride;  // bytes between rows of x in shared memory
  bool narrow;   // y is of the type of x; otherwise f32
};

__device__ unsigned ClusterRank() {
  unsigned rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
// The barrier of the cluster in two halves, without ordering of memory.
__device__ void ClusterArrive() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}
__device__ void ClusterWait() {
  asm volatile("barrier.cluster.wait.aligned;" ::: "memory");
}
// `address` of this block as one of block `rank` of the cluster.
__device__ uint32_t AddressAt(uint32_t address, unsigned rank) {
  uint32_t there;
  asm("mapa.shared::cluster.u32 %0, %1, %2;"
      : "=r"(there)
      : "r"(address), "r"(rank));
  return there;
}
__device__ void InitBarrier(uint32_t barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier),
               "r"(arrivals)
               : "memory");
}
__device__ void Arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier)
               : "memory");
}
__device__ void ArriveAt(uint32_t barrier, unsigned rank) {
  asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(
                   AddressAt(barrier, rank))
               : "memory");
}
__device__ void Expect(uint32_t barrier, uint32_t bytes) {
  asm volatile(
      "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier),
      "r"(bytes)
      : "memory");
}
__device__ void Await(uint32_t barrier, uint32_t parity) {
  asm volatile(
      "{\n.reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;\n}" ::"r"(barrier),
      "r"(parity)
      : "memory");
}
__device__ void BulkCopy(uint32_t to, const void* from, uint32_t bytes,
                         uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], "
      "[%1], %2, [%3];" ::"r"(to),
      "l"(from), "r"(bytes), "r"(barrier)
      : "memory");
}
// Stores 16 bytes in a block of the cluster and counts them at its barrier,
// which makes them visible to who waits there: no fence.
__device__ void StoreAt(uint32_t address, uint32_t barrier, unsigned rank,
                        const float (&v)[4]) {
  asm volatile(
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], "
      "{%1,%2,%3,%4}, [%5];" ::"r"(AddressAt(address, rank)),
      "f"(v[0]), "f"(v[1]), "f"(v[2]), "f"(v[3]), "r"(AddressAt(barrier, rank))
      : "memory");
}

// Where things lie in shared memory.
struct Places {
  __device__ Places(const Shape& shape, uint32_t base)
      : full(base),
        empty(full + 8 * kMostStages),
        partial_full(empty + 8 * kMostStages),
        partial_empty(partial_full + 8 * kSlots),
        ring(base + kBarrierBytes),
        x(ring + shape.stages * kStageBytes),
        partials(x + shape.m * shape.x_stride) {}
  uint32_t full, empty, partial_full, partial_empty, ring, x, partials;
};

// Turns of a ring: which stage is next, and the parity of its barriers.
struct Turn {
  __device__ void Next(int stages) {
    if (++stage == stages) {
      stage = 0;
      parity ^= 1;
    }
  }
  int stage = 0;
  uint32_t parity = 0;
};

template <typename T>
__device__ void Produce(const CudaMatrix<const T>& w, const Shape& shape,
                        const Places& at, int cluster, int first, int end) {
  const int lane = threadIdx.x % 32;
  Turn turn;
  turn.parity = 1;  // all stages are empty
  for (int tile = cluster; tile < shape.tiles; tile += shape.num_clusters) {
    // Rows beyond n are read from the last one and never stored.
    const int64_t row =
        min(int64_t{tile} * kGemvTile + lane % kGemvTile, shape.n - 1);
    for (int chunk = first; chunk < end; ++chunk) {
      const int64_t column = int64_t{chunk} * kChunk;
      const auto bytes =
          static_cast<uint32_t>(2 * min(int64_t{kChunk}, shape.k - column));
      Await(at.empty + 8 * turn.stage, turn.parity);
      if (lane == 0) Expect(at.full + 8 * turn.stage, kGemvTile * bytes);
      __syncwarp();
      if (lane < kGemvTile) {
        BulkCopy(at.ring + turn.stage * kStageBytes + lane * kPitch,
                 w.row(row) + column, bytes, at.full + 8 * turn.stage);
      }
      turn.Next(shape.stages);
    }
  }
  LetNextBegin();
}

// Columns [kChunk first, kChunk end) of x's m rows into shared memory; zeros
// beyond K. Four loads of a thread are under way at once.
template <typename T, int kThreads>
__device__ void FillX(const CudaMatrix<const T>& x, const Shape& shape,
                      int first, int end, std::byte* shared) {
  constexpr int kBatch = 4;
  const int pieces = (end - first) * (kChunk / 8);
  const int count = pieces * shape.m;
  for (int base = threadIdx.x; base < count; base += kBatch * kThreads) {
    uint4 v[kBatch];
#pragma unroll
    for (int j = 0; j < kBatch; ++j) {
      const int i = base + j * kThreads;
      const int64_t column = int64_t{first} * kChunk + i % pieces * 8;
      v[j] = make_uint4(0, 0, 0, 0);
      if (i < count && column < shape.k) {
        v[j] = *reinterpret_cast<const uint4*>(x.row(i / pieces) + column);
      }
    }
#pragma unroll
    for (int j = 0; j < kBatch; ++j) {
      const int i = base + j * kThreads;
      if (i >= count) break;
      *reinterpret_cast<uint4*>(shared + i / pieces * shape.x_stride +
                                i % pieces * 16) = v[j];
    }
  }
}

template <typename T, int kConsumers>
__device__ void Consume(const Shape& shape, const Places& at, unsigned rank,
                        int cluster, int first, int end) {
  constexpr int kSteps = kChunk / 32 / kConsumers;
  const int warp = threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  const int slices = shape.cluster * kConsumers;
  const int slice = static_cast<int>(rank) * kConsumers + warp;
  // Of this lane in a chunk: row g and columns of the warp's first step.
  const uint32_t in_stage =
      lane / 4 * kPitch + lane % 4 * 16 + warp * kSteps * 64;
  const uint32_t in_x = at.x + lane / 4 * shape.x_stride + lane % 4 * 16 +
                        warp * kSteps * 64 - first * kChunk * 2;
  const int64_t in_chunk = lane % 4 * 8 + warp * kSteps * 32;
  Turn turn;
  int i = 0;
  for (int tile = cluster; tile < shape.tiles;
       tile += shape.num_clusters, ++i) {
    float sums[4] = {};
    for (int chunk = first; chunk < end; ++chunk) {
      Await(at.full + 8 * turn.stage, turn.parity);
      const uint32_t stage = at.ring + turn.stage * kStageBytes + in_stage;
#pragma unroll
      for (int s = 0; s < kSteps; ++s) {
        // What lies beyond K was not copied.
        uint32_t a[2][4] = {};
        if (int64_t{chunk} * kChunk + in_chunk + s * 32 < shape.k) {
          LoadGemvTile(stage + s * 64, stage + 8 * kPitch + s * 64, a);
        }
        uint4 b = make_uint4(0, 0, 0, 0);
        if (lane / 4 < shape.m) {
          b = LoadShared16(in_x + chunk * kChunk * 2 + s * 64);
        }
        MultiplyTile<T>(sums, a[0], b.x, b.y);
        MultiplyTile<T>(sums, a[1], b.z, b.w);
      }
      __syncwarp();
      if (lane == 0) Arrive(at.empty + 8 * turn.stage);
      turn.Next(shape.stages);
    }
    const auto owner = static_cast<unsigned>(i % shape.cluster);
    const int slot = i / shape.cluster % kSlots;
    const int round = i / (shape.cluster * kSlots);
    Await(at.partial_empty + 8 * (i % (shape.cluster * kSlots)),
          (round & 1) ^ 1);
    StoreAt(at.partials + (slot * slices + slice) * kPartialBytes + lane * 16,
            at.partial_full + 8 * slot, owner, sums);
  }
}

// The four outputs of a lane's fragment of a tile.
struct Outputs {
  __device__ Outputs(const Shape& shape, int tile)
      : shape(shape),
        first_n(int64_t{tile} * kGemvTile + threadIdx.x % 32 / 4),
        first_m(threadIdx.x % 4 * 2) {}
  // fn(j, m, n) for each that exists: y's row m and column n.
  template <typename Fn>
  __device__ void ForEach(Fn fn) const {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int m = first_m + j % 2;
      const int64_t n = first_n + j / 2 * 8;
      if (m < shape.m && n < shape.n) fn(j, m, n);
    }
  }
  const Shape& shape;
  int64_t first_n;
  int first_m;
};

template <typename T, int kConsumers>
__device__ void Finish(const Shape& shape, const Places& at, unsigned rank,
                       int cluster, const float* bias,
                       const TensorView& residual, const TensorView& y) {
  const int lane = threadIdx.x % 32;
  const int slices = shape.cluster * kConsumers;
  Turn turn;
  int i = static_cast<int>(rank);
  for (int tile = cluster + i * shape.num_clusters; tile < shape.tiles;
       tile += shape.cluster * shape.num_clusters, i += shape.cluster) {
    const Outputs outputs(shape, tile);
    if (lane == 0) {
      Expect(at.partial_full + 8 * turn.stage, slices * kPartialBytes);
    }
    // What is added is read while the sums are under way.
    float added[4] = {};
    outputs.ForEach([&](int j, int m, int64_t n) {
      if (bias != nullptr) added[j] = bias[n];
      if (residual.data == nullptr) return;
      added[j] += shape.narrow
                      ? ToFloat(CudaMatrix<const T>(residual).row(m)[n])
                      : CudaMatrix<const float>(residual).row(m)[n];
    });
    Await(at.partial_full + 8 * turn.stage, turn.parity);
    float sums[4] = {};
    const uint32_t from =
        at.partials + turn.stage * slices * kPartialBytes + lane * 16;
#pragma unroll 8
    for (int s = 0; s < slices; ++s) {
      const uint4 v = LoadShared16(from + s * kPartialBytes);
      sums[0] += __uint_as_float(v.x);
      sums[1] += __uint_as_float(v.y);
      sums[2] += __uint_as_float(v.z);
      sums[3] += __uint_as_float(v.w);
    }
    __syncwarp();
    if (lane < shape.cluster) {
      ArriveAt(at.partial_empty + 8 * (i % (shape.cluster * kSlots)), lane);
    }
    outputs.ForEach([&](int j, int m, int64_t n) {
      const float value = sums[j] + added[j];
      if (shape.narrow) {
        CudaMatrix<T>(y).row(m)[n] = FromFloat<T>(value);
      } else {
        CudaMatrix<float>(y).row(m)[n] = value;
      }
    });
    turn.Next(kSlots);
  }
}

template <typename T, int kConsumers>
__global__ void __launch_bounds__(32 * (kConsumers + 2))
    BulkGemv(const __grid_constant__ CudaMatrix<const T> x,
             const __grid_constant__ CudaMatrix<const T> w, const float* bias,
             const __grid_constant__ TensorView residual,
             const __grid_constant__ TensorView y,
             const __grid_constant__ Shape shape) {
  extern __shared__ __align__(128) std::byte shared[];
  const Places at(shape,
                  static_cast<uint32_t>(__cvta_generic_to_shared(shared)));
  const unsigned rank = ClusterRank();
  const int cluster = static_cast<int>(blockIdx.x) / shape.cluster;
  const int first = static_cast<int>(rank) * shape.chunks / shape.cluster;
  const int end = static_cast<int>(rank + 1) * shape.chunks / shape.cluster;
  if (threadIdx.x == 0) {
    for (int s = 0; s < shape.stages; ++s) {
      InitBarrier(at.full + 8 * s, 1);
      InitBarrier(at.empty + 8 * s, kConsumers);
    }
    for (int s = 0; s < kSlots; ++s) {
      InitBarrier(at.partial_full + 8 * s, 1);
    }
    for (int s = 0; s < kSlots * shape.cluster; ++s) {
      InitBarrier(at.partial_empty + 8 * s, 1);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  ClusterArrive();  // the barriers can be used, by the other blocks too
  const int warp = threadIdx.x / 32;
  if (warp == kConsumers) {
    Produce(w, shape, at, cluster, first, end);
    ClusterWait();
  } else if (warp < kConsumers) {
    WaitForPrevious();
    FillX<T, 32 * kConsumers>(x, shape, first, end,
                              shared + (at.x - (at.ring - kBarrierBytes)));
    asm volatile("bar.sync 1, %0;" ::"n"(32 * kConsumers) : "memory");
    ClusterWait();
    Consume<T, kConsumers>(shape, at, rank, cluster, first, end);
  } else {
    WaitForPrevious();
    ClusterWait();
    Finish<T, kConsumers>(shape, at, rank, cluster, bias, residual, y);
  }
  // No block ends while others may still write to it.
  __syncwarp();
  ClusterArrive();
  ClusterWait();
}

// Shared memory apart from the ring.
size_t FixedBytes(const Shape& shape, int consumers) {
  return kBarrierBytes +
         static_cast<size_t>(shape.m) * static_cast<size_t>(shape.x_stride) +
         static_cast<size_t>(kSlots * shape.cluster * consumers *
                             kPartialBytes);
}

Shape ShapeOf(const GemmDesc& desc, int64_t m, const GemvPlan& plan) {
  Shape shape;
  shape.n = desc.n;
  shape.k = desc.k;
  shape.m = static_cast<int>(m);
  shape.tiles = static_cast<int>((desc.n + kGemvTile - 1) / kGemvTile);
  shape.chunks = static_cast<int>((desc.k + kChunk - 1) / kChunk);
  shape.cluster = plan.cluster;
  shape.num_clusters = plan.num_clusters;
  // 64 bytes more than a multiple of 128, so that the eight lanes of a phase,
  // two rows, meet all banks once.
  const int most = (shape.chunks + plan.cluster - 1) / plan.cluster;
  shape.x_stride = most * kChunk * 2 + 64;
  shape.narrow = desc.output != DType::kF32;
  const size_t fixed = FixedBytes(shape, plan.consumers);
  const auto room = static_cast<size_t>(plan.shared_bytes);
  shape.stages = room < fixed ? 0
                              : static_cast<int>(std::min<size_t>(
                                    kMostStages, (room - fixed) / kStageBytes));
  return shape;
}

template <typename T, int kConsumers>
absl::Status Launch(const GemmParams& params, const Shape& shape,
                    CudaStream& stream) {
  CudaGrid grid;
  grid.blocks = int64_t{shape.num_clusters} * shape.cluster;
  grid.threads = 32 * (kConsumers + 2);
  grid.shared_bytes = FixedBytes(shape, kConsumers) +
                      static_cast<size_t>(shape.stages * kStageBytes);
  grid.cluster = shape.cluster;
  return LaunchCuda("gemv", stream, grid, BulkGemv<T, kConsumers>,
                    CudaMatrix<const T>(params.x),
                    CudaMatrix<const T>(params.w), params.bias, params.residual,
                    params.y, shape);
}

template <typename T>
absl::Status LaunchTyped(const GemmParams& params, const Shape& shape,
                         const GemvPlan& plan, CudaStream& stream) {
  return plan.consumers == 8 ? Launch<T, 8>(params, shape, stream)
                             : Launch<T, 4>(params, shape, stream);
}

}  // namespace

int BulkGemvStages(const GemmDesc& desc, int64_t m, const GemvPlan& plan) {
  return ShapeOf(desc, m, plan).stages;
}

absl::Status RunBulkGemv(const GemmDesc& desc, const GemmParams& params,
                         const GemvPlan& plan, CudaStream& stream) {
  const Shape shape = ShapeOf(desc, params.x.rows(), plan);
  return desc.weight == DType::kF16
             ? LaunchTyped<__half>(params, shape, plan, stream)
             : LaunchTyped<__nv_bfloat16>(params, shape, plan, stream);
}

}  // namespace inlay
