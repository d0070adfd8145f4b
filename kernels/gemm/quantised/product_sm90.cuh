// gemm over quantised weights for few rows of x on Hopper: streams the packed
// weights (layout.h) once, as fast as memory gives them. Included by the
// product_*_sm90.cu, each of which instantiates some forms.
//
// Mapping: a job is two consecutive tiles of 16 rows of w. A cluster of C
// blocks shares K, a block's W warps are `lanes` that take jobs in turn times W
// / lanes that share the block's part of K. A warp is on its own: its first
// lane copies units into the warp's ring (one bulk copy a tile a stage), all
// multiply what arrives, and the stage is filled again: no warp waits for
// another. Another warp finishes jobs: adds up the slices of K, bias and
// residual. The blocks of a cluster finish jobs in turn.
//
// Arithmetic: mma.m16n8k16 of levels (exact) and x, float32 sums of a group of
// columns, then times its scale. Sums of x, which minima are multiplied by,
// come from an mma with ones. Slices are added in ascending order.
//
// Shared memory: barriers, rings [warps][stages], the block's columns of x
// (rows 16 bytes more than a multiple of 128 apart: ldmatrix meets all banks;
// where there is no room for all, a phase of the columns at a time, for which
// all warps go through K together), partial sums [slots][C * W / lanes slices]
// of jobs that this block finishes.
//
// Barriers (all mbarriers): full a stage, waited for by its warp; x_full;
// partial_full a slot, at the block that finishes, counts bytes stored;
// partial_empty a slot of each block of the cluster, at every block that writes
// there. Nothing is sent to a block that does not wait for it, so blocks end
// without a barrier.
//
// Overlap: rings are filled before the previous kernel's end is awaited.
//
// Roofline: packed bytes over the copy bandwidth. QUANTISED.md: how far off.
#ifndef INLAY_KERNELS_GEMM_QUANTISED_PRODUCT_SM90_CUH_
#define INLAY_KERNELS_GEMM_QUANTISED_PRODUCT_SM90_CUH_

#include <algorithm>

#include "kernels/cuda_float.cuh"
#include "kernels/cuda_launch.cuh"
#include "kernels/gemm/gemv_mma.cuh"
#include "kernels/gemm/gemv_sm90.cuh"
#include "kernels/gemm/quantised/decode.cuh"
#include "kernels/gemm/quantised/product_ring_sm90.cuh"
#include "kernels/gemm/quantised/quant_shape.h"

namespace inlay {
namespace {

// Columns of `units` of x's m rows into shared memory, zeros beyond K. All
// threads that multiply call it; `parity`: how often they had, by two.
template <typename T>
__device__ void FillQuantX(const TensorView& view, const int32_t* permutation,
                           const QuantShape& shape, QuantRange units,
                           std::byte* to, uint32_t barrier, uint32_t parity,
                           uint32_t address) {
  const int first = units.begin;
  const int end = units.end;
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
  if (shape.copies_x && stop > column) Await(barrier, parity);
}

template <QuantCodes kCodesOf, int kGroupOf, bool kHasMinOf>
struct QuantFormType {
  static constexpr QuantCodes kCodes = kCodesOf;
  static constexpr int kGroup = kGroupOf;
  static constexpr bool kHasMin = kHasMinOf;
};

template <int kTiles>
struct QuantSums {
  float v[2][kTiles][4] = {};
};

// Where a lane's rows of x are; rows that x has not are zeros.
template <int kTiles>
struct QuantRows {
  uint32_t at[kTiles];
  uint32_t mask[kTiles];
};

// Adds scale times the sums of a group, and min times the sums of x.
template <class Form, typename Decoder, int kTiles>
__device__ void AddQuantGroup(const uint8_t* unit, int group, int row_tile,
                              const float (&part)[kTiles][4],
                              const float (&sums_x)[kTiles][4],
                              QuantSums<kTiles>& sums) {
  const uint8_t* at =
      unit + QuantCodeBytes(Form::kCodes) +
      (group * 8 + threadIdx.x % 32 / 4) * (Form::kHasMin ? 8 : 4);
  if constexpr (Form::kHasMin) {
    const uint2 bits = *reinterpret_cast<const uint2*>(at);
    const float2 scale = WidenPair<__half>(bits.x);
    const float2 min = WidenPair<__half>(bits.y);
    const float low = fmaf(-Decoder::kOffset, scale.x, min.x);
    const float high = fmaf(-Decoder::kOffset, scale.y, min.y);
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float& sum = sums.v[row_tile][t][i];
        sum = fmaf(i < 2 ? scale.x : scale.y, part[t][i], sum);
        sum = fmaf(i < 2 ? low : high, sums_x[t][i], sum);
      }
    }
  } else {
    const float2 scale =
        WidenPair<__half>(*reinterpret_cast<const uint32_t*>(at));
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float& sum = sums.v[row_tile][t][i];
        sum = fmaf(i < 2 ? scale.x : scale.y, part[t][i], sum);
      }
    }
  }
}

// One unit of both tiles; `column`: of x, in bytes.
template <class Form, typename T, int kTiles>
__device__ void MultiplyQuantUnit(const uint8_t* const (&units)[2],
                                  const QuantRows<kTiles>& x, uint32_t column,
                                  const LevelBytes& levels,
                                  QuantSums<kTiles>& sums) {
  using Decoder = QuantDecoder<Form::kCodes, T,
                               Form::kHasMin && kIsBf16<T> &&
                                   Form::kCodes != QuantCodes::kInt8>;
  constexpr uint32_t kOnes = kIsBf16<T> ? 0x3f803f80u : 0x3c003c00u;
  constexpr int kProducts = Form::kGroup / 16;  // of a group
  const int lane = threadIdx.x % 32;
  const uint32_t ones[4] = {kOnes, kOnes, kOnes, kOnes};
  float part[2][kTiles][4];
  float sums_x[kTiles][4];
#pragma unroll
  for (int piece = 0; piece < 2; ++piece) {
    Decoder decoders[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) decoders[r].Load(units[r], lane, piece, levels);
    uint32_t b[kTiles][4];
#pragma unroll
    for (int q = 0; q < 4; ++q) {
      const int product = piece * 4 + q;
      if (q % 2 == 0) {
#pragma unroll
        for (int t = 0; t < kTiles; ++t) {
          LoadMatrices(x.at[t] + ((column + product * 32) & x.mask[t]), b[t]);
        }
      }
      if (product % kProducts == 0) {
#pragma unroll
        for (int t = 0; t < kTiles; ++t) {
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            part[0][t][i] = part[1][t][i] = sums_x[t][i] = 0.0f;
          }
        }
      }
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        uint32_t a[4];
        decoders[r].Operand(q, a);
#pragma unroll
        for (int t = 0; t < kTiles; ++t) {
          MultiplyTile<T>(part[r][t], a, b[t][q % 2 * 2], b[t][q % 2 * 2 + 1]);
        }
      }
      if constexpr (Form::kHasMin) {
#pragma unroll
        for (int t = 0; t < kTiles; ++t) {
          MultiplyTile<T>(sums_x[t], ones, b[t][q % 2 * 2],
                          b[t][q % 2 * 2 + 1]);
        }
      }
      if (product % kProducts == kProducts - 1) {
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          AddQuantGroup<Form, Decoder, kTiles>(units[r], product / kProducts, r,
                                               part[r], sums_x, sums);
        }
      }
    }
  }
}

template <class Form, typename T, int kTiles>
__device__ void ConsumeQuant(const QuantShape& shape, const QuantPlaces& at,
                             uint8_t* shared, uint32_t base,
                             QuantRing<kTiles>& ring, const LevelBytes& levels,
                             const TensorView& view, const int32_t* permutation,
                             int rank, int cluster) {
  const int warp = threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  const int shares = shape.warps >> shape.log_lanes;
  const int slices = shape.cluster * shares;
  const int slice = rank * shares + (warp >> shape.log_lanes);
  QuantRows<kTiles> x;
#pragma unroll
  for (int t = 0; t < kTiles; ++t) {
    const int row = t * 8 + lane % 8;
    x.mask[t] = row < shape.m ? ~0u : 0u;
    x.at[t] = row < shape.m ? base + at.x + row * shape.x_stride + lane / 8 * 16
                            : base + at.kZeros;
  }
  const uint32_t my_ring = at.rings + warp * shape.stages * shape.stage_bytes;
  const uint32_t full = base + at.kFull + warp * shape.stages * 8;
  int stage = 0;
  uint32_t parity = 0;
  uint32_t fills = 0;
  const int phases = kHasQuantPhases<kTiles> ? shape.phases : 1;
  // Where x comes in phases, lanes without a job wait for those with one.
  const int waits = phases > 1 ? shape.lanes - 1 : 0;
#pragma unroll 1
  for (int sequence = warp & (shape.lanes - 1);
       QuantJobOf(shape, cluster, sequence & ~waits) < shape.jobs;
       sequence += shape.lanes) {
    const bool exists = QuantJobOf(shape, cluster, sequence) < shape.jobs;
    QuantSums<kTiles> sums;
#pragma unroll 1
    for (int phase = 0; phase < phases; ++phase) {
      const QuantRange of_block = QuantUnitsOfPhase<kTiles>(shape, rank, phase);
      if (phases > 1 && fills++ > 0) {
        // Zeros beyond K may be where a copy goes now.
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        asm volatile("bar.sync 1, %0;" ::"r"(32 * shape.warps) : "memory");
        FillQuantX<T>(view, permutation, shape, of_block,
                      reinterpret_cast<std::byte*>(shared) + at.x,
                      base + at.kXFull, (fills - 1) & 1, base + at.x);
      }
      const QuantRange range = ring.Units(phase);
#pragma unroll 1
      for (int unit = exists ? range.begin : range.end; unit < range.end;
           unit += shape.stage_units) {
        const int count = min(shape.stage_units, range.end - unit);
        const uint8_t* units[2];
        units[0] = shared + my_ring + stage * shape.stage_bytes;
        units[1] = units[0] + shape.stage_bytes / 2;
        Await(full + 8 * stage, parity);
#pragma unroll 1
        for (int i = 0; i < count; ++i) {
          MultiplyQuantUnit<Form, T, kTiles>(
              units, x, (unit - of_block.begin + i) * kQuantColumns * 2, levels,
              sums);
          units[0] += shape.unit_bytes;
          units[1] += shape.unit_bytes;
        }
        __syncwarp();
        if (lane == 0) ring.Feed(stage);
        if (++stage == shape.stages) {
          stage = 0;
          parity ^= 1;
        }
      }
    }
    if (!exists) continue;
    const QuantTurn turn(shape, sequence);
    Await(base + at.kPartialEmpty + 8 * turn.barrier, turn.parity ^ 1);
    const uint32_t to = base + at.partials +
                        (turn.slot * slices + slice) * (kTiles * 1024) +
                        lane * 16;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
#pragma unroll
      for (int t = 0; t < kTiles; ++t) {
        StoreAt(to + (r * kTiles + t) * 512,
                base + at.kPartialFull + 8 * turn.slot, turn.owner,
                sums.v[r][t]);
      }
    }
  }
}

// What goes out of a tile: bias and residual added, rounded.
template <typename T>
__device__ void StoreQuantTile(const QuantShape& shape, int first_n,
                               int first_m, const float (&values)[4],
                               const float* bias, const TensorView& residual,
                               const TensorView& y) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int m = first_m + i % 2;
    const int64_t n = first_n + i / 2 * 8;
    if (m >= shape.m || n >= shape.n) continue;
    float value = values[i];
    float added = bias != nullptr ? bias[n] : 0.0f;
    if (residual.data != nullptr) {
      added += shape.narrow ? ToFloat(CudaMatrix<const T>(residual).row(m)[n])
                            : CudaMatrix<const float>(residual).row(m)[n];
    }
    value += added;
    if (shape.narrow) {
      CudaMatrix<T>(y).row(m)[n] = FromFloat<T>(value);
    } else {
      CudaMatrix<float>(y).row(m)[n] = value;
    }
  }
}

template <typename T, int kTiles>
__device__ void FinishQuant(const QuantShape& shape, const QuantPlaces& at,
                            uint32_t base, const std::byte* w, unsigned rank,
                            int cluster, const float* bias,
                            const TensorView& residual, const TensorView& y) {
  const int lane = threadIdx.x % 32;
  const int slices = shape.cluster * (shape.warps >> shape.log_lanes);
  const int turns = shape.cluster * shape.slots;
#pragma unroll 1
  for (int sequence = static_cast<int>(rank);; sequence += shape.cluster) {
    const int job = QuantJobOf(shape, cluster, sequence);
    if (job >= shape.jobs) break;
    const QuantTurn turn(shape, sequence);
    const uint32_t full = base + at.kPartialFull + 8 * turn.slot;
    if (lane == 0) Expect(full, slices * kTiles * 1024);
    float factors[2][2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const auto* head = reinterpret_cast<const float*>(
          w + int64_t{QuantTileOf(shape, job, r)} * shape.tile_bytes);
      factors[r][0] = head[lane / 4];
      factors[r][1] = head[lane / 4 + 8];
    }
    Await(full, turn.parity);
    QuantSums<kTiles> sums;
    const uint32_t from =
        base + at.partials + turn.slot * slices * (kTiles * 1024) + lane * 16;
#pragma unroll 4
    for (int s = 0; s < slices; ++s) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
#pragma unroll
        for (int t = 0; t < kTiles; ++t) {
          const uint4 v =
              LoadShared16(from + (s * 2 * kTiles + r * kTiles + t) * 512);
          sums.v[r][t][0] += __uint_as_float(v.x);
          sums.v[r][t][1] += __uint_as_float(v.y);
          sums.v[r][t][2] += __uint_as_float(v.z);
          sums.v[r][t][3] += __uint_as_float(v.w);
        }
      }
    }
    __syncwarp();
    // Only where the slot is used again and the arrival waited for.
    if (lane < shape.cluster &&
        QuantJobOf(shape, cluster, sequence + turns) < shape.jobs) {
      ArriveAt(base + at.kPartialEmpty + 8 * turn.barrier, lane);
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
#pragma unroll
      for (int t = 0; t < kTiles; ++t) {
#pragma unroll
        for (int i = 0; i < 4; ++i) sums.v[r][t][i] *= factors[r][i / 2];
      }
    }
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
      const int first_m = t * 8 + lane % 4 * 2;
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        if (2 * job + r >= shape.tiles) continue;
        StoreQuantTile<T>(shape,
                          QuantTileOf(shape, job, r) * kQuantRows + lane / 4,
                          first_m, sums.v[r][t], bias, residual, y);
      }
    }
  }
}

template <class Form, typename T, int kTiles>
__global__ void __launch_bounds__(32 * (MostQuantWarps(kTiles) + 1), 1)
    QuantProduct(const __grid_constant__ TensorView x,
                 const std::byte* __restrict__ w, const float* bias,
                 const int32_t* permutation,
                 const __grid_constant__ TensorView residual,
                 const __grid_constant__ TensorView y,
                 const __grid_constant__ LevelBytes levels,
                 const __grid_constant__ QuantShape shape) {
  extern __shared__ __align__(1024) uint8_t quant_shared[];
  LetNextBegin();
  const QuantPlaces at(shape);
  const auto base =
      static_cast<uint32_t>(__cvta_generic_to_shared(quant_shared));
  const unsigned rank = ClusterRank();
  const int cluster = static_cast<int>(blockIdx.x) >> shape.log_cluster;
  if (threadIdx.x == 0) {
    InitBarrier(base + at.kXFull, 1);
#pragma unroll 1
    for (int s = 0; s < shape.slots; ++s) {
      InitBarrier(base + at.kPartialFull + 8 * s, 1);
    }
#pragma unroll 1
    for (int s = 0; s < shape.slots * shape.cluster; ++s) {
      InitBarrier(base + at.kPartialEmpty + 8 * s, 1);
    }
    *reinterpret_cast<uint4*>(quant_shared + at.kZeros) =
        make_uint4(0, 0, 0, 0);
  }
  const int warp = static_cast<int>(threadIdx.x) / 32;
  QuantRing<kTiles> ring(
      shape, w, QuantJobOf(shape, cluster, warp & (shape.lanes - 1)),
      static_cast<int>(rank), warp >> shape.log_lanes,
      base + at.rings + warp * shape.stages * shape.stage_bytes,
      base + at.kFull + warp * shape.stages * 8);
  if (warp < shape.warps && threadIdx.x % 32 == 0) {
#pragma unroll 1
    for (int s = 0; s < shape.stages; ++s) {
      InitBarrier(base + at.kFull + (warp * shape.stages + s) * 8, 1);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#pragma unroll 1
    for (int s = 0; s < shape.stages; ++s) ring.Feed(s);
  }
  __syncthreads();
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  ClusterArrive();  // the barriers can be used, by the other blocks too
  if (warp < shape.warps) {
    const int own = static_cast<int>(rank);
    FillQuantX<T>(x, permutation, shape,
                  QuantUnitsOfPhase<kTiles>(shape, own, 0),
                  reinterpret_cast<std::byte*>(quant_shared) + at.x,
                  base + at.kXFull, 0, base + at.x);
    ClusterWait();
    ConsumeQuant<Form, T, kTiles>(shape, at, quant_shared, base, ring, levels,
                                  x, permutation, own, cluster);
  } else {
    WaitForPrevious();
    ClusterWait();
    FinishQuant<T, kTiles>(shape, at, base, w, rank, cluster, bias, residual,
                           y);
  }
}

template <class Form, typename T, int kTiles>
absl::Status LaunchQuant(const GemmParams& params, const QuantShape& shape,
                         const LevelBytes& levels, CudaStream& stream) {
  CudaGrid grid;
  grid.blocks = int64_t{shape.num_clusters} * shape.cluster;
  grid.threads = 32 * (shape.warps + 1);
  grid.shared_bytes = shape.shared_bytes;
  grid.cluster = shape.cluster;
  const std::byte* w = params.w.data;
  return LaunchCuda("quantised gemm", stream, grid,
                    QuantProduct<Form, T, kTiles>, params.x, w, params.bias,
                    params.permutation, params.residual, params.y, levels,
                    shape);
}

template <class Form, typename T>
absl::Status LaunchQuantTiles(const GemmParams& params, const QuantForm& form,
                              const QuantShape& shape, CudaStream& stream) {
  const LevelBytes levels = LevelBytesOf<T>(form);
  return shape.x_tiles == 1
             ? LaunchQuant<Form, T, 1>(params, shape, levels, stream)
             : LaunchQuant<Form, T, 2>(params, shape, levels, stream);
}

}  // namespace

template <class Form>
absl::Status LaunchQuantForm(const GemmParams& params, const QuantForm& form,
                             const QuantShape& shape, CudaStream& stream) {
  return params.x.dtype == DType::kF16
             ? LaunchQuantTiles<Form, __half>(params, form, shape, stream)
             : LaunchQuantTiles<Form, __nv_bfloat16>(params, form, shape,
                                                     stream);
}

}  // namespace inlay

#endif  // INLAY_KERNELS_GEMM_QUANTISED_PRODUCT_SM90_CUH_
