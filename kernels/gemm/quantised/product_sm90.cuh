// gemm over quantised weights for few rows of x on Hopper: streams the packed
// weights (layout.h) once, as fast as memory gives them. Included by the
// product_*_sm90.cu, each of which instantiates some forms.
//
// Mapping: a job is two tiles of 16 rows of w. A cluster of C blocks shares K
// and takes every num_clusters-th job; a block's W warps are `lanes` that take
// the cluster's jobs in turn times W / lanes that share the block's part of K,
// each its units of every stage. One thread copies stages, two bulk copies
// each, into a ring of each lane. One warp finishes jobs: adds up the slices of
// K, bias and residual. The blocks of a cluster finish jobs in turn.
//
// Arithmetic: mma.m16n8k16 of levels (exact) and x, float32 sums of a group of
// columns, then times its scale. Sums of x, which minima and offsets are
// multiplied by, come from an mma with ones. Slices are added in ascending
// order.
//
// Shared memory: barriers, zeros, rings [lanes][stages], the block's columns of
// x (rows 16 bytes more than a multiple of 128 apart: ldmatrix meets all
// banks), partial sums [slots][C * W / lanes slices] of jobs that this block
// finishes.
//
// Barriers (all mbarriers): full and empty a stage of a ring; x_full;
// partial_full a slot, at the block that finishes, counts bytes stored;
// partial_empty a slot of each block of the cluster, at every block that writes
// there. Nothing is sent to a block that does not wait for it, so blocks end
// without a barrier. A stage is copied to all lanes of a round before the next
// round, and a slot is used again a round later at the earliest: what somebody
// waits for never lies behind his own copies.
//
// Overlap: blocks are small enough for two on an SM, so that the next product
// fills its rings while this one ends; x is awaited after that.
//
// Roofline: packed bytes over the copy bandwidth; a pair of units of 4 bits
// costs 340 cycles of a scheduler (bf16, groups of 128), of 475 that memory
// leaves it.
#ifndef INLAY_KERNELS_GEMM_QUANTISED_PRODUCT_SM90_CUH_
#define INLAY_KERNELS_GEMM_QUANTISED_PRODUCT_SM90_CUH_

#include <algorithm>

#include "kernels/activation/activation.cuh"
#include "kernels/cuda_float.cuh"
#include "kernels/cuda_launch.cuh"
#include "kernels/gemm/gemv_mma.cuh"
#include "kernels/gemm/gemv_sm90.cuh"
#include "kernels/gemm/quantised/decode.cuh"
#include "kernels/gemm/quantised/product_copy_sm90.cuh"
#include "kernels/gemm/quantised/quant_shape.h"

namespace inlay {
namespace {

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
__device__ void AddQuantGroup(const uint8_t* unit, int group,
                              const float (&part)[kTiles][4],
                              const float (&sums_x)[kTiles][4],
                              float (&sums)[kTiles][4]) {
  const uint8_t* at =
      unit + QuantCodeBytes(Form::kCodes) +
      (group * 8 + threadIdx.x % 32 / 4) * (Form::kHasMin ? 8 : 4);
  float2 scale;
  float2 min = make_float2(0.0f, 0.0f);
  if constexpr (Form::kHasMin) {
    const uint2 bits = *reinterpret_cast<const uint2*>(at);
    scale = WidenPair<__half>(bits.x);
    min = WidenPair<__half>(bits.y);
  } else {
    scale = WidenPair<__half>(*reinterpret_cast<const uint32_t*>(at));
  }
  const float low = fmaf(-Decoder::kOffset, scale.x, min.x);
  const float high = fmaf(-Decoder::kOffset, scale.y, min.y);
#pragma unroll
  for (int t = 0; t < kTiles; ++t) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      float& sum = sums[t][i];
      sum = fmaf(i < 2 ? scale.x : scale.y, part[t][i], sum);
      if constexpr (Form::kHasMin || Decoder::kOffset != 0.0f) {
        sum = fmaf(i < 2 ? low : high, sums_x[t][i], sum);
      }
    }
  }
}

template <int kTiles>
__device__ void AddTo(float (&sums)[kTiles][4], const float (&v)[kTiles][4]) {
#pragma unroll
  for (int t = 0; t < kTiles; ++t) {
#pragma unroll
    for (int i = 0; i < 4; ++i) sums[t][i] += v[t][i];
  }
}

// One unit of both tiles; x: where a lane's columns of it are.
template <class Form, typename T, int kTiles>
__device__ void MultiplyQuantUnit(const uint8_t* const (&units)[2],
                                  const uint32_t (&x)[kTiles],
                                  const LevelBytes& levels,
                                  QuantSums<kTiles>& sums) {
  using Decoder =
      QuantDecoder<Form::kCodes, T, kIsBf16<T> && kIsLinear<Form::kCodes>>;
  constexpr bool kSumsX = Form::kHasMin || Decoder::kOffset != 0.0f;
  constexpr uint32_t kOnes = kIsBf16<T> ? 0x3f803f80u : 0x3c003c00u;
  constexpr int kProducts = Form::kGroup / 16;  // of a group
  // Products of a group follow each other by an mma's latency: two chains
  // where they are many and registers few.
  constexpr int kChains = kProducts == 8 && kTiles == 1 ? 2 : 1;
  const int lane = threadIdx.x % 32;
  const uint32_t ones[4] = {kOnes, kOnes, kOnes, kOnes};
  Decoder decoders[2][2];
#pragma unroll
  for (int piece = 0; piece < 2; ++piece) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      decoders[piece][r].Load(units[r], lane, piece, levels);
    }
  }
  float part[kChains][2][kTiles][4];
  float sums_x[kChains][kTiles][4];
  uint32_t b[kTiles][4];
#pragma unroll
  for (int product = 0; product < 8; ++product) {
    const int chain = product % kChains;
    if (product % 2 == 0) {
#pragma unroll
      for (int t = 0; t < kTiles; ++t) LoadMatrices(x[t] + product * 32, b[t]);
    }
    if (product % kProducts < kChains) {
#pragma unroll
      for (int t = 0; t < kTiles; ++t) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          part[chain][0][t][i] = part[chain][1][t][i] = 0.0f;
          sums_x[chain][t][i] = 0.0f;
        }
      }
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      uint32_t a[4];
      decoders[product / 4][r].Operand(product % 4, a);
#pragma unroll
      for (int t = 0; t < kTiles; ++t) {
        MultiplyTile<T>(part[chain][r][t], a, b[t][product % 2 * 2],
                        b[t][product % 2 * 2 + 1]);
      }
    }
    if constexpr (kSumsX) {
#pragma unroll
      for (int t = 0; t < kTiles; ++t) {
        MultiplyTile<T>(sums_x[chain][t], ones, b[t][product % 2 * 2],
                        b[t][product % 2 * 2 + 1]);
      }
    }
    if (product % kProducts == kProducts - 1) {
      if constexpr (kChains == 2) {
        AddTo(sums_x[0], sums_x[1]);
        AddTo(part[0][0], part[1][0]);
        AddTo(part[0][1], part[1][1]);
      }
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        AddQuantGroup<Form, Decoder, kTiles>(units[r], product / kProducts,
                                             part[0][r], sums_x[0], sums.v[r]);
      }
    }
  }
}

// Sends a warp's sums of a job to the block that finishes it.
template <int kTiles>
__device__ void SendQuantSums(const QuantShape& shape, const QuantPlaces& at,
                              uint32_t base, int sequence, int slice,
                              const QuantSums<kTiles>& sums) {
  const int slices = shape.cluster * (shape.warps >> shape.log_lanes);
  const QuantTurn turn(shape, sequence);
  const QuantSlice mine(shape);
  Await(base + at.kPartialEmpty + 8 * turn.barrier, turn.parity ^ 1);
  if (!mine.exists) return;
  const uint32_t to =
      base + at.partials +
      (turn.slot * slices + slice) * (2 * kTiles * mine.tile_bytes) +
      mine.lane * 16;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
      StoreAt(to + (r * kTiles + t) * mine.tile_bytes,
              base + at.kPartialFull + 8 * turn.slot, turn.owner, sums.v[r][t]);
    }
  }
}

template <class Form, typename T, int kTiles>
__device__ void ConsumeQuant(const QuantShape& shape, const QuantPlaces& at,
                             const uint8_t* shared, uint32_t base,
                             const LevelBytes& levels, unsigned rank,
                             int cluster, int first, int end) {
  const int lane = threadIdx.x % 32;
  const int lane_of_rows = threadIdx.x / 32 & (shape.lanes - 1);
  const int share = threadIdx.x / 32 >> shape.log_lanes;
  const int slice =
      static_cast<int>(rank) * (shape.warps >> shape.log_lanes) + share;
  QuantRows<kTiles> rows;
#pragma unroll
  for (int t = 0; t < kTiles; ++t) {
    const int row = t * 8 + lane % 8;
    rows.mask[t] = row < shape.m ? ~0u : 0u;
    rows.at[t] = row < shape.m
                     ? base + at.x + row * shape.x_stride + lane / 8 * 16
                     : base + at.kZeros;
  }
  const int my_unit = share * shape.stage_units;
  const int ring = lane_of_rows * shape.stages;
  int stage = 0;
  uint32_t parity = 0;
#pragma unroll 1
  for (int round = 0;; ++round) {
    const int sequence = (round << shape.log_lanes) + lane_of_rows;
    if (!QuantJob(shape, cluster, sequence).Exists(shape)) break;
    QuantSums<kTiles> sums;
#pragma unroll 1
    for (int unit = my_unit; unit - my_unit < end - first;
         unit += shape.turn_units) {
      const int count = min(shape.stage_units, end - first - unit);
      const uint8_t* units[2];
      units[0] = shared + at.rings + (ring + stage) * shape.stage_bytes +
                 my_unit * shape.unit_bytes;
      units[1] = units[0] + shape.stage_bytes / 2;
      uint32_t column = unit * (kQuantColumns * 2);
      Await(base + at.kFull + 8 * (ring + stage), parity);
#pragma unroll 1
      for (int i = 0; i < count; ++i) {
        uint32_t x[kTiles];
#pragma unroll
        for (int t = 0; t < kTiles; ++t) {
          x[t] = rows.at[t] + (column & rows.mask[t]);
        }
        MultiplyQuantUnit<Form, T, kTiles>(units, x, levels, sums);
        units[0] += QuantUnitBytes(Form::kCodes, Form::kGroup, Form::kHasMin);
        units[1] += QuantUnitBytes(Form::kCodes, Form::kGroup, Form::kHasMin);
        column += kQuantColumns * 2;
      }
      __syncwarp();
      if (lane == 0) Arrive(base + at.kEmpty + 8 * (ring + stage));
      if (++stage == shape.stages) {
        stage = 0;
        parity ^= 1;
      }
    }
    SendQuantSums<kTiles>(shape, at, base, sequence, slice, sums);
  }
}

// What a lane has of a job's sums: fn(r, t, i, m, n) for those that y has.
template <int kTiles, typename Fn>
__device__ void ForQuantOutputs(const QuantShape& shape, const QuantJob& job,
                                Fn fn) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int m = t * 8 + lane % 4 * 2 + i % 2;
        const int n = job.Tile(r) * kQuantRows + lane / 4 + i / 2 * 8;
        if (m < shape.m && n < shape.n) fn(r, t, i, m, n);
      }
    }
  }
}

// The sums of a job's slices.
template <int kTiles>
__device__ void AddQuantSlices(uint32_t from, int slices, uint32_t tile_bytes,
                               QuantSums<kTiles>& sums) {
#pragma unroll(8 / kTiles)
  for (int s = 0; s < slices; ++s) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
#pragma unroll
      for (int t = 0; t < kTiles; ++t) {
        const uint4 v = LoadShared16(from);
        sums.v[r][t][0] += __uint_as_float(v.x);
        sums.v[r][t][1] += __uint_as_float(v.y);
        sums.v[r][t][2] += __uint_as_float(v.z);
        sums.v[r][t][3] += __uint_as_float(v.w);
        from += tile_bytes;
      }
    }
  }
}

// What is added to a lane's sums of a job. All loads are under way at once, so
// there are no conditions among them: what y has not is read elsewhere.
template <typename T, int kTiles>
__device__ void LoadQuantAdded(const QuantShape& shape, const QuantJob& job,
                               const TensorView& residual,
                               QuantSums<kTiles>& added) {
  const int lane = threadIdx.x % 32;
  const CudaMatrix<const T> from(residual);
  T raw[2][kTiles][4];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int m = min(t * 8 + lane % 4 * 2 + i % 2, shape.m - 1);
        const int n = job.Tile(r) * kQuantRows + lane / 4 + i / 2 * 8;
        raw[r][t][i] = from.row(m)[min(n, static_cast<int>(shape.n) - 1)];
      }
    }
  }
#pragma unroll
  for (int r = 0; r < 2; ++r) {
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
#pragma unroll
      for (int i = 0; i < 4; ++i) added.v[r][t][i] = ToFloat(raw[r][t][i]);
    }
  }
}

// A lane's factors of a job's rows.
struct QuantFactors {
  __device__ QuantFactors(const QuantShape& shape, const QuantJob& job,
                          const std::byte* __restrict__ w) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const auto* head =
          reinterpret_cast<const float*>(w + job.Offset(shape, r)) +
          threadIdx.x % 32 / 4;
      v[r][0] = __ldg(head);
      v[r][1] = __ldg(head + 8);
    }
  }
  float v[2][2];
};

template <typename T, int kTiles>
__device__ void FinishQuant(const QuantShape& shape, const QuantPlaces& at,
                            uint32_t base, const std::byte* __restrict__ w,
                            unsigned rank, int cluster, const float* bias,
                            const TensorView& residual, const TensorView& y) {
  const int lane = threadIdx.x % 32;
  const int slices = shape.cluster * (shape.warps >> shape.log_lanes);
  const int turns = shape.cluster * shape.slots;
  const QuantSlice mine(shape);
  const uint32_t slot_bytes = slices * 2 * kTiles * mine.tile_bytes;
  const uint32_t from = base + at.partials + (mine.exists ? mine.lane * 16 : 0);
  int sequence = static_cast<int>(rank);
  // Factors come from memory, behind the rings' copies: a job ahead.
  QuantFactors next(shape, QuantJob(shape, cluster, sequence), w);
  WaitForPrevious();
#pragma unroll 1
  for (;; sequence += shape.cluster) {
    const QuantJob job(shape, cluster, sequence);
    if (!job.Exists(shape)) break;
    const QuantTurn turn(shape, sequence);
    const uint32_t full = base + at.kPartialFull + 8 * turn.slot;
    if (lane == 0) Expect(full, slot_bytes);
    // What is added is read while the sums are under way.
    QuantSums<kTiles> added;
    if (residual.data != nullptr) {
      if (shape.narrow) {
        LoadQuantAdded<T, kTiles>(shape, job, residual, added);
      } else {
        LoadQuantAdded<float, kTiles>(shape, job, residual, added);
      }
    }
    if (bias != nullptr) {
      ForQuantOutputs<kTiles>(shape, job, [&](int r, int t, int i, int, int n) {
        added.v[r][t][i] = bias[n] + added.v[r][t][i];
      });
    }
    const QuantFactors factors = next;
    next = QuantFactors(shape,
                        QuantJob(shape, cluster, sequence + shape.cluster), w);
    Await(full, turn.parity);
    QuantSums<kTiles> sums;
    AddQuantSlices<kTiles>(from + turn.slot * slot_bytes, slices,
                           mine.tile_bytes, sums);
    __syncwarp();
    // Only where the slot is used again and the arrival waited for.
    if (lane < shape.cluster &&
        QuantJob(shape, cluster, sequence + turns).Exists(shape)) {
      ArriveAt(base + at.kPartialEmpty + 8 * turn.barrier, lane);
    }
    ForQuantOutputs<kTiles>(shape, job, [&](int r, int t, int i, int m, int n) {
      const float value =
          fmaf(sums.v[r][t][i], factors.v[r][i / 2], added.v[r][t][i]);
      if (shape.narrow) {
        CudaMatrix<T>(y).row(m)[n] = FromFloat<T>(value);
      } else {
        CudaMatrix<float>(y).row(m)[n] = value;
      }
    });
  }
}

template <class Form, typename T, int kTiles>
__global__ void __maxnreg__(MostQuantRegisters(kTiles))
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
  const int first = static_cast<int>(rank) * shape.units >> shape.log_cluster;
  const int end = static_cast<int>(rank + 1) * shape.units >> shape.log_cluster;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  if (warp == shape.warps) PrepareQuant(shape, at, quant_shared, base);
  __syncthreads();
  ClusterArrive();  // the barriers can be used, by the other blocks too
  if (warp == shape.warps) {
    if (threadIdx.x % 32 == 0) {
      ProduceQuant(shape, w, at, base, cluster, first, end);
    }
    __syncwarp();
    ClusterWait();
  } else if (warp < shape.warps) {
    FillQuantX<T>(x, permutation, shape, first, end,
                  reinterpret_cast<std::byte*>(quant_shared) + at.x,
                  base + at.kXFull, base + at.x);
    ClusterWait();
    ConsumeQuant<Form, T, kTiles>(shape, at, quant_shared, base, levels, rank,
                                  cluster, first, end);
  } else {
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
  grid.threads = 32 * (shape.warps + 2);
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
