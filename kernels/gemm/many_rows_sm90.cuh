// What kernels for many rows of x on Hopper share whose sums have one order
// (many_rows_sm90.cu, quantised/many_rows_packed_sm90.cu): y^T = w x^T by
// wgmma, two warpgroups that multiply from a ring of both operands, and what
// becomes of their sums. Mapping and barriers: many_rows_sm90.cu.
#ifndef INLAY_KERNELS_GEMM_MANY_ROWS_SM90_CUH_
#define INLAY_KERNELS_GEMM_MANY_ROWS_SM90_CUH_

#include <cuda.h>

#include <algorithm>
#include <type_traits>

#include "kernels/attention/sm90_ops.h"
#include "kernels/attention/wgmma_sm90.h"
#include "kernels/cuda_float.cuh"
#include "kernels/cuda_launch.cuh"
#include "kernels/gemm/gemm.h"
#include "kernels/gemm/gemv_sm90.cuh"
#include "memory/device/cuda_stream.h"

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

// What a warp does with its sums: 16 rows of w from n on, kN of x from m on:
// adds bias and residual, rounds once.
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

  __device__ void Store(const float (&sums)[kN / 2]) const {
    // Where all is there nothing branches, so that loads are under way at once.
    if (m_ + kN <= shape_.m && n_ + 16 <= shape_.n) {
      if (!shape_.narrow) {
        StoreAll<float, true>(sums);
      } else {
        StoreAll<T, true>(sums);
      }
    } else if (!shape_.narrow) {
      StoreAll<float, false>(sums);
    } else {
      StoreAll<T, false>(sums);
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
  __device__ void StoreAll(const float (&sums)[kN / 2]) const {
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
          added[j][i] = sums[at] + added[j][i];
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

int64_t Tiles(int64_t rows, int64_t tile) { return (rows + tile - 1) / tile; }

// Of a launch: all of Shape but stages.
template <int kN>
Shape ShapeOf(const GemmDesc& desc, const GemmParams& params,
              const CudaStream& stream) {
  Shape shape;
  shape.n = desc.n;
  shape.m = static_cast<int>(params.x.rows());
  shape.pairs = static_cast<int>(Tiles(desc.n, kCluster * kTile));
  shape.columns = static_cast<int>(Tiles(shape.m, kN));
  shape.steps = static_cast<int>(desc.k / kStep);
  shape.num_clusters =
      std::min(stream.num_sms() / kCluster, shape.pairs * shape.columns);
  shape.narrow = desc.output != DType::kF32;
  shape.paired =
      shape.narrow && desc.n % 2 == 0 &&
      (reinterpret_cast<uintptr_t>(params.y.data) | params.y.row_stride_bytes) %
              4 ==
          0;
  return shape;
}

}  // namespace
}  // namespace inlay

#endif  // INLAY_KERNELS_GEMM_MANY_ROWS_SM90_CUH_
