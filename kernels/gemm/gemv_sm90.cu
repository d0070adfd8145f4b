// gemm for few rows of x on Hopper: streams the weights once, as fast as memory
// gives them. Tensor cores do the arithmetic: 16 rows of w and up to 8 rows of
// x in one mma.m16n8k16. A column of the product depends on no other, so a row
// of y is the same in every batch.
//
// Mapping: a cluster of C blocks (2 or more: counted stores are illegal in a
// cluster of one) takes tiles of 16 rows of w, each block a C-th of K in chunks
// of 256 columns. One thread copies chunks (one tensor copy each) into a ring;
// kConsumers warps multiply, each its steps of 32 columns of every chunk; one
// warp finishes tiles: adds up the slices, bias and residual. The blocks of a
// cluster finish tiles in turn. Where w is two halves, gate and up, a tile is 8
// rows of each: a lane that finishes has both and hands on act(gate) up.
// Shared memory: barriers and partial sums of norms, the ring (16-byte pieces
// swizzled within 128 bytes, so that ldmatrix meets all banks), the block's
// columns of x, and partial sums [kSlots][C * kConsumers slices] of tiles that
// this block finishes.
// Barriers (all mbarriers: no warp waits for all others): full and empty a
// stage of the ring; x_full; partial_full a slot, at the block that finishes,
// which counts bytes stored; partial_empty a slot of each block of the cluster,
// at every block that writes there. Nothing is sent to a block that does not
// wait for it, so blocks end without a barrier. Accumulation: float32 in the
// mma, then the slices in ascending order. Norms of x as rms_norm sums them.
// Overlap: the next kernel may begin at once; the ring is filled before the
// previous kernel's end is awaited, where there is room on the SM (PlanGemv).
// Roofline: n k elements of w over the copy bandwidth.
#include <cuda.h>

#include <algorithm>

#include "kernels/activation/activation.cuh"
#include "kernels/cuda_float.cuh"
#include "kernels/cuda_launch.cuh"
#include "kernels/gemm/gemv_cuda.h"
#include "kernels/gemm/gemv_mma.cuh"
#include "kernels/gemm/gemv_sm90.cuh"
#include "kernels/gemm/tensor_map.h"
#include "kernels/rms_norm/rms_norm.cuh"
#include "memory/status.h"

namespace inlay {
namespace {

constexpr int kTile = 16;    // rows of w
constexpr int kChunk = 256;  // columns of w in a stage
constexpr int kStep = 32;    // columns a warp multiplies at a time
constexpr int kBoxBytes = kTile * kMapColumns * 2;
constexpr int kStageBytes = kTile * kChunk * 2;
constexpr int kSlots = 2;           // of partial sums
constexpr int kPartialBytes = 512;  // a tile's sums of one slice
constexpr int kBarrierBytes = 1024;
constexpr int kHeadBytes = 2048;  // the ring lies on a multiple of 1024
constexpr int kMostStages = 20;

struct Shape {
  int64_t n;
  int64_t k;
  int m;
  int tiles;
  int chunks;
  int cluster;
  int num_clusters;
  int stages;
  int in_flight;  // stages that are loaded at once
  int x_stride;   // bytes between rows of x in shared memory
  bool narrow;    // y is of the type of w; otherwise f32
  int64_t half;   // rows of w up to the half that is `up`; 0: all are alike
  Activation function;
  bool normalise;            // x is f32: its norms are multiplied
  const float* norm_weight;  // may be null
  float epsilon;

  __host__ __device__ int rows_a_tile() const {
    return half > 0 ? kTile / 2 : kTile;
  }
};

// Where things lie in shared memory.
struct Places {
  __device__ Places(const Shape& shape, uint32_t base)
      : full(base),
        empty(full + 8 * kMostStages),
        partial_full(empty + 8 * kMostStages),
        partial_empty(partial_full + 8 * kSlots),
        x_full(base + kBarrierBytes - 32),
        zeros(base + kBarrierBytes - 16),
        ring(base + kHeadBytes),
        x(ring + shape.stages * kStageBytes),
        partials(x + shape.m * shape.x_stride) {}
  uint32_t full, empty, partial_full, partial_empty, x_full;
  uint32_t zeros, ring, x, partials;
};

// One thread.
__device__ void Produce(const CUtensorMap& map, const Shape& shape,
                        const Places& at, int cluster, int first, int end) {
  RingTurn turn;
  turn.parity = 1;  // all stages are empty
  RingTurn landed;  // the first stage that may be under way
  int in_flight = 0;
  for (int tile = cluster; tile < shape.tiles; tile += shape.num_clusters) {
    for (int chunk = first; chunk < end; ++chunk) {
      if (in_flight < shape.in_flight) {
        ++in_flight;
      } else {
        Await(at.full + 8 * landed.stage, landed.parity);
        landed.Next(shape.stages);
      }
      const uint32_t full = at.full + 8 * turn.stage;
      Await(at.empty + 8 * turn.stage, turn.parity);
      Expect(full, kStageBytes);  // what lies outside w is filled with zeros
      CopyBox(at.ring + turn.stage * kStageBytes, map,
              tile * shape.rows_a_tile(), chunk * (kChunk / kMapColumns), full);
      turn.Next(shape.stages);
    }
  }
}

// Columns [kChunk first, kChunk end) of x's m rows into shared memory, zeros
// beyond K: a copy a row, counted at a barrier that all threads wait for.
template <typename T, int kThreads>
__device__ void FillX(const TensorView& view, const Shape& shape, int first,
                      int end, uint32_t to, std::byte* shared,
                      uint32_t barrier) {
  const int64_t column = int64_t{first} * kChunk;
  const int64_t beyond = int64_t{end} * kChunk - shape.k;
  if (beyond > 0) {
    const int pieces = static_cast<int>(beyond) / 8;
    const int64_t begin = (shape.k - column) * 2;
    for (int i = threadIdx.x; i < pieces * shape.m; i += kThreads) {
      *reinterpret_cast<uint4*>(shared + i / pieces * shape.x_stride + begin +
                                i % pieces * 16) = make_uint4(0, 0, 0, 0);
    }
    asm volatile("bar.sync 1, %0;" ::"n"(kThreads) : "memory");
  }
  if (threadIdx.x == 0) {
    WaitForPrevious();
    const CudaMatrix<const T> x(view);
    const auto bytes =
        static_cast<uint32_t>(min(int64_t{end} * kChunk, shape.k) - column) * 2;
    Expect(barrier, shape.m * bytes);
    for (int r = 0; r < shape.m; ++r) {
      CopyRow(to + r * shape.x_stride, x.row(r) + column, bytes, barrier);
    }
  }
  __syncwarp();
  Await(barrier, 0);
}

// The sums of squares of x's row, by rms_norm's warps, whose sums it adds in
// their order. Four loads of a thread are under way at once.
template <int kThreads>
__device__ void SumSquares(const float* x, int64_t k, int warps, float* sums) {
  constexpr int kBatch = 4;
  constexpr int kWarps = kThreads / 32;
  const int lane = threadIdx.x % 32;
  for (int base = threadIdx.x / 32; base < warps; base += kBatch * kWarps) {
    float v[kBatch][kCudaVector] = {};
#pragma unroll
    for (int j = 0; j < kBatch; ++j) {
      const int part = base + j * kWarps;
      const int i = (part * 32 + lane) * kCudaVector;
      if (part < warps && i < k) LoadFloats<kCudaVector>(x + i, v[j]);
    }
#pragma unroll
    for (int j = 0; j < kBatch; ++j) {
      const int part = base + j * kWarps;
      if (part >= warps) break;
      const float sum = RmsNormPart(v[j], x, k, part, warps, lane);
      if (lane == 0) sums[part] = sum;
    }
  }
}

// Pieces of eight columns that a thread has at once.
constexpr int kNormBatch = 2;

// A thread's pieces of the columns [first, k) of x, from its `base`-th on.
template <int kThreads>
__device__ void LoadPieces(const float* x, int64_t first, int base, int64_t end,
                           float (&v)[kNormBatch][kCudaVector]) {
#pragma unroll
  for (int j = 0; j < kNormBatch; ++j) {
    const int64_t column = first + (base + j * kThreads) * kCudaVector;
    if (column < end) LoadFloats<kCudaVector>(x + column, v[j]);
  }
}

// As FillX, of the norm of x's only row, rounded to T. The first pieces are
// under way while the squares are added.
template <typename T, int kThreads>
__device__ void FillNormalised(const TensorView& view, const Shape& shape,
                               int first, int end, std::byte* shared,
                               float* sums) {
  const int64_t column = int64_t{first} * kChunk;
  const int64_t last = min(int64_t{end} * kChunk, shape.k);
  const int pieces = (end - first) * (kChunk / kCudaVector);
  const int warps = RmsNormWarps(shape.k);
  float w[kNormBatch][kCudaVector];
  float v[kNormBatch][kCudaVector] = {};
#pragma unroll
  for (auto& piece : w) {
#pragma unroll
    for (float& x : piece) x = 1.0f;
  }
  const auto load_weights = [&](int base) {
    if (shape.norm_weight == nullptr) return;
    LoadPieces<kThreads>(shape.norm_weight, column, base, last, w);
  };
  load_weights(threadIdx.x);
  WaitForPrevious();
  const float* const x = CudaMatrix<const float>(view).row(0);
  LoadPieces<kThreads>(x, column, threadIdx.x, last, v);
  SumSquares<kThreads>(x, shape.k, warps, sums);
  asm volatile("bar.sync 1, %0;" ::"n"(kThreads) : "memory");
  const int lane = threadIdx.x % 32;
  const float squares = WarpSum(lane < warps ? sums[lane] : 0.0f);
  const float factor = RmsNormFactor(squares, shape.k, shape.epsilon);
  T* const to = reinterpret_cast<T*>(shared);
#pragma unroll 1
  for (int base = threadIdx.x; base < pieces; base += kNormBatch * kThreads) {
    if (base >= kThreads) {
      load_weights(base);
      LoadPieces<kThreads>(x, column, base, last, v);
    }
#pragma unroll
    for (int j = 0; j < kNormBatch; ++j) {
      const int i = base + j * kThreads;
      if (i >= pieces) break;
      const bool exists = column + i * kCudaVector < last;
#pragma unroll
      for (int e = 0; e < kCudaVector; ++e) {
        v[j][e] =
            exists ? __fmul_rn(__fmul_rn(v[j][e], factor), w[j][e]) : 0.0f;
      }
      StoreFloats<kCudaVector>(to + i * kCudaVector, v[j]);
    }
  }
}

// Adds the products of one step, the `step`-th 32 columns of a stage: w's from
// `stage`, x's from `x`, an address of this lane's.
template <typename T>
__device__ void MultiplyStep(uint32_t stage, int step, uint32_t x,
                             float (&sums)[2][4]) {
  const int row = threadIdx.x % 8;
  const int matrix = threadIdx.x % 32 / 8;
  uint32_t b[4];
  LoadMatrices(x, b);
#pragma unroll
  for (int j = 0; j < 2; ++j) {
    // Rows 0 to 7, 8 to 15; then the same, eight columns on.
    const int piece = step % 2 * 4 + j * 2 + matrix / 2;
    uint32_t a[4];
    LoadMatrices(stage + step / 2 * kBoxBytes + (row + matrix % 2 * 8) * 128 +
                     (piece ^ row) * 16,
                 a);
    MultiplyTile<T>(sums[j], a, b[2 * j], b[2 * j + 1]);
  }
}

template <typename T, int kConsumers>
__device__ void Consume(const Shape& shape, const Places& at, unsigned rank,
                        int cluster, int first, int end) {
  constexpr int kSteps = kChunk / kStep / kConsumers;
  const int warp = threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  const int slices = shape.cluster * kConsumers;
  const int slice = static_cast<int>(rank) * kConsumers + warp;
  // Rows that x has not are read from 16 bytes of zeros.
  const bool is_row = lane % 8 < shape.m;
  const uint32_t x = is_row ? at.x + lane % 8 * shape.x_stride +
                                  warp * kSteps * kStep * 2 + lane / 8 * 16
                            : at.zeros;
  const int x_step = is_row ? kStep * 2 : 0;
  RingTurn turn;
  int i = 0;
  for (int tile = cluster; tile < shape.tiles;
       tile += shape.num_clusters, ++i) {
    float sums[2][4] = {};
    for (int chunk = first; chunk < end; ++chunk) {
      Await(at.full + 8 * turn.stage, turn.parity);
#pragma unroll
      for (int s = 0; s < kSteps; ++s) {
        MultiplyStep<T>(at.ring + turn.stage * kStageBytes, warp * kSteps + s,
                        x + ((chunk - first) * (kChunk / kStep) + s) * x_step,
                        sums);
      }
      __syncwarp();
      if (lane == 0) Arrive(at.empty + 8 * turn.stage);
      turn.Next(shape.stages);
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) sums[0][j] += sums[1][j];
    const auto owner = static_cast<unsigned>(i % shape.cluster);
    const int slot = i / shape.cluster % kSlots;
    const int round = i / (shape.cluster * kSlots);
    Await(at.partial_empty + 8 * (i % (shape.cluster * kSlots)),
          (round & 1) ^ 1);
    StoreAt(at.partials + (slot * slices + slice) * kPartialBytes + lane * 16,
            at.partial_full + 8 * slot, owner, sums[0]);
  }
}

// The four outputs of a lane's fragment of a tile.
struct Outputs {
  __device__ Outputs(const Shape& shape, int tile)
      : shape(shape),
        first_n(int64_t{tile} * shape.rows_a_tile() + threadIdx.x % 32 / 4),
        first_m(threadIdx.x % 4 * 2) {}
  // fn(j, m, n) for each that exists: x's row m and w's row n. The lower two
  // are gates where the upper two are their ups.
  template <typename Fn>
  __device__ void ForEach(Fn fn) const {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int m = first_m + j % 2;
      const int64_t n =
          first_n + j / 2 * (shape.half > 0 ? shape.half : int64_t{8});
      const bool exists = shape.half > 0 ? first_n < shape.half : n < shape.n;
      if (m < shape.m && exists) fn(j, m, n);
    }
  }
  const Shape& shape;
  int64_t first_n;
  int first_m;
};

// y of gates and ups: rounded as the product and the activation apart would be.
template <typename T>
__device__ void StoreGated(const Shape& shape, const Outputs& outputs,
                           const TensorView& y, const float (&values)[4]) {
  outputs.ForEach([&](int j, int m, int64_t n) {
    if (j >= 2) return;
    const float gate = ToFloat(FromFloat<T>(values[j]));
    const float up = ToFloat(FromFloat<T>(values[(j + 2) % 4]));
    CudaMatrix<T>(y).row(m)[n] =
        FromFloat<T>(ApplyActivation(shape.function, gate) * up);
  });
}

template <typename T, int kConsumers>
__device__ void Finish(const Shape& shape, const Places& at, unsigned rank,
                       int cluster, const float* bias,
                       const TensorView& residual, const TensorView& y) {
  const int lane = threadIdx.x % 32;
  const int slices = shape.cluster * kConsumers;
  RingTurn turn;
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
    // Only where the slot is used again and the arrival waited for.
    const int again = tile + shape.cluster * kSlots * shape.num_clusters;
    if (lane < shape.cluster && again < shape.tiles) {
      ArriveAt(at.partial_empty + 8 * (i % (shape.cluster * kSlots)), lane);
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) sums[j] += added[j];
    if (shape.half > 0) {
      StoreGated<T>(shape, outputs, y, sums);
    } else {
      outputs.ForEach([&](int j, int m, int64_t n) {
        if (shape.narrow) {
          CudaMatrix<T>(y).row(m)[n] = FromFloat<T>(sums[j]);
        } else {
          CudaMatrix<float>(y).row(m)[n] = sums[j];
        }
      });
    }
    turn.Next(kSlots);
  }
}

template <typename T, int kConsumers>
__global__ void __launch_bounds__(32 * (kConsumers + 2))
    BulkGemv(const __grid_constant__ TensorView x,
             const __grid_constant__ CUtensorMap map, const float* bias,
             const __grid_constant__ TensorView residual,
             const __grid_constant__ TensorView y,
             const __grid_constant__ Shape shape) {
  extern __shared__ __align__(1024) std::byte shared[];
  LetNextBegin();
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
    InitBarrier(at.x_full, 1);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    *reinterpret_cast<uint4*>(shared + kBarrierBytes - 16) =
        make_uint4(0, 0, 0, 0);
  }
  __syncthreads();
  ClusterArrive();  // the barriers can be used, by the other blocks too
  const int warp = threadIdx.x / 32;
  if (warp == kConsumers) {
    if (threadIdx.x % 32 == 0) {
      Produce(map, shape, at, cluster, first, end);
    }
    __syncwarp();
    ClusterWait();
  } else if (warp < kConsumers) {
    constexpr int kThreads = 32 * kConsumers;
    std::byte* const columns = shared + (at.x - (at.ring - kHeadBytes));
    if (shape.normalise) {
      FillNormalised<T, kThreads>(
          x, shape, first, end, columns,
          reinterpret_cast<float*>(shared + kBarrierBytes));
      asm volatile("bar.sync 1, %0;" ::"n"(kThreads) : "memory");
    } else {
      FillX<T, kThreads>(x, shape, first, end, at.x, columns, at.x_full);
    }
    ClusterWait();
    Consume<T, kConsumers>(shape, at, rank, cluster, first, end);
  } else {
    WaitForPrevious();
    ClusterWait();
    Finish<T, kConsumers>(shape, at, rank, cluster, bias, residual, y);
  }
}

// Shared memory apart from the ring.
size_t FixedBytes(const Shape& shape, int consumers) {
  return kHeadBytes +
         static_cast<size_t>(shape.m) * static_cast<size_t>(shape.x_stride) +
         static_cast<size_t>(kSlots * shape.cluster * consumers *
                             kPartialBytes);
}

Shape ShapeOf(const GemmDesc& desc, int64_t m, const GemvPlan& plan,
              const GemvFusion& fusion) {
  Shape shape;
  shape.half = fusion.gated ? desc.n / 2 : 0;
  shape.function = fusion.function;
  shape.normalise = fusion.normalise;
  shape.norm_weight = fusion.norm_weight;
  shape.epsilon = fusion.epsilon;

  shape.n = desc.n;
  shape.k = desc.k;
  shape.m = static_cast<int>(m);
  const int64_t rows = shape.half > 0 ? shape.half : desc.n;
  shape.tiles =
      static_cast<int>((rows + shape.rows_a_tile() - 1) / shape.rows_a_tile());
  shape.chunks = static_cast<int>((desc.k + kChunk - 1) / kChunk);
  shape.cluster = plan.cluster;
  shape.num_clusters = plan.num_clusters;
  // 16 bytes more than a multiple of 128: the same piece of eight rows meets
  // all banks once.
  const int most_chunks = (shape.chunks + plan.cluster - 1) / plan.cluster;
  shape.x_stride = most_chunks * kChunk * 2 + 16;
  shape.narrow = desc.output != DType::kF32;
  const size_t fixed = FixedBytes(shape, plan.consumers);
  const auto room = static_cast<size_t>(plan.shared_bytes);
  constexpr size_t kMost = kMostStages;
  shape.stages =
      room < fixed
          ? 0
          : static_cast<int>(std::min(kMost, (room - fixed) / kStageBytes));
  shape.in_flight = std::min(shape.stages, plan.in_flight);
  return shape;
}

template <typename T, int kConsumers>
absl::Status Launch(const GemmParams& params, const Shape& shape,
                    size_t reserve, CudaStream& stream) {
  // A box is a stage: of one half or of both.
  INLAY_ASSIGN_OR_RETURN(
      const CUtensorMap map,
      MapOfWeights(params.w, shape.rows_a_tile(), shape.half > 0 ? 2 : 1,
                   kChunk / kMapColumns));
  CudaGrid grid;
  grid.blocks = int64_t{shape.num_clusters} * shape.cluster;
  grid.threads = 32 * (kConsumers + 2);
  grid.shared_bytes = FixedBytes(shape, kConsumers) +
                      static_cast<size_t>(shape.stages * kStageBytes);
  grid.shared_bytes = std::max(grid.shared_bytes, reserve);
  grid.cluster = shape.cluster;
  return LaunchCuda("gemv", stream, grid, BulkGemv<T, kConsumers>, params.x,
                    map, params.bias, params.residual, params.y, shape);
}

template <typename T>
absl::Status LaunchTyped(const GemmParams& params, const Shape& shape,
                         const GemvPlan& plan, CudaStream& stream) {
  const auto reserve = static_cast<size_t>(plan.shared_bytes);
  return plan.consumers == 8 ? Launch<T, 8>(params, shape, reserve, stream)
                             : Launch<T, 4>(params, shape, reserve, stream);
}

}  // namespace

int BulkGemvStages(const GemmDesc& desc, int64_t m, const GemvPlan& plan) {
  return ShapeOf(desc, m, plan, {}).stages;
}

absl::Status RunBulkGemv(const GemmDesc& desc, const GemmParams& params,
                         const GemvPlan& plan, const GemvFusion& fusion,
                         CudaStream& stream) {
  const Shape shape = ShapeOf(desc, params.x.rows(), plan, fusion);
  return desc.weight == DType::kF16
             ? LaunchTyped<__half>(params, shape, plan, stream)
             : LaunchTyped<__nv_bfloat16>(params, shape, plan, stream);
}

}  // namespace inlay
