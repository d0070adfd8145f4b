// rg_lru on CUDA. A block takes 32 channels of one sequence, a lane each,
// through all of its tokens.
//
// Prompts: kTokens at a time, two batches of them in shared memory. While one
// warp, which has the states, takes a batch's tokens one after another, one
// multiply-add each, the others gate what came out of the batch before, make
// what the recurrence will read of the batch after, and ask for what layers
// gave of the third behind it. One barrier a batch. Steps of single tokens: one
// warp does all.
//
// Arithmetic in float32, in operations that the compiler may not fuse
// otherwise; quotients of sigmoids and square roots within three units, without
// the branches of exact ones, which would follow one another; y is rounded
// once. A token's result depends neither on the batch nor on how its sequence
// is cut, nor on how many tokens are taken at a time.
//
// Aims: one token a sequence at the memory's bandwidth, prompts at what five
// exponentials an element take.
#include "kernels/activation/activation.cuh"
#include "kernels/cuda_float.cuh"
#include "kernels/cuda_launch.cuh"
#include "kernels/linear_attention/rg_lru.h"
#include "kernels/linear_attention/state_plan.cuh"

namespace inlay {
namespace {

constexpr int kLruChannels = 32;  // of a block
constexpr int kAtOnce = 16;       // tokens whose factors are read together

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
  return DivideBySigmoidSum(1.0f, x);
}

__device__ inline float LruRoot(float x) {
  float root;
  asm("sqrt.approx.ftz.f32 %0, %1;" : "=f"(root) : "f"(x));
  return root;
}

// sqrt(2 / pi) and 0.044715: Hendrycks and Gimpel, arXiv:1606.08415. Half of
// 1 + tanh(u) is the sigmoid of 2 u.
__device__ inline float LruGelu(float x) {
  const float cube = __fmul_rn(__fmul_rn(x, x), x);
  const float inner = __fmul_rn(0.7978845608028654f, fmaf(0.044715f, cube, x));
  return DivideBySigmoidSum(x, __fmul_rn(2.0f, inner));
}

// kWarps give and take kOwn tokens each of a batch. One warp and one token:
// sequences have one token each, and the same warp has the states.
template <typename T, int kWarps, int kOwn>
class LruSlab {
 public:
  static constexpr int kTokens = kWarps * kOwn;
  static constexpr bool kApart = kTokens > 1;
  static constexpr int kThreads = 32 * (kWarps + (kApart ? 1 : 0));

  struct Shared {
    float decay[kTokens][kLruChannels];
    float state[kTokens][kLruChannels];  // what is given, then h
  };
  static constexpr int kBatches = kApart ? 2 : 1;  // in shared memory

  __device__ LruSlab(const LruArgs<T>& args, Shared* shared,
                     int64_t first_channel)
      : args_(args),
        shared_(shared),
        warp_(static_cast<int>(threadIdx.x) / 32),
        lane_(static_cast<int>(threadIdx.x) % 32),
        channel_(first_channel + lane_),
        exists_(channel_ < args.channels) {
    rate_ = exists_ ? args.rates[channel_] : 0.0f;
  }

  // What the states' warp needs of them; whether there are any, the others.
  __device__ void Load(int32_t source) {
    has_past_ = source >= 0;
    const bool read = has_past_ && exists_ && HasStates();
    h_ = read ? args_.states.Of(source)[channel_] : 0.0f;
  }

  // All tokens of a sequence: runs [run, end_run) of the plan.
  __device__ void Run(int32_t run, int32_t end_run) {
    const StatePlanRun* const runs = args_.plan.runs;
    const int64_t row = runs[run].row;
    if constexpr (kApart) {
      const int64_t tokens =
          int64_t{runs[end_run - 1].row} + runs[end_run - 1].count - row;
      if (HasStates()) {
        Recur(run, tokens);
      } else {
        GiveAndTake(row, tokens);
      }
    } else {
      Gates gates;
      Inputs inputs;
      Fetch(row, 1, inputs);
      Stage(shared_[0], inputs, gates);
      h_ = fmaf(shared_[0].decay[0][lane_], h_, shared_[0].state[0][lane_]);
      shared_[0].state[0][lane_] = h_;
      if (exists_) args_.states.Of(runs[run].to)[channel_] = h_;
      Finish(shared_[0], row, 1, gates);
    }
  }

 private:
  using Gates = float[kOwn];
  // What layers gave of a warp's tokens.
  struct Inputs {
    T x[kOwn] = {}, z[kOwn] = {};
    float input[kOwn] = {}, recurrence[kOwn] = {};
  };

  static __device__ int Count(int64_t tokens) {
    return tokens < kTokens ? static_cast<int>(tokens) : kTokens;
  }

  __device__ bool HasStates() const { return !kApart || warp_ == kWarps; }

  // Of the states' warp: the sequence's tokens, from the run's first on. As
  // many barriers as in GiveAndTake.
  __device__ void Recur(int32_t run, int64_t tokens) {
    const StatePlanRun* const runs = args_.plan.runs;
    int left_of_run = runs[run].count;
    int batch = 0;
    __syncthreads();
    for (int64_t left = tokens; left > 0; left -= kTokens, batch ^= 1) {
      Shared& shared = shared_[batch];
      const int count = Count(left);
      int t = 0;
      while (t < count) {
        if (t + kAtOnce <= count && left_of_run > kAtOnce) {
          TakeSome(shared, t);
          t += kAtOnce;
          left_of_run -= kAtOnce;
          continue;
        }
        h_ = fmaf(shared.decay[t][lane_], h_, shared.state[t][lane_]);
        shared.state[t++][lane_] = h_;
        if (--left_of_run > 0) continue;
        if (exists_) args_.states.Of(runs[run].to)[channel_] = h_;
        // Behind the last run is another sequence's, or none.
        if (t < left) left_of_run = runs[++run].count;
      }
      __syncthreads();
    }
  }

  // Tokens [t, t + kAtOnce), where none of them ends a run: what they read
  // comes at once, and a token waits for one multiply-add.
  __device__ void TakeSome(Shared& shared, int t) {
    float decay[kAtOnce], state[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      decay[i] = shared.decay[t + i][lane_];
      state[i] = shared.state[t + i][lane_];
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      h_ = fmaf(decay[i], h_, state[i]);
      shared.state[t + i][lane_] = h_;
    }
  }

  // Of the others: their tokens of each batch, from `row` on. What a batch
  // brings is asked for two rounds before it is staged, to one of two sets of
  // registers: a copy between these would wait for it.
  __device__ void GiveAndTake(int64_t row, int64_t tokens) {
    Inputs even, odd;
    Gates before = {}, now;
    Fetch(row, Count(tokens), even);
    if (kTokens < tokens) Fetch(row + kTokens, Count(tokens - kTokens), odd);
    Stage(shared_[0], even, now);
    constexpr int64_t kThird = 2 * kTokens;
    if (kThird < tokens) Fetch(row + kThird, Count(tokens - kThird), even);
    __syncthreads();
    // Round by round: [at, at + kTokens) is being taken.
    int64_t at = 0;
    const auto round = [&](int batch, Inputs& inputs) {
      // In shared memory are the batch that is being taken and the one before.
      Shared& other = shared_[batch ^ 1];
      if (at > 0) Finish(other, row + at - kTokens, kTokens, before);
#pragma unroll
      for (int j = 0; j < kOwn; ++j) before[j] = now[j];
      if (at + kTokens < tokens) Stage(other, inputs, now);
      const int64_t ahead = at + 3 * kTokens;
      if (ahead < tokens) Fetch(row + ahead, Count(tokens - ahead), inputs);
      __syncthreads();
      at += kTokens;
      if (at >= tokens) {
        Finish(shared_[batch], row + at - kTokens, Count(tokens + kTokens - at),
               before);
      }
      return at < tokens;
    };
    while (round(0, odd) && round(1, even)) {
    }
  }

  // The warp's j-th token of a batch.
  __device__ int TokenOf(int j) const { return warp_ + kWarps * j; }

  // What rows [row, row + count) bring, to registers.
  __device__ void Fetch(int64_t row, int count, Inputs& inputs) const {
#pragma unroll
    for (int j = 0; j < kOwn; ++j) {
      if (!exists_ || TokenOf(j) >= count) continue;
      const int64_t from = row + TokenOf(j);
      inputs.x[j] = args_.x.row(from)[channel_];
      inputs.z[j] = args_.z.row(from)[channel_];
      inputs.input[j] = args_.input.row(from)[channel_];
      inputs.recurrence[j] = args_.recurrence.row(from)[channel_];
    }
  }

  // What the recurrence reads of them, to shared memory, and their gates.
  // Tokens and channels that are not there are made of what the registers had
  // before, and read by nobody: without branches a warp's tokens are computed
  // side by side.
  __device__ void Stage(Shared& shared, const Inputs& inputs, Gates& gates) {
#pragma unroll
    for (int j = 0; j < kOwn; ++j) {
      const int t = TokenOf(j);
      const bool first = !has_past_ && t == 0;
      const float l = __fmul_rn(rate_, LruSigmoid(inputs.recurrence[j]));
      const float share = first ? 1.0f : LruRoot(-expm1f(__fmul_rn(2.0f, l)));
      shared.decay[t][lane_] = first ? 0.0f : expf(l);
      shared.state[t][lane_] = __fmul_rn(
          share, __fmul_rn(ToFloat(inputs.x[j]), LruSigmoid(inputs.input[j])));
      gates[j] = LruGelu(ToFloat(inputs.z[j]));
    }
    has_past_ = true;
  }

  __device__ void Finish(const Shared& shared, int64_t row, int count,
                         const Gates& gates) const {
#pragma unroll
    for (int j = 0; j < kOwn; ++j) {
      const int t = TokenOf(j);
      if (!exists_ || t >= count) continue;
      args_.y.row(row + t)[channel_] =
          FromFloat<T>(__fmul_rn(shared.state[t][lane_], gates[j]));
    }
  }

  const LruArgs<T>& args_;
  Shared* const shared_;
  const int warp_;
  const int lane_;
  const int64_t channel_;
  const bool exists_;
  bool has_past_ = false;
  float rate_;
  float h_ = 0.0f;  // of the states' warp
};

// Blocks: sequences * slabs. y may be x or z: a row is written when it has been
// read, by the same block.
template <typename T, int kWarps, int kOwn>
__global__ void __launch_bounds__(LruSlab<T, kWarps, kOwn>::kThreads)
    RgLru(const __grid_constant__ LruArgs<T> args) {
  using Slab = LruSlab<T, kWarps, kOwn>;
  __shared__ typename Slab::Shared shared[Slab::kBatches];
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
  return LaunchCuda(
      "rg_lru", stream,
      {args.plan.sequences * args.slabs, LruSlab<T, kWarps, kOwn>::kThreads},
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
                             : LaunchRgLru<T, 16, 4>(args, cuda);
  });
}

}  // namespace inlay
