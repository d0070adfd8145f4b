// rope on CUDA, and the table of angles made on the device. A thread turns
// kVector pairs; arithmetic in float32, rounded once. Aims at the memory's
// bandwidth.
#include "kernels/cuda_row.cuh"
#include "kernels/rope/rope.cuh"
#include "kernels/rope/rope.h"

namespace inlay {
namespace {

constexpr int kThreads = 128;

// Of one token: `groups` groups of kVector pairs a head, num_heads heads.
template <typename T, RopeStyle kStyle, int kVector>
__global__ void Rotate(CudaMatrix<T> x_rows, const float* cos, const float* sin,
                       int head_dim, int begin, int pairs,
                       int64_t threads_a_token, int64_t threads) {
  LetNextBegin();
  WaitForPrevious();
  const int64_t thread = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (thread >= threads) return;
  const int64_t token = thread / threads_a_token;
  const int groups = pairs / kVector;
  const int at = static_cast<int>(thread % threads_a_token);
  const int pair = at % groups * kVector;
  T* x = x_rows.row(token) + int64_t{at / groups} * head_dim + begin;
  float c[kVector];
  float s[kVector];
  LoadFloats<kVector>(cos + token * pairs + pair, c);
  LoadFloats<kVector>(sin + token * pairs + pair, s);
  constexpr bool kHalf = kStyle == RopeStyle::kHalf;
  T* first = kHalf ? x + pair : x + 2 * pair;
  T* second = kHalf ? first + pairs : first + kVector;
  float low[kVector];
  float high[kVector];
  LoadFloats<kVector>(first, low);
  LoadFloats<kVector>(second, high);
#pragma unroll
  for (int j = 0; j < kVector; ++j) {
    // Interleaved pairs lie side by side in the 2 kVector floats read.
    float& a = kHalf || kVector == 1 ? low[j]
               : 2 * j < kVector     ? low[2 * j % kVector]
                                     : high[2 * j % kVector];
    float& b = kHalf || kVector == 1 ? high[j]
               : 2 * j < kVector     ? low[(2 * j + 1) % kVector]
                                     : high[(2 * j + 1) % kVector];
    TurnPair(a, b, c[j], s[j]);
  }
  StoreFloats<kVector>(first, low);
  StoreFloats<kVector>(second, high);
}

template <typename T, RopeStyle kStyle>
absl::Status Launch(const RopeDesc& desc, const RopeParams& params,
                    CudaStream& stream) {
  const int pairs = desc.rotary_dim / 2;
  const bool vector = pairs % kCudaVector == 0 &&
                      desc.first % kCudaVector == 0 &&
                      IsCudaVector(desc.head_dim, {&params.x}) &&
                      IsCudaVector(params.cos) && IsCudaVector(params.sin);
  const int64_t per_token =
      int64_t{desc.num_heads} * (vector ? pairs / kCudaVector : pairs);
  const int64_t threads = params.x.rows() * per_token;
  const auto kernel =
      vector ? Rotate<T, kStyle, kCudaVector> : Rotate<T, kStyle, 1>;
  return LaunchCuda("rope", stream,
                    {(threads + kThreads - 1) / kThreads, kThreads}, kernel,
                    CudaMatrix<T>(params.x), params.cos, params.sin,
                    desc.head_dim, desc.first, pairs, per_token, threads);
}

__global__ void FillAngles(const int32_t* positions, int32_t step,
                           const float* inv_freq, float scale, int64_t pairs,
                           int64_t count, float* cos, float* sin) {
  LetNextBegin();
  WaitForPrevious();
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= count) return;
  const auto position = static_cast<float>(positions[i / pairs] / step * step);
  float s;
  float c;
  sincosf(__fmul_rn(position, inv_freq[i % pairs]), &s, &c);
  cos[i] = c * scale;
  sin[i] = s * scale;
}

}  // namespace

absl::Status RunRopeCuda(const RopeDesc& desc, const RopeParams& params,
                         Stream& stream) {
  CudaStream& cuda = CudaStream::Of(stream);
  return WithFloatType(desc.activation, [&](auto type) {
    using T = decltype(type);
    return desc.style == RopeStyle::kHalf
               ? Launch<T, RopeStyle::kHalf>(desc, params, cuda)
               : Launch<T, RopeStyle::kInterleaved>(desc, params, cuda);
  });
}

absl::Status FillRopeAnglesCuda(const int32_t* positions, int64_t tokens,
                                const float* inv_freq, int64_t pairs,
                                float scale, float* cos, float* sin,
                                Stream& stream, int32_t step) {
  const int64_t count = tokens * pairs;
  return LaunchCuda("rope angles", CudaStream::Of(stream),
                    {(count + kThreads - 1) / kThreads, kThreads}, FillAngles,
                    positions, step, inv_freq, scale, pairs, count, cos, sin);
}

}  // namespace inlay
