// gemm for many rows of x on Hopper with the sums of skinny_sm90.cu, bit for
// bit: what batch-invariant models multiply prompts by.
//
// y^T = w x^T by wgmma, as there: w's rows are its m, x's its n; k goes up in
// steps of 16 through one accumulator for each half of K, and the halves are
// added up. What a sum gets does not depend on wgmma's n.
// Mapping: two blocks, a cluster, take two neighbouring tiles of 128 rows of w
// and the same kN rows of x, all of K in steps of 64 columns. One thread
// copies: its block's rows of w, and half of the rows of x for both blocks.
// Two warpgroups multiply, 64 rows of w each, straight from the ring; sums of
// the first half stay in registers beside those of the second. Tiles are gone
// through in bands of w, so that what blocks read at a time is in the level-2
// cache.
// Shared memory: barriers, the ring (128-byte swizzle).
// Barriers: full a stage, for its bytes; empty a stage, for the warps that
// multiply of both blocks, since either writes to the other's ring.
// Overlap: the next kernel may begin at once; the ring is filled with weights
// before the previous kernel's end is awaited, x comes after.
// Roofline: 2 m n k operations over the rate of the tensor cores; 28 KB a step
// and block from the level-2 cache where kN is 192.
#include <cuda.h>

#include <algorithm>

#include "kernels/cuda_launch.cuh"
#include "kernels/gemm/many_rows_cuda.h"
#include "kernels/gemm/many_rows_sm90.cuh"
#include "kernels/gemm/tensor_map.h"
#include "memory/status.h"

namespace inlay {
namespace {

// A block begins with 168 registers for each thread.
constexpr int kFewRegisters = 24;
constexpr int kManyRegisters = 240;

__device__ void CopyHere(uint32_t to, const CUtensorMap& map, int column,
                         int row, uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::"
      "bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(to),
      "l"(&map), "r"(column), "r"(row), "r"(barrier)
      : "memory");
}

// A cluster's steps one after another.
struct At {
  __device__ At(const Shape& shape, int cluster)
      : index(cluster), jobs(shape.pairs * shape.columns) {}
  __device__ bool Done() const { return index >= jobs; }
  __device__ void Next(const Shape& shape) {
    if (++step == shape.steps) {
      step = 0;
      index += shape.num_clusters;
    }
  }
  int index, jobs, step = 0;
};

// One thread.
template <int kN>
__device__ void Produce(const CUtensorMap& w, const CUtensorMap& x,
                        const Shape& shape, const Places<kN>& at,
                        unsigned rank) {
  constexpr int kShare = kN / kCluster;  // rows of x that this block copies
  const int cluster = static_cast<int>(blockIdx.x) / kCluster;
  const auto copy_w = [&](int stage, const At& what) {
    const Job job(shape, what.index);
    const uint32_t full = at.full + 8 * stage;
    Expect(full, kStageBytes<kN>);  // what lies outside is filled with zeros
    CopyHere(at.weights(stage), w, what.step * kStep,
             (job.pair * kCluster + static_cast<int>(rank)) * kTile, full);
  };
  const auto copy_x = [&](int stage, const At& what) {
    const Job job(shape, what.index);
    const int share = static_cast<int>(rank) * kShare;
    CopyTo(at.x(stage) + share * kRowBytes, x, what.step * kStep,
           job.column * kN + share, at.full + 8 * stage, (1 << kCluster) - 1);
  };
  At next(shape, cluster);
  for (int s = 0; s < shape.stages && !next.Done(); ++s) {
    copy_w(s, next);
    next.Next(shape);
  }
  WaitForPrevious();
  At again(shape, cluster);
  for (int s = 0; s < shape.stages && !again.Done(); ++s) {
    copy_x(s, again);
    again.Next(shape);
  }
  RingTurn turn;
  for (; !next.Done(); next.Next(shape)) {
    Await(at.empty + 8 * turn.stage, turn.parity);
    copy_w(turn.stage, next);
    copy_x(turn.stage, next);
    turn.Next(shape.stages);
  }
}

template <typename T, int kN>
__global__ void __launch_bounds__(kThreads, 1)
    ManyRowsGemm(const __grid_constant__ CUtensorMap w,
                 const __grid_constant__ CUtensorMap x, const float* bias,
                 const __grid_constant__ TensorView residual,
                 const __grid_constant__ TensorView y,
                 const __grid_constant__ Shape shape) {
  extern __shared__ __align__(1024) std::byte shared[];
  LetNextBegin();
  const Places<kN> at(static_cast<uint32_t>(__cvta_generic_to_shared(shared)));
  const unsigned rank = ClusterRank();
  if (threadIdx.x == 0) {
    for (int s = 0; s < shape.stages; ++s) {
      InitBarrier(at.full + 8 * s, 1);
      InitBarrier(at.empty + 8 * s, kCluster * kConsumers / 32);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  ClusterArrive();  // the barriers can be used, by the other block too
  ClusterWait();
  if (threadIdx.x >= kConsumers) {
    sm90::LowerRegisters<kFewRegisters>();
    if (threadIdx.x == kConsumers) Produce<kN>(w, x, shape, at, rank);
    __syncwarp();
  } else {
    sm90::RaiseRegisters<kManyRegisters>();
    RingTurn turn;
    const int jobs = shape.pairs * shape.columns;
#pragma unroll 1
    for (int index = static_cast<int>(blockIdx.x) / kCluster; index < jobs;
         index += shape.num_clusters) {
      float first[kN / 2], second[kN / 2];
      const int middle = shape.steps / 2;
      Multiply<T, kN>(shape, at, middle, turn, first);
      Multiply<T, kN>(shape, at, shape.steps - middle, turn, second);
#pragma unroll
      for (int i = 0; i < kN / 2; ++i) first[i] += second[i];
      WaitForPrevious();
      const Job job(shape, index);
      const int tile = job.pair * kCluster + static_cast<int>(rank);
      Output<T, kN>(shape,
                    int64_t{tile} * kTile + threadIdx.x / 32 * int64_t{16},
                    job.column * kN, bias, residual, y)
          .Store(first);
    }
  }
  // The other block's copies and arrivals come here until it has ended.
  SyncCluster();
}

template <typename T, int kN>
absl::Status Launch(const GemmDesc& desc, const GemmParams& params,
                    CudaStream& stream) {
  Shape shape = ShapeOf<kN>(desc, params, stream);
  shape.stages = static_cast<int>(std::min<size_t>(
      kMostStages, (kSharedBytes - kHeadBytes) / kStageBytes<kN>));
  INLAY_ASSIGN_OR_RETURN(const CUtensorMap w, MapOfColumns(params.w, kTile));
  INLAY_ASSIGN_OR_RETURN(const CUtensorMap x,
                         MapOfColumns(params.x, kN / kCluster));
  CudaGrid grid;
  grid.blocks = int64_t{shape.num_clusters} * kCluster;
  grid.threads = kThreads;
  grid.shared_bytes = kSharedBytes;
  grid.cluster = kCluster;
  return LaunchCuda("gemm of many rows", stream, grid, ManyRowsGemm<T, kN>, w,
                    x, params.bias, params.residual, params.y, shape);
}

// Rounds of the chip, and what a round takes.
template <int kN>
double Microseconds(const GemmDesc& desc, int64_t rows, int num_sms) {
  constexpr double kAStep = kN == 128 ? 0.46 : 0.65;
  constexpr double kEnds = 5.0;
  const int64_t jobs = Tiles(desc.n, kCluster * kTile) * Tiles(rows, kN);
  const int64_t rounds = Tiles(jobs, std::max(1, num_sms / kCluster));
  return static_cast<double>(rounds) *
         (static_cast<double>(desc.k / kStep) * kAStep + kEnds);
}

template <typename T>
absl::Status LaunchTyped(const GemmDesc& desc, const GemmParams& params,
                         CudaStream& stream) {
  const int64_t m = params.x.rows();
  return Microseconds<128>(desc, m, stream.num_sms()) <
                 Microseconds<192>(desc, m, stream.num_sms())
             ? Launch<T, 128>(desc, params, stream)
             : Launch<T, 192>(desc, params, stream);
}

}  // namespace

double ManyRowsMicroseconds(const GemmDesc& desc, int64_t rows, int num_sms) {
  return std::min(Microseconds<128>(desc, rows, num_sms),
                  Microseconds<192>(desc, rows, num_sms));
}

absl::Status RunManyRowsGemm(const GemmDesc& desc, const GemmParams& params,
                             CudaStream& stream) {
  return desc.weight == DType::kF16
             ? LaunchTyped<__half>(desc, params, stream)
             : LaunchTyped<__nv_bfloat16>(desc, params, stream);
}

}  // namespace inlay
