// AltUp's ops on CUDA, float32.
//
// altup_predict, altup_correct, match_magnitude: a block of 256 threads a
// token. All of them add up products over the row, over shuffles and shared
// memory in an order that depends on the width alone; every thread then makes
// its columns of the streams. altup_add: a block takes kCudaMapThreads columns
// of one token, a thread one column. Bound by the memory's bandwidth for many
// tokens, by launches for few. Speed was not measured.
#include "kernels/altup/altup.h"
#include "kernels/cuda_row.cuh"

namespace inlay {
namespace {

constexpr int kThreads = 256;

struct AltUpShared {
  float scratch[32];
  float m[kMaxAltUpStreams];
  float factors[kMaxAltUpStreams * kMaxAltUpStreams];
};

// `count` factors to shared memory, for all threads; `v` is read before.
__device__ void MakeFactors(const AltUpDesc& desc, const AltUpRouter& router,
                            const float* v, int count, AltUpShared& shared) {
  const int n = desc.num_streams;
  const int width = static_cast<int>(desc.width);
  const int thread = static_cast<int>(threadIdx.x);
  float squares = 0.0f;
  float sums[kMaxAltUpStreams] = {};
  for (int i = thread; i < width; i += kThreads) {
    squares = fmaf(v[i], v[i], squares);
    const float scaled = v[i] * router.norm[i];
#pragma unroll
    for (int j = 0; j < kMaxAltUpStreams; ++j) {
      if (j >= n) break;
      sums[j] = fmaf(scaled, router.matrix[int64_t{j} * width + i], sums[j]);
    }
  }
  squares = BlockSum(squares, shared.scratch);
  const float norm =
      1.0f / sqrtf(squares / static_cast<float>(width) + desc.norm_epsilon);
#pragma unroll
  for (int j = 0; j < kMaxAltUpStreams; ++j) {
    if (j >= n) break;
    const float sum = BlockSum(sums[j], shared.scratch);
    if (thread == 0) {
      shared.m[j] = tanhf(sum * norm / static_cast<float>(width));
    }
  }
  __syncthreads();
  if (thread < count) {
    float factor = 0.0f;
    for (int j = 0; j < n; ++j) {
      factor = fmaf(router.coefs[thread * n + j], shared.m[j], factor);
    }
    shared.factors[thread] = factor;
  }
  __syncthreads();
}

__global__ void __launch_bounds__(kThreads)
    Predict(const __grid_constant__ AltUpDesc desc,
            const __grid_constant__ AltUpPredictParams params) {
  __shared__ AltUpShared shared;
  LetNextBegin();
  WaitForPrevious();
  const int n = desc.num_streams;
  const int width = static_cast<int>(desc.width);
  float* h = CudaMatrix<float>(params.streams).row(blockIdx.x);
  float* x = CudaMatrix<float>(params.x).row(blockIdx.x);
  MakeFactors(desc, params.router, h + int64_t{desc.active} * width, n * n,
              shared);
  for (int i = static_cast<int>(threadIdx.x); i < width; i += kThreads) {
    float own[kMaxAltUpStreams];
#pragma unroll
    for (int j = 0; j < kMaxAltUpStreams; ++j) {
      own[j] = j < n ? h[int64_t{j} * width + i] : 0.0f;
    }
#pragma unroll
    for (int k = 0; k < kMaxAltUpStreams; ++k) {
      if (k >= n) break;
      float sum = own[k];
#pragma unroll
      for (int j = 0; j < kMaxAltUpStreams; ++j) {
        if (j >= n) break;
        sum = fmaf(shared.factors[k * n + j], own[j], sum);
      }
      h[int64_t{k} * width + i] = sum;
      if (k == desc.active) x[i] = sum;
    }
  }
}

__global__ void __launch_bounds__(kThreads)
    Correct(const __grid_constant__ AltUpDesc desc,
            const __grid_constant__ AltUpCorrectParams params) {
  __shared__ AltUpShared shared;
  LetNextBegin();
  WaitForPrevious();
  const int n = desc.num_streams;
  const int width = static_cast<int>(desc.width);
  float* h = CudaMatrix<float>(params.streams).row(blockIdx.x);
  float* x = CudaMatrix<float>(params.x).row(blockIdx.x);
  MakeFactors(desc, params.router, x, n, shared);
  for (int i = static_cast<int>(threadIdx.x); i < width; i += kThreads) {
    const float change = x[i] - h[int64_t{desc.active} * width + i];
    for (int k = 0; k < n; ++k) {
      float& at = h[int64_t{k} * width + i];
      at = fmaf(1.0f + shared.factors[k], change, at);
      if (k != desc.active) continue;
      x[i] = params.scale == nullptr ? at : at * params.scale[i];
    }
  }
}

__global__ void __launch_bounds__(kCudaMapThreads)
    Add(const __grid_constant__ AltUpDesc desc,
        const __grid_constant__ AltUpAddParams params, int64_t chunks) {
  LetNextBegin();
  WaitForPrevious();
  const int64_t token = blockIdx.x / chunks;
  const int64_t i = blockIdx.x % chunks * kCudaMapThreads + threadIdx.x;
  if (i >= desc.width) return;
  const float y = CudaMatrix<const float>(params.y).row(token)[i];
  float* h = CudaMatrix<float>(params.streams).row(token) + i;
  for (int k = 1; k < desc.num_streams; ++k) h[k * desc.width] += y;
}

__global__ void __launch_bounds__(kThreads)
    Match(const __grid_constant__ MatchMagnitudeDesc desc,
          const __grid_constant__ MatchMagnitudeParams params) {
  __shared__ float scratch[32];
  LetNextBegin();
  WaitForPrevious();
  const int width = static_cast<int>(desc.width);
  const float* x = CudaMatrix<const float>(params.x).row(blockIdx.x);
  const float* target = CudaMatrix<const float>(params.target).row(blockIdx.x);
  float* y = CudaMatrix<float>(params.y).row(blockIdx.x);
  float own = 0.0f, wanted = 0.0f;
  for (int i = static_cast<int>(threadIdx.x); i < width; i += kThreads) {
    own = fmaf(x[i], x[i], own);
    wanted = fmaf(target[i], target[i], wanted);
  }
  const auto count = static_cast<float>(width);
  own = fmaxf(BlockSum(own, scratch) / count, desc.epsilon);
  wanted = BlockSum(wanted, scratch) / count;
  const float factor = sqrtf(wanted / own);
  for (int i = static_cast<int>(threadIdx.x); i < width; i += kThreads) {
    const float value = __fmul_rn(x[i], factor);
    y[i] = params.accumulate ? y[i] + value : value;
  }
}

}  // namespace

absl::Status RunAltUpPredictCuda(const AltUpDesc& desc,
                                 const AltUpPredictParams& params,
                                 Stream& stream) {
  return LaunchCuda("altup_predict", CudaStream::Of(stream),
                    {params.x.rows(), kThreads}, Predict, desc, params);
}

absl::Status RunAltUpCorrectCuda(const AltUpDesc& desc,
                                 const AltUpCorrectParams& params,
                                 Stream& stream) {
  return LaunchCuda("altup_correct", CudaStream::Of(stream),
                    {params.x.rows(), kThreads}, Correct, desc, params);
}

absl::Status RunAltUpAddCuda(const AltUpDesc& desc,
                             const AltUpAddParams& params, Stream& stream) {
  const int64_t chunks = MapChunks(desc.width, 1);
  return LaunchCuda("altup_add", CudaStream::Of(stream),
                    {params.y.rows() * chunks, kCudaMapThreads}, Add, desc,
                    params, chunks);
}

absl::Status RunMatchMagnitudeCuda(const MatchMagnitudeDesc& desc,
                                   const MatchMagnitudeParams& params,
                                   Stream& stream) {
  return LaunchCuda("match_magnitude", CudaStream::Of(stream),
                    {params.y.rows(), kThreads}, Match, desc, params);
}

}  // namespace inlay
