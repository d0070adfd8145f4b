// Packing and unpacking of quantised weights (pack.h) on the device.
//
// Packing: a block a row finds its factor; then a block a unit puts codes into
// shared memory, a thread some elements of a row, and writes the unit. Once a
// model, so that what files' blocks cost in byte accesses does not matter.
// Unpacking: a warp a unit, as the tensor cores' operands; two lanes exchange
// halves so that 16 columns of a row are stored as a whole 32 bytes (16-bit
// types). Roofline: packed and unpacked bytes over the copy bandwidth.
#include "kernels/cuda_float.cuh"
#include "kernels/cuda_launch.cuh"
#include "kernels/gemm/quantised/decode.cuh"
#include "kernels/gemm/quantised/quantised_cuda.h"

namespace inlay {
namespace {

constexpr int kPackThreads = 256;
constexpr int kUnpackWarps = 4;
constexpr int kMostUnitBytes = 2048 + 512;

// A row's factor into its tile; of rows beyond `count`: 1.
__global__ void FindFactors(const __grid_constant__ QuantMatrix matrix,
                            const uint8_t* rows, int64_t first, int64_t count,
                            uint8_t* packed) {
  WaitForPrevious();
  const int64_t row = blockIdx.x;
  float most = 0.0f;
  const int64_t groups = matrix.k / matrix.form.group;
  for (int64_t g = threadIdx.x; row < count && g < groups; g += kPackThreads) {
    most = fmaxf(
        most, QuantMagnitude(matrix.Scale(rows, row, g * matrix.form.group)));
  }
  __shared__ float mosts[kPackThreads];
  mosts[threadIdx.x] = most;
  __syncthreads();
  for (int half = kPackThreads / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) {
      mosts[threadIdx.x] = fmaxf(mosts[threadIdx.x], mosts[threadIdx.x + half]);
    }
    __syncthreads();
  }
  if (threadIdx.x != 0) return;
  const int64_t at = first + row;
  uint8_t* tile =
      packed + at / kQuantRows * QuantTileBytes(matrix.form, matrix.k);
  reinterpret_cast<float*>(tile)[at % kQuantRows] =
      QuantFactorOf(mosts[0], row < count ? matrix.RowFactor(rows, row) : 1.0f)
          .factor;
}

__global__ void PackUnits(const __grid_constant__ QuantMatrix matrix,
                          const __grid_constant__ QuantGrid grid,
                          const uint8_t* rows, int64_t first, int64_t count,
                          uint8_t* packed) {
  WaitForPrevious();
  __shared__ __align__(16) uint32_t words[kMostUnitBytes / 4];
  const QuantForm& form = matrix.form;
  const int64_t units = QuantUnits(matrix.k);
  const int64_t tile_row = blockIdx.x / units * kQuantRows;
  const int64_t unit = blockIdx.x % units;
  const int bytes = QuantUnitBytes(form);
  for (int i = threadIdx.x; i < bytes / 4; i += kPackThreads) words[i] = 0;
  __syncthreads();
  uint8_t* tile =
      packed + (first + tile_row) / kQuantRows * QuantTileBytes(form, matrix.k);
  const auto put = [&](QuantBits at, uint32_t bits) {
    atomicOr(words + at.byte / 4, bits << (at.byte % 4 * 8 + at.shift));
  };
  for (int e = threadIdx.x; e < kQuantRows * kQuantColumns; e += kPackThreads) {
    const int row = e / kQuantColumns;
    const int column = e % kQuantColumns;
    if (tile_row + row >= count) continue;
    const auto code = static_cast<uint32_t>(matrix.Code(
        rows, tile_row + row, unit * kQuantColumns + column, grid.levels));
    const bool six = form.codes == QuantCodes::kLinear6;
    put(QuantCodeAt(form.codes, row, column), six ? code & 15 : code);
    if (six) put(QuantHighAt(row, column), code >> 4);
  }
  const int groups = kQuantColumns / form.group;
  for (int i = threadIdx.x; i < kQuantRows * groups; i += kPackThreads) {
    const int row = i / groups;
    const int group = i % groups;
    if (tile_row + row >= count) continue;
    const QuantScale scale = matrix.Scale(
        rows, tile_row + row, unit * kQuantColumns + group * form.group);
    const float factor = reinterpret_cast<const float*>(tile)[row];
    const float inverse = 1.0f / factor;  // QuantFactor's
    const int at = QuantScaleAt(form, row, group);
    const auto bits = [&](float x) {
      return static_cast<uint32_t>(
          __half_as_ushort(__float2half_rn(x * inverse)));
    };
    put({at, 0}, bits(scale.scale));
    if (form.has_min) put({at + 4, 0}, bits(scale.min));
  }
  __syncthreads();
  auto* to = reinterpret_cast<uint4*>(tile + kQuantHeadBytes + unit * bytes);
  for (int i = threadIdx.x; i < bytes / 16; i += kPackThreads) {
    to[i] = reinterpret_cast<const uint4*>(words)[i];
  }
}

// What four columns of a row become.
template <typename T>
__device__ void StoreFour(T* to, float2 low, float2 high) {
  if constexpr (sizeof(T) == 4) {
    *reinterpret_cast<float4*>(to) = make_float4(low.x, low.y, high.x, high.y);
  } else {
    *reinterpret_cast<uint2*>(to) =
        make_uint2(NarrowPair<T>(low.x, low.y), NarrowPair<T>(high.x, high.y));
  }
}

template <QuantCodes kCodes, typename T>
__global__ void __launch_bounds__(32 * kUnpackWarps)
    Unpack(const __grid_constant__ QuantMatrix matrix,
           const __grid_constant__ LevelBytes levels, const uint8_t* packed,
           int64_t count, T* to, int64_t tiles) {
  LetNextBegin();
  WaitForPrevious();
  const QuantForm& form = matrix.form;
  const int64_t units = QuantUnits(matrix.k);
  const int64_t job = int64_t{blockIdx.x} * kUnpackWarps + threadIdx.x / 32;
  if (job >= tiles * units) return;
  const int lane = threadIdx.x % 32;
  const uint8_t* tile = packed + job / units * QuantTileBytes(form, matrix.k);
  const uint8_t* unit =
      tile + kQuantHeadBytes + job % units * QuantUnitBytes(form);
  const int64_t row = job / units * kQuantRows + lane / 4;
  const bool odd = lane % 2 != 0;
#pragma unroll
  for (int piece = 0; piece < 2; ++piece) {
    QuantDecoder<kCodes, __nv_bfloat16> decoder;
    decoder.Load(unit, lane, piece, levels);
#pragma unroll
    for (int q = 0; q < 4; ++q) {
      uint32_t a[4];
      decoder.Operand(q, a);
      const int column = (piece * 4 + q) * 16;
      const int64_t at = job % units * kQuantColumns + column;
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const float factor =
            reinterpret_cast<const float*>(tile)[lane / 4 + 8 * r];
        const uint8_t* scale_at =
            unit + QuantScaleAt(form, lane / 4 + 8 * r, column / form.group);
        const float scale =
            __half2float(*reinterpret_cast<const __half*>(scale_at));
        const float min =
            form.has_min
                ? __half2float(*reinterpret_cast<const __half*>(scale_at + 4))
                : 0.0f;
        // An even lane gets its neighbour's first columns for its last.
        const uint32_t other =
            __shfl_xor_sync(0xffffffffu, odd ? a[r] : a[r + 2], 1);
        const auto value = [&](uint32_t bits) {
          const float2 level = WidenPair<__nv_bfloat16>(bits);
          return make_float2(factor * fmaf(scale, level.x, min),
                             factor * fmaf(scale, level.y, min));
        };
        const float2 low = value(odd ? other : a[r]);
        const float2 high = value(odd ? a[r + 2] : other);
        if (row + 8 * r < count && at < matrix.k) {
          StoreFour(to + (row + 8 * r) * matrix.k + at + lane % 4 / 2 * 4 +
                        (odd ? 8 : 0),
                    low, high);
        }
      }
    }
  }
}

template <typename T>
absl::Status LaunchUnpack(const QuantMatrix& matrix, const uint8_t* packed,
                          int64_t count, T* to, CudaStream& stream) {
  const int64_t tiles = (count + kQuantRows - 1) / kQuantRows;
  const int64_t jobs = tiles * QuantUnits(matrix.k);
  const CudaGrid grid = {(jobs + kUnpackWarps - 1) / kUnpackWarps,
                         32 * kUnpackWarps};
  const LevelBytes levels = LevelBytesOf<__nv_bfloat16>(matrix.form);
  const auto launch = [&](auto kernel) {
    return LaunchCuda("unpacking quantised weights", stream, grid, kernel,
                      matrix, levels, packed, count, to, tiles);
  };
  switch (matrix.form.codes) {
    case QuantCodes::kLinear4:
      return launch(Unpack<QuantCodes::kLinear4, T>);
    case QuantCodes::kLinear6:
      return launch(Unpack<QuantCodes::kLinear6, T>);
    case QuantCodes::kTable4:
      return launch(Unpack<QuantCodes::kTable4, T>);
    case QuantCodes::kInt8:
      return launch(Unpack<QuantCodes::kInt8, T>);
    default:
      return launch(Unpack<QuantCodes::kE4M3, T>);
  }
}

constexpr int kGatherThreads = 256;

__global__ void GatherColumns(CudaMatrix<const uint16_t> x,
                              const int32_t* permutation,
                              CudaMatrix<uint16_t> y, int64_t width,
                              int64_t chunks) {
  LetNextBegin();
  WaitForPrevious();
  const int64_t row = blockIdx.x / chunks;
  const int64_t i = blockIdx.x % chunks * kGatherThreads + threadIdx.x;
  if (i < width) y.row(row)[i] = x.row(row)[permutation[i]];
}

}  // namespace

absl::Status RunGatherColumns(const TensorView& x, const int32_t* permutation,
                              const TensorView& y, CudaStream& stream) {
  const int64_t chunks = (x.cols() + kGatherThreads - 1) / kGatherThreads;
  return LaunchCuda("gathering columns", stream,
                    {x.rows() * chunks, kGatherThreads}, GatherColumns,
                    CudaMatrix<const uint16_t>(x), permutation,
                    CudaMatrix<uint16_t>(y), x.cols(), chunks);
}

absl::Status RunPackQuantised(const QuantMatrix& matrix, const std::byte* rows,
                              int64_t first, int64_t count, std::byte* packed,
                              CudaStream& stream) {
  const int64_t tiles = (count + kQuantRows - 1) / kQuantRows;
  const auto* from = reinterpret_cast<const uint8_t*>(rows);
  auto* to = reinterpret_cast<uint8_t*>(packed);
  INLAY_RETURN_IF_ERROR(LaunchCuda(
      "packing quantised weights", stream, {tiles * kQuantRows, kPackThreads},
      FindFactors, matrix, from, first, count, to));
  return LaunchCuda("packing quantised weights", stream,
                    {tiles * QuantUnits(matrix.k), kPackThreads}, PackUnits,
                    matrix, QuantGridOf(matrix.dtype), from, first, count, to);
}

absl::Status RunUnpackQuantised(const QuantMatrix& matrix,
                                const std::byte* packed, int64_t first,
                                int64_t count, DType dtype, std::byte* to,
                                CudaStream& stream) {
  const auto* from = reinterpret_cast<const uint8_t*>(packed) +
                     first / kQuantRows * QuantTileBytes(matrix.form, matrix.k);
  return WithFloatType(dtype, [&](auto type) {
    using T = decltype(type);
    return LaunchUnpack(matrix, from, count, reinterpret_cast<T*>(to), stream);
  });
}

}  // namespace inlay
