// state_gates on CUDA. A thread an element of x; arithmetic in float32. Too
// little work to be bound by anything but the launch.
#include "kernels/cuda_float.cuh"
#include "kernels/cuda_launch.cuh"
#include "kernels/cuda_row.cuh"
#include "kernels/linear_attention/state_gates.cuh"

namespace inlay {
namespace {

// decay may be x and beta may be b where they are float32: a thread reads
// before it writes what nobody else reads.
template <typename T>
__global__ void StateGates(CudaMatrix<const T> x_rows,
                           CudaMatrix<const T> b_rows,
                           CudaMatrix<float> decay_rows,
                           CudaMatrix<float> beta_rows, const float* bias,
                           const float* a_log, StateGatesDesc desc,
                           int64_t chunks) {
  LetNextBegin();
  WaitForPrevious();
  const int64_t row = blockIdx.x / chunks;
  const int64_t i = blockIdx.x % chunks * kCudaMapThreads + threadIdx.x;
  if (i >= desc.num_heads * desc.channels) return;
  const int64_t head = i / desc.channels;
  const float x = ToFloat(x_rows.row(row)[i]);
  const float step = GateStep(desc, x, bias[i]);
  decay_rows.row(row)[i] = desc.bound < 0.0f
                               ? BoundedDecay(desc, a_log[head], x, bias[i])
                               : GateDecay(a_log[head], step);
  if (i != head * desc.channels) return;
  float* const beta = beta_rows.row(row) + head;
  if (b_rows.data == nullptr) {
    *beta = step;
  } else {
    *beta = GateBeta(ToFloat(b_rows.row(row)[head]));
  }
}

}  // namespace

absl::Status RunStateGatesCuda(const StateGatesDesc& desc,
                               const StateGatesParams& params, Stream& stream) {
  const int64_t chunks = MapChunks(desc.num_heads * desc.channels, 1);
  return WithFloatType(desc.activation, [&](auto type) {
    using T = decltype(type);
    return LaunchCuda(
        "state_gates", CudaStream::Of(stream),
        {params.x.rows() * chunks, kCudaMapThreads}, StateGates<T>,
        CudaMatrix<const T>(params.x), CudaMatrix<const T>(params.b),
        CudaMatrix<float>(params.decay), CudaMatrix<float>(params.beta),
        params.bias, params.a_log, desc, chunks);
  });
}

}  // namespace inlay
