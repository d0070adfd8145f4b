// short_conv on CUDA. A thread takes a vector of channels through a few rows,
// one after another, with the inputs of the last tokens in registers; what lies
// before the first of these rows it reads again, or from the sequence's state.
// Arithmetic in float32, rounded once. Aims at the memory's bandwidth: x and
// gates read, y written.
#include <algorithm>

#include "kernels/cuda_float.cuh"
#include "kernels/cuda_launch.cuh"
#include "kernels/linear_attention/short_conv.cuh"
#include "kernels/linear_attention/state_plan.cuh"

namespace inlay {
namespace {

constexpr int kThreads = 128;
constexpr int64_t kMostRows = 16;  // a thread

template <typename T>
struct Args {
  CudaMatrix<const T> x;
  CudaMatrix<const T> input_gate;   // without data: none
  CudaMatrix<const T> output_gate;  // likewise
  CudaMatrix<T> y;
  const float* taps;
  const float* bias;
  CudaStates states;
  StatePlan plan;
  int64_t channels;
  int64_t chunks;  // blocks that take a row
  int64_t thread_rows;
  int num_taps;
  bool silu;
};

// kTaps: room for them. The oldest places stay unused where they are fewer.
template <typename T, int kVector, int kTaps>
class Channels {
 public:
  __device__ Channels(const Args<T>& args, int64_t first)
      : args_(args), first_(first), unused_(kTaps - args.num_taps) {}

  __device__ void LoadWeights() {
#pragma unroll
    for (int j = 0; j < kTaps; ++j) {
      if (j < unused_) continue;
      LoadFloats<kVector>(args_.taps + (j - unused_) * args_.channels + first_,
                          taps_[j]);
    }
#pragma unroll
    for (int i = 0; i < kVector; ++i) bias_[i] = 0.0f;
    if (args_.bias != nullptr) LoadFloats<kVector>(args_.bias + first_, bias_);
  }

  // Rows of a sequence in order; its first here may be any of it.
  __device__ void Row(int64_t row, const StatePlanRun& run) {
    if (run.sequence_row != sequence_row_) Fill(row, run);
#pragma unroll
    for (int j = 0; j + 1 < kTaps; ++j) Copy(window_[j + 1], window_[j]);
    Input(row, window_[kTaps - 1]);
    Write(row);
    if (row + 1 == run.row + run.count) Store(args_.states.Of(run.to));
  }

  __device__ void LeaveSequence() { sequence_row_ = -1; }

 private:
  __device__ static void Copy(const float (&from)[kVector],
                              float (&to)[kVector]) {
#pragma unroll
    for (int i = 0; i < kVector; ++i) to[i] = from[i];
  }

  __device__ void Input(int64_t row, float (&to)[kVector]) const {
    LoadFloats<kVector>(args_.x.row(row) + first_, to);
    if (args_.input_gate.data == nullptr) return;
    float gate[kVector];
    LoadFloats<kVector>(args_.input_gate.row(row) + first_, gate);
#pragma unroll
    for (int i = 0; i < kVector; ++i) to[i] *= gate[i];
  }

  // The window as it is after the row before.
  __device__ void Fill(int64_t row, const StatePlanRun& run) {
    sequence_row_ = run.sequence_row;
#pragma unroll
    for (int j = 1; j < kTaps; ++j) {
#pragma unroll
      for (int i = 0; i < kVector; ++i) window_[j][i] = 0.0f;
      if (j <= unused_) continue;
      const int64_t at = row - (kTaps - j);
      if (at >= run.sequence_row) {
        Input(at, window_[j]);
      } else if (run.source >= 0) {
        const int64_t tap = args_.num_taps - 1 - (run.sequence_row - at);
        LoadFloats<kVector>(
            args_.states.Of(run.source) + tap * args_.channels + first_,
            window_[j]);
      }
    }
  }

  __device__ void Write(int64_t row) const {
    float sum[kVector];
    Copy(bias_, sum);
#pragma unroll
    for (int j = 0; j < kTaps; ++j) {
      if (j < unused_) continue;
#pragma unroll
      for (int i = 0; i < kVector; ++i) {
        sum[i] = fmaf(window_[j][i], taps_[j][i], sum[i]);
      }
    }
    if (args_.silu) {
#pragma unroll
      for (int i = 0; i < kVector; ++i) sum[i] = Silu(sum[i]);
    }
    if (args_.output_gate.data != nullptr) {
      float gate[kVector];
      LoadFloats<kVector>(args_.output_gate.row(row) + first_, gate);
#pragma unroll
      for (int i = 0; i < kVector; ++i) sum[i] *= gate[i];
    }
    StoreFloats<kVector>(args_.y.row(row) + first_, sum);
  }

  __device__ void Store(float* state) const {
#pragma unroll
    for (int j = 1; j < kTaps; ++j) {
      if (j <= unused_) continue;
      StoreFloats<kVector>(state + (j - unused_ - 1) * args_.channels + first_,
                           window_[j]);
    }
  }

  const Args<T>& args_;
  const int64_t first_;
  const int unused_;
  int32_t sequence_row_ = -1;  // of the sequence that the window is of
  float window_[kTaps][kVector];
  float taps_[kTaps][kVector];
  float bias_[kVector];
};

template <typename T, int kVector, int kTaps>
__global__ void __launch_bounds__(kThreads)
    ShortConv(const __grid_constant__ Args<T> args) {
  LetNextBegin();
  const int64_t channel =
      (blockIdx.x % args.chunks * kThreads + threadIdx.x) * kVector;
  const bool inside = channel < args.channels;
  Channels<T, kVector, kTaps> channels(args, channel);
  if (inside) channels.LoadWeights();
  WaitForPrevious();
  if (!inside) return;
  const int64_t begin = blockIdx.x / args.chunks * args.thread_rows;
  const int64_t end = min(begin + args.thread_rows, args.plan.rows);
  for (int64_t row = begin; row < end; ++row) {
    const int32_t run = args.plan.run_of_row[row];
    if (run < 0) {
      channels.LeaveSequence();
    } else {
      channels.Row(row, args.plan.runs[run]);
    }
  }
}

template <typename T, int kVector>
absl::Status Launch(const ShortConvDesc& desc, const ShortConvParams& params,
                    CudaStream& stream) {
  const StatePlan& plan = *params.state.plan;
  constexpr int64_t kBlock = int64_t{kThreads} * kVector;
  const int64_t chunks = (desc.channels + kBlock - 1) / kBlock;
  // More rows a thread read less again, once there are threads enough.
  const int64_t enough = int64_t{stream.num_sms()} * 1024;
  const int64_t thread_rows =
      std::clamp<int64_t>(plan.rows * chunks * kThreads / enough, 1, kMostRows);
  const Args<T> args = {CudaMatrix<const T>(params.x),
                        CudaMatrix<const T>(params.input_gate),
                        CudaMatrix<const T>(params.output_gate),
                        CudaMatrix<T>(params.y),
                        params.taps,
                        params.bias,
                        CudaStates(params.state.state),
                        plan,
                        desc.channels,
                        chunks,
                        thread_rows,
                        desc.num_taps,
                        desc.silu};
  const int64_t tiles = (plan.rows + thread_rows - 1) / thread_rows;
  const auto kernel = desc.num_taps <= 4 ? ShortConv<T, kVector, 4>
                                         : ShortConv<T, kVector, kMaxConvTaps>;
  return LaunchCuda("short_conv", stream, {tiles * chunks, kThreads}, kernel,
                    args);
}

}  // namespace

absl::Status RunShortConvCuda(const ShortConvDesc& desc,
                              const ShortConvParams& params, Stream& stream) {
  CudaStream& cuda = CudaStream::Of(stream);
  const bool vector =
      IsCudaVector(desc.channels, {&params.x, &params.input_gate,
                                   &params.output_gate, &params.y}) &&
      IsCudaVector(params.taps) && IsCudaVector(params.bias);
  return WithFloatType(desc.activation, [&](auto type) {
    using T = decltype(type);
    return vector ? Launch<T, kCudaVector>(desc, params, cuda)
                  : Launch<T, 1>(desc, params, cuda);
  });
}

}  // namespace inlay
