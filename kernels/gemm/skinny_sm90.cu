// gemm for some dozen rows of x on Hopper (9 to 64), still bound by the memory
// that the weights come from. As gemv_sm90.cu streams them; the arithmetic is
// wgmma's, for that of mma.m16n8k16 would read x from shared memory four times
// as often.
//
// y^T = w x^T: 64 rows of w are wgmma's m, the rows of x its n (8 to 64).
// Mapping: two blocks, a cluster, take tiles of 64 rows of w, each half of K in
// steps of 64 columns. One thread copies: a stage of the ring is a step's rows
// of w and all rows of x, which come from the level-2 cache. One warpgroup
// multiplies, straight from the ring. One finishes half of the tile's rows:
// quarters 0 and 2 of them, or 1 and 3, so that where w is two halves, gate and
// up, a block has both of a row.
// Shared memory: barriers, the ring (128-byte swizzle), three parts of half a
// tile's sums, [32][kN + 4]: what this block finishes, its own half of K
// and the other's, and what it sends.
// Barriers: full and empty a stage; sums_full, for the own sums and the bytes
// that arrive; sums_empty, once both blocks have read theirs. The other block's
// memory is written only where it waits for that.
// Accumulation: float32 in wgmma along half of K, then the halves: a row of y
// depends on no other and on no chance.
// Overlap: the next kernel may begin at once; the ring is filled with weights
// before the previous kernel's end is awaited, x comes after.
// Roofline: n k elements of w over the copy bandwidth; x is read n / kTile
// times from the level-2 cache, at 64 rows half as many bytes again as the
// weights.
#include <cuda.h>

#include <algorithm>

#include "kernels/activation/activation.cuh"
#include "kernels/cuda_float.cuh"
#include "kernels/cuda_launch.cuh"
#include "kernels/gemm/gemv_mma.cuh"
#include "kernels/gemm/gemv_sm90.cuh"
#include "kernels/gemm/skinny_cuda.h"
#include "kernels/gemm/skinny_wgmma.cuh"
#include "kernels/gemm/tensor_map.h"
#include "memory/status.h"

namespace inlay {
namespace {

constexpr int kTile = 64;  // rows of w
constexpr int kStep = 64;  // columns of a stage: one swizzled row of 128 bytes
constexpr int kWeightBytes = kTile * kStep * 2;
// Rows of a tile that a block finishes: two of its four quarters.
constexpr int kOwn = kTile / 2;
constexpr int kQuarter = kTile / 4;
constexpr int kConsumers = 128;
constexpr int kFinishers = 128;
constexpr int kThreads = kConsumers + kFinishers + 32;
constexpr int kHeadBytes = 1024;  // the ring lies on a multiple of 1024
constexpr int kMostStages = 16;
constexpr size_t kSharedBytes = size_t{216} << 10;

struct Shape {
  int64_t n;  // rows of w
  int m;
  int tiles;
  int steps;  // of K
  int num_clusters;
  int stages;
  bool narrow;  // y is of the type of w; otherwise f32
  bool gated;   // w is gates and as many ups
  Activation function;
};

// What follows from how many rows of x there may be.
template <int kRows>
struct Cut {
  static constexpr int kN = kRows;
  static constexpr int kStageBytes = kWeightBytes + kN * kStep * 2;
  // Floats from one row to the next among sums: eight rows meet all banks once.
  static constexpr int kStride = kN + 4;
  static constexpr int kSumBytes = kOwn * kStride * 4;
};

template <typename C>
struct Places {
  __device__ Places(const Shape& shape, uint32_t base)
      : full(base),
        empty(full + 8 * kMostStages),
        sums_full(empty + 8 * kMostStages),
        sums_empty(sums_full + 8),
        ring(base + kHeadBytes),
        own(ring + shape.stages * C::kStageBytes),
        received(own + C::kSumBytes),
        sent(received + C::kSumBytes) {}
  __device__ uint32_t weights(int stage) const {
    return ring + stage * C::kStageBytes;
  }
  __device__ uint32_t x(int stage) const {
    return weights(stage) + kWeightBytes;
  }
  uint32_t full, empty, sums_full, sums_empty, ring, own, received, sent;
};

// A block's part of the work: tiles cluster, cluster + num_clusters, ... and of
// each the steps [first, end).
struct Work {
  int cluster, first, end;
};

// A tile's step, and the block's next.
struct At {
  __device__ At(const Shape& shape, const Work& work)
      : tile(work.first < work.end ? work.cluster : shape.tiles),
        step(work.first) {}
  __device__ void Next(const Shape& shape, const Work& work) {
    if (++step == work.end) {
      step = work.first;
      tile += shape.num_clusters;
    }
  }
  int tile, step;
};

// One thread.
template <typename C>
__device__ void Produce(const CUtensorMap& w, const CUtensorMap& x,
                        const Shape& shape, const Places<C>& at,
                        const Work& work) {
  const int rows_a_tile = shape.gated ? kTile / 2 : kTile;
  const auto copy_w = [&](int stage, const At& what) {
    const uint32_t full = at.full + 8 * stage;
    Expect(full, C::kStageBytes);  // what lies outside is filled with zeros
    CopyBox(at.weights(stage), w, what.tile * rows_a_tile, what.step, full);
  };
  const auto copy_x = [&](int stage, const At& what) {
    CopyColumns(at.x(stage), x, what.step * kStep, at.full + 8 * stage);
  };
  At next(shape, work);
  for (int s = 0; s < shape.stages && next.tile < shape.tiles; ++s) {
    copy_w(s, next);
    next.Next(shape, work);
  }
  WaitForPrevious();
  At again(shape, work);
  for (int s = 0; s < shape.stages && again.tile < shape.tiles; ++s) {
    copy_x(s, again);
    again.Next(shape, work);
  }
  RingTurn turn;
  for (; next.tile < shape.tiles; next.Next(shape, work)) {
    Await(at.empty + 8 * turn.stage, turn.parity);
    copy_w(turn.stage, next);
    copy_x(turn.stage, next);
    turn.Next(shape.stages);
  }
}

// A warp's sums of a tile, 16 rows, to who finishes them.
template <typename C>
__device__ void HandOver(const Places<C>& at, unsigned rank,
                         const float (&sums)[C::kN / 2]) {
  const int warp = threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  const int row = warp * 16;
  const int quarter = row / kQuarter;
  const bool own = quarter % 2 == static_cast<int>(rank);
  const int first = quarter / 2 * kQuarter + row % kQuarter + lane / 4;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const uint32_t to = (own ? at.own : at.sent) +
                        ((first + 8 * h) * C::kStride + lane % 4 * 2) * 4;
#pragma unroll
    for (int j = 0; j < C::kN / 8; ++j) {
      asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(to + 32 * j),
                   "f"(sums[4 * j + 2 * h]), "f"(sums[4 * j + 2 * h + 1])
                   : "memory");
    }
  }
  if (own) {
    Arrive(at.sums_full);
    return;
  }
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  asm volatile("bar.sync 2, %0;" ::"n"(kConsumers / 2) : "memory");
  // The first warp of those that send: the first or the second quarter's.
  if (warp == (rank == 0 ? kQuarter / 16 : 0) && lane == 0) {
    SendBytes(at.received, at.sent, C::kSumBytes, at.sums_full, rank ^ 1);
  }
}

template <typename T, typename C>
__device__ void Consume(const Shape& shape, const Places<C>& at,
                        const Work& work, unsigned rank) {
  const int lane = threadIdx.x % 32;
  RingTurn turn;
  uint32_t parity = 1;
  for (int tile = work.cluster; tile < shape.tiles;
       tile += shape.num_clusters) {
    float sums[C::kN / 2];
#pragma unroll
    for (float& sum : sums) sum = 0.0f;
    int before = -1;  // the stage whose products may be unfinished
    for (int step = work.first; step < work.end; ++step) {
      Await(at.full + 8 * turn.stage, turn.parity);
      sm90::PinRegisters(sums);
      sm90::WgmmaFence();
#pragma unroll
      for (int k = 0; k < kStep / 16; ++k) {
        sm90::SkinnyWgmma<T, C::kN>(
            sums, sm90::MatrixDescriptor(at.weights(turn.stage) + 32 * k),
            sm90::MatrixDescriptor(at.x(turn.stage) + 32 * k));
      }
      sm90::WgmmaCommit();
      sm90::WgmmaWait<1>();
      if (before >= 0 && lane == 0) Arrive(at.empty + 8 * before);
      before = turn.stage;
      turn.Next(shape.stages);
    }
    sm90::WgmmaWait<0>();
    sm90::PinRegisters(sums);
    if (before >= 0 && lane == 0) Arrive(at.empty + 8 * before);
    Await(at.sums_empty, parity);
    parity ^= 1;
    HandOver<C>(at, rank, sums);
  }
}

// What a finishing thread has of a tile, one of kItems: four rows of x against
// a row of w, or against a gate and its up.
template <typename C>
struct Item {
  __device__ Item(const Shape& shape, int tile, unsigned rank, int index) {
    const int thread = static_cast<int>(threadIdx.x) - kConsumers;
    const int i = thread + index * kFinishers;
    const int rows = shape.gated ? kQuarter : kOwn;
    exists = i < rows * (C::kN / 4);
    row = i % rows;
    m = i / rows * 4;
    n = int64_t{tile} * (shape.gated ? kTile / 2 : kTile) +
        row / kQuarter * (kTile / 2) + static_cast<int>(rank) * kQuarter +
        row % kQuarter;
    exists = exists && n < (shape.gated ? shape.n / 2 : shape.n);
  }
  // The sums of both halves of K, for row `row` of those finished here.
  __device__ void Load(const Places<C>& at, unsigned rank, int row,
                       float (&sums)[4]) const {
    const int offset = (row * C::kStride + m) * 4;
    const uint4 own = LoadShared16(at.own + offset);
    const uint4 other = LoadShared16(at.received + offset);
    sums[0] = __uint_as_float(own.x) + __uint_as_float(other.x);
    sums[1] = __uint_as_float(own.y) + __uint_as_float(other.y);
    sums[2] = __uint_as_float(own.z) + __uint_as_float(other.z);
    sums[3] = __uint_as_float(own.w) + __uint_as_float(other.w);
  }
  bool exists;
  int row, m;
  int64_t n;  // of y
};

// y of gates and ups: rounded as the product and the activation apart would be.
template <typename T, typename C>
__device__ void StoreGated(const Shape& shape, const Item<C>& item,
                           const float (&gates)[4], const float (&ups)[4],
                           const float* bias, const TensorView& y) {
  const float gate_bias = bias == nullptr ? 0.0f : bias[item.n];
  const float up_bias = bias == nullptr ? 0.0f : bias[shape.n / 2 + item.n];
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    if (item.m + j >= shape.m) continue;
    const float gate = ToFloat(FromFloat<T>(gates[j] + gate_bias));
    const float up = ToFloat(FromFloat<T>(ups[j] + up_bias));
    CudaMatrix<T>(y).row(item.m + j)[item.n] =
        FromFloat<T>(ApplyActivation(shape.function, gate) * up);
  }
}

template <typename T>
__device__ void Store(const Shape& shape, int m, int64_t n, float sum,
                      const TensorView& y) {
  if (shape.narrow) {
    CudaMatrix<T>(y).row(m)[n] = FromFloat<T>(sum);
  } else {
    CudaMatrix<float>(y).row(m)[n] = sum;
  }
}

template <typename T, typename C>
__device__ void Finish(const Shape& shape, const Places<C>& at,
                       const Work& work, unsigned rank, const float* bias,
                       const TensorView& residual, const TensorView& y) {
  constexpr int kItems = (kOwn * (C::kN / 4) + kFinishers - 1) / kFinishers;
  const int thread = static_cast<int>(threadIdx.x) - kConsumers;
  uint32_t parity = 0;
  for (int tile = work.cluster; tile < shape.tiles;
       tile += shape.num_clusters) {
    if (thread == 0) Expect(at.sums_full, C::kSumBytes);
    // What is added is read while the sums are under way.
    float added[kItems][4];
#pragma unroll
    for (int i = 0; i < kItems; ++i) {
      const Item<C> item(shape, tile, rank, i);
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        added[i][j] = 0.0f;
        if (shape.gated || !item.exists || item.m + j >= shape.m) continue;
        if (bias != nullptr) added[i][j] = bias[item.n];
        if (residual.data == nullptr) continue;
        added[i][j] +=
            shape.narrow
                ? ToFloat(CudaMatrix<const T>(residual).row(item.m + j)[item.n])
                : CudaMatrix<const float>(residual).row(item.m + j)[item.n];
      }
    }
    Await(at.sums_full, parity);
    parity ^= 1;
    float sums[kItems][4];
    float ups[kItems / 2 + 1][4];
#pragma unroll
    for (int i = 0; i < kItems; ++i) {
      const Item<C> item(shape, tile, rank, i);
      if (!item.exists) continue;
      item.Load(at, rank, item.row, sums[i]);
      if (shape.gated && i < kItems / 2 + 1) {
        item.Load(at, rank, item.row + kQuarter, ups[i]);
      }
    }
    asm volatile("bar.sync 1, %0;" ::"n"(kFinishers) : "memory");
    // Only where it is waited for.
    if (thread < 2 && tile + shape.num_clusters < shape.tiles) {
      ArriveAt(at.sums_empty, thread);
    }
#pragma unroll
    for (int i = 0; i < kItems; ++i) {
      const Item<C> item(shape, tile, rank, i);
      if (!item.exists) continue;
      if (shape.gated) {
        if (i < kItems / 2 + 1)
          StoreGated<T>(shape, item, sums[i], ups[i], bias, y);
        continue;
      }
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        if (item.m + j >= shape.m) continue;
        Store<T>(shape, item.m + j, item.n, sums[i][j] + added[i][j], y);
      }
    }
  }
}

template <typename T, typename C>
__global__ void __launch_bounds__(kThreads, 1)
    SkinnyGemm(const __grid_constant__ CUtensorMap w,
               const __grid_constant__ CUtensorMap x, const float* bias,
               const __grid_constant__ TensorView residual,
               const __grid_constant__ TensorView y,
               const __grid_constant__ Shape shape) {
  extern __shared__ __align__(1024) std::byte shared[];
  LetNextBegin();
  const Places<C> at(shape,
                     static_cast<uint32_t>(__cvta_generic_to_shared(shared)));
  const unsigned rank = ClusterRank();
  const int middle = shape.steps / 2;
  const Work work = {static_cast<int>(blockIdx.x) / 2, rank == 0 ? 0 : middle,
                     rank == 0 ? middle : shape.steps};
  if (threadIdx.x == 0) {
    for (int s = 0; s < shape.stages; ++s) {
      InitBarrier(at.full + 8 * s, 1);
      InitBarrier(at.empty + 8 * s, kConsumers / 32);
    }
    InitBarrier(at.sums_full, kConsumers / 2 + 1);
    InitBarrier(at.sums_empty, 2);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  ClusterArrive();  // the barriers can be used, by the other block too
  if (threadIdx.x >= kConsumers + kFinishers) {
    if (threadIdx.x % 32 == 0) Produce<C>(w, x, shape, at, work);
    __syncwarp();
    ClusterWait();
  } else if (threadIdx.x < kConsumers) {
    ClusterWait();
    Consume<T, C>(shape, at, work, rank);
  } else {
    WaitForPrevious();
    ClusterWait();
    Finish<T, C>(shape, at, work, rank, bias, residual, y);
  }
  // What was sent is read from here until it has arrived.
  SyncCluster();
}

template <typename T, typename C>
absl::Status Launch(const GemmDesc& desc, const GemmParams& params,
                    const GemvFusion& fusion, CudaStream& stream) {
  Shape shape;
  shape.n = desc.n;
  shape.m = static_cast<int>(params.x.rows());
  const int halves = fusion.gated ? 2 : 1;
  const int64_t rows_a_tile = kTile / halves;
  shape.tiles =
      static_cast<int>((desc.n / halves + rows_a_tile - 1) / rows_a_tile);
  shape.steps = static_cast<int>(desc.k / kStep);
  shape.num_clusters = std::min(stream.num_sms() / 2, shape.tiles);
  shape.narrow = desc.output != DType::kF32;
  shape.gated = fusion.gated;
  shape.function = fusion.function;
  constexpr size_t kFixed = kHeadBytes + 3 * C::kSumBytes;
  shape.stages = static_cast<int>(
      std::min<size_t>(kMostStages, (kSharedBytes - kFixed) / C::kStageBytes));
  INLAY_ASSIGN_OR_RETURN(const CUtensorMap w,
                         MapOfWeights(params.w, kTile / halves, halves));
  INLAY_ASSIGN_OR_RETURN(const CUtensorMap x, MapOfColumns(params.x, C::kN));
  CudaGrid grid;
  grid.blocks = int64_t{shape.num_clusters} * 2;
  grid.threads = kThreads;
  grid.shared_bytes = kSharedBytes;
  grid.cluster = 2;
  return LaunchCuda("skinny gemm", stream, grid, SkinnyGemm<T, C>, w, x,
                    params.bias, params.residual, params.y, shape);
}

template <typename T>
absl::Status LaunchTyped(const GemmDesc& desc, const GemmParams& params,
                         const GemvFusion& fusion, CudaStream& stream) {
  const int64_t m = params.x.rows();
  return m <= 8    ? Launch<T, Cut<8>>(desc, params, fusion, stream)
         : m <= 16 ? Launch<T, Cut<16>>(desc, params, fusion, stream)
         : m <= 32 ? Launch<T, Cut<32>>(desc, params, fusion, stream)
                   : Launch<T, Cut<64>>(desc, params, fusion, stream);
}

}  // namespace

absl::Status RunSkinnyGemm(const GemmDesc& desc, const GemmParams& params,
                           const GemvFusion& fusion, CudaStream& stream) {
  return desc.weight == DType::kF16
             ? LaunchTyped<__half>(desc, params, fusion, stream)
             : LaunchTyped<__nv_bfloat16>(desc, params, fusion, stream);
}

}  // namespace inlay
