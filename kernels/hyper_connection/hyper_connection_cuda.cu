// hyper_mix and hyper_spread on CUDA, float32.
//
// hyper_mix: a block of 256 threads a token. All of them add up the squares of
// the streams; warp 0 makes the weights of the products, an element of the
// matrix a lane, whose sums of rows and columns go over shuffles in ascending
// order; then all mix the streams, which are in the caches by now.
// hyper_spread: a block takes kCudaMapThreads vectors of one token, a thread
// one vector of every stream. Shared memory: the weights. Both aim at the
// memory's bandwidth.
#include "kernels/cuda_row.cuh"
#include "kernels/hyper_connection/hyper_connection.h"

namespace inlay {
namespace {

constexpr unsigned kAll = 0xffffffffu;
constexpr int kThreads = 256;
static_assert(kMaxHyperStreams * kMaxHyperStreams <= 32);
constexpr int kMixes = 8;
static_assert(kMaxHyperStreams <= kMixes);

__device__ float Sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

// The sum over `count` lanes, `step` apart from lane `first`.
__device__ float SumOf(float x, int first, int step, int count) {
  float sum = 0.0f;
  for (int i = 0; i < count; ++i) {
    sum += __shfl_sync(kAll, x, first + i * step);
  }
  return sum;
}

__device__ float MostOf(float x, int first, int count) {
  float most = __shfl_sync(kAll, x, first);
  for (int i = 1; i < count; ++i) {
    most = fmaxf(most, __shfl_sync(kAll, x, first + i));
  }
  return most;
}

// Of warp 0: a to shared memory, b and c to `weights`.
__device__ void MakeWeights(const HyperMixDesc& desc,
                            const HyperMixParams& params, const float* products,
                            float inverse_rms, float* a, float* weights) {
  const int n = desc.num_streams;
  const int lane = static_cast<int>(threadIdx.x);
  if (desc.averages) {
    if (lane < n) a[lane] = 1.0f / static_cast<float>(n);
    return;
  }
  const auto logit = [&](int i, int kind) {
    return fmaf(products[i] * inverse_rms, params.scale[kind], params.base[i]);
  };
  if (lane < n) a[lane] = Sigmoid(logit(lane, 0)) + desc.epsilon;
  if (desc.only_mixes) return;
  if (lane < n) {
    const float b = desc.magnitude * Sigmoid(logit(n + lane, 1));
    weights[lane] = desc.independent ? b + desc.epsilon : b;
  }
  if (desc.independent) return;
  // Lanes beyond the matrix follow the last one.
  const int at = min(lane, n * n - 1);
  const int row = at / n * n;
  const int column = at % n;
  float c = logit(2 * n + at, 2);
  c = expf(c - MostOf(c, row, n));
  c = c / SumOf(c, row, 1, n) + desc.epsilon;
  for (int round = 0; round < desc.rounds; ++round) {
    if (round > 0) c /= SumOf(c, row, 1, n) + desc.epsilon;
    c /= SumOf(c, column, n, n) + desc.epsilon;
  }
  if (lane < n * n) weights[n + lane] = c;
}

template <int kVector>
__global__ void __launch_bounds__(kThreads)
    HyperMix(const __grid_constant__ HyperMixDesc desc,
             const __grid_constant__ HyperMixParams params, int num_weights) {
  __shared__ float scratch[32];
  // Read four at a time, the last ones too.
  __shared__ alignas(16) float a[kMixes];
  LetNextBegin();
  WaitForPrevious();
  const int64_t token = blockIdx.x;
  const int n = desc.num_streams;
  const int64_t all = n * desc.width;
  const float* h = CudaMatrix<const float>(params.streams).row(token);
  float squares = 0.0f;
  float v[kVector];
  for (int64_t i = int64_t{threadIdx.x} * kVector; i < all;
       i += kThreads * kVector) {
    LoadFloats<kVector>(h + i, v);
#pragma unroll
    for (int j = 0; j < kVector; ++j) squares = fmaf(v[j], v[j], squares);
  }
  squares = BlockSum(squares, scratch);
  if (threadIdx.x < 32) {
    const float mean = squares / static_cast<float>(all);
    const float* products =
        desc.averages ? nullptr
                      : CudaMatrix<const float>(params.products).row(token);
    MakeWeights(desc, params, products, 1.0f / sqrtf(mean + desc.norm_epsilon),
                a, params.weights + token * num_weights);
  }
  __syncthreads();
  float* x = CudaMatrix<float>(params.x).row(token);
  for (int64_t i = int64_t{threadIdx.x} * kVector; i < desc.width;
       i += kThreads * kVector) {
    float sums[kVector] = {};
    for (int s = 0; s < n; ++s) {
      LoadFloats<kVector>(h + s * desc.width + i, v);
#pragma unroll
      for (int j = 0; j < kVector; ++j) sums[j] = fmaf(a[s], v[j], sums[j]);
    }
    StoreFloats<kVector>(x + i, sums);
  }
}

template <int kVector>
__global__ void __launch_bounds__(kCudaMapThreads)
    HyperSpread(const __grid_constant__ HyperSpreadDesc desc,
                const __grid_constant__ HyperSpreadParams params,
                int num_weights, int64_t chunks) {
  __shared__ float weights[(1 + kMaxHyperStreams) * kMaxHyperStreams];
  LetNextBegin();
  WaitForPrevious();
  const int64_t token = blockIdx.x / chunks;
  const int n = desc.num_streams;
  const int at = static_cast<int>(threadIdx.x);
  if (at < num_weights) weights[at] = params.weights[token * num_weights + at];
  __syncthreads();
  const int64_t i =
      (blockIdx.x % chunks * kCudaMapThreads + threadIdx.x) * kVector;
  if (i >= desc.width) return;
  float y[kVector];
  LoadFloats<kVector>(CudaMatrix<const float>(params.y).row(token) + i, y);
  float* h = CudaMatrix<float>(params.streams).row(token) + i;
  if (desc.independent) {
    for (int k = 0; k < n; ++k) {
      float sums[kVector];
      LoadFloats<kVector>(h + k * desc.width, sums);
#pragma unroll
      for (int j = 0; j < kVector; ++j)
        sums[j] = fmaf(weights[k], y[j], sums[j]);
      StoreFloats<kVector>(h + k * desc.width, sums);
    }
    return;
  }
  float own[kMaxHyperStreams][kVector];
#pragma unroll
  for (int s = 0; s < kMaxHyperStreams; ++s) {
    if (s < n) LoadFloats<kVector>(h + s * desc.width, own[s]);
  }
#pragma unroll
  for (int k = 0; k < kMaxHyperStreams; ++k) {
    if (k >= n) break;
    float sums[kVector];
#pragma unroll
    for (int j = 0; j < kVector; ++j) sums[j] = weights[k] * y[j];
#pragma unroll
    for (int s = 0; s < kMaxHyperStreams; ++s) {
      if (s >= n) break;
      const float factor = weights[(1 + s) * n + k];
#pragma unroll
      for (int j = 0; j < kVector; ++j) {
        sums[j] = fmaf(factor, own[s][j], sums[j]);
      }
    }
    StoreFloats<kVector>(h + k * desc.width, sums);
  }
}

constexpr int kFour = 4;

}  // namespace

absl::Status RunHyperMixCuda(const HyperMixDesc& desc,
                             const HyperMixParams& params, Stream& stream) {
  const bool vector = IsCudaVector(desc.width, {&params.streams, &params.x});
  return LaunchCuda(
      "hyper_mix", CudaStream::Of(stream), {params.x.rows(), kThreads},
      vector ? HyperMix<kFour> : HyperMix<1>, desc, params, desc.num_weights());
}

absl::Status RunHyperSpreadCuda(const HyperSpreadDesc& desc,
                                const HyperSpreadParams& params,
                                Stream& stream) {
  const bool vector = IsCudaVector(desc.width, {&params.streams, &params.y});
  const int64_t chunks = MapChunks(desc.width, vector ? kFour : 1);
  return LaunchCuda("hyper_spread", CudaStream::Of(stream),
                    {params.y.rows() * chunks, kCudaMapThreads},
                    vector ? HyperSpread<kFour> : HyperSpread<1>, desc, params,
                    desc.num_weights(), chunks);
}

}  // namespace inlay
