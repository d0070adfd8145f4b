// kv_write on CUDA: a warp a token, head and one of K and V (keys_only: K).
// Aims at the memory's bandwidth.
#include "kernels/cuda_row.cuh"
#include "kernels/kv_write/kv_row.cuh"
#include "kernels/kv_write/kv_write.h"

namespace inlay {
namespace {

constexpr int kThreads = 128;

template <typename T>
struct RowAt {
  __device__ float operator()(int i) const { return ToFloat(x[i]); }
  template <int kCount>
  __device__ void Load(int i, float (&to)[kCount]) const {
    LoadFloats<kCount>(x + i, to);
  }
  const T* x;
};

template <typename T, DType kKv, int kVector>
__global__ void WriteKv(CudaMatrix<const T> keys, CudaMatrix<const T> values,
                        const int64_t* slots, int row_tokens, CudaKvLayer kv,
                        int num_kv_heads, int head_dim, int warps_a_token,
                        int64_t warps) {
  LetNextBegin();
  WaitForPrevious();
  const int64_t warp = int64_t{blockIdx.x} * (kThreads / 32) + threadIdx.x / 32;
  if (warp >= warps) return;
  const int64_t token = warp / warps_a_token;
  const int at = static_cast<int>(warp % warps_a_token);
  const bool value = at >= num_kv_heads;
  const int head = value ? at - num_kv_heads : at;
  const int64_t slot = KvRowSlot(slots[token], row_tokens);
  if (slot < 0) return;
  const T* x = (value ? values : keys).row(token) + int64_t{head} * head_dim;
  WarpEncodeKvRow<kKv, kVector>(threadIdx.x % 32, head_dim, RowAt<T>{x},
                                kv.Row(value, slot, head));
}

}  // namespace

absl::Status RunKvWriteCuda(const KvWriteDesc& desc,
                            const KvWriteParams& params, Stream& stream) {
  const CudaKvLayer kv(params.kv);
  const bool vector =
      kv.IsVector() && IsCudaVector(desc.head_dim, {&params.k, &params.v});
  const int warps_a_token = (desc.keys_only ? 1 : 2) * desc.num_kv_heads;
  const int64_t warps = params.k.rows() * warps_a_token;
  constexpr int64_t kWarps = kThreads / 32;
  return WithFloatType(desc.activation, [&](auto type) {
    using T = decltype(type);
    return WithKvFormat(desc.kv, [&](auto format) {
      constexpr DType kKv = decltype(format)::value;
      return LaunchCuda(
          "kv_write", CudaStream::Of(stream),
          {(warps + kWarps - 1) / kWarps, kThreads},
          vector ? WriteKv<T, kKv, kCudaVector> : WriteKv<T, kKv, 1>,
          CudaMatrix<const T>(params.k), CudaMatrix<const T>(params.v),
          params.slots, desc.row_tokens, kv, desc.num_kv_heads, desc.head_dim,
          warps_a_token, warps);
    });
  });
}

}  // namespace inlay
