// rounding on CUDA. A block a row, whose values stay in registers, as T and
// two to a register, between the search for the largest and the codes: x is
// read once and codes are written once. A thread has several vectors of 8
// values, so that what a thread does once for a row (sums, largest, divisions)
// is done by few: under the load of products the clock falls and instructions,
// not bytes, would bound the kernel. Grid: rows. Shared memory: a float a warp
// for sums and largest; a barrier for each. Float32 arithmetic. Roofline: x's
// and codes' bytes over the copy bandwidth.
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
constexpr unsigned kAll = 0xffffffffu;
// Vectors of a thread. A gated one is loaded when the one before is made:
// blocks of few threads and few registers, many on an SM, load while others
// compute.
constexpr int kPlainVectors = 4;
constexpr int kNormVectors = 4;
constexpr int kGatedVectors = 8;
// Wider rows of a norm have several vectors a thread in rms_norm, too.
constexpr int64_t kWidestSpread = kMostThreads * kCudaVector;

// Of a block whose threads have so many vectors.
constexpr int MostThreads(int vectors) {
  return kMostThreads * kPlainVectors / vectors;
}

__device__ float Infinity() { return __uint_as_float(0x7f800000u); }
__device__ float Nan() { return __uint_as_float(0x7fc00000u); }

// A thread's kCudaVector values of a row, as T.
template <typename T>
struct Values {
  using Pair =
      std::conditional_t<std::is_same_v<T, __half>, __half2, __nv_bfloat162>;

  Values() = default;
  __device__ explicit Values(const uint4& bits)
      : words{bits.x, bits.y, bits.z, bits.w} {}
  __device__ explicit Values(const float (&v)[kCudaVector]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      words[i] = NarrowPair<T>(v[2 * i], v[2 * i + 1]);
    }
  }
  __device__ Pair Size(int i) const {
    return __habs2(*reinterpret_cast<const Pair*>(&words[i]));
  }

  uint32_t words[4] = {};
};

// How one of the roundings measures, scales and writes. The largest magnitude
// is looked for in pairs of T.
struct ToFp8 {
  static constexpr float kMostCode = 448.0f;
  // NaN does not count.
  template <typename T>
  __device__ static void Measure(const Values<T>& x,
                                 typename Values<T>::Pair& most) {
#pragma unroll
    for (int i = 0; i < 4; ++i) most = __hmax2(most, x.Size(i));
  }
  __device__ static float Largest(float2 most) { return fmaxf(most.x, most.y); }
  __device__ static float InverseOf(float most) {
    if (most == 0.0f) return 0.0f;
    return most <= FLT_MAX ? fminf(kMostCode / most, FLT_MAX) : Nan();
  }
  __device__ static float ScaleOf(float most) { return most / kMostCode; }
  template <typename T>
  __device__ static uint2 Codes(const Values<T>& x, float inverse) {
    uint32_t pairs[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 v = WidenPair<T>(x.words[i]);
      pairs[i] = __nv_cvt_float2_to_fp8x2(
          make_float2(v.x * inverse, v.y * inverse), __NV_SATFINITE, __NV_E4M3);
    }
    return make_uint2(pairs[0] | pairs[1] << 16, pairs[2] | pairs[3] << 16);
  }
};

struct ToInt8 {
  static constexpr float kMostCode = 127.0f;
  // Infinity where one is not finite.
  template <typename T>
  __device__ static void Measure(const Values<T>& x,
                                 typename Values<T>::Pair& most) {
#pragma unroll
    for (int i = 0; i < 4; ++i) most = __hmax2_nan(most, x.Size(i));
  }
  __device__ static float Largest(float2 most) {
    return most.x <= FLT_MAX && most.y <= FLT_MAX ? fmaxf(most.x, most.y)
                                                  : Infinity();
  }
  __device__ static float InverseOf(float most) {
    return most <= FLT_MAX && most > 0.0f ? fminf(kMostCode / most, FLT_MAX)
                                          : 0.0f;
  }
  __device__ static float ScaleOf(float most) {
    return most <= FLT_MAX ? most / kMostCode : Nan();
  }
  template <typename T>
  __device__ static uint2 Codes(const Values<T>& x, float inverse) {
    uint32_t words[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float2 a = WidenPair<T>(x.words[2 * i]);
      const float2 b = WidenPair<T>(x.words[2 * i + 1]);
      // 0 of NaN; within [-127, 127] of the rest.
      const auto code = [&](float value) {
        return static_cast<uint32_t>(__float2int_rn(value * inverse));
      };
      words[i] = __byte_perm(__byte_perm(code(a.x), code(a.y), 0x0040),
                             __byte_perm(code(b.x), code(b.y), 0x0040), 0x5410);
    }
    return make_uint2(words[0], words[1]);
  }
};

// Sources: what values of a row from `column` on are made of, the values (a
// norm's with what it found of the whole row), and how many vectors a thread
// has and loads before it makes the first.
template <typename T>
struct PlainRows {
  using Type = T;
  static constexpr int kVectors = kPlainVectors;
  static constexpr int kAhead = kVectors;
  struct Loaded {
    uint4 bits = {};
  };
  __device__ void Load(int64_t row, int column, Loaded& to) const {
    to.bits = *reinterpret_cast<const uint4*>(x.row(row) + column);
  }
  __device__ float Factor(const Loaded (&)[kAhead], int64_t) const {
    return 1.0f;
  }
  __device__ Values<T> Make(const Loaded& from, float, int, int) const {
    return Values<T>(from.bits);
  }

  CudaMatrix<const T> x;
};

// The sums of s[i] over the lanes, as WarpSum has them; lane l gets that of i =
// l / (32 / kCount).
template <int kCount>
__device__ float WarpSums(float (&s)[kCount]) {
  int step = 16;
#pragma unroll
  for (int left = kCount / 2; left > 0; left /= 2) {
    const bool upper = (threadIdx.x & step) != 0;
#pragma unroll
    for (int i = 0; i < left; ++i) {
      const float give = upper ? s[i] : s[i + left];
      const float keep = upper ? s[i + left] : s[i];
      s[i] = keep + __shfl_xor_sync(kAll, give, step);
    }
    step /= 2;
  }
  float sum = s[0];
#pragma unroll
  for (int rest = 16 / kCount; rest > 0; rest /= 2) {
    sum += __shfl_xor_sync(kAll, sum, rest);
  }
  return sum;
}

// rms_norm's bits. kSpread: rms_norm has a vector a thread, so that vector i of
// warp q here is that of warp i * warps + q there, and sums are of its warps.
// Otherwise threads are as many as there.
template <typename X, typename T, bool kSpread>
struct NormRows {
  using Type = T;
  static constexpr int kVectors = kSpread ? kNormVectors : kPlainVectors;
  static constexpr int kAhead = kVectors;
  struct Loaded {
    float v[kCudaVector] = {};
  };
  __device__ void Load(int64_t row, int column, Loaded& to) const {
    LoadFloats(x.row(row) + column, to.v);
  }
  __device__ float Factor(const Loaded (&from)[kAhead], int64_t width) const {
    __shared__ float scratch[32];
    float squares[kVectors];
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      squares[i] = AddSquares(from[i].v, 0.0f);
      sum = AddSquares(from[i].v, sum);
    }
    if constexpr (kSpread) {
      constexpr unsigned kLanes = 32 / kVectors;  // that have the same sum
      const unsigned warps = blockDim.x / 32;
      const unsigned lane = threadIdx.x % 32;
      sum = WarpSums(squares);
      if (lane % kLanes == 0) {
        scratch[lane / kLanes * warps + threadIdx.x / 32] = sum;
      }
      __syncthreads();
      sum = WarpSum(lane < warps * kVectors ? scratch[lane] : 0.0f);
    } else {
      sum = BlockSum(sum, scratch);
    }
    return RmsNormFactor(sum, width, epsilon);
  }
  __device__ Values<T> Make(Loaded& from, float factor, int column,
                            int width) const {
    RmsNormScale(from.v, factor, column < width ? weight : nullptr, column);
    return Values<T>(from.v);
  }

  CudaMatrix<const X> x;
  const float* weight;
  float epsilon;
};

// kSilu: the function is SiLU.
template <typename T, bool kSilu>
struct GatedRows {
  using Type = T;
  static constexpr int kVectors = kGatedVectors;
  static constexpr int kAhead = 1;
  struct Loaded {
    uint4 gate = {}, up = {};
  };
  __device__ void Load(int64_t row, int column, Loaded& to) const {
    const T* const at = x.row(row) + column;
    to.gate = *reinterpret_cast<const uint4*>(at);
    to.up = *reinterpret_cast<const uint4*>(at + width);
  }
  __device__ float Factor(const Loaded (&)[kAhead], int64_t) const {
    return 1.0f;
  }
  __device__ Values<T> Make(const Loaded& from, float, int, int) const {
    float v[kCudaVector];
    float up[kCudaVector];
    LoadFloats(reinterpret_cast<const T*>(&from.gate), v);
    LoadFloats(reinterpret_cast<const T*>(&from.up), up);
    if constexpr (kSilu) {
      ApplyGated<Activation::kSilu>(limit, v, up);
    } else {
      ApplyGated(function, limit, v, up);
    }
    return Values<T>(v);
  }

  CudaMatrix<const T> x;
  int64_t width;
  Activation function;
  float limit;
};

// Magnitudes are ordered as their bits are.
__device__ float LargestOfBlock(float most) {
  __shared__ uint32_t mosts[32];
  uint32_t bits = __reduce_max_sync(kAll, __float_as_uint(most));
  const unsigned warps = blockDim.x / 32;
  if (threadIdx.x % 32 == 0) mosts[threadIdx.x / 32] = bits;
  __syncthreads();
  bits = threadIdx.x % 32 < warps ? mosts[threadIdx.x % 32] : 0;
  return __uint_as_float(__reduce_max_sync(kAll, bits));
}

__device__ float2 WidenPair(__half2 pair) { return __half22float2(pair); }
__device__ float2 WidenPair(__nv_bfloat162 pair) {
  return __bfloat1622float2(pair);
}

// Codes may lie where x does: a row is read before a barrier and written after.
template <typename Source, typename To, bool kGroups>
__global__ void __launch_bounds__(MostThreads(Source::kVectors))
    RoundRows(const __grid_constant__ Source source, CudaMatrix<uint8_t> codes,
              float* scales, int rows, int width) {
  using T = typename Source::Type;
  using Pair = typename Values<T>::Pair;
  constexpr int kVectors = Source::kVectors;
  constexpr int kAhead = Source::kAhead;
  LetNextBegin();
  WaitForPrevious();
  const int64_t row = blockIdx.x;
  const auto column_of = [](int i) {
    return static_cast<int>(i * blockDim.x + threadIdx.x) * kCudaVector;
  };
  typename Source::Loaded loaded[kAhead];
#pragma unroll
  for (int i = 0; i < kAhead; ++i) {
    if (column_of(i) < width) source.Load(row, column_of(i), loaded[i]);
  }
  const float factor = source.Factor(loaded, width);
  Values<T> v[kVectors];
  const Pair zeros{T(0.0f), T(0.0f)};
  Pair most = zeros;
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    auto& from = loaded[i % kAhead];
    // Of zeros, which those beyond the row are, all make zeros.
    v[i] = source.Make(from, factor, column_of(i), width);
    if (i + kAhead < kVectors) {
      from = {};
      if (column_of(i + kAhead) < width) {
        source.Load(row, column_of(i + kAhead), from);
      }
    }
    if constexpr (!kGroups) To::Measure(v[i], most);
  }
  float largest = 0.0f;
  if constexpr (kGroups) {
    __syncthreads();
  } else {
    largest = LargestOfBlock(To::Largest(WidenPair(most)));
    if (threadIdx.x == 0) scales[row] = To::ScaleOf(largest);
  }
  float inverse = To::InverseOf(largest);
  uint8_t* const to = codes.row(row);
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    const int column = column_of(i);
    if constexpr (kGroups) {
      most = zeros;
      To::Measure(v[i], most);
      largest = To::Largest(WidenPair(most));
#pragma unroll
      for (int step = 8; step > 0; step /= 2) {
        largest = fmaxf(largest, __shfl_xor_sync(kAll, largest, step));
      }
      if (column < width && threadIdx.x % 16 == 0) {
        scales[int64_t{column / static_cast<int>(kRoundingGroup)} * rows +
               row] = To::ScaleOf(largest);
      }
      inverse = To::InverseOf(largest);
    }
    if (column >= width) continue;
    *reinterpret_cast<uint2*>(to + column) = To::Codes(v[i], inverse);
  }
}

bool IsSpread(const RoundingDesc& desc) {
  return desc.width > kWarpRowWidth && desc.width <= kWidestSpread;
}

int VectorsOf(const RoundingDesc& desc) {
  switch (desc.source) {
    case RoundingSource::kRmsNorm:
      return IsSpread(desc) ? kNormVectors : kPlainVectors;
    case RoundingSource::kActivation:
      return kGatedVectors;
    default:
      return kPlainVectors;
  }
}

int64_t ThreadsOf(const RoundingDesc& desc) {
  if (desc.source == RoundingSource::kRmsNorm && !IsSpread(desc)) {
    return desc.width <= kWarpRowWidth
               ? 32
               : RowGrid(1, desc.width, kCudaVector).threads;
  }
  const int64_t columns = 32 * kCudaVector * VectorsOf(desc);
  return (desc.width + columns - 1) / columns * 32;
}

template <typename Source>
absl::Status Launch(const RoundingDesc& desc, const RoundingParams& params,
                    const Source& source, CudaStream& stream) {
  auto kernel = RoundRows<Source, ToFp8, false>;
  if (params.rounding == RowRounding::kFp8Groups) {
    kernel = RoundRows<Source, ToFp8, true>;
  } else if (params.rounding == RowRounding::kInt8Rows) {
    kernel = RoundRows<Source, ToInt8, false>;
  }
  return LaunchCuda(
      "rounding", stream, {params.x.rows(), static_cast<int>(ThreadsOf(desc))},
      kernel, source, CudaMatrix<uint8_t>(params.codes), params.scales,
      static_cast<int>(params.x.rows()), static_cast<int>(desc.width));
}

template <typename X, typename T>
absl::Status LaunchNorm(const RoundingDesc& desc, const RoundingParams& params,
                        CudaStream& stream) {
  const CudaMatrix<const X> x(params.x);
  if (IsSpread(desc)) {
    const NormRows<X, T, true> rows{x, params.weight, params.epsilon};
    return Launch(desc, params, rows, stream);
  }
  const NormRows<X, T, false> rows{x, params.weight, params.epsilon};
  return Launch(desc, params, rows, stream);
}

template <typename T>
absl::Status LaunchSource(const RoundingDesc& desc,
                          const RoundingParams& params, CudaStream& stream) {
  if (desc.source == RoundingSource::kRmsNorm) {
    return desc.input == DType::kF32
               ? LaunchNorm<float, T>(desc, params, stream)
               : LaunchNorm<T, T>(desc, params, stream);
  }
  const CudaMatrix<const T> x(params.x);
  if (desc.source == RoundingSource::kActivation) {
    if (desc.function == Activation::kSilu) {
      const GatedRows<T, true> rows{x, desc.width, desc.function, desc.limit};
      return Launch(desc, params, rows, stream);
    }
    const GatedRows<T, false> rows{x, desc.width, desc.function, desc.limit};
    return Launch(desc, params, rows, stream);
  }
  return Launch(desc, params, PlainRows<T>{x}, stream);
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
  if (ThreadsOf(desc) * VectorsOf(desc) * kCudaVector < desc.width ||
      ThreadsOf(desc) > MostThreads(VectorsOf(desc))) {
    return "rows are too long";
  }
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
