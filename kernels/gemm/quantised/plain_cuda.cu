// gemm over quantised weights on any device and for all float types: for what
// product_sm90.cuh does not serve.
//
// Mapping: a block a tile of 16 rows of w; its warps share K, every kWarps-th
// unit each. A lane has the columns of the tensor cores' operands and
// multiplies them by up to kRows rows of x in float32. Shared memory: the
// warps' sums. One barrier of the block. Accumulation: float32, a group times
// its scale, lanes, then warps in ascending order. Reads the weights once for
// every kRows rows; bound by instructions.
#include <algorithm>

#include "kernels/cuda_float.cuh"
#include "kernels/cuda_launch.cuh"
#include "kernels/gemm/quantised/decode.cuh"
#include "kernels/gemm/quantised/quantised_cuda.h"

namespace inlay {
namespace {

constexpr int kWarps = 4;
constexpr int kRows = 4;  // of x

struct PlainShape {
  int64_t n;
  int64_t k;
  QuantForm form;
  int m;
  bool narrow;  // y is of the type of x
};

// Adds a unit's products to sums [rows of w g, g + 8][rows of x].
template <QuantCodes kCodes, typename T>
__device__ void AddUnit(const PlainShape& shape, const uint8_t* unit,
                        const LevelBytes& levels, const CudaMatrix<const T>& x,
                        const int32_t* permutation, int64_t first,
                        float (&sums)[2][kRows]) {
  const int lane = threadIdx.x % 32;
  for (int piece = 0; piece < 2; ++piece) {
    QuantDecoder<kCodes, __nv_bfloat16> decoder;
    decoder.Load(unit, lane, piece, levels);
#pragma unroll
    for (int q = 0; q < 4; ++q) {
      const int column = (piece * 4 + q) * 16;
      if (first + column >= shape.k) return;
      uint32_t a[4];
      decoder.Operand(q, a);
      float scale[2];
      float min[2] = {};
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const uint8_t* at = unit + QuantScaleAt(shape.form, lane / 4 + 8 * r,
                                                column / shape.form.group);
        scale[r] = __half2float(*reinterpret_cast<const __half*>(at));
        if (shape.form.has_min) {
          min[r] = __half2float(*reinterpret_cast<const __half*>(at + 4));
        }
      }
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int64_t c = first + column + lane % 4 * 2 + j / 2 * 8 + j % 2;
        const int64_t from = permutation == nullptr ? c : permutation[c];
        float weights[2];
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          const float2 pair = WidenPair<__nv_bfloat16>(a[j / 2 * 2 + r]);
          weights[r] = fmaf(scale[r], j % 2 == 0 ? pair.x : pair.y, min[r]);
        }
#pragma unroll
        for (int m = 0; m < kRows; ++m) {
          if (m >= shape.m) continue;
          const float value = ToFloat(x.row(m)[from]);
          sums[0][m] = fmaf(weights[0], value, sums[0][m]);
          sums[1][m] = fmaf(weights[1], value, sums[1][m]);
        }
      }
    }
  }
}

template <QuantCodes kCodes, typename T>
__global__ void __launch_bounds__(32 * kWarps)
    QuantPlain(const __grid_constant__ TensorView x, const uint8_t* w,
               const float* bias, const int32_t* permutation,
               const __grid_constant__ TensorView residual,
               const __grid_constant__ TensorView y,
               const __grid_constant__ LevelBytes levels,
               const __grid_constant__ PlainShape shape) {
  LetNextBegin();
  WaitForPrevious();
  __shared__ float partial[kWarps][kQuantRows][kRows];
  const int lane = threadIdx.x % 32;
  const int64_t units = QuantUnits(shape.k);
  const int unit_bytes = QuantUnitBytes(shape.form);
  const uint8_t* tile =
      w + int64_t{blockIdx.x} * QuantTileBytes(shape.form, shape.k);
  float sums[2][kRows] = {};
  for (int64_t u = threadIdx.x / 32; u < units; u += kWarps) {
    AddUnit<kCodes>(shape, tile + kQuantHeadBytes + u * unit_bytes, levels,
                    CudaMatrix<const T>(x), permutation, u * kQuantColumns,
                    sums);
  }
#pragma unroll
  for (int r = 0; r < 2; ++r) {
#pragma unroll
    for (int m = 0; m < kRows; ++m) {
      float sum = sums[r][m];
      sum += __shfl_xor_sync(0xffffffffu, sum, 1);
      sum += __shfl_xor_sync(0xffffffffu, sum, 2);
      if (lane % 4 == 0) {
        partial[threadIdx.x / 32][lane / 4 + 8 * r][m] = sum;
      }
    }
  }
  __syncthreads();
  const int row = threadIdx.x / kRows;
  const int m = threadIdx.x % kRows;
  const int64_t n = int64_t{blockIdx.x} * kQuantRows + row;
  if (row >= kQuantRows || m >= shape.m || n >= shape.n) return;
  float sum = 0.0f;
  for (int i = 0; i < kWarps; ++i) sum += partial[i][row][m];
  sum *= reinterpret_cast<const float*>(tile)[row];
  float added = bias != nullptr ? bias[n] : 0.0f;
  if (residual.data != nullptr) {
    added += shape.narrow ? ToFloat(CudaMatrix<const T>(residual).row(m)[n])
                          : CudaMatrix<const float>(residual).row(m)[n];
  }
  if (shape.narrow) {
    CudaMatrix<T>(y).row(m)[n] = FromFloat<T>(sum + added);
  } else {
    CudaMatrix<float>(y).row(m)[n] = sum + added;
  }
}

template <typename T>
absl::Status LaunchPlain(const GemmParams& params, const PlainShape& shape,
                         CudaStream& stream) {
  const LevelBytes levels = LevelBytesOf<__nv_bfloat16>(shape.form);
  const auto* w = reinterpret_cast<const uint8_t*>(params.w.data);
  const auto launch = [&](auto kernel) {
    return LaunchCuda("quantised gemm", stream,
                      {(shape.n + kQuantRows - 1) / kQuantRows, 32 * kWarps},
                      kernel, params.x, w, params.bias, params.permutation,
                      params.residual, params.y, levels, shape);
  };
  switch (shape.form.codes) {
    case QuantCodes::kLinear4:
      return launch(QuantPlain<QuantCodes::kLinear4, T>);
    case QuantCodes::kLinear6:
      return launch(QuantPlain<QuantCodes::kLinear6, T>);
    case QuantCodes::kTable4:
      return launch(QuantPlain<QuantCodes::kTable4, T>);
    case QuantCodes::kInt8:
      return launch(QuantPlain<QuantCodes::kInt8, T>);
    default:
      return launch(QuantPlain<QuantCodes::kE4M3, T>);
  }
}

}  // namespace

absl::Status RunQuantisedPlain(const GemmDesc& desc, const GemmParams& params,
                               const QuantForm& form, CudaStream& stream) {
  const int64_t rows = params.x.rows();
  for (int64_t first = 0; first < rows; first += kRows) {
    const int64_t count = std::min<int64_t>(kRows, rows - first);
    GemmParams part = params;
    part.x = params.x.RowSlice(first, count);
    part.y = params.y.RowSlice(first, count);
    if (!params.residual.empty()) {
      part.residual = params.residual.RowSlice(first, count);
    }
    const PlainShape shape = {desc.n, desc.k, form, static_cast<int>(count),
                              desc.output == desc.activation};
    INLAY_RETURN_IF_ERROR(WithFloatType(desc.activation, [&](auto type) {
      return LaunchPlain<decltype(type)>(part, shape, stream);
    }));
  }
  return absl::OkStatus();
}

}  // namespace inlay
