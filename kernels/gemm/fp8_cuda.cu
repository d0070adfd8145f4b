// Weights of products in 8 bits (fp8_cuda.h). All is bound by memory; roofline:
// bytes read and written over the copy bandwidth.
//
// Codes lie as operands of mma.m16n8k16. A block takes a part of a tile of 16
// rows, a warp kUnpackUnits units of 128 columns of it, whose codes are all on
// their way before anything is computed. Words of four lanes that hold the same
// 8 columns meet in shared memory (2 KB a warp, a unit at a time, the 16 bytes
// of a row swizzled so that neither writing nor reading meets a bank twice),
// and are stored as 128 bytes of a row by 8 lanes. Codes of a scale smaller
// than its row's or block's are made smaller before.
//
// Scales of whole rows: each block looks at all of its tile (1/64 of what the
// tile's codes are) and learns beside the scale whether the tile's are all
// equal, so that nothing has to be done to codes. One barrier. Those of blocks
// (a warp each) and groups (a thread each) are found by ShareScales before.
#include <cuda_fp8.h>

#include <cfloat>

#include "kernels/cuda_float.cuh"
#include "kernels/cuda_launch.cuh"
#include "kernels/gemm/fp8_cuda.h"

namespace inlay {
namespace {

constexpr int kThreads = 256;
constexpr int kUnpackWarps = 8;
constexpr int kUnpackUnits = 2;  // of a warp
constexpr unsigned kAll = 0xffffffffu;
constexpr uint32_t kNanCodes = 0x7f7f7f7fu;
constexpr float kLeastRatio = 1.0f / 64.0f;

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

// What has one scale, and where it goes: rows by units, counted from 0.
struct ScaleShape {
  ScaleReach reach;
  int rows;  // of what has one scale
  int units;
  int64_t row_stride;  // floats between scales of neighbours
  int64_t unit_stride;
};

ScaleShape ShapeOf(ScaleReach reach, int64_t rows, int64_t k) {
  const auto units = static_cast<int>(QuantUnits(k));
  switch (reach) {
    case ScaleReach::kRow:
      return {reach, 1, units, 1, 0};
    case ScaleReach::kBlock:
      return {reach, static_cast<int>(kFp8BlockRows), 1, CeilDiv(units, 4) * 4,
              1};
    default:
      return {reach, 1, 1, 1, rows};
  }
}

// Packed rows, the first of them a tile's.
struct PackedRows {
  const uint8_t* data;
  int count;
  int units;
  int64_t tile_bytes;
  int unit_bytes;
  QuantForm form;

  __device__ const uint8_t* Tile(int row) const {
    return data + row / kQuantRows * tile_bytes;
  }
  __device__ const uint8_t* Unit(int row, int unit) const {
    return Tile(row) + kQuantHeadBytes + int64_t{unit} * unit_bytes;
  }
  __device__ float Scale(int row, int unit, int group) const {
    const int r = row % kQuantRows;
    return reinterpret_cast<const float*>(Tile(row))[r] *
           __half2float(*ScaleAt(row, unit, group));
  }
  __device__ bool HasMin(int row, int unit, int group) const {
    return form.has_min && __half2float(ScaleAt(row, unit, group)[2]) != 0.0f;
  }
  __device__ const __half* ScaleAt(int row, int unit, int group) const {
    return reinterpret_cast<const __half*>(
        Unit(row, unit) + QuantScaleAt(form, row % kQuantRows, group));
  }
};

PackedRows RowsOf(const QuantMatrix& matrix, const std::byte* packed,
                  int64_t first, int64_t count) {
  const int64_t tile_bytes = QuantTileBytes(matrix.form, matrix.k);
  return {reinterpret_cast<const uint8_t*>(packed) +
              first / kQuantRows * tile_bytes,
          static_cast<int>(count),
          static_cast<int>(QuantUnits(matrix.k)),
          tile_bytes,
          QuantUnitBytes(matrix.form),
          matrix.form};
}

// fn(scale, whether there is a minimum) for a lane's part of the scales of rows
// and units from (row, unit) on.
template <int kLanes, typename Fn>
__device__ void ForEachScale(const PackedRows& rows, const ScaleShape& shape,
                             int row, int unit, Fn fn) {
  const int groups = kQuantColumns / rows.form.group;
  const int in_rows = min(shape.rows, rows.count - row);
  const int in_units = min(shape.units, rows.units - unit);
  const int lane = threadIdx.x % kLanes;
  for (int i = lane; i < in_rows * in_units * groups; i += kLanes) {
    const int column = i / in_rows;
    const int r = row + i % in_rows;
    const int u = unit + column / groups;
    fn(rows.Scale(r, u, column % groups), rows.HasMin(r, u, column % groups));
  }
}

// The largest finite magnitude, in all lanes.
template <int kLanes>
__device__ float LargestScale(const PackedRows& rows, const ScaleShape& shape,
                              int row, int unit) {
  float most = 0.0f;
  ForEachScale<kLanes>(rows, shape, row, unit, [&](float scale, bool) {
    if (fabsf(scale) <= FLT_MAX) most = fmaxf(most, fabsf(scale));
  });
#pragma unroll
  for (int step = kLanes / 2; step > 0; step /= 2) {
    most = fmaxf(most, __shfl_xor_sync(kAll, most, step));
  }
  return most;
}

// The scale a lane works for; beyond the last: row == count.
struct ScaleIndex {
  template <int kLanes>
  __device__ static ScaleIndex Of(const PackedRows& rows,
                                  const ScaleShape& shape) {
    const int i = static_cast<int>(blockIdx.x * (kThreads / kLanes) +
                                   threadIdx.x / kLanes);
    const int down = (rows.count + shape.rows - 1) / shape.rows;
    const int across = (rows.units + shape.units - 1) / shape.units;
    if (i >= down * across) return {rows.count, 0, 0};
    return {i % down * shape.rows, i / down * shape.units,
            i % down * shape.row_stride + i / down * shape.unit_stride};
  }
  int row;
  int unit;
  int64_t at;
};

template <int kLanes>
__global__ void __launch_bounds__(kThreads)
    ShareScales(const __grid_constant__ PackedRows rows,
                const __grid_constant__ ScaleShape shape, float* scales) {
  LetNextBegin();
  WaitForPrevious();
  const ScaleIndex index = ScaleIndex::Of<kLanes>(rows, shape);
  if (index.row >= rows.count) return;
  const float most = LargestScale<kLanes>(rows, shape, index.row, index.unit);
  if (threadIdx.x % kLanes == 0) scales[index.at] = most;
}

// *differ becomes 1 where scales do not reach as far as `shape` says.
__global__ void __launch_bounds__(kThreads)
    CompareScales(const __grid_constant__ PackedRows rows,
                  const __grid_constant__ ScaleShape shape, int* differ) {
  WaitForPrevious();
  const ScaleIndex index = ScaleIndex::Of<32>(rows, shape);
  if (index.row >= rows.count) return;
  const float most = LargestScale<32>(rows, shape, index.row, index.unit);
  const bool whole = rows.form.codes == QuantCodes::kInt8;
  ForEachScale<32>(
      rows, shape, index.row, index.unit, [&](float scale, bool has_min) {
        // Codes that are whole numbers cannot be brought to another scale.
        if (whole) {
          if (scale != most || has_min) *differ = 1;
          return;
        }
        const float ratio = fabsf(scale) / most;
        // Scales have 11 bits, so that no other quotient is rounded to a power.
        const bool power = (__float_as_uint(ratio) & 0x007fffffu) == 0;
        const bool used = fabsf(scale) <= FLT_MAX && scale != 0.0f;
        if (used && !(power && ratio >= kLeastRatio)) *differ = 1;
      });
}

// Two codes times a power of two.
__device__ uint16_t ScalePair(uint16_t codes, __half2 ratio) {
  const __half2 levels(__nv_cvt_fp8x2_to_halfraw2(codes, __NV_E4M3));
  return __nv_cvt_halfraw2_to_fp8x2(__hmul2(levels, ratio), __NV_SATFINITE,
                                    __NV_E4M3);
}

// What the scales of a row are, as far as one has looked.
struct ScaleRange {
  __device__ void Add(float scale) {
    const bool finite = fabsf(scale) <= FLT_MAX;
    if (finite) most = fmaxf(most, fabsf(scale));
    least = finite ? fminf(least, scale) : -INFINITY;
  }
  __device__ void Add(const ScaleRange& other) {
    most = fmaxf(most, other.most);
    least = fminf(least, other.least);
  }
  // All are finite, not negative and equal.
  __device__ bool IsOne() const { return least == most; }

  float most = 0.0f;  // magnitude of the finite ones
  float least = INFINITY;
};

// Of row lane % 16 of a tile. All threads of the block call it. Scales of rows
// g and g + 8 lie side by side.
template <int kGroups>
__device__ ScaleRange TileScales(const PackedRows& rows, const uint8_t* tile) {
  __shared__ ScaleRange ranges[kUnpackWarps][kQuantRows];
  const int lane = threadIdx.x % 32;
  const int g = lane % 8;
  const int step = rows.form.has_min ? 8 : 4;
  const auto* factors = reinterpret_cast<const float*>(tile);
  const float factor[2] = {factors[g], factors[g + 8]};
  const uint8_t* at =
      tile + kQuantHeadBytes + QuantCodeBytes(rows.form.codes) + g * step;
  ScaleRange range[2];
  for (int i = threadIdx.x / 8; i < rows.units * kGroups;
       i += 4 * kUnpackWarps) {
    const float2 scales = __half22float2(*reinterpret_cast<const __half2*>(
        at + i / kGroups * rows.unit_bytes + i % kGroups * (8 * step)));
    range[0].Add(factor[0] * scales.x);
    range[1].Add(factor[1] * scales.y);
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    ScaleRange& mine = range[half];
#pragma unroll
    for (int other = 8; other < 32; other *= 2) {
      mine.Add(ScaleRange{__shfl_xor_sync(kAll, mine.most, other),
                          __shfl_xor_sync(kAll, mine.least, other)});
    }
    if (lane < 8) ranges[threadIdx.x / 32][g + 8 * half] = mine;
  }
  __syncthreads();
  ScaleRange all;
#pragma unroll
  for (int warp = 0; warp < kUnpackWarps; ++warp) {
    all.Add(ranges[warp][lane % kQuantRows]);
  }
  return all;
}

// What codes of (row, unit, group) are multiplied by; NaN and infinity: they
// become NaN.
__device__ float RatioAt(const PackedRows& rows, int row, int unit, int group,
                         float shared) {
  const float scale = rows.Scale(row, unit, group);
  return scale == shared ? 1.0f : scale / shared;
}

// Two codes of `word`: bytes 0 and 2 are row g's, 1 and 3 row g + 8's.
template <int kHalf>
__device__ uint16_t PairOf(uint32_t word, float ratio) {
  const auto pair =
      static_cast<uint16_t>(__byte_perm(word, 0, kHalf == 0 ? 0x4420 : 0x4431));
  if (ratio == 1.0f) return pair;
  if (!(fabsf(ratio) <= FLT_MAX)) return static_cast<uint16_t>(kNanCodes);
  return ScalePair(pair, __float2half2_rn(ratio));
}

struct UnitWords {
  uint4 piece[kQuantColumns / 32];
};

// `ratios`: of row lane % 16.
template <int kGroups>
__device__ void ScaleWords(const float (&ratios)[kGroups], UnitWords& words) {
  constexpr int kPieces = kQuantColumns / 32;
  const int g = threadIdx.x % 32 / 4;
#pragma unroll
  for (int piece = 0; piece < kPieces; ++piece) {
    const float own = ratios[piece * kGroups / kPieces];
    const float low = __shfl_sync(kAll, own, g);
    const float high = __shfl_sync(kAll, own, g + 8);
    uint4& v = words.piece[piece];
    for (uint32_t* word : {&v.x, &v.y, &v.z, &v.w}) {
      const uint32_t pairs =
          PairOf<0>(*word, low) | uint32_t{PairOf<1>(*word, high)} << 16;
      *word = __byte_perm(pairs, 0, 0x3120);
    }
  }
}

// Word i of lane 4 g + t becomes word t of 16 bytes `to[32 piece + 8 i + (g ^
// (4 piece + i) / 2)]`.
__device__ void Stage(const UnitWords& words, uint4* to) {
  const unsigned lane = threadIdx.x % 32;
#pragma unroll
  for (unsigned piece = 0; piece < kQuantColumns / 32; ++piece) {
    const uint4 v = words.piece[piece];
#if __CUDA_ARCH__ >= 900
    // Lane 8 i + g says where g's 16 bytes of word i go.
    uint4* const row = to + 32 * piece + (lane ^ (2 * piece + lane / 16));
    asm volatile(
        "stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::
            "r"(static_cast<uint32_t>(__cvta_generic_to_shared(row))),
        "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)
        : "memory");
#else
    const uint32_t word[] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (unsigned i = 0; i < 4; ++i) {
      const unsigned g = lane / 4 ^ (4 * piece + i) / 2;
      reinterpret_cast<uint32_t*>(to + 32 * piece + 8 * i + g)[lane % 4] =
          word[i];
    }
#endif
  }
}

// Bytes 0 and 2 of each word, or 1 and 3.
template <unsigned kBytes>
__device__ uint4 EvenBytes(const uint4& a, const uint4& b) {
  return make_uint4(
      __byte_perm(a.x, a.y, kBytes), __byte_perm(a.z, a.w, kBytes),
      __byte_perm(b.x, b.y, kBytes), __byte_perm(b.z, b.w, kBytes));
}

// Rows of a unit, `row_bytes` apart; those from `count` on are left out.
__device__ void StoreRows(const uint4* from, int count, int64_t row_bytes,
                          uint8_t* to) {
  const unsigned lane = threadIdx.x % 32;
  const unsigned c = lane % 8;  // of 16 columns
  const int first = static_cast<int>(lane / 8);
  to += first * row_bytes + c * 16;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int row = first + 4 * i;
    const uint4* const words = from + 16 * c + (row ^ c);
    const uint4 a = words[0];
    const uint4 b = words[8];
    if (row < count) {
      *reinterpret_cast<uint4*>(to + 4 * i * row_bytes) =
          EvenBytes<0x6420>(a, b);
    }
    if (row + 8 < count) {
      *reinterpret_cast<uint4*>(to + (4 * i + 8) * row_bytes) =
          EvenBytes<0x7531>(a, b);
    }
  }
}

// kGroups: scales a unit. kRows: they are whole rows' and go to `scales`;
// otherwise what ShareScales found is there.
template <int kGroups, bool kRows>
__global__ void __launch_bounds__(32 * kUnpackWarps, 4)
    UnpackCodes(const __grid_constant__ PackedRows rows,
                const __grid_constant__ ScaleShape shape, float* scales,
                uint8_t* codes, int parts) {
  __shared__ uint4 staged[kUnpackWarps][kQuantRows * kQuantColumns / 16];
  const int warp = threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  const int part = static_cast<int>(blockIdx.x) % parts;
  const int row = static_cast<int>(blockIdx.x) / parts * kQuantRows;
  const uint8_t* const tile = rows.Tile(row);
  const auto unit_of = [&](int i) {
    return (part * kUnpackUnits + i) * kUnpackWarps + warp;
  };
  // Weights may be read before the kernel before has ended.
  UnitWords words[kUnpackUnits] = {};
#pragma unroll
  for (int i = 0; i < kUnpackUnits; ++i) {
    if (unit_of(i) >= rows.units) break;
    const auto* from = reinterpret_cast<const uint4*>(
        tile + kQuantHeadBytes + unit_of(i) * rows.unit_bytes);
#pragma unroll
    for (int piece = 0; piece < kQuantColumns / 32; ++piece) {
      words[i].piece[piece] = from[piece * 32 + lane];
    }
  }
  ScaleRange range;
  if constexpr (kRows) range = TileScales<kGroups>(rows, tile);
  LetNextBegin();
  WaitForPrevious();
  // Rows that fill up the last tile have no scale.
  const int mine = row + lane % kQuantRows;
  const bool used = mine < rows.count;
  if (kRows && part == 0 && threadIdx.x < kQuantRows && used) {
    scales[mine] = range.most;
  }
  const bool equal = kRows && __all_sync(kAll, !used || range.IsOne());
#pragma unroll
  for (int i = 0; i < kUnpackUnits; ++i) {
    const int unit = unit_of(i);
    if (unit >= rows.units) break;
    if (!equal) {
      float ratios[kGroups];
      bool same = true;
      const float shared = kRows ? range.most
                           : used
                               ? scales[mine / shape.rows * shape.row_stride +
                                        unit / shape.units * shape.unit_stride]
                               : 0.0f;
#pragma unroll
      for (int group = 0; group < kGroups; ++group) {
        ratios[group] = used ? RatioAt(rows, mine, unit, group, shared) : 1.0f;
        same = same && ratios[group] == 1.0f;
      }
      if (!__all_sync(kAll, same)) ScaleWords(ratios, words[i]);
    }
    Stage(words[i], staged[warp]);
    __syncwarp();
    StoreRows(staged[warp], rows.count - row,
              int64_t{rows.units} * kQuantColumns,
              codes + (int64_t{row} * rows.units + unit) * kQuantColumns);
    __syncwarp();
  }
}

// Blocks of the kernels on scales.
int64_t ScaleBlocks(const PackedRows& rows, const ScaleShape& shape,
                    int lanes) {
  return CeilDiv(CeilDiv(rows.count, shape.rows) *
                     CeilDiv(rows.units, shape.units) * lanes,
                 kThreads);
}

struct DeviceFlags {
  ~DeviceFlags() { cudaFree(data); }
  int* data = nullptr;
};

}  // namespace

int64_t Fp8WeightScales(ScaleReach reach, int64_t rows, int64_t k) {
  const ScaleShape shape = ShapeOf(reach, rows, k);
  return reach == ScaleReach::kGroup
             ? rows * QuantUnits(k)
             : CeilDiv(rows, shape.rows) * shape.row_stride;
}

absl::StatusOr<ScaleReach> FindScaleReach(const QuantMatrix& matrix, int64_t n,
                                          const std::byte* packed,
                                          CudaStream& stream) {
  constexpr char kWhat[] = "comparing scales";
  constexpr ScaleReach kFarthestFirst[] = {ScaleReach::kRow,
                                           ScaleReach::kBlock};
  const PackedRows rows = RowsOf(matrix, packed, 0, n);
  DeviceFlags flags;
  int differ[2] = {};
  INLAY_RETURN_IF_ERROR(
      CudaStatus(cudaMalloc(&flags.data, sizeof(differ)), kWhat));
  INLAY_RETURN_IF_ERROR(CudaStatus(
      cudaMemsetAsync(flags.data, 0, sizeof(differ), stream.handle()), kWhat));
  for (int i = 0; i < 2; ++i) {
    const ScaleShape shape = ShapeOf(kFarthestFirst[i], n, matrix.k);
    INLAY_RETURN_IF_ERROR(
        LaunchCuda(kWhat, stream, {ScaleBlocks(rows, shape, 32), kThreads},
                   CompareScales, rows, shape, flags.data + i));
  }
  INLAY_RETURN_IF_ERROR(
      CudaStatus(cudaMemcpyAsync(differ, flags.data, sizeof(differ),
                                 cudaMemcpyDeviceToHost, stream.handle()),
                 kWhat));
  INLAY_RETURN_IF_ERROR(
      CudaStatus(cudaStreamSynchronize(stream.handle()), kWhat));
  for (int i = 0; i < 2; ++i) {
    if (differ[i] == 0) return kFarthestFirst[i];
  }
  return ScaleReach::kGroup;
}

absl::Status RunUnpackCodes(const QuantMatrix& matrix, const std::byte* packed,
                            int64_t first, int64_t count, ScaleReach reach,
                            std::byte* codes, float* scales,
                            CudaStream& stream) {
  constexpr char kWhat[] = "unpacking weights of 8 bits";
  const PackedRows rows = RowsOf(matrix, packed, first, count);
  const ScaleShape shape = ShapeOf(reach, count, matrix.k);
  switch (reach) {
    case ScaleReach::kRow:
      break;
    case ScaleReach::kBlock:
      INLAY_RETURN_IF_ERROR(LaunchCuda(kWhat, stream,
                                       {ScaleBlocks(rows, shape, 32), kThreads},
                                       ShareScales<32>, rows, shape, scales));
      break;
    default:
      INLAY_RETURN_IF_ERROR(LaunchCuda(kWhat, stream,
                                       {ScaleBlocks(rows, shape, 1), kThreads},
                                       ShareScales<1>, rows, shape, scales));
  }
  const int64_t parts = CeilDiv(rows.units, kUnpackWarps * kUnpackUnits);
  const auto launch = [&](auto kernel) {
    return LaunchCuda(
        kWhat, stream, {CeilDiv(count, kQuantRows) * parts, 32 * kUnpackWarps},
        kernel, rows, shape, scales, reinterpret_cast<uint8_t*>(codes),
        static_cast<int>(parts));
  };
  constexpr int kMostGroups = kQuantColumns / 32;
  const bool one = matrix.form.group == kQuantColumns;
  if (reach == ScaleReach::kRow) {
    return one ? launch(UnpackCodes<1, true>)
               : launch(UnpackCodes<kMostGroups, true>);
  }
  return one ? launch(UnpackCodes<1, false>)
             : launch(UnpackCodes<kMostGroups, false>);
}

}  // namespace inlay
