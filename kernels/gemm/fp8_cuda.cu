// Weights of products in 8 bits (fp8_cuda.h). All is bound by memory; roofline:
// bytes read and written over the copy bandwidth.
//
// ShareRowScales and ShareScales find the scale of each row (a block 16 of
// them), block (a warp) or group (a thread). Then a warp a unit of 16 rows by
// 128 columns puts its codes, which lie as operands of mma.m16n8k16, into
// shared memory row by row (2.3 KB a warp, rows 144 bytes apart: no bank twice)
// and stores rows of 128 bytes. Codes of a scale smaller than its block's are
// made smaller.
#include <cuda_fp8.h>

#include <cfloat>

#include "kernels/cuda_float.cuh"
#include "kernels/cuda_launch.cuh"
#include "kernels/gemm/fp8_cuda.h"

namespace inlay {
namespace {

constexpr int kThreads = 256;
constexpr int kUnpackWarps = 4;
constexpr int kRowBytes = kQuantColumns + 16;  // in shared memory
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

// Of whole rows: a block a tile, whose scales of a unit lie side by side.
__global__ void __launch_bounds__(kThreads)
    ShareRowScales(const __grid_constant__ PackedRows rows, float* scales) {
  __shared__ float mosts[kThreads];
  LetNextBegin();
  WaitForPrevious();
  const int r = threadIdx.x % kQuantRows;
  const int row = static_cast<int>(blockIdx.x) * kQuantRows + r;
  const int groups = kQuantColumns / rows.form.group;
  float most = 0.0f;
  if (row < rows.count) {
    for (int i = threadIdx.x / kQuantRows; i < rows.units * groups;
         i += kThreads / kQuantRows) {
      const float scale = fabsf(rows.Scale(row, i / groups, i % groups));
      if (scale <= FLT_MAX) most = fmaxf(most, scale);
    }
  }
  mosts[threadIdx.x] = most;
  __syncthreads();
  if (threadIdx.x >= kQuantRows || row >= rows.count) return;
  for (int i = r; i < kThreads; i += kQuantRows) most = fmaxf(most, mosts[i]);
  scales[row] = most;
}

// What codes of (row, unit, group) are multiplied by; NaN and infinity: they
// become NaN.
__device__ float RatioAt(const PackedRows& rows, int row, int unit, int group,
                         float shared) {
  const float scale = rows.Scale(row, unit, group);
  return scale == shared ? 1.0f : scale / shared;
}

// Two codes of `word`: bytes of registers 0 and 2 are row g's, of 1 and 3 row g
// + 8's.
template <int kHalf>
__device__ uint16_t PairOf(uint32_t word, float ratio) {
  const auto pair =
      static_cast<uint16_t>(__byte_perm(word, 0, kHalf == 0 ? 0x4420 : 0x4431));
  if (ratio == 1.0f) return pair;
  if (!(fabsf(ratio) <= FLT_MAX)) return static_cast<uint16_t>(kNanCodes);
  return ScalePair(pair, __float2half2_rn(ratio));
}

// kGroups: scales a unit.
template <int kGroups>
__global__ void __launch_bounds__(32 * kUnpackWarps)
    UnpackCodes(const __grid_constant__ PackedRows rows,
                const __grid_constant__ ScaleShape shape,
                const float* __restrict__ scales, uint8_t* codes) {
  __shared__ __align__(16) uint8_t staged[kUnpackWarps][kQuantRows][kRowBytes];
  constexpr int kPieces = kQuantColumns / 32;
  const int job =
      static_cast<int>(blockIdx.x * kUnpackWarps + threadIdx.x / 32);
  const int row = job / rows.units * kQuantRows;
  const int unit = job % rows.units;
  const int lane = threadIdx.x % 32;
  // Weights may be read before the kernel before has ended.
  uint4 words[kPieces] = {};
  if (row < rows.count) {
#pragma unroll
    for (int piece = 0; piece < kPieces; ++piece) {
      words[piece] = *reinterpret_cast<const uint4*>(rows.Unit(row, unit) +
                                                     piece * 512 + lane * 16);
    }
  }
  LetNextBegin();
  WaitForPrevious();
  if (row >= rows.count) return;
  float ratios[2][kGroups];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    // Rows that fill up the last tile have no scale.
    const int r = row + lane / 4 + 8 * half;
    const float shared = r >= rows.count
                             ? 0.0f
                             : scales[r / shape.rows * shape.row_stride +
                                      unit / shape.units * shape.unit_stride];
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
      ratios[half][group] = RatioAt(rows, r, unit, group, shared);
    }
  }
  auto& to = staged[threadIdx.x / 32];
#pragma unroll
  for (int piece = 0; piece < kPieces; ++piece) {
    const uint4 v = words[piece];
    const uint32_t word[] = {v.x, v.y, v.z, v.w};
    const int group = piece * kGroups / kPieces;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int column = piece * 32 + i * 8 + lane % 4 * 2;
      *reinterpret_cast<uint16_t*>(&to[lane / 4][column]) =
          PairOf<0>(word[i], ratios[0][group]);
      *reinterpret_cast<uint16_t*>(&to[lane / 4 + 8][column]) =
          PairOf<1>(word[i], ratios[1][group]);
    }
  }
  __syncwarp();
#pragma unroll
  for (int i = 0; i < kQuantRows / 4; ++i) {
    const int r = i * 4 + lane / 8;
    if (row + r >= rows.count) continue;
    *reinterpret_cast<uint4*>(codes +
                              int64_t{row + r} * rows.units * kQuantColumns +
                              unit * kQuantColumns + lane % 8 * 16) =
        *reinterpret_cast<const uint4*>(&to[r][lane % 8 * 16]);
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
      INLAY_RETURN_IF_ERROR(LaunchCuda(kWhat, stream,
                                       {CeilDiv(count, kQuantRows), kThreads},
                                       ShareRowScales, rows, scales));
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
  const int64_t jobs = CeilDiv(count, kQuantRows) * rows.units;
  return LaunchCuda(
      kWhat, stream, {CeilDiv(jobs, kUnpackWarps), 32 * kUnpackWarps},
      matrix.form.group == kQuantColumns ? UnpackCodes<1>
                                         : UnpackCodes<kQuantColumns / 32>,
      rows, shape, static_cast<const float*>(scales),
      reinterpret_cast<uint8_t*>(codes));
}

}  // namespace inlay
