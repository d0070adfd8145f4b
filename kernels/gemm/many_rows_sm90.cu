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

#include "kernels/attention/sm90_ops.h"
#include "kernels/attention/wgmma_sm90.h"
#include "kernels/cuda_float.cuh"
#include "kernels/cuda_launch.cuh"
#include "kernels/gemm/gemv_sm90.cuh"
#include "kernels/gemm/many_rows_cuda.h"
#include "kernels/gemm/tensor_map.h"
#include "memory/status.h"

namespace inlay {
namespace {

constexpr int kTile = 128;  // rows of w a block
constexpr int kStep = 64;   // columns of a stage: one swizzled row of 128 bytes
constexpr int kRowBytes = kStep * 2;
constexpr int kWeightBytes = kTile * kRowBytes;
constexpr int kCluster = 2;
constexpr int kConsumers = 256;  // threads that multiply
constexpr int kThreads = kConsumers + 128;
constexpr int kHeadBytes = 1024;  // the ring lies on a multiple of 1024
constexpr int kMostStages = 8;
constexpr size_t kSharedBytes = size_t{216} << 10;
// Pairs of tiles of w that a band has.
constexpr int kBand = 8;
// A block begins with 168 registers for each thread.
constexpr int kFewRegisters = 24;
constexpr int kManyRegisters = 240;

struct Shape {
  int64_t n;  // rows of w
  int m;
  int pairs;    // of tiles of w
  int columns;  // tiles of x
  int steps;    // of K
  int num_clusters;
  int stages;
  bool narrow;  // y is of the type of w; otherwise f32
  bool paired;  // two neighbours of y may be stored at once
};

template <int kN>
constexpr int kStageBytes = kWeightBytes + kN* kRowBytes;

template <int kN>
struct Places {
  __device__ explicit Places(uint32_t base)
      : full(base), empty(base + 8 * kMostStages), ring(base + kHeadBytes) {}
  __device__ uint32_t weights(int stage) const {
    return ring + stage * kStageBytes<kN>;
  }
  __device__ uint32_t x(int stage) const {
    return weights(stage) + kWeightBytes;
  }
  uint32_t full, empty, ring;
};

// Where the cluster's `index`-th pair of tiles lies.
struct Job {
  __device__ Job(const Shape& shape, int index) {
    const int band = index / (kBand * shape.columns);
    const int within = index - band * kBand * shape.columns;
    const int width = min(kBand, shape.pairs - band * kBand);
    column = within / width;
    pair = band * kBand + within % width;
  }
  int pair, column;
};

// The box of `map` (MapOfColumns) at (column, row), to the same place of the
// blocks in `blocks`, a bit each, counted at the same barrier of each.
__device__ void CopyTo(uint32_t to, const CUtensorMap& map, int column, int row,
                       uint32_t barrier, uint16_t blocks) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::"
      "bytes.multicast::cluster [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(to),
      "l"(&map), "r"(column), "r"(row), "r"(barrier), "h"(blocks)
      : "memory");
}
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

// `steps` steps of the ring, added up from zero.
template <typename T, int kN>
__device__ void Multiply(const Shape& shape, const Places<kN>& at, int steps,
                         RingTurn& turn, float (&sums)[kN / 2]) {
  const int lane = threadIdx.x % 32;
  const uint32_t rows = threadIdx.x / 128 * (64 * kRowBytes);
  const auto free = [&](int stage) {
    if (lane < kCluster) ArriveAt(at.empty + 8 * stage, lane);
  };
#pragma unroll
  for (float& sum : sums) sum = 0.0f;
  int before = -1;  // the stage whose products may be unfinished
  for (int step = 0; step < steps; ++step) {
    Await(at.full + 8 * turn.stage, turn.parity);
    sm90::PinRegisters(sums);
    sm90::WgmmaFence();
#pragma unroll
    for (int k = 0; k < kStep / 16; ++k) {
      sm90::Wgmma<T, kN>::Issue(
          sums, sm90::MatrixDescriptor(at.weights(turn.stage) + rows + 32 * k),
          sm90::MatrixDescriptor(at.x(turn.stage) + 32 * k), 1);
    }
    sm90::WgmmaCommit();
    sm90::WgmmaWait<1>();
    if (before >= 0) free(before);
    before = turn.stage;
    turn.Next(shape.stages);
  }
  sm90::WgmmaWait<0>();
  sm90::PinRegisters(sums);
  if (before >= 0) free(before);
}

// Eight rows of 16-bit elements, two of a lane's row in each lane, as their
// transpose.
__device__ uint32_t Transposed(uint32_t matrix) {
  uint32_t result;
  asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;"
      : "=r"(result)
      : "r"(matrix));
  return result;
}

// What a warp does with its sums: 16 rows of w from n on, kN of x from m on.
template <typename T, int kN>
class Output {
 public:
  __device__ Output(const Shape& shape, int64_t n, int m, const float* bias,
                    const TensorView& residual, const TensorView& y)
      : shape_(shape), residual_(residual), y_(y), n_(n), m_(m) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int64_t row = RowOfW(h);
      bias_[h] = bias != nullptr && row < shape.n ? bias[row] : 0.0f;
    }
  }

  __device__ void Store(const float (&first)[kN / 2],
                        const float (&second)[kN / 2]) const {
    // Where all is there nothing branches, so that loads are under way at once.
    if (m_ + kN <= shape_.m && n_ + 16 <= shape_.n) {
      if (!shape_.narrow) {
        StoreAll<float, true>(first, second);
      } else {
        StoreAll<T, true>(first, second);
      }
    } else if (!shape_.narrow) {
      StoreAll<float, false>(first, second);
    } else {
      StoreAll<T, false>(first, second);
    }
  }

 private:
  __device__ int RowOfX(int j, int i) const {
    return m_ + 8 * j + static_cast<int>(threadIdx.x) % 4 * 2 + i;
  }
  __device__ int64_t RowOfW(int h) const {
    return n_ + threadIdx.x % 32 / 4 + 8 * h;
  }

  template <typename Y, bool kWhole>
  __device__ void StoreAll(const float (&first)[kN / 2],
                           const float (&second)[kN / 2]) const {
    // Groups of 8 rows of x, as many as registers are left for.
    constexpr int kAtOnce = kN > 128 ? 4 : 8;
#pragma unroll
    for (int j0 = 0; j0 < kN / 8; j0 += kAtOnce) {
      float added[kAtOnce][4];
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) {
#pragma unroll
        for (int i = 0; i < 4; ++i) added[j][i] = bias_[i / 2];
      }
      if (residual_.data != nullptr) {
#pragma unroll
        for (int j = 0; j < kAtOnce; ++j) {
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            const int m = RowOfX(j0 + j, i % 2);
            const int64_t n = RowOfW(i / 2);
            if (kWhole || (m < shape_.m && n < shape_.n)) {
              added[j][i] += ToFloat(CudaMatrix<const Y>(residual_).row(m)[n]);
            }
          }
        }
      }
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int at = 4 * (j0 + j) + i;
          added[j][i] = first[at] + second[at] + added[j][i];
        }
        StoreGroup<Y, kWhole>(j0 + j, added[j]);
      }
    }
  }

  template <typename Y, bool kWhole>
  __device__ void StoreGroup(int j, const float (&values)[4]) const {
    if constexpr (!std::is_same_v<Y, float>) {
      if (shape_.paired) {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          const uint32_t two =
              Transposed(sm90::Pack<T>(values[2 * h], values[2 * h + 1]));
          const int m = m_ + 8 * j + threadIdx.x % 32 / 4;
          const int64_t n = n_ + 8 * h + threadIdx.x % 4 * 2;
          if (kWhole || (m < shape_.m && n < shape_.n)) {
            *reinterpret_cast<uint32_t*>(CudaMatrix<T>(y_).row(m) + n) = two;
          }
        }
        return;
      }
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int m = RowOfX(j, i % 2);
      const int64_t n = RowOfW(i / 2);
      if (kWhole || (m < shape_.m && n < shape_.n)) {
        CudaMatrix<Y>(y_).row(m)[n] = FromFloat<Y>(values[i]);
      }
    }
  }

  const Shape& shape_;
  const TensorView& residual_;
  const TensorView& y_;
  int64_t n_;
  int m_;
  float bias_[2];
};

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
      WaitForPrevious();
      const Job job(shape, index);
      const int tile = job.pair * kCluster + static_cast<int>(rank);
      Output<T, kN>(shape,
                    int64_t{tile} * kTile + threadIdx.x / 32 * int64_t{16},
                    job.column * kN, bias, residual, y)
          .Store(first, second);
    }
  }
  // The other block's copies and arrivals come here until it has ended.
  SyncCluster();
}

int64_t Tiles(int64_t rows, int64_t tile) { return (rows + tile - 1) / tile; }

template <typename T, int kN>
absl::Status Launch(const GemmDesc& desc, const GemmParams& params,
                    CudaStream& stream) {
  const int64_t m = params.x.rows();
  Shape shape;
  shape.n = desc.n;
  shape.m = static_cast<int>(m);
  shape.pairs = static_cast<int>(Tiles(desc.n, kCluster * kTile));
  shape.columns = static_cast<int>(Tiles(m, kN));
  shape.steps = static_cast<int>(desc.k / kStep);
  shape.num_clusters =
      std::min(stream.num_sms() / kCluster, shape.pairs * shape.columns);
  shape.stages = static_cast<int>(std::min<size_t>(
      kMostStages, (kSharedBytes - kHeadBytes) / kStageBytes<kN>));
  shape.narrow = desc.output != DType::kF32;
  shape.paired =
      shape.narrow && desc.n % 2 == 0 &&
      (reinterpret_cast<uintptr_t>(params.y.data) | params.y.row_stride_bytes) %
              4 ==
          0;
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
