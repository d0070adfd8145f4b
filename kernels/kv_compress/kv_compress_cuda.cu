// kv_compress on CUDA: a block of 128 threads a token, and nothing to do for
// those that end no row but zeros. A thread has four dimensions (and every
// 512th after them) and walks the tokens in ascending order, with a running
// maximum and sums in float32; a warp reads 128 elements of a row at a time.
// Small beside the products before it.
#include "kernels/cuda_row.cuh"
#include "kernels/kv_compress/kv_compress.h"
#include "kernels/kv_write/kv_load.cuh"

namespace inlay {
namespace {

constexpr int kThreads = 128;
constexpr int kFour = 4;

struct CompressArgs {
  KvLayerView kv;
  int64_t row_bytes;
  const float* bias;
  const IndexQuery* queries;
  const int32_t* blocks;
  int head_dim;
  int row_tokens;
  int num_heads;
};

struct Pool {
  float most = -INFINITY;
  float sum = 0.0f;
  float weights = 0.0f;

  __device__ void Add(float gate, float value) {
    const float top = gate < most ? most : gate;  // NaN stays
    const float keep = most == top ? 1.0f : expf(most - top);
    const float weight = expf(gate - top);
    most = top;
    sum = fmaf(sum, keep, weight * value);
    weights = fmaf(weights, keep, weight);
  }
};

template <typename T>
__global__ void __launch_bounds__(kThreads)
    Compress(const __grid_constant__ CompressArgs args, CudaMatrix<T> y_rows) {
  LetNextBegin();
  WaitForPrevious();
  const int64_t token = blockIdx.x;
  const IndexQuery query = args.queries[token];
  T* y = y_rows.row(token);
  const int count = query.num_keys;  // position + 1
  const bool ends = count > 0 && count % args.row_tokens == 0;
  const int own = count - args.row_tokens;
  const int first =
      args.num_heads == 2 && own > 0 ? own - args.row_tokens : own;
  const int size = args.kv.block_size;
  for (int d = static_cast<int>(threadIdx.x) * kFour; d < args.head_dim;
       d += kThreads * kFour) {
    Pool pools[kFour];
    for (int p = first; ends && p < count; ++p) {
      const int head = args.num_heads == 2 && p >= own ? 1 : 0;
      const int64_t block = args.blocks[query.blocks_begin + p / size];
      const std::byte* row = args.kv.base.base +
                             block * args.kv.block_stride_bytes +
                             (int64_t{head} * size + p % size) * args.row_bytes;
      const float4 value =
          LoadKv4(args.kv.dtype, row + args.kv.k_offset_bytes, d);
      const float4 gate =
          LoadKv4(args.kv.dtype, row + args.kv.v_offset_bytes, d);
      const float* bias =
          args.bias +
          (p % args.row_tokens * args.num_heads + head) * args.head_dim + d;
      pools[0].Add(gate.x + bias[0], value.x);
      pools[1].Add(gate.y + bias[1], value.y);
      pools[2].Add(gate.z + bias[2], value.z);
      pools[3].Add(gate.w + bias[3], value.w);
    }
#pragma unroll
    for (int i = 0; i < kFour; ++i) {
      y[d + i] = FromFloat<T>(ends ? pools[i].sum / pools[i].weights : 0.0f);
    }
  }
}

}  // namespace

absl::Status RunKvCompressCuda(const KvCompressDesc& desc,
                               const KvCompressParams& params, Stream& stream) {
  CompressArgs args;
  args.kv = params.kv;
  args.row_bytes = params.kv.row_bytes();
  args.bias = params.bias;
  args.queries = params.plan->queries;
  args.blocks = params.plan->blocks;
  args.head_dim = desc.head_dim;
  args.row_tokens = desc.row_tokens;
  args.num_heads = desc.num_heads();
  return WithFloatType(desc.activation, [&](auto type) {
    using T = decltype(type);
    return LaunchCuda("kv_compress", CudaStream::Of(stream),
                      {params.y.rows(), kThreads}, Compress<T>, args,
                      CudaMatrix<T>(params.y));
  });
}

}  // namespace inlay
