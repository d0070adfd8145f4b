// What kernels for 17 and more rows of x on Hopper share
// (product_wide_sm90.cuh, product_codes_sm90.cu): which units a block goes
// through, the warp that copies, and what becomes of sums.
//
// Mapping: a job is 16 kTiles rows of w times kColumns rows of x. Blocks take
// the first jobs (`whole`) in turn; then each cluster of `splits` blocks takes
// one whose K they share. A block has kTiles warps that multiply, a tile of 16
// rows of w each (64 rows a warpgroup), and one more copies: a unit of all
// tiles by one tensor copy, x by one or two in the 128-byte swizzle. y^T = w
// x^T: w [64, 16], of codes [64, 32], from registers, x from shared memory,
// accumulators in registers.
//
// Shared memory: barriers; rings of x, of weights and of x's scales, a unit of
// 128 columns a stage; partial sums [rows of x][rows of w + 4]: lie where the
// rings were if K is shared, for that job is the last, and beside them
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
// Sums: K ascending in a block; then blocks, the one that adds up first, the
// others in turn: the same bits every time.
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
// one after another, or apart (WideShape::table). Of the first kind all jobs
// have their K shared, or none, or (kTogetherLast, a variant of its own, for it
// costs registers) those that rounds of whole jobs leave over.
enum class WideRows : uint8_t {
  kTogether,
  kTogetherLast,
  kGroups,
  kGroupsApart
};
template <WideRows kRows>
inline constexpr bool kHasGroups =
    kRows == WideRows::kGroups || kRows == WideRows::kGroupsApart;

// What a block goes through: units [first, end) of its jobs.
template <WideRows kRows, int kTiles>
struct WideCursor {
  // All lanes of a warp call these.
  __device__ void Begin(const WideShape& shape) {
    first = 0;
    end = shape.units;
    if constexpr (kRows == WideRows::kTogether) {
      const auto rank = static_cast<int>(shape.splits > 1 ? ClusterRank() : 0);
      first = rank * shape.units / shape.splits;
      end = (rank + 1) * shape.units / shape.splits;
      Take(shape, static_cast<int>(blockIdx.x) / shape.splits);
    } else {
      Take(shape, static_cast<int>(blockIdx.x));
    }
  }
  __device__ void NextJob(const WideShape& shape) {
    if constexpr (kRows == WideRows::kTogetherLast) {
      Take(shape, IsShared(shape) ? kNoJob : job + static_cast<int>(gridDim.x));
    } else {
      Take(shape, job + shape.clusters);
    }
  }
  // By the cluster, each block of which has some units: the last job.
  __device__ bool IsShared(const WideShape& shape) const {
    return kRows == WideRows::kTogether       ? shape.splits > 1
           : kRows == WideRows::kTogetherLast ? job >= shape.whole
                                              : false;
  }
  __device__ void Take(const WideShape& shape, int job_now) {
    job = job_now;
    if constexpr (kRows == WideRows::kTogetherLast) {
      const auto rank = static_cast<int>(ClusterRank());
      const bool shared = job >= shape.whole && job != kNoJob;
      job = shared ? shape.whole + static_cast<int>(blockIdx.x) / shape.splits
                   : job;
      first = shared ? rank * shape.units / shape.splits : 0;
      end = shared ? (rank + 1) * shape.units / shape.splits : shape.units;
    }
    unit = first;
    int block;
    if constexpr (!kHasGroups<kRows>) {
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
    if (++unit == end) NextJob(shape);
  }
  static constexpr int kNoJob = 0x7fffffff;
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
        policy_(WidePolicy(kHasGroups<kRows> || shape.blocks_m > 1)),
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
  __device__ void Finish(const Cursor& at, const float (&sums)[kColumns / 2],
                         const float (&factors)[2], const float* bias,
                         const TensorView& residual, const TensorView& y) {
    // Groups' K is never split.
    if (at.IsShared(shape_)) {
      SyncWideConsumers<kTiles>();  // the rings have been read
#pragma unroll
      for (int c = 0; c < kColumns; c += kWideChunk) {
        PutSums(kWideHead, c, c, sums, factors);
      }
      SyncCluster();  // the others' sums are there
      if (shape_.narrow) {
        AddUpParts<T>(at, bias, residual, y);
      } else {
        AddUpParts<float>(at, bias, residual, y);
      }
      SyncCluster();  // blocks may end: all partial sums were read
      return;
    }
    // One copy of this code: it runs seldom, so from no cache.
#pragma unroll 1
    for (int c = 0; c < kColumns && c < at.rows; c += kWideChunk) {
      SyncWideConsumers<kTiles>();  // what was there has been read
#pragma unroll
      for (int known = 0; known < kColumns; known += kWideChunk) {
        if (known == c) PutSums(shape_.partials, known, 0, sums, factors);
      }
      SyncWideConsumers<kTiles>();
      StoreRows(at, c, bias, residual, y);
    }
  }

 private:
  static constexpr int kPieces = Block::kRows / 128;  // of 128 columns of y

  // The sums of kWideChunk rows of x from `first` on, as rows from `row` on of
  // those that lie `at`.
  __device__ void PutSums(uint32_t at, int first, int row,
                          const float (&sums)[kColumns / 2],
                          const float (&factors)[2]) {
    const int lane = threadIdx.x % 32;
    auto* to = reinterpret_cast<float*>(shared_ + at) +
               (row + lane % 4 * 2) * Block::kStride +
               threadIdx.x / 32 * kQuantRows + lane / 4;
#pragma unroll
    for (int j = 0; j < kWideChunk / 8; ++j) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        to[(8 * j + i % 2) * Block::kStride + i / 2 * 8] =
            sums[(first / 8 + j) * 4 + i] * factors[i / 2];
      }
    }
  }
  // Of a piece: 128 columns of a row.
  __device__ uint32_t PartAt(uint32_t at, int piece) const {
    return base_ + at +
           (piece / kPieces * Block::kStride + piece % kPieces * 128 +
            threadIdx.x % 32 * 4) *
               4;
  }

  // The chunk's rows of y, a piece a warp, with bias and residual, rounded.
  __device__ void StoreRows(const Cursor& at, int first, const float* bias,
                            const TensorView& residual, const TensorView& y) {
    const int pieces = kPieces * min(kWideChunk, at.rows - first);
#pragma unroll 1
    for (int i = threadIdx.x / 32; i < pieces; i += kTiles) {
      const uint4 v = LoadShared16(PartAt(shape_.partials, i));
      float values[4] = {__uint_as_float(v.x), __uint_as_float(v.y),
                         __uint_as_float(v.z), __uint_as_float(v.w)};
      const int64_t n = at.n + i % kPieces * 128 + threadIdx.x % 32 * 4;
      if (n >= shape_.n) continue;
      int m = at.row + first + i / kPieces;
      if constexpr (kHasGroups<kRows>) m = shape_.slots[m];
      if (shape_.narrow) {
        StoreFour<T>(m, n, values, bias, residual, y);
      } else {
        StoreFour<float>(m, n, values, bias, residual, y);
      }
    }
  }

  // A block's share of its job's rows of y: the blocks' partial sums, its own
  // first and then in turn, bias and residual, rounded. What is far is asked
  // for some at a time.
  template <typename To>
  __device__ void AddUpParts(const Cursor& at, const float* bias,
                             const TensorView& residual, const TensorView& y) {
    const unsigned rank = ClusterRank();
    // Many pieces a warp with 256 rows of x, else few.
    constexpr int kAtOnce = kColumns == 256 ? 4 : 1;
    constexpr int kBlocksAtOnce = kColumns == 256 ? 2 : 4;
    const auto splits = static_cast<unsigned>(shape_.splits);
    const int step = kTiles * shape_.splits;
    const int pieces = kPieces * min(kColumns, at.rows);
    const int lane = threadIdx.x % 32;
#pragma unroll 1
    for (int i = static_cast<int>(rank) * kTiles + threadIdx.x / 32; i < pieces;
         i += kAtOnce * step) {
      float added[kAtOnce][4];
      float values[kAtOnce][4];
      uint32_t from[kAtOnce];
#pragma unroll
      for (int p = 0; p < kAtOnce; ++p) {
        const int piece = min(i + p * step, pieces - 1);
        const int64_t n = at.n + piece % kPieces * 128 + lane * 4;
        from[p] = PartAt(kWideHead, piece);
#pragma unroll
        for (int j = 0; j < 4; ++j) values[p][j] = added[p][j] = 0.0f;
        if (!shape_.vectors || n + 4 > shape_.n || residual.data == nullptr) {
          continue;
        }
        LoadFloats<4>(
            CudaMatrix<const To>(residual).row(at.row + piece / kPieces) + n,
            added[p]);
      }
#pragma unroll kBlocksAtOnce
      for (unsigned s = 0; s < splits; ++s) {
        // Its own first: not all of them read from one block at a time.
        const unsigned other = rank + s;
        const unsigned block = other < splits ? other : other - splits;
        float4 parts[kAtOnce];
#pragma unroll
        for (int p = 0; p < kAtOnce; ++p) {
          parts[p] = LoadShared16At(from[p], block);
        }
#pragma unroll
        for (int p = 0; p < kAtOnce; ++p) {
          values[p][0] += parts[p].x, values[p][1] += parts[p].y;
          values[p][2] += parts[p].z, values[p][3] += parts[p].w;
        }
      }
#pragma unroll
      for (int p = 0; p < kAtOnce; ++p) {
        const int piece = i + p * step;
        const int64_t n = at.n + piece % kPieces * 128 + lane * 4;
        if (piece >= pieces || n >= shape_.n) continue;
        const int m = at.row + piece / kPieces;
        if (shape_.vectors && n + 4 <= shape_.n) {
          StoreVector<To>(m, n, values[p], added[p], bias, y);
        } else {
          StoreFour<To>(m, n, values[p], bias, residual, y);
        }
      }
    }
  }

  template <typename To>
  __device__ void StoreVector(int m, int64_t n, float (&values)[4],
                              const float (&added)[4], const float* bias,
                              const TensorView& y) {
    To* to = CudaMatrix<To>(y).row(m) + n;
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
      StoreVector<To>(m, n, values, added, bias, y);
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
