// gemm over quantised weights for many rows of x on Hopper with the sums of
// product_streamed_sm90.cuh where that rounds weights, bit for bit: what
// batch-invariant models multiply prompts by.
//
// Mapping, arithmetic and ring are many_rows_sm90.cu's, but that three warps
// beside the one that copies decode weights into the ring: tile by tile and 64
// columns at a time, rounded to x's type (rounded_codes.cuh), stored as the
// copy engine would in its 128-byte swizzle. K goes as that kernel's plan has
// it: ranges of blocks, in each `shares` that have groups of units in turn; one
// chain of wgmma for each of these, times the row's factor, added up in
// registers. A chain of wgmma has the bits of one of mma over the same columns,
// in whatever order those of 16 are.
//
// Shared memory: barriers, the ring of decoded weights and x, that of packed
// weights: units of 128 columns of the block's eight tiles.
// Barriers: full a stage, for the bytes of x and three warps; empty a stage,
// for the warps that multiply of both blocks; full and empty a packed stage.
// Overlap: as many_rows_sm90.cu.
// Roofline: 2 m n k operations over the rate of the tensor cores; the decoding
// warps, who take 0.6 us for 128 rows and 64 columns of w, leave half of it
// with 128 rows of x (QUANTISED.md).
#include <algorithm>
#include <bit>

#include "kernels/cuda_tensor_map.h"
#include "kernels/gemm/many_rows_sm90.cuh"
#include "kernels/gemm/quantised/many_rows_packed_cuda.h"
#include "kernels/gemm/quantised/rounded_codes.cuh"
#include "kernels/gemm/tensor_map.h"
#include "memory/status.h"

namespace inlay {
namespace {

constexpr int kTiles = kTile / kQuantRows;  // packed ones, of a block
constexpr int kUnitSteps = kQuantColumns / kStep;
constexpr int kDecoders = 3;  // warps
constexpr int kMostPackedStages = 3;
constexpr size_t kMostShared = size_t{227} << 10;
static_assert(16 * (kMostStages + kMostPackedStages) <= kHeadBytes);

// A block begins with 168 registers for each thread.
template <int kN>
constexpr int kDecoderRegisters = kN > 128 ? 56 : 88;
template <int kN>
constexpr int kMultiplierRegisters = kN > 128 ? 224 : 208;

struct PackedShape {
  Shape all;
  int64_t tile_bytes;
  int tiles;  // of 16 rows of w
  // Of K: groups of units, ranges of them, shares of a range.
  int groups, group_units, log_ranges, shares;
  int unit_bytes;
  int log_group;  // columns that have one scale: 16 times 2 to this
  int packed_stages;
  uint32_t packed;  // their offset

  __device__ int First(int range) const { return range * groups >> log_ranges; }
  __device__ int Length(int range) const {
    return First(range + 1) - First(range);
  }
};

template <int kN>
struct PackedPlaces : Places<kN> {
  __device__ PackedPlaces(const PackedShape& shape, uint32_t base)
      : Places<kN>(base),
        packed_full(base + 16 * kMostStages),
        packed_empty(packed_full + 8 * kMostPackedStages),
        packed(base + shape.packed) {}
  uint32_t packed_full, packed_empty, packed;
};

// A cluster's units of K one after another, in the order of its chains.
struct UnitAt {
  __device__ bool Done(const PackedShape& shape) const {
    return index >= shape.all.pairs * shape.all.columns;
  }
  __device__ int Unit(const PackedShape& shape) const {
    return (shape.First(range) + group) * shape.group_units + unit;
  }
  __device__ void Next(const PackedShape& shape) {
    if (++unit < shape.group_units) return;
    unit = 0;
    group += shape.shares;
    if (group < shape.Length(range)) return;
    group = ++share;
    if (share < shape.shares) return;
    group = share = 0;
    if (++range < 1 << shape.log_ranges) return;
    range = 0;
    index += shape.all.num_clusters;
  }
  int index;  // of jobs
  int range = 0, share = 0, group = 0, unit = 0;
};

__device__ void CopyPacked(uint32_t to, const CUtensorMap& map, int unit,
                           int tile, uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::"
      "bytes [%0], [%1, {%2, %3, %4}], [%5];" ::"r"(to),
      "l"(&map), "r"(0), "r"(2 * unit), "r"(tile), "r"(barrier)
      : "memory");
}

// One thread. x is asked for before the packed weights that are wanted last, so
// that nothing waits for what comes after it.
template <int kN>
__device__ void CopyUnits(const CUtensorMap& w, const CUtensorMap& x,
                          const PackedShape& shape, const PackedPlaces<kN>& at,
                          int rank) {
  constexpr int kShare = kN / kCluster;  // rows of x that this block copies
  const int cluster = static_cast<int>(blockIdx.x) / kCluster;
  const auto copy_w = [&](int stage, const UnitAt& what) {
    const Job job(shape.all, what.index);
    const int bytes = kTiles * shape.unit_bytes;
    const uint32_t full = at.packed_full + 8 * stage;
    Expect(full, bytes);
    CopyPacked(at.packed + stage * bytes, w, what.Unit(shape),
               (job.pair * kCluster + rank) * kTiles, full);
  };
  UnitAt next{cluster};
  for (int s = 0; s < shape.packed_stages && !next.Done(shape); ++s) {
    copy_w(s, next);
    next.Next(shape);
  }
  WaitForPrevious();
  RingTurn turn, packed_turn;
  for (UnitAt what{cluster}; !what.Done(shape); what.Next(shape)) {
    const Job job(shape.all, what.index);
    for (int step = 0; step < kUnitSteps; ++step) {
      const uint32_t full = at.full + 8 * turn.stage;
      Await(at.empty + 8 * turn.stage, turn.parity ^ 1);
      Expect(full, kN * kRowBytes);  // what lies outside is filled with zeros
      CopyTo(at.x(turn.stage) + rank * kShare * kRowBytes, x,
             (what.Unit(shape) * kUnitSteps + step) * kStep,
             job.column * kN + rank * kShare, full, (1 << kCluster) - 1);
      turn.Next(shape.all.stages);
    }
    if (!next.Done(shape)) {
      Await(at.packed_empty + 8 * packed_turn.stage, packed_turn.parity);
      copy_w(packed_turn.stage, next);
      next.Next(shape);
    }
    packed_turn.Next(shape.packed_stages);
  }
}

// Four 8x8 matrices of 16-bit elements, as LoadMatrices has them.
__device__ void StoreMatrices(uint32_t address, const uint32_t (&v)[4]) {
  asm volatile(
      "stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(
          address),
      "r"(v[0]), "r"(v[1]), "r"(v[2]), "r"(v[3])
      : "memory");
}

// 64 columns of a tile to its rows in the ring.
template <class Codes, bool kHasMin>
__device__ void DecodeTile(const uint8_t* unit, int piece, int code_bytes,
                           int log_group, const LevelBytes& levels,
                           uint32_t to) {
  constexpr int kScaleBytes = kHasMin ? 8 : 4;  // of two rows
  const int lane = threadIdx.x % 32;
  // Matrix lane / 8 of a product: of rows 8 (lane / 8 % 2) on, and columns
  // 8 (lane / 16) on.
  const uint32_t row = to + (lane / 8 % 2 * 8 + lane % 8) * kRowBytes;
  const uint32_t chunk = (lane / 16 ^ lane % 8) * 16;
  const int mask = (1 << log_group) - 1;
  Codes codes;
  codes.Load(unit, lane, piece, levels);
#pragma unroll
  for (int q = 0; q < 4; ++q) {
    const int product = piece * 4 + q;
    if (q == 0 || (q & mask) == 0) {
      codes.LoadScales(unit + code_bytes +
                       ((product >> log_group) * 8 + lane / 4) * kScaleBytes);
    }
    uint32_t a[4];
    codes.Operand(q, a);
    StoreMatrices(row + (chunk ^ 32 * q), a);
  }
}

// A warp that decodes, the `decoder`-th: each third tile.
template <QuantCodes kCodes, bool kHasMin, bool kIsE2M1, typename T, int kN>
__device__ void Decode(const PackedShape& shape, const PackedPlaces<kN>& at,
                       const uint8_t* shared, const LevelBytes& levels,
                       int decoder) {
  using Codes = RoundedCodes<kCodes, kHasMin, kIsE2M1, T>;
  const int cluster = static_cast<int>(blockIdx.x) / kCluster;
  const int jobs = shape.all.pairs * shape.all.columns;
  const int num_units = (jobs - cluster + shape.all.num_clusters - 1) /
                        shape.all.num_clusters * shape.groups *
                        shape.group_units;
  RingTurn turn, packed_turn;
#pragma unroll 1
  for (int unit = 0; unit < num_units; ++unit) {
    const uint8_t* packed =
        shared + shape.packed + packed_turn.stage * kTiles * shape.unit_bytes;
    Await(at.packed_full + 8 * packed_turn.stage, packed_turn.parity);
#pragma unroll 1
    for (int piece = 0; piece < kUnitSteps; ++piece) {
      Await(at.empty + 8 * turn.stage, turn.parity ^ 1);
      // Two of three have a tile more: in turn.
#pragma unroll 1
      for (int tile = (decoder + unit) % kDecoders; tile < kTiles;
           tile += kDecoders) {
        DecodeTile<Codes, kHasMin>(
            packed + tile * shape.unit_bytes, piece, QuantCodeBytes(kCodes),
            shape.log_group, levels,
            at.weights(turn.stage) + tile * kQuantRows * kRowBytes);
      }
      asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
      __syncwarp();
      if (threadIdx.x % 32 == 0) Arrive(at.full + 8 * turn.stage);
      turn.Next(shape.all.stages);
    }
    if (threadIdx.x % 32 == 0) Arrive(at.packed_empty + 8 * packed_turn.stage);
    packed_turn.Next(shape.packed_stages);
  }
}

template <typename T, int kN>
__device__ void DecodeForm(QuantCodes codes, bool has_min,
                           const PackedShape& shape, const PackedPlaces<kN>& at,
                           const uint8_t* shared, const LevelBytes& levels,
                           int decoder) {
  using enum QuantCodes;
  const auto decode = [&]<QuantCodes kCodes, bool kHasMin, bool kIsE2M1>() {
    Decode<kCodes, kHasMin, kIsE2M1, T, kN>(shape, at, shared, levels, decoder);
  };
  switch (codes) {
    case kLinear4:
      return has_min ? decode.template operator()<kLinear4, true, false>()
                     : decode.template operator()<kLinear4, false, false>();
    case kLinear6:
      return has_min ? decode.template operator()<kLinear6, true, false>()
                     : decode.template operator()<kLinear6, false, false>();
    case kTable4:
      return levels.e2m1 ? decode.template operator()<kTable4, false, true>()
                         : decode.template operator()<kTable4, false, false>();
    case kInt8:
      return has_min ? decode.template operator()<kInt8, true, false>()
                     : decode.template operator()<kInt8, false, false>();
    default:
      return decode.template operator()<kE4M3, false, false>();
  }
}

// What a warp has of a job's sums: all chains, in ascending order.
template <typename T, int kN>
__device__ void MultiplyChains(const PackedShape& shape,
                               const PackedPlaces<kN>& at, RingTurn& turn,
                               const float (&factors)[2],
                               float (&sums)[kN / 2]) {
#pragma unroll
  for (float& sum : sums) sum = 0.0f;
#pragma unroll 1
  for (int range = 0; range < 1 << shape.log_ranges; ++range) {
#pragma unroll 1
    for (int share = 0; share < shape.shares; ++share) {
      const int groups =
          (shape.Length(range) - share + shape.shares - 1) / shape.shares;
      float chain[kN / 2];
      Multiply<T, kN>(shape.all, at, groups * shape.group_units * kUnitSteps,
                      turn, chain);
      // Not in one operation: a factor need not be a power of two.
#pragma unroll
      for (int i = 0; i < kN / 2; ++i) {
        sums[i] += __fmul_rn(chain[i], factors[i % 4 / 2]);
      }
    }
  }
}

template <typename T, int kN>
__global__ void __launch_bounds__(kThreads, 1)
    ManyRowsPacked(const __grid_constant__ CUtensorMap w_map,
                   const __grid_constant__ CUtensorMap x, const std::byte* w,
                   const float* bias,
                   const __grid_constant__ TensorView residual,
                   const __grid_constant__ TensorView y,
                   const __grid_constant__ LevelBytes levels, QuantCodes codes,
                   bool has_min, const __grid_constant__ PackedShape shape) {
  extern __shared__ __align__(1024) uint8_t packed_shared[];
  LetNextBegin();
  const PackedPlaces<kN> at(
      shape, static_cast<uint32_t>(__cvta_generic_to_shared(packed_shared)));
  const int rank = static_cast<int>(ClusterRank());
  if (threadIdx.x == 0) {
    for (int s = 0; s < shape.all.stages; ++s) {
      InitBarrier(at.full + 8 * s, 1 + kDecoders);
      InitBarrier(at.empty + 8 * s, kCluster * kConsumers / 32);
    }
    for (int s = 0; s < shape.packed_stages; ++s) {
      InitBarrier(at.packed_full + 8 * s, 1);
      InitBarrier(at.packed_empty + 8 * s, kDecoders);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  ClusterArrive();  // the barriers can be used, by the other block too
  ClusterWait();
  const int warp = static_cast<int>(threadIdx.x) / 32;
  if (threadIdx.x >= kConsumers) {
    sm90::LowerRegisters<kDecoderRegisters<kN>>();
    if (warp == kConsumers / 32) {
      if (threadIdx.x % 32 == 0) CopyUnits<kN>(w_map, x, shape, at, rank);
    } else {
      DecodeForm<T, kN>(codes, has_min, shape, at, packed_shared, levels,
                        warp - kConsumers / 32 - 1);
    }
    __syncwarp();
  } else {
    sm90::RaiseRegisters<kMultiplierRegisters<kN>>();
    RingTurn turn;
    const int jobs = shape.all.pairs * shape.all.columns;
#pragma unroll 1
    for (int index = static_cast<int>(blockIdx.x) / kCluster; index < jobs;
         index += shape.all.num_clusters) {
      const Job job(shape.all, index);
      const int block_tile = job.pair * kCluster + rank;
      const int tile = min(block_tile * kTiles + warp, shape.tiles - 1);
      const auto* head =
          reinterpret_cast<const float*>(w + tile * shape.tile_bytes) +
          threadIdx.x % 32 / 4;
      const float factors[2] = {head[0] * kRoundedFactor<T>,
                                head[8] * kRoundedFactor<T>};
      float sums[kN / 2];
      MultiplyChains<T, kN>(shape, at, turn, factors, sums);
      WaitForPrevious();
      Output<T, kN>(shape.all,
                    int64_t{block_tile} * kTile + warp * int64_t{kQuantRows},
                    job.column * kN, bias, residual, y)
          .Store(sums);
    }
  }
  // The other block's copies and arrivals come here until it has ended.
  SyncCluster();
}

absl::StatusOr<CUtensorMap> MapOfPacked(const GemmParams& params,
                                        const PackedShape& shape) {
  // Halves of units, since a box has at most 256 elements a side.
  const auto half = static_cast<cuuint32_t>(shape.unit_bytes / 2);
  const auto units = static_cast<cuuint64_t>(QuantUnits(params.w.cols()));
  return EncodeTensorMap(
      "packed weights", params.w.data + kQuantHeadBytes,
      CU_TENSOR_MAP_DATA_TYPE_FLOAT64, CU_TENSOR_MAP_SWIZZLE_NONE,
      {3,
       {half / 8, 2 * units, static_cast<cuuint64_t>(shape.tiles)},
       {half, static_cast<cuuint64_t>(shape.tile_bytes)},
       {half / 8, 2, kTiles}});
}

template <typename T, int kN>
absl::Status Launch(const GemmDesc& desc, const GemmParams& params,
                    const QuantForm& form, const StreamedPlan& plan,
                    CudaStream& stream) {
  PackedShape shape;
  shape.all = ShapeOf<kN>(desc, params, stream);
  shape.tile_bytes = QuantTileBytes(form, desc.k);
  shape.tiles = static_cast<int>(Tiles(desc.n, kQuantRows));
  shape.group_units = plan.place_units;
  shape.groups = static_cast<int>(Tiles(QuantUnits(desc.k), plan.place_units));
  shape.log_ranges = std::countr_zero(static_cast<unsigned>(plan.cluster));
  shape.shares = plan.shares;
  shape.unit_bytes = QuantUnitBytes(form);
  shape.log_group = std::countr_zero(static_cast<unsigned>(form.group / 16));
  const size_t packed_bytes = size_t{kTiles} * shape.unit_bytes;
  shape.packed_stages = kMostPackedStages;
  shape.all.stages = static_cast<int>(std::min<size_t>(
      kMostStages,
      (kMostShared - kHeadBytes - shape.packed_stages * packed_bytes) /
          kStageBytes<kN>));
  shape.packed =
      static_cast<uint32_t>(kHeadBytes + shape.all.stages * kStageBytes<kN>);
  INLAY_ASSIGN_OR_RETURN(const CUtensorMap w, MapOfPacked(params, shape));
  INLAY_ASSIGN_OR_RETURN(const CUtensorMap x,
                         MapOfColumns(params.x, kN / kCluster));
  CudaGrid grid;
  grid.blocks = int64_t{shape.all.num_clusters} * kCluster;
  grid.threads = kThreads;
  grid.shared_bytes = shape.packed + shape.packed_stages * packed_bytes;
  grid.cluster = kCluster;
  const std::byte* packed = params.w.data;
  return LaunchCuda("quantised gemm of many rows", stream, grid,
                    ManyRowsPacked<T, kN>, w, x, packed, params.bias,
                    params.residual, params.y, LevelBytesOf<T>(form),
                    form.codes, form.has_min, shape);
}

// Rounds of the chip, and what a round takes: decoding bounds it.
template <int kN>
double Microseconds(const GemmDesc& desc, int64_t rows, int num_sms) {
  const bool fast = QuantFormOf(desc.weight).codes == QuantCodes::kLinear4;
  const double step = fast ? (kN == 128 ? 0.63 : 0.67) : 0.78;
  constexpr double kEnds = 5.0;
  const int64_t jobs = Tiles(desc.n, kCluster * kTile) * Tiles(rows, kN);
  const int64_t rounds = Tiles(jobs, std::max(1, num_sms / kCluster));
  return static_cast<double>(rounds) *
         (static_cast<double>(desc.k / kStep) * step + kEnds);
}

template <typename T>
absl::Status LaunchTyped(const GemmDesc& desc, const GemmParams& params,
                         const QuantForm& form, const StreamedPlan& plan,
                         CudaStream& stream) {
  const int64_t m = params.x.rows();
  return Microseconds<128>(desc, m, stream.num_sms()) <
                 Microseconds<192>(desc, m, stream.num_sms())
             ? Launch<T, 128>(desc, params, form, plan, stream)
             : Launch<T, 192>(desc, params, form, plan, stream);
}

}  // namespace

double ManyRowsPackedMicroseconds(const GemmDesc& desc, int64_t rows,
                                  int num_sms) {
  return std::min(Microseconds<128>(desc, rows, num_sms),
                  Microseconds<192>(desc, rows, num_sms));
}

absl::Status RunManyRowsPacked(const GemmDesc& desc, const GemmParams& params,
                               const QuantForm& form, const StreamedPlan& plan,
                               CudaStream& stream) {
  return desc.activation == DType::kF16
             ? LaunchTyped<__half>(desc, params, form, plan, stream)
             : LaunchTyped<__nv_bfloat16>(desc, params, form, plan, stream);
}

}  // namespace inlay
