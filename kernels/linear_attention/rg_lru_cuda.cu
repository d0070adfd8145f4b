// rg_lru on CUDA. A block takes 32 channels of one sequence, a lane each,
// through all of its tokens, kTokens at a time. What layers gave of them is on
// its way to registers while the tokens before are computed. Warps make of
// their own tokens what the recurrence reads (shared memory); the first warp,
// which has the states, takes the tokens one after another, one multiply-add
// each; then warps gate what came out of their own.
//
// Barriers: one before the tokens are taken (what warps have staged), one after
// them (what the first warp has left). A warp stages its tokens again only
// behind the second one, and reads no other's.
//
// Arithmetic in float32, in operations that the compiler may not fuse
// otherwise; y is rounded once. A token's result depends neither on the batch
// nor on how its sequence is cut, nor on how many tokens are taken at a time.
//
// Aims: one token a sequence at the memory's bandwidth, prompts at what five
// exponentials an element take.
#include "kernels/cuda_float.cuh"
#include "kernels/cuda_launch.cuh"
#include "kernels/linear_attention/rg_lru.h"
#include "kernels/linear_attention/state_plan.cuh"

namespace inlay {
namespace {

constexpr int kLruChannels = 32;  // of a block
constexpr int kAtOnce = 8;        // tokens whose factors are read together

template <typename T>
struct LruArgs {
  CudaMatrix<const T> x, z;
  CudaMatrix<const float> input, recurrence;
  const float* rates;
  CudaStates states;
  StatePlan plan;
  int64_t channels;
  int slabs;  // blocks of a sequence
  CudaMatrix<T> y;
};

__device__ inline float LruSigmoid(float x) {
  return __fdiv_rn(1.0f, __fadd_rn(1.0f, expf(-x)));
}

// sqrt(2 / pi) and 0.044715: Hendrycks and Gimpel, arXiv:1606.08415.
__device__ inline float LruGelu(float x) {
  const float cube = __fmul_rn(__fmul_rn(x, x), x);
  const float inner = __fmul_rn(0.7978845608028654f, fmaf(0.044715f, cube, x));
  return __fmul_rn(__fmul_rn(0.5f, x), __fadd_rn(1.0f, tanhf(inner)));
}

template <typename T, int kWarps, int kOwn>
class LruSlab {
 public:
  static constexpr int kTokens = kWarps * kOwn;

  struct Shared {
    float decay[kTokens][kLruChannels];
    float state[kTokens][kLruChannels];  // what is given, then h
  };

  __device__ LruSlab(const LruArgs<T>& args, Shared& shared,
                     int64_t first_channel)
      : args_(args),
        shared_(shared),
        warp_(static_cast<int>(threadIdx.x) / 32),
        lane_(static_cast<int>(threadIdx.x) % 32),
        channel_(first_channel + lane_),
        exists_(channel_ < args.channels) {
    rate_ = exists_ ? args.rates[channel_] : 0.0f;
  }

  __device__ void Load(int32_t source) {
    has_past_ = source >= 0;
    h_ = has_past_ && exists_ ? args_.states.Of(source)[channel_] : 0.0f;
  }

  // All tokens of a sequence: runs [run, end_run) of the plan.
  __device__ void Run(int32_t run, int32_t end_run) {
    const StatePlanRun* runs = args_.plan.runs;
    int64_t row = runs[run].row;
    const int64_t end =
        int64_t{runs[end_run - 1].row} + runs[end_run - 1].count;
    int left_of_run = runs[run].count;
    Fetch(row, Count(row, end));
    while (row < end) {
      const int count = Count(row, end);
      Stage(count);
      __syncthreads();
      const int64_t next = row + count;
      if (next < end) Fetch(next, Count(next, end));
      if (warp_ == 0) {
        int t = 0;
        while (t < count) {
          if (kTokens >= kAtOnce && t + kAtOnce <= count &&
              left_of_run > kAtOnce) {
            TakeSome(t);
            t += kAtOnce;
            left_of_run -= kAtOnce;
            continue;
          }
          h_ = fmaf(shared_.decay[t][lane_], h_, shared_.state[t][lane_]);
          shared_.state[t++][lane_] = h_;
          if (--left_of_run > 0) continue;
          if (exists_) args_.states.Of(runs[run].to)[channel_] = h_;
          if (++run < end_run) left_of_run = runs[run].count;
        }
      }
      __syncthreads();
      Finish(row, count);
      row = next;
    }
  }

 private:
  static __device__ int Count(int64_t row, int64_t end) {
    return end - row < kTokens ? static_cast<int>(end - row) : kTokens;
  }
  // Tokens [t, t + kAtOnce), where none of them ends a run: what they read
  // comes at once, and a token waits for one multiply-add.
  __device__ void TakeSome(int t) {
    float decay[kAtOnce], state[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      decay[i] = shared_.decay[t + i][lane_];
      state[i] = shared_.state[t + i][lane_];
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      h_ = fmaf(decay[i], h_, state[i]);
      shared_.state[t + i][lane_] = h_;
    }
  }

  // The warp's j-th token of those in shared memory.
  __device__ int TokenOf(int j) const { return warp_ + kWarps * j; }

  // What rows [row, row + count) bring, to registers.
  __device__ void Fetch(int64_t row, int count) {
#pragma unroll
    for (int j = 0; j < kOwn; ++j) {
      if (!exists_ || TokenOf(j) >= count) continue;
      const int64_t from = row + TokenOf(j);
      x_[j] = args_.x.row(from)[channel_];
      z_[j] = args_.z.row(from)[channel_];
      input_[j] = args_.input.row(from)[channel_];
      recurrence_[j] = args_.recurrence.row(from)[channel_];
    }
  }

  // What the recurrence reads of them, to shared memory; their gates stay with
  // the lane, as the registers of Fetch are filled again.
  __device__ void Stage(int count) {
#pragma unroll
    for (int j = 0; j < kOwn; ++j) {
      const int t = TokenOf(j);
      if (!exists_ || t >= count) continue;
      float given = __fmul_rn(ToFloat(x_[j]), LruSigmoid(input_[j]));
      float decay = 0.0f;
      if (has_past_ || t > 0) {
        const float l = __fmul_rn(rate_, LruSigmoid(recurrence_[j]));
        decay = expf(l);
        given = __fmul_rn(__fsqrt_rn(-expm1f(__fmul_rn(2.0f, l))), given);
      }
      shared_.decay[t][lane_] = decay;
      shared_.state[t][lane_] = given;
      gate_[j] = LruGelu(ToFloat(z_[j]));
    }
    has_past_ = true;
  }

  __device__ void Finish(int64_t row, int count) const {
#pragma unroll
    for (int j = 0; j < kOwn; ++j) {
      const int t = TokenOf(j);
      if (!exists_ || t >= count) continue;
      args_.y.row(row + t)[channel_] =
          FromFloat<T>(__fmul_rn(shared_.state[t][lane_], gate_[j]));
    }
  }

  const LruArgs<T>& args_;
  Shared& shared_;
  const int warp_;
  const int lane_;
  const int64_t channel_;
  const bool exists_;
  bool has_past_ = false;
  float rate_;
  float h_ = 0.0f;  // the first warp's
  // Of Fetch.
  T x_[kOwn], z_[kOwn];
  float input_[kOwn], recurrence_[kOwn];
  float gate_[kOwn];  // of the tokens in shared memory
};

// Blocks: sequences * slabs. y may be x or z: a row is written when it has been
// read, by the same block.
template <typename T, int kWarps, int kOwn>
__global__ void __launch_bounds__(32 * kWarps)
    RgLru(const __grid_constant__ LruArgs<T> args) {
  using Slab = LruSlab<T, kWarps, kOwn>;
  __shared__ typename Slab::Shared shared;
  LetNextBegin();
  const int sequence = static_cast<int>(blockIdx.x) / args.slabs;
  const int64_t slab = static_cast<int>(blockIdx.x) % args.slabs;
  Slab lru(args, shared, slab * kLruChannels);
  const int32_t run = args.plan.first_runs[sequence];
  const int32_t end_run = args.plan.first_runs[sequence + 1];
  // The plan and the states are of before the step.
  if (run < end_run) lru.Load(args.plan.runs[run].source);
  WaitForPrevious();
  if (run < end_run) lru.Run(run, end_run);
}

template <typename T, int kWarps, int kOwn>
absl::Status LaunchRgLru(const LruArgs<T>& args, CudaStream& stream) {
  return LaunchCuda("rg_lru", stream,
                    {args.plan.sequences * args.slabs, 32 * kWarps},
                    RgLru<T, kWarps, kOwn>, args);
}

}  // namespace

absl::Status RunRgLruCuda(const RgLruDesc& desc, const RgLruParams& params,
                          Stream& stream) {
  CudaStream& cuda = CudaStream::Of(stream);
  return WithFloatType(desc.activation, [&](auto type) {
    using T = decltype(type);
    const StatePlan& plan = *params.state.plan;
    const auto slabs =
        static_cast<int>((desc.channels + kLruChannels - 1) / kLruChannels);
    const LruArgs<T> args = {CudaMatrix<const T>(params.x),
                             CudaMatrix<const T>(params.z),
                             CudaMatrix<const float>(params.input),
                             CudaMatrix<const float>(params.recurrence),
                             params.rates,
                             CudaStates(params.state.state),
                             plan,
                             desc.channels,
                             slabs,
                             CudaMatrix<T>(params.y)};
    return plan.longest <= 1 ? LaunchRgLru<T, 1, 1>(args, cuda)
                             : LaunchRgLru<T, 8, 8>(args, cuda);
  });
}

}  // namespace inlay
