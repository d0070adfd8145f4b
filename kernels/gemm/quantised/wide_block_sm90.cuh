// What kernels for 17 and more rows of x on Hopper share
// (product_wide_sm90.cuh, product_codes_sm90.cu): which units a block goes
// through, the warp that copies, and what becomes of sums.
//
// Mapping: a job is 16 kTiles rows of w times kColumns rows of x. A
// cluster of `splits` blocks shares a job's K; clusters take jobs in turn. A
// block has kTiles warps that multiply, a tile of 16 rows of w each (64 rows a
// warpgroup), and one more copies: a unit of all tiles by one tensor copy, x by
// one or two in the 128-byte swizzle. y^T = w x^T: w [64, 16], of
// codes [64, 32], from registers, x
// from shared memory, accumulators in registers.
//
// Shared memory: barriers; rings of x, of weights and of x's scales, a unit of
// 128 columns a stage; partial sums [rows of x][rows of w + 4]: lie where the
// rings were if K is split, when a cluster has one job, and beside them
// otherwise.
//
// Barriers (mbarriers): w_full and x_full a stage; freed a stage of weights: a
// unit was used, by all warps. Named barrier 1: the warps that multiply. The
// cluster's barrier: partial sums are there; and: have been read.
//
// Groups of rows of x with matrices of their own (a mixture's experts): which
// rows a job has is found on the device; matrices lie one after another and are
// one to the copy engine, and what is copied of the next group's rows beside a
// job's own goes nowhere. Or they lie apart, some of them in host memory: then
// the copying warp's lanes copy a tile each. Sums are the same.
//
// Sums: K ascending in a block, blocks in ascending order: the same bits every
// time.
//
// Overlap: the ring of weights is filled before the previous kernel's end is
// awaited.
#ifndef INLAY_KERNELS_GEMM_QUANTISED_WIDE_BLOCK_SM90_CUH_
#define INLAY_KERNELS_GEMM_QUANTISED_WIDE_BLOCK_SM90_CUH_

#include "kernels/cuda_float.cuh"
#include "kernels/cuda_groups.cuh"
#include "kernels/cuda_launch.cuh"
#include "kernels/gemm/gemv_mma.cuh"
#include "kernels/gemm/gemv_sm90.cuh"
#include "kernels/gemm/quantised/wide_shape.h"

namespace inlay {
namespace {

// Offsets of barriers, of a ring of kMostWideStages each.
constexpr uint32_t kWideWFull = 0;
constexpr uint32_t kWideXFull = 8 * kMostWideStages;
constexpr uint32_t kWideFreed = 16 * kMostWideStages;

template <int kWarps>
__device__ void SyncWideConsumers() {
  asm volatile("bar.sync 1, %0;" ::"n"(32 * kWarps) : "memory");
}
// Says that a unit's stages have been used, unless `barrier` is 0. Without a
// branch, among which ptxas does not keep wgmma in flight.
__device__ inline void FreeWideStage(uint32_t barrier) {
  __syncwarp();
  const uint32_t arrives = threadIdx.x % 32 == 0 ? barrier : 0;
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.u32 p, %0, 0;\n"
      "@p mbarrier.arrive.shared::cta.b64 _, [%0];\n}" ::"r"(arrives)
      : "memory");
}
// What the warps that multiply wrote is there for those of all blocks.
__device__ inline void SyncCluster() {
  asm volatile(
      "barrier.cluster.arrive.release.aligned;\n"
      "barrier.cluster.wait.acquire.aligned;" ::
          : "memory");
}
__device__ inline float4 LoadShared16At(uint32_t address, unsigned rank) {
  float4 v;
  asm volatile("ld.shared::cluster.v4.f32 {%0,%1,%2,%3}, [%4];"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
               : "r"(AddressAt(address, rank))
               : "memory");
  return v;
}
__device__ inline void CopyWideX(uint32_t to, const CUtensorMap& map,
                                 int column, int row, uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::"
      "bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(to),
      "l"(&map), "r"(column), "r"(row), "r"(barrier)
      : "memory");
}
__device__ inline void CopyWideUnit(uint32_t to, const CUtensorMap& map,
                                    int unit, int tile, uint32_t barrier,
                                    uint64_t policy) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::"
      "bytes.L2::cache_hint [%0], [%1, {%2, %3, %4}], [%5], %6;" ::"r"(to),
      "l"(&map), "r"(0), "r"(2 * unit), "r"(tile), "r"(barrier), "l"(policy)
      : "memory");
}
// Weights that nobody reads again leave the level-2 cache first.
__device__ inline uint64_t WidePolicy(bool again) {
  uint64_t policy;
  if (again) {
    asm("createpolicy.fractional.L2::evict_normal.b64 %0, 1.0;" : "=l"(policy));
  } else {
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  }
  return policy;
}

__device__ inline void InitWideBarriers(uint32_t base, int warps) {
  if (threadIdx.x == 0) {
#pragma unroll 1
    for (int s = 0; s < kMostWideStages; ++s) {
      InitBarrier(base + kWideWFull + 8 * s, 1);
      InitBarrier(base + kWideXFull + 8 * s, 1);
      InitBarrier(base + kWideFreed + 8 * s, warps);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
}

// A place in a ring and how often it was there.
struct WideStage {
  __device__ void Next(int stages) {
    if (++index == stages) {
      index = 0;
      parity ^= 1;
    }
  }
  int index = 0;
  uint32_t parity = 0;
};

// Whether all rows of x go with one matrix, or groups of them with their own:
// one after another, or apart (WideShape::table).
enum class WideRows : uint8_t { kTogether, kGroups, kGroupsApart };

// What a block goes through: units [first, end) of its jobs.
template <WideRows kRows, int kTiles>
struct WideCursor {
  // All lanes of a warp call it.
  __device__ void Begin(const WideShape& shape, int job_now) {
    job = job_now;
    unit = first;
    int block;
    if constexpr (kRows == WideRows::kTogether) {
      block = job / shape.blocks_m;
      row = job % shape.blocks_m * shape.columns;
      rows = min(shape.columns, shape.m - row);
      tile = block * kTiles;
    } else {
      block = job % shape.blocks_n;
      const GroupPiece piece =
          FindGroupPiece(shape.offsets, shape.num_groups, shape.log_columns,
                         job / shape.blocks_n);
      group = piece.group;
      row = piece.first;
      rows = piece.rows;
      tile = group * shape.group_tiles + block * kTiles;
    }
    n = block * kTiles * kQuantRows;
  }
  __device__ bool Done(const WideShape& shape) const {
    return job >= shape.jobs || rows == 0;
  }
  __device__ void Next(const WideShape& shape) {
    if (++unit == end) Begin(shape, job + shape.clusters);
  }
  int first, end, unit;
  int job;
  int tile;       // the job's first, of w
  int n;          // its first row of w, of its group's
  int row, rows;  // the job's, of x
  int group;      // where there are any
};

// One warp, whose first lane copies. kCodes: x is codes of 8 bits.
template <WideRows kRows, int kTiles, bool kCodes>
class WideProducer {
  using Cursor = WideCursor<kRows, kTiles>;

 public:
  __device__ WideProducer(const WideShape& shape, const CUtensorMap& x,
                          const CUtensorMap& w, const std::byte* matrix,
                          uint32_t base, const Cursor& begin)
      : shape_(shape),
        x_(x),
        w_(w),
        matrix_(matrix),
        base_(base),
        policy_(WidePolicy(kRows != WideRows::kTogether || shape.blocks_m > 1)),
        next_w_(begin),
        next_x_(begin) {}

  __device__ void Run() {
#pragma unroll 1
    for (int i = 0; i < shape_.w_stages; ++i) CopyW();
    WaitForPrevious();
#pragma unroll 1
    for (int i = 0; i < shape_.x_stages; ++i) CopyX();
    WideStage freed;
#pragma unroll 1
    while (!next_w_.Done(shape_) || !next_x_.Done(shape_)) {
      Await(base_ + kWideFreed + 8 * freed.index, freed.parity);
      freed.Next(shape_.w_stages);
      CopyX();
      CopyW();
    }
  }

 private:
  // The next unit of all tiles; zeros beyond the last.
  __device__ void CopyW() {
    if (next_w_.Done(shape_)) return;
    const uint32_t full = base_ + kWideWFull + 8 * w_stage_.index;
    const int bytes = kTiles * shape_.unit_bytes;
    if constexpr (kRows == WideRows::kGroupsApart) {
      CopyTiles(base_ + shape_.w_ring + w_stage_.index * bytes, full);
    } else if (threadIdx.x % 32 == 0) {
      Expect(full, bytes);
      CopyWideUnit(base_ + shape_.w_ring + w_stage_.index * bytes, w_,
                   next_w_.unit, next_w_.tile, full, policy_);
    }
    w_stage_.Next(shape_.w_stages);
    next_w_.Next(shape_);
  }
  // The same where matrices lie apart: a lane a tile. What is beyond the
  // matrix's last tile stays as it was: nobody stores its rows.
  __device__ void CopyTiles(uint32_t to, uint32_t full) {
    const int lane = threadIdx.x % 32;
    const int first = next_w_.n / kQuantRows;
    const int tiles = min(kTiles, shape_.group_tiles - first);
    if (lane == 0) Expect(full, tiles * shape_.unit_bytes);
    __syncwarp();
    if (lane < tiles) {
      CopyRow(to + lane * shape_.unit_bytes,
              matrix_ + shape_.table[next_w_.group] + kQuantHeadBytes +
                  (first + lane) * shape_.tile_bytes +
                  next_w_.unit * shape_.unit_bytes,
              shape_.unit_bytes, full);
    }
    __syncwarp();
  }
  // The unit of x; zeros beyond K and beyond the last row.
  __device__ void CopyX() {
    if (next_x_.Done(shape_)) return;
    const uint32_t full = base_ + kWideXFull + 8 * x_stage_.index;
    const uint32_t box = shape_.columns * 128;  // 64 columns, or of codes 128
    const uint32_t to =
        base_ + shape_.x_ring + x_stage_.index * (kCodes ? box : 2 * box);
    const int column = next_x_.unit * kQuantColumns;
    if (threadIdx.x % 32 == 0) {
      if constexpr (kCodes) {
        const int scales =
            shape_.x_scales == nullptr ? 0 : min(shape_.columns, next_x_.rows);
        Expect(full, 128 * shape_.box + 4 * scales);
        CopyWideX(to, x_, column, next_x_.row, full);
        if (scales != 0) {
          CopyRow(
              base_ + shape_.x_scale_ring + x_stage_.index * shape_.columns * 4,
              shape_.x_scales + int64_t{next_x_.unit} * shape_.m + next_x_.row,
              4 * scales, full);
        }
      } else {
        Expect(full, 2 * 128 * shape_.box);
        CopyWideX(to, x_, column, next_x_.row, full);
        CopyWideX(to + box, x_, column + 64, next_x_.row, full);
      }
    }
    x_stage_.Next(shape_.x_stages);
    next_x_.Next(shape_);
  }

  const WideShape& shape_;
  const CUtensorMap& x_;
  const CUtensorMap& w_;
  const std::byte* matrix_;  // the first, where it is not w_ that says so
  uint32_t base_;
  uint64_t policy_;
  Cursor next_w_, next_x_;
  WideStage w_stage_, x_stage_;
};

// What becomes of the sums of a block's jobs: added up over the blocks that
// share K, with bias and residual, as T or float32. Called by the warps that
// multiply.
template <typename T, int kColumns, WideRows kRows, int kTiles>
class WideOutput {
  using Block = WideBlock<kTiles>;
  using Cursor = WideCursor<kRows, kTiles>;

 public:
  __device__ WideOutput(const WideShape& shape, uint8_t* shared, uint32_t base)
      : shape_(shape), base_(base), shared_(shared) {}

  // `sums` as wgmma has them, of rows lane / 4 and 8 further times `factors`.
  __device__ void Finish(const Cursor& at, unsigned rank,
                         const float (&sums)[kColumns / 2],
                         const float (&factors)[2], const float* bias,
                         const TensorView& residual, const TensorView& y) {
    const int lane = threadIdx.x % 32;
    auto* partials = reinterpret_cast<float*>(shared_ + shape_.partials);
    float* to = partials + lane % 4 * 2 * Block::kStride +
                threadIdx.x / 32 * kQuantRows + lane / 4;
#pragma unroll
    for (int c = 0; c < kColumns; c += kWideChunk) {
      const int chunk_row = c & (shape_.chunk - 1);
      if (chunk_row == 0)
        SyncWideConsumers<kTiles>();  // what was there has been read
#pragma unroll
      for (int j = 0; j < kWideChunk / 8; ++j) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          to[(chunk_row + 8 * j + i % 2) * Block::kStride + i / 2 * 8] =
              sums[(c / 8 + j) * 4 + i] * factors[i / 2];
        }
      }
      if (((c + kWideChunk) & (shape_.chunk - 1)) != 0) continue;
      if (shape_.splits > 1) {
        SyncCluster();
      } else {
        SyncWideConsumers<kTiles>();
      }
      StoreRows(at, c + kWideChunk - shape_.chunk, rank, bias, residual, y);
    }
    if (shape_.splits > 1) {  // blocks may end: all partial sums were read
      ClusterArrive();
      ClusterWait();
    }
  }

 private:
  // A block's share of the chunk's rows of y, 128 columns a warp: the blocks'
  // partial sums in ascending order, bias and residual, rounded.
  __device__ void StoreRows(const Cursor& at, int first, unsigned rank,
                            const float* bias, const TensorView& residual,
                            const TensorView& y) {
    constexpr int kPieces = Block::kRows / 128;
    const int lane = threadIdx.x % 32;
    const int first_m = at.row + first;
    const int pieces = kPieces * min(shape_.chunk, at.rows - first);
#pragma unroll 1
    for (int i = static_cast<int>(rank) * kTiles + threadIdx.x / 32; i < pieces;
         i += kTiles << shape_.log_splits) {
      const int column = i % kPieces * 128 + lane * 4;
      const uint32_t from =
          base_ + shape_.partials + (i / kPieces * Block::kStride + column) * 4;
      float values[4] = {};
      if (shape_.splits == 1) {
        const uint4 v = LoadShared16(from);
        values[0] = __uint_as_float(v.x), values[1] = __uint_as_float(v.y);
        values[2] = __uint_as_float(v.z), values[3] = __uint_as_float(v.w);
      } else {
#pragma unroll 2
        for (int s = 0; s < shape_.splits; ++s) {
          const float4 v = LoadShared16At(from, s);
          values[0] += v.x, values[1] += v.y;
          values[2] += v.z, values[3] += v.w;
        }
      }
      const int64_t n = at.n + column;
      if (n >= shape_.n) continue;
      int m = first_m + i / kPieces;
      if constexpr (kRows != WideRows::kTogether) m = shape_.slots[m];
      if (shape_.narrow) {
        StoreFour<T>(m, n, values, bias, residual, y);
      } else {
        StoreFour<float>(m, n, values, bias, residual, y);
      }
    }
  }

  template <typename To>
  __device__ void StoreFour(int m, int64_t n, float (&values)[4],
                            const float* bias, const TensorView& residual,
                            const TensorView& y) {
    To* to = CudaMatrix<To>(y).row(m) + n;
    const To* add = residual.data == nullptr
                        ? nullptr
                        : CudaMatrix<const To>(residual).row(m) + n;
    float added[4] = {};
    if (shape_.vectors && n + 4 <= shape_.n) {
      if (add != nullptr) LoadFloats<4>(add, added);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        values[i] += (bias != nullptr ? bias[n + i] : 0.0f) + added[i];
      }
      if constexpr (sizeof(To) == 4) {
        StoreFloats<4>(to, values);
      } else {
        *reinterpret_cast<uint2*>(to) =
            make_uint2(NarrowPair<To>(values[0], values[1]),
                       NarrowPair<To>(values[2], values[3]));
      }
      return;
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (n + i >= shape_.n) return;
      if (add != nullptr) added[i] = ToFloat(add[i]);
      to[i] = FromFloat<To>(
          values[i] + ((bias != nullptr ? bias[n + i] : 0.0f) + added[i]));
    }
  }

  const WideShape& shape_;
  uint32_t base_;
  uint8_t* shared_;
};

}  // namespace
}  // namespace inlay

#endif  // INLAY_KERNELS_GEMM_QUANTISED_WIDE_BLOCK_SM90_CUH_
