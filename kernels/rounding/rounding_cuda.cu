// rounding on CUDA. A block a row, whose values stay in registers between the
// search for the largest and the codes: x is read once and codes are written
// once. Grid: rows. Shared memory: 32 floats for sums and largest of warps; two
// barriers a sum, one a maximum. Float32 arithmetic. Roofline: x's and codes'
// bytes over the copy bandwidth.
#include <cuda_fp8.h>

#include <algorithm>
#include <cfloat>

#include "kernels/activation/activation.cuh"
#include "kernels/cuda_row.cuh"
#include "kernels/rms_norm/rms_norm.cuh"
#include "kernels/rounding/rounding_cuda.h"

namespace inlay {
namespace {

constexpr int kMostThreads = 1024;
// With two blocks on an SM one loads while the other computes.
constexpr int kGatedThreads = 512;
constexpr int kMostVectors = 4;  // of a thread
constexpr unsigned kAll = 0xffffffffu;

__device__ float Infinity() { return __uint_as_float(0x7f800000u); }
__device__ float Nan() { return __uint_as_float(0x7fc00000u); }

template <typename T>
__device__ void RoundTo(float (&v)[kCudaVector]) {
#pragma unroll
  for (float& value : v) value = ToFloat(FromFloat<T>(value));
}

// How one of the roundings measures, scales and writes.
struct ToFp8 {
  static constexpr float kMostCode = 448.0f;
  // NaN does not count.
  __device__ static float Largest(const float (&x)[kCudaVector], float most) {
#pragma unroll
    for (const float value : x) most = fmaxf(most, fabsf(value));
    return most;
  }
  __device__ static float InverseOf(float most) {
    if (most == 0.0f) return 0.0f;
    return most <= FLT_MAX ? fminf(kMostCode / most, FLT_MAX) : Nan();
  }
  __device__ static float ScaleOf(float most) { return most / kMostCode; }
  __device__ static uint2 Codes(const float (&x)[kCudaVector], float inverse) {
    uint32_t words[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      uint32_t pairs[2];
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        pairs[j] = __nv_cvt_float2_to_fp8x2(
            make_float2(x[4 * i + 2 * j] * inverse,
                        x[4 * i + 2 * j + 1] * inverse),
            __NV_SATFINITE, __NV_E4M3);
      }
      words[i] = pairs[0] | pairs[1] << 16;
    }
    return make_uint2(words[0], words[1]);
  }
};

struct ToInt8 {
  static constexpr float kMostCode = 127.0f;
  // Infinity where one is not finite.
  __device__ static float Largest(const float (&x)[kCudaVector], float most) {
#pragma unroll
    for (const float value : x) {
      const float size = fabsf(value);
      most = size <= FLT_MAX ? fmaxf(most, size) : Infinity();
    }
    return most;
  }
  __device__ static float InverseOf(float most) {
    return most <= FLT_MAX && most > 0.0f ? fminf(kMostCode / most, FLT_MAX)
                                          : 0.0f;
  }
  __device__ static float ScaleOf(float most) {
    return most <= FLT_MAX ? most / kMostCode : Nan();
  }
  __device__ static uint2 Codes(const float (&x)[kCudaVector], float inverse) {
    uint32_t words[2] = {};
#pragma unroll
    for (int i = 0; i < kCudaVector; ++i) {
      // 0 of NaN; within [-127, 127] of the rest.
      const int code = __float2int_rn(x[i] * inverse);
      words[i / 4] |= (static_cast<uint32_t>(code) & 0xffu) << 8 * (i % 4);
    }
    return make_uint2(words[0], words[1]);
  }
};

// Sources: what values of a row from `column` on are made of (so that all of a
// thread's loads are on their way before it computes), the values, and what all
// of the row says of each.
template <typename T>
struct PlainRows {
  struct Loaded {
    float v[kCudaVector];
  };
  __device__ void Load(int64_t row, int64_t column, Loaded& to) const {
    LoadFloats(x.row(row) + column, to.v);
  }
  __device__ void Make(const Loaded& from, float (&v)[kCudaVector]) const {
#pragma unroll
    for (int j = 0; j < kCudaVector; ++j) v[j] = from.v[j];
  }
  template <int kVectors>
  __device__ void Finish(float (&)[kVectors][kCudaVector], int64_t) const {}

  CudaMatrix<const T> x;
};

// rms_norm's bits: threads are as many and sums in the same order.
template <typename X, typename T>
struct NormRows {
  using Loaded = typename PlainRows<X>::Loaded;
  __device__ void Load(int64_t row, int64_t column, Loaded& to) const {
    LoadFloats(x.row(row) + column, to.v);
  }
  __device__ void Make(const Loaded& from, float (&v)[kCudaVector]) const {
#pragma unroll
    for (int j = 0; j < kCudaVector; ++j) v[j] = from.v[j];
  }
  template <int kVectors>
  __device__ void Finish(float (&v)[kVectors][kCudaVector],
                         int64_t width) const {
    __shared__ float scratch[32];
    float squares = 0.0f;
#pragma unroll
    for (int i = 0; i < kVectors; ++i) squares = AddSquares(v[i], squares);
    const float factor =
        RmsNormFactor(BlockSum(squares, scratch), width, epsilon);
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      const int64_t column =
          int64_t{i * blockDim.x + threadIdx.x} * kCudaVector;
      if (column >= width) break;
      RmsNormScale(v[i], factor, weight, column);
      RoundTo<T>(v[i]);
    }
  }

  CudaMatrix<const X> x;
  const float* weight;
  float epsilon;
};

template <typename T>
struct GatedRows {
  struct Loaded {
    uint4 gate, up;
  };
  __device__ void Load(int64_t row, int64_t column, Loaded& to) const {
    to.gate = *reinterpret_cast<const uint4*>(x.row(row) + column);
    to.up = *reinterpret_cast<const uint4*>(x.row(row) + width + column);
  }
  __device__ void Make(const Loaded& from, float (&v)[kCudaVector]) const {
    float up[kCudaVector];
    LoadFloats(reinterpret_cast<const T*>(&from.gate), v);
    LoadFloats(reinterpret_cast<const T*>(&from.up), up);
    ApplyGated(function, limit, v, up);
    RoundTo<T>(v);
  }
  template <int kVectors>
  __device__ void Finish(float (&)[kVectors][kCudaVector], int64_t) const {}

  CudaMatrix<const T> x;
  int64_t width;
  Activation function;
  float limit;
};

__device__ float LargestOfBlock(float most) {
  __shared__ float mosts[32];
#pragma unroll
  for (int step = 16; step > 0; step /= 2) {
    most = fmaxf(most, __shfl_xor_sync(kAll, most, step));
  }
  const unsigned warps = blockDim.x / 32;
  if (threadIdx.x % 32 == 0) mosts[threadIdx.x / 32] = most;
  __syncthreads();
  most = threadIdx.x % 32 < warps ? mosts[threadIdx.x % 32] : 0.0f;
#pragma unroll
  for (int step = 16; step > 0; step /= 2) {
    most = fmaxf(most, __shfl_xor_sync(kAll, most, step));
  }
  return most;
}

// Codes may lie where x does: a row is read before a barrier and written after.
template <typename Source, typename To, bool kGroups, int kVectors>
__global__ void __launch_bounds__(kMostThreads)
    RoundRows(const __grid_constant__ Source source, CudaMatrix<uint8_t> codes,
              float* scales, int64_t rows, int64_t width) {
  LetNextBegin();
  WaitForPrevious();
  const int64_t row = blockIdx.x;
  const auto column_of = [](int i) {
    return int64_t{i * blockDim.x + threadIdx.x} * kCudaVector;
  };
  typename Source::Loaded loaded[kVectors] = {};
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    if (column_of(i) < width) source.Load(row, column_of(i), loaded[i]);
  }
  float v[kVectors][kCudaVector] = {};
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    if (column_of(i) < width) source.Make(loaded[i], v[i]);
  }
  source.Finish(v, width);
  float most = 0.0f;
  if constexpr (kGroups) {
    __syncthreads();
  } else {
#pragma unroll
    for (int i = 0; i < kVectors; ++i) most = To::Largest(v[i], most);
    most = LargestOfBlock(most);
    if (threadIdx.x == 0) scales[row] = To::ScaleOf(most);
  }
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    const int64_t column = column_of(i);
    if constexpr (kGroups) {
      most = To::Largest(v[i], 0.0f);
#pragma unroll
      for (int step = 8; step > 0; step /= 2) {
        most = fmaxf(most, __shfl_xor_sync(kAll, most, step));
      }
      if (column < width && threadIdx.x % 16 == 0) {
        scales[column / kRoundingGroup * rows + row] = To::ScaleOf(most);
      }
    }
    if (column >= width) continue;
    *reinterpret_cast<uint2*>(codes.row(row) + column) =
        To::Codes(v[i], To::InverseOf(most));
  }
}

// rms_norm gives a row so many threads that each has one vector of it, as far
// as there are as many; the others share it evenly.
int ThreadsOf(const RoundingDesc& desc) {
  if (desc.source == RoundingSource::kRmsNorm) {
    return desc.width <= kWarpRowWidth
               ? 32
               : RowGrid(1, desc.width, kCudaVector).threads;
  }
  const int64_t vectors = desc.width / kCudaVector;
  const bool halves = desc.source == RoundingSource::kActivation &&
                      vectors <= kGatedThreads * kMostVectors;
  const int64_t most = halves ? kGatedThreads : kMostThreads;
  const int64_t each = (vectors + most - 1) / most;
  return static_cast<int>(((vectors + each - 1) / each + 31) / 32 * 32);
}

int64_t VectorsOf(const RoundingDesc& desc) {
  const int64_t columns = ThreadsOf(desc) * kCudaVector;
  return (desc.width + columns - 1) / columns;
}

template <typename Source, int kVectors>
absl::Status LaunchVectors(const RoundingDesc& desc,
                           const RoundingParams& params, const Source& source,
                           CudaStream& stream) {
  auto kernel = RoundRows<Source, ToFp8, false, kVectors>;
  if (params.rounding == RowRounding::kFp8Groups) {
    kernel = RoundRows<Source, ToFp8, true, kVectors>;
  } else if (params.rounding == RowRounding::kInt8Rows) {
    kernel = RoundRows<Source, ToInt8, false, kVectors>;
  }
  return LaunchCuda("rounding", stream, {params.x.rows(), ThreadsOf(desc)},
                    kernel, source, CudaMatrix<uint8_t>(params.codes),
                    params.scales, params.x.rows(), desc.width);
}

template <typename Source>
absl::Status Launch(const RoundingDesc& desc, const RoundingParams& params,
                    const Source& source, CudaStream& stream) {
  const int64_t vectors = VectorsOf(desc);
  if (vectors == 1) {
    return LaunchVectors<Source, 1>(desc, params, source, stream);
  }
  return vectors == 2 ? LaunchVectors<Source, 2>(desc, params, source, stream)
                      : LaunchVectors<Source, kMostVectors>(desc, params,
                                                            source, stream);
}

template <typename T>
absl::Status LaunchSource(const RoundingDesc& desc,
                          const RoundingParams& params, CudaStream& stream) {
  if (desc.source == RoundingSource::kRmsNorm) {
    if (desc.input == DType::kF32) {
      const NormRows<float, T> rows{CudaMatrix<const float>(params.x),
                                    params.weight, params.epsilon};
      return Launch(desc, params, rows, stream);
    }
    const NormRows<T, T> rows{CudaMatrix<const T>(params.x), params.weight,
                              params.epsilon};
    return Launch(desc, params, rows, stream);
  }
  if (desc.source == RoundingSource::kActivation) {
    const GatedRows<T> rows{CudaMatrix<const T>(params.x), desc.width,
                            desc.function, desc.limit};
    return Launch(desc, params, rows, stream);
  }
  return Launch(desc, params, PlainRows<T>{CudaMatrix<const T>(params.x)},
                stream);
}

template <typename T>
__global__ void __launch_bounds__(kCudaMapThreads)
    Widen(CudaMatrix<const uint8_t> codes, const float* scales,
          RowRounding rounding, int64_t first, CudaMatrix<T> y, int64_t width,
          int64_t rows, int64_t chunks) {
  LetNextBegin();
  WaitForPrevious();
  const int64_t row = blockIdx.x / chunks;
  const int64_t column =
      (blockIdx.x % chunks * kCudaMapThreads + threadIdx.x) * kCudaVector;
  if (column >= width) return;
  const uint8_t* from = codes.row(first + row) + column;
  const float scale = rounding == RowRounding::kFp8Groups
                          ? scales[column / kRoundingGroup * rows + first + row]
                          : scales[first + row];
  float v[kCudaVector];
#pragma unroll
  for (int i = 0; i < kCudaVector; ++i) {
    if (rounding == RowRounding::kInt8Rows) {
      v[i] = static_cast<float>(static_cast<int8_t>(from[i])) * scale;
    } else {
      __nv_fp8_e4m3 code;
      code.__x = from[i];
      v[i] = static_cast<float>(code) * scale;
    }
  }
  StoreFloats(y.row(row) + column, v);
}

}  // namespace

const char* RoundingCudaRefuses(const RoundingDesc& desc) {
  if (VectorsOf(desc) > kMostVectors) return "rows are too long";
  if (desc.source == RoundingSource::kRmsNorm && desc.input != DType::kF32 &&
      desc.input != desc.activation) {
    return "a norm's x must be f32 or an activation";
  }
  return nullptr;
}

absl::Status RunRoundingCuda(const RoundingDesc& desc,
                             const RoundingParams& params, Stream& stream) {
  if (params.rounding == RowRounding::kNone) return absl::OkStatus();
  CudaStream& cuda = CudaStream::Of(stream);
  return desc.activation == DType::kF16
             ? LaunchSource<__half>(desc, params, cuda)
             : LaunchSource<__nv_bfloat16>(desc, params, cuda);
}

absl::Status RunWidenCuda(const RoundedRows& x, RowRounding rounding,
                          int64_t first, const TensorView& y,
                          CudaStream& stream) {
  const int64_t chunks = MapChunks(y.cols(), kCudaVector);
  return WithFloatType(y.dtype, [&](auto element) {
    using T = decltype(element);
    return LaunchCuda(
        "widening codes", stream, {y.rows() * chunks, kCudaMapThreads},
        Widen<T>, CudaMatrix<const uint8_t>(x.codes), x.scales, rounding, first,
        CudaMatrix<T>(y), y.cols(), x.codes.rows(), chunks);
  });
}

}  // namespace inlay
