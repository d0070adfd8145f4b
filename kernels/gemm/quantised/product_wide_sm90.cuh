// gemm over quantised weights for 17 and more rows of x on Hopper: weights are
// decoded, scaled and rounded to x's type in registers, as the left operand of
// wgmma. Included by the product_wide_*_sm90.cu.
//
// Mapping: a job is 256 rows of w times kColumns rows of x. A cluster of
// `splits` blocks shares a job's K; clusters take jobs in turn. A block has 16
// warps that multiply, a tile of 16 rows of w each (four warpgroups of 64
// rows), and one more copies: a unit of all tiles by one tensor
// copy, x by two in the 128-byte swizzle. y^T = w x^T: w [64, 16] from
// registers, x from shared memory, accumulators float32 in registers. A warp
// decodes 32 columns while the tensor cores have its last 32.
//
// Shared memory: barriers; rings of x and of weights, a unit of 128 columns a
// stage; partial sums [rows of x][256 + 4]: lie where the rings were if K is
// split, when a cluster has one job, and beside them otherwise.
//
// Barriers (mbarriers): w_full and x_full a stage; freed a stage of weights: a
// unit was used, by all 16 warps. Named barrier 1: the warps that multiply. The
// cluster's barrier: partial sums are there; and: have been read.
//
// Groups of rows of x with matrices of their own (a mixture's experts): which
// rows a job has is found on the device; matrices lie one after another and are
// one to the copy engine, and what is copied of the next group's rows beside a
// job's own goes nowhere. Or they lie apart, some of them in host memory: then
// the copying warp's lanes copy a tile each. Sums are the same.
//
// Sums: K ascending in a block, blocks in ascending order: the same bits every
// time. Weights: QUANTISED.md says what their rounding costs.
//
// Overlap: the ring of weights is filled before the previous kernel's end is
// awaited.
//
// Roofline: packed bytes over the copy bandwidth up to about 64 rows, the rate
// of the tensor cores from there on.
#ifndef INLAY_KERNELS_GEMM_QUANTISED_PRODUCT_WIDE_SM90_CUH_
#define INLAY_KERNELS_GEMM_QUANTISED_PRODUCT_WIDE_SM90_CUH_

#include <type_traits>

#include "kernels/attention/sm90_ops.h"
#include "kernels/attention/wgmma_sm90.h"
#include "kernels/cuda_float.cuh"
#include "kernels/cuda_groups.cuh"
#include "kernels/cuda_launch.cuh"
#include "kernels/gemm/gemv_mma.cuh"
#include "kernels/gemm/gemv_sm90.cuh"
#include "kernels/gemm/quantised/decode.cuh"
#include "kernels/gemm/quantised/wide_shape.h"

namespace inlay {
namespace {

constexpr int kWideWarps = kWideTiles;
// A warpgroup that copies, with one warp: registers are handed over by the
// warpgroup. A block begins with 96 for each of its 20 warps and has no more
// to share out.
constexpr int kWideThreads = 32 * (kWideWarps + 4);
constexpr int kWideFewRegisters = 32;
constexpr int kWideManyRegisters = 112;
static_assert(kWideWarps * kWideManyRegisters + 4 * kWideFewRegisters <=
              (kWideWarps + 4) * 96);

// Offsets of barriers, of a ring of kMostWideStages each.
constexpr uint32_t kWideWFull = 0;
constexpr uint32_t kWideXFull = 8 * kMostWideStages;
constexpr uint32_t kWideFreed = 16 * kMostWideStages;

// Levels that are operands are scaled by 2^-8 in f16, which scale * level would
// overflow; the rows' factors make up for it.
template <typename T>
inline constexpr float kWideFactor = kIsBf16<T> ? 1.0f : 256.0f;

__device__ inline void SyncWideConsumers() {
  asm volatile("bar.sync 1, %0;" ::"n"(32 * kWideWarps) : "memory");
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
template <WideRows kRows>
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
      tile = block * kWideTiles;
    } else {
      block = job % shape.blocks_n;
      const GroupPiece piece =
          FindGroupPiece(shape.offsets, shape.num_groups, shape.log_columns,
                         job / shape.blocks_n);
      group = piece.group;
      row = piece.first;
      rows = piece.rows;
      tile = group * shape.group_tiles + block * kWideTiles;
    }
    n = block * kWideRows;
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

// One warp, whose first lane copies.
template <WideRows kRows>
class WideProducer {
 public:
  __device__ WideProducer(const WideShape& shape, const CUtensorMap& x,
                          const CUtensorMap& w, const std::byte* matrix,
                          uint32_t base, const WideCursor<kRows>& begin)
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
  // The next unit of 16 tiles; zeros beyond the last.
  __device__ void CopyW() {
    if (next_w_.Done(shape_)) return;
    const uint32_t full = base_ + kWideWFull + 8 * w_stage_.index;
    const int bytes = kWideTiles * shape_.unit_bytes;
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
    const int tiles = min(kWideTiles, shape_.group_tiles - first);
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
  // The unit's two halves; zeros beyond K and beyond the last row.
  __device__ void CopyX() {
    if (next_x_.Done(shape_)) return;
    const uint32_t full = base_ + kWideXFull + 8 * x_stage_.index;
    const uint32_t half = shape_.columns * 128;
    const uint32_t to = base_ + shape_.x_ring + x_stage_.index * 2 * half;
    const int column = next_x_.unit * kQuantColumns;
    if (threadIdx.x % 32 == 0) {
      Expect(full, 2 * 128 * shape_.box);
      CopyWideX(to, x_, column, next_x_.row, full);
      CopyWideX(to + half, x_, column + 64, next_x_.row, full);
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
  WideCursor<kRows> next_w_, next_x_;
  WideStage w_stage_, x_stage_;
};

template <QuantCodes kCodesOf, int kGroupOf, bool kHasMinOf>
struct WideForm {
  static constexpr QuantCodes kCodes = kCodesOf;
  static constexpr int kGroup = kGroupOf;
  static constexpr bool kHasMin = kHasMinOf;
};

template <typename T>
__device__ uint32_t MultiplyAddPairs(uint32_t a, uint32_t b, uint32_t c) {
  uint32_t d;
  if constexpr (kIsBf16<T>) {
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
  } else {
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
  }
  return d;
}

// Codes of a step of 32 columns; of fewer than 8 bits those of two at once.
template <class Decoder>
__device__ void LoadWideCodes(Decoder& decoder, const uint8_t* unit, int step,
                              const LevelBytes& levels) {
  const int lane = threadIdx.x % 32;
  if constexpr (std::is_base_of_v<QuantBytes8, Decoder>) {
    const uint4 v =
        *reinterpret_cast<const uint4*>(unit + step * 512 + lane * 16);
    uint32_t* words = decoder.words + step % 2 * 4;
    words[0] = v.x, words[1] = v.y, words[2] = v.z, words[3] = v.w;
  } else if (step % 2 == 0) {
    decoder.Load(unit, lane, step / 2, levels);
  }
}

// scale and min of a lane's two rows, twice each, for operands' pairs.
template <typename T, bool kHasMin>
struct WideScales {
  __device__ static void Widen(uint32_t bits, uint32_t (&to)[2]) {
    if constexpr (kIsBf16<T>) {
      const float2 two = WidenPair<__half>(bits);
      to[0] = NarrowPair<T>(two.x, two.x);
      to[1] = NarrowPair<T>(two.y, two.y);
    } else {
      const uint32_t two = MultiplyPairs<T>(bits, 0x1c001c00u);  // 2^-8
      to[0] = __byte_perm(two, two, 0x1010);
      to[1] = __byte_perm(two, two, 0x3232);
    }
  }
  // `at`: of this lane's rows.
  __device__ void Load(const uint8_t* at) {
    if constexpr (kHasMin) {
      const uint2 bits = *reinterpret_cast<const uint2*>(at);
      Widen(bits.x, scale);
      Widen(bits.y, min);
    } else {
      Widen(*reinterpret_cast<const uint32_t*>(at), scale);
    }
  }
  __device__ void Apply(uint32_t (&a)[4]) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      a[i] = kHasMin ? MultiplyAddPairs<T>(a[i], scale[i % 2], min[i % 2])
                     : MultiplyPairs<T>(a[i], scale[i % 2]);
    }
  }
  uint32_t scale[2];
  uint32_t min[2];
};

// A warp that multiplies: its tile of each job.
template <class Form, typename T, int kColumns, WideRows kRows>
class WideConsumer {
  using Cursor = WideCursor<kRows>;

 public:
  __device__ WideConsumer(const WideShape& shape, uint8_t* shared,
                          uint32_t base, const LevelBytes& levels)
      : shape_(shape), levels_(levels), base_(base), shared_(shared) {}

  __device__ void Multiply(int first, int end) {
#pragma unroll
    for (float& sum : sums_) sum = 0.0f;
    uint32_t last = 0;
#pragma unroll 1
    for (int unit = first; unit < end; ++unit) {
      Await(base_ + kWideWFull + 8 * w_stage_.index, w_stage_.parity);
      Await(base_ + kWideXFull + 8 * x_stage_.index, x_stage_.parity);
      MultiplyUnit(shared_ + shape_.w_ring +
                       (w_stage_.index * kWideTiles + threadIdx.x / 32) *
                           shape_.unit_bytes,
                   base_ + shape_.x_ring + x_stage_.index * kColumns * 256,
                   last);
      last = base_ + kWideFreed + 8 * w_stage_.index;
      w_stage_.Next(shape_.w_stages);
      x_stage_.Next(shape_.x_stages);
    }
    sm90::WgmmaWait<0>();
    sm90::PinRegisters(sums_);
    Free(last);
  }

  // Times the factors of rows lane / 4 and 8 further.
  __device__ void Finish(const Cursor& at, unsigned rank,
                         const float (&factors)[2], const float* bias,
                         const TensorView& residual, const TensorView& y) {
    const int lane = threadIdx.x % 32;
    auto* partials = reinterpret_cast<float*>(shared_ + shape_.partials);
    float* to = partials + lane % 4 * 2 * kWideStride +
                threadIdx.x / 32 * kQuantRows + lane / 4;
#pragma unroll
    for (int c = 0; c < kColumns; c += kWideChunk) {
      const int chunk_row = c & (shape_.chunk - 1);
      if (chunk_row == 0) SyncWideConsumers();  // what was there has been read
#pragma unroll
      for (int j = 0; j < kWideChunk / 8; ++j) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          to[(chunk_row + 8 * j + i % 2) * kWideStride + i / 2 * 8] =
              sums_[(c / 8 + j) * 4 + i] * factors[i / 2];
        }
      }
      if (((c + kWideChunk) & (shape_.chunk - 1)) != 0) continue;
      if (shape_.splits > 1) {
        SyncCluster();
      } else {
        SyncWideConsumers();
      }
      StoreRows(at, c + kWideChunk - shape_.chunk, rank, bias, residual, y);
    }
    if (shape_.splits > 1) {  // blocks may end: all partial sums were read
      ClusterArrive();
      ClusterWait();
    }
  }

 private:
  // Says that a unit's stages have been used, unless `barrier` is 0. Without a
  // branch, among which ptxas does not keep wgmma in flight.
  __device__ static void Free(uint32_t barrier) {
    __syncwarp();
    const uint32_t arrives = threadIdx.x % 32 == 0 ? barrier : 0;
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.u32 p, %0, 0;\n"
        "@p mbarrier.arrive.shared::cta.b64 _, [%0];\n}" ::"r"(arrives)
        : "memory");
  }

  // `last`: what to say that the unit before is done with; 0: there was none.
  __device__ void MultiplyUnit(const uint8_t* unit, uint32_t x, uint32_t last) {
    const int lane = threadIdx.x % 32;
    // Of large groups again and again where registers are short.
    constexpr int kReload =
        kColumns > 64 && Form::kGroup > 32 ? 32 : Form::kGroup;
    constexpr int kRowBytes = Form::kHasMin ? 8 : 4;  // of two rows
    const uint8_t* scales_at =
        unit + QuantCodeBytes(Form::kCodes) + lane / 4 * kRowBytes;
    WideScales<T, Form::kHasMin> scales;
    QuantDecoder<Form::kCodes, T> decoder;
    uint32_t a[2][2][4];
#pragma unroll
    for (int step = 0; step < 4; ++step) {
      LoadWideCodes(decoder, unit, step, levels_);
      // All but what was issued last: the operands before it are free.
      sm90::WgmmaWait<1>();
      if (step == 1) Free(last);
#pragma unroll
      for (int q = 0; q < 2; ++q) {
        const int product = 2 * step + q;
        if (product * 16 % kReload == 0) {
          scales.Load(scales_at + product * 16 / Form::kGroup * 8 * kRowBytes);
        }
        decoder.Operand(product % 4, a[step % 2][q]);
        scales.Apply(a[step % 2][q]);
        // Not later than the fence.
#pragma unroll
        for (uint32_t& pair : a[step % 2][q]) {
          asm volatile("" : "+r"(pair)::"memory");
        }
      }
      sm90::WgmmaFence();
#pragma unroll
      for (int q = 0; q < 2; ++q) {
        const int product = 2 * step + q;
        sm90::Wgmma<T, kColumns>::template Issue<0>(
            sums_, a[step % 2][q],
            sm90::MatrixDescriptor(x + product / 4 * kColumns * 128 +
                                   product % 4 * 32),
            1);
      }
      sm90::WgmmaCommit();
    }
  }

  // A block's share of the chunk's rows of y, 128 columns a warp: the blocks'
  // partial sums in ascending order, bias and residual, rounded.
  __device__ void StoreRows(const Cursor& at, int first, unsigned rank,
                            const float* bias, const TensorView& residual,
                            const TensorView& y) {
    const int lane = threadIdx.x % 32;
    const int first_m = at.row + first;
    const int pieces = 2 * min(shape_.chunk, at.rows - first);
#pragma unroll 1
    for (int i = static_cast<int>(rank) * kWideWarps + threadIdx.x / 32;
         i < pieces; i += kWideWarps << shape_.log_splits) {
      const int column = i % 2 * 128 + lane * 4;
      const uint32_t from =
          base_ + shape_.partials + (i / 2 * kWideStride + column) * 4;
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
      int m = first_m + i / 2;
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
  const LevelBytes& levels_;
  uint32_t base_;
  uint8_t* shared_;
  WideStage w_stage_, x_stage_;
  float sums_[kColumns / 2];
};

template <class Form, typename T, int kColumns, WideRows kRows>
__global__ void __launch_bounds__(kWideThreads, 1)
    QuantWide(const __grid_constant__ CUtensorMap x,
              const __grid_constant__ CUtensorMap w_map,
              const std::byte* __restrict__ w, const float* bias,
              const __grid_constant__ TensorView residual,
              const __grid_constant__ TensorView y,
              const __grid_constant__ LevelBytes levels,
              const __grid_constant__ WideShape shape) {
  extern __shared__ __align__(1024) uint8_t wide_shared[];
  LetNextBegin();
  const auto base =
      static_cast<uint32_t>(__cvta_generic_to_shared(wide_shared));
  const unsigned rank = shape.splits > 1 ? ClusterRank() : 0;
  if (threadIdx.x == 0) {
#pragma unroll 1
    for (int s = 0; s < kMostWideStages; ++s) {
      InitBarrier(base + kWideWFull + 8 * s, 1);
      InitBarrier(base + kWideXFull + 8 * s, 1);
      InitBarrier(base + kWideFreed + 8 * s, kWideWarps);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  // Which rows there are is the result of the work before.
  if constexpr (kRows != WideRows::kTogether) WaitForPrevious();
  WideCursor<kRows> cursor;
  cursor.first = static_cast<int>(rank) * shape.units >> shape.log_splits;
  cursor.end = static_cast<int>(rank + 1) * shape.units >> shape.log_splits;
  cursor.Begin(shape, static_cast<int>(blockIdx.x) >> shape.log_splits);
  if (threadIdx.x >= 32 * kWideWarps) {
    sm90::LowerRegisters<kWideFewRegisters>();
    if (threadIdx.x / 32 == kWideWarps) {
      WideProducer<kRows>(shape, x, w_map, w, base, cursor).Run();
    }
    return;
  }
  sm90::RaiseRegisters<kWideManyRegisters>();
  WideConsumer<Form, T, kColumns, kRows> consumer(shape, wide_shared, base,
                                                  levels);
#pragma unroll 1
  for (; !cursor.Done(shape);
       cursor.Begin(shape, cursor.job + shape.clusters)) {
    int tile =
        min(cursor.tile + static_cast<int>(threadIdx.x) / 32, shape.tiles - 1);
    const std::byte* matrix = w;
    if constexpr (kRows == WideRows::kGroupsApart) {
      matrix += shape.table[cursor.group];
      tile = min(cursor.n / kQuantRows + static_cast<int>(threadIdx.x) / 32,
                 shape.group_tiles - 1);
    }
    const auto* head =
        reinterpret_cast<const float*>(matrix + tile * shape.tile_bytes) +
        threadIdx.x % 32 / 4;
    const float factors[2] = {head[0] * kWideFactor<T>,
                              head[8] * kWideFactor<T>};
    consumer.Multiply(cursor.first, cursor.end);
    WaitForPrevious();
    const float* own_bias = bias;
    if constexpr (kRows != WideRows::kTogether) {
      if (bias != nullptr) own_bias += cursor.group * shape.n;
    }
    consumer.Finish(cursor, rank, factors, own_bias, residual, y);
  }
}

template <class Form, typename T, int kColumns>
absl::Status LaunchWideTyped(const GemmParams& params, const WideMaps& maps,
                             const QuantForm& form, const WideShape& shape,
                             CudaStream& stream) {
  CudaGrid grid;
  grid.blocks = int64_t{shape.clusters} * shape.splits;
  grid.threads = kWideThreads;
  grid.shared_bytes = shape.shared_bytes;
  grid.cluster = shape.splits;
  const std::byte* w = params.w.data;
  const LevelBytes levels = LevelBytesOf<T>(form);
  return LaunchCuda("wide quantised gemm", stream, grid,
                    shape.offsets == nullptr
                        ? QuantWide<Form, T, kColumns, WideRows::kTogether>
                    : shape.table == nullptr
                        ? QuantWide<Form, T, kColumns, WideRows::kGroups>
                        : QuantWide<Form, T, kColumns, WideRows::kGroupsApart>,
                    maps.x, maps.w, w, params.bias, params.residual, params.y,
                    levels, shape);
}

}  // namespace

template <class Form>
absl::Status LaunchWide(const GemmParams& params, const WideMaps& maps,
                        const QuantForm& form, const WideShape& shape,
                        CudaStream& stream) {
  const bool few = shape.columns == 64;
  if (params.x.dtype == DType::kF16) {
    return few ? LaunchWideTyped<Form, __half, 64>(params, maps, form, shape,
                                                   stream)
               : LaunchWideTyped<Form, __half, 128>(params, maps, form, shape,
                                                    stream);
  }
  return few ? LaunchWideTyped<Form, __nv_bfloat16, 64>(params, maps, form,
                                                        shape, stream)
             : LaunchWideTyped<Form, __nv_bfloat16, 128>(params, maps, form,
                                                         shape, stream);
}

}  // namespace inlay

#endif  // INLAY_KERNELS_GEMM_QUANTISED_PRODUCT_WIDE_SM90_CUH_
