// wkv7 on CUDA. A block takes one head of one sequence through all of the
// sequence's tokens, the state in registers: two columns (values) lie with
// kGroups lanes of one warp, each of which has a share of the keys: what a lane
// reads of a key in shared memory serves both.
//
// Prompts: tokens come kTokens at a time. While the warps with the state take
// one batch token by token, others, one a token, norm and gate what came out of
// the batch before, make what the recurrence will read of the batch after
// (shared memory, two batches), and ask for what layers gave of the one behind
// that. One barrier a batch. Steps of single tokens: one warp does the others'
// part before and after.
//
// Sums over keys are kGroups sums in ascending order and a tree over the lanes,
// sums over a head's channels one of each lane and a tree: a token's result
// depends neither on the batch nor on how its sequence is cut. Arithmetic in
// float32, in operations that the compiler may not fuse otherwise; quotients of
// sigmoids within three units, without the branches of exact division; y is
// rounded once.
//
// Aims: one token a sequence at the memory's bandwidth (the state read and
// written once), prompts at what the sums over lanes take one after another.
#include <type_traits>

#include "kernels/activation/activation.cuh"
#include "kernels/cuda_float.cuh"
#include "kernels/cuda_launch.cuh"
#include "kernels/cuda_row.cuh"
#include "kernels/linear_attention/state_plan.cuh"
#include "kernels/linear_attention/wkv7.h"

namespace inlay {
namespace {

constexpr int kColumns = 2;  // of a lane

template <typename T>
struct WkvArgs {
  CudaMatrix<const T> r, k, v, g, first_v;
  CudaMatrix<const float> decay, rate, mix;
  const float* k_scale;
  const float* k_rate;
  const float* bonus;
  const float* norm_weight;
  const float* norm_bias;
  float epsilon;
  CudaStates states;
  StatePlan plan;
  int num_heads;
  CudaMatrix<T> y;
};

__device__ inline float WkvSigmoid(float x) {
  return DivideBySigmoidSum(1.0f, x);
}

// kTokens 1: sequences have one token each, and there are no warps apart.
template <typename T, int kDim, bool kMixes, int kTokens>
class WkvHead {
 public:
  static constexpr bool kApart = kTokens > 1;
  static constexpr int kGroups = kDim < 32 ? 4 : 8;  // share a column's keys
  static constexpr int kStateWarps = kGroups * kDim / kColumns / 32;
  static constexpr int kThreads = 32 * (kStateWarps + (kApart ? kTokens : 0));

  struct Shared {
    alignas(16) float r[kTokens][kDim];
    alignas(16) float w[kTokens][kDim];
    alignas(16) float k[kTokens][kDim];
    alignas(16) float kk[kTokens][kDim];
    alignas(16) float gain[kTokens][kDim];  // -kk a
    alignas(16) float v[kTokens][kDim];
    float y[kTokens][kDim];
  };
  static constexpr int kBatches = kApart ? 2 : 1;  // in shared memory

  __device__ WkvHead(const WkvArgs<T>& args, Shared* shared, int head)
      : args_(args),
        shared_(shared),
        first_(int64_t{head} * kDim),
        warp_(static_cast<int>(threadIdx.x) / 32),
        lane_(static_cast<int>(threadIdx.x) % 32),
        group_(lane_ / kColumnLanes),
        column_(kColumns * (warp_ * kColumnLanes + lane_ % kColumnLanes)) {}

  // Whether the warp has a part of the state.
  __device__ bool HasState() const { return !kApart || warp_ < kStateWarps; }

  __device__ void Load(int32_t source) {
    const float* from = source < 0 ? nullptr : InState(source);
#pragma unroll
    for (int i = 0; i < kKeys; ++i) {
      state_[i] = from == nullptr ? float2{0.0f, 0.0f} : *PairOf(from, i);
    }
  }

  // All tokens of a sequence: runs [run, end_run) of the plan.
  __device__ void Run(int32_t run, int32_t end_run) {
    const StatePlanRun* const runs = args_.plan.runs;
    const int64_t row = runs[run].row;
    if constexpr (kApart) {
      const int64_t tokens =
          int64_t{runs[end_run - 1].row} + runs[end_run - 1].count - row;
      if (HasState()) {
        Recur(run, tokens);
      } else {
        GiveAndTake(row, tokens);
      }
    } else {
      Kept kept;
      if (warp_ == 0) {
        Fetch(row);
        kept = Stage(shared_[0], 0);
      }
      __syncthreads();
      Leave(shared_[0], 0, SumOfGroups(Token(shared_[0], 0, {})));
      Store(runs[run].to);
      __syncthreads();
      if (warp_ == 0) Finish(shared_[0], 0, row, kept);
    }
  }

 private:
  static constexpr int kColumnLanes = 32 / kGroups;
  static constexpr int kKeys = kDim / kGroups;        // of a lane
  static constexpr int kChannels = (kDim + 31) / 32;  // of a lane

  // What Finish needs of a token besides what the recurrence made of it.
  struct Kept {
    float v[kChannels], g[kChannels];
    float bonus;
  };

  // Of the warps with the state: the sequence's tokens, from the run's first
  // on. As many barriers as in GiveAndTake.
  __device__ void Recur(int32_t run, int64_t tokens) {
    const StatePlanRun* const runs = args_.plan.runs;
    int left_of_run = runs[run].count;
    int batch = 0;
    __syncthreads();
    for (int64_t left = tokens; left > 0; left -= kTokens, batch ^= 1) {
      Shared& shared = shared_[batch];
      const int count = left < kTokens ? static_cast<int>(left) : kTokens;
      float2 y = {0.0f, 0.0f};
#pragma unroll 1
      for (int t = 0; t < count; ++t) {
        y = Token(shared, t, y);
        if (--left_of_run > 0) continue;
        Store(runs[run].to);
        // Behind the last run is another sequence's, or none.
        if (t + 1 < left) left_of_run = runs[++run].count;
      }
      Leave(shared, count - 1, SumOfGroups(y));
      __syncthreads();
    }
  }

  // Of the others: a token of each batch, from `row` on.
  __device__ void GiveAndTake(int64_t row, int64_t tokens) {
    const int own = warp_ - kStateWarps;
    Kept before, now;
    if (own < tokens) Fetch(row + own);
    if (own < tokens) now = Stage(shared_[0], own);
    int64_t next = kTokens + own;
    if (next < tokens) Fetch(row + next);
    __syncthreads();
    int batch = 0;
    for (int64_t left = tokens; left > 0; left -= kTokens, batch ^= 1) {
      // In shared memory are the batch that is being taken and the one before.
      Shared& other = shared_[batch ^ 1];
      const int64_t last = next - 2 * kTokens;
      if (last >= 0) Finish(other, own, row + last, before);
      before = now;
      if (next < tokens) now = Stage(other, own);
      next += kTokens;
      if (next < tokens) Fetch(row + next);
      __syncthreads();
    }
    const int64_t last = next - 2 * kTokens;
    if (last < tokens) Finish(shared_[batch ^ 1], own, row + last, before);
  }

  // The lane's i-th key: fours of them, group by group.
  __device__ int KeyOf(int i) const {
    return (i / 4 * kGroups + group_) * 4 + i % 4;
  }
  // The lane's i-th channel, where a warp has a whole token; heads of 16 leave
  // half of the lanes without.
  __device__ int ChannelOf(int i) const { return lane_ + 32 * i; }
  __device__ bool HasChannel(int i) const { return ChannelOf(i) < kDim; }
  // Of the lane's columns, of key 0.
  __device__ float* InState(int32_t block) const {
    return args_.states.Of(block) + first_ * kDim + column_;
  }
  template <typename Float>
  __device__ auto PairOf(Float* state, int i) const {
    using Pair =
        std::conditional_t<std::is_const_v<Float>, const float2, float2>;
    return reinterpret_cast<Pair*>(state + int64_t{KeyOf(i)} * kDim);
  }

  __device__ void Store(int32_t to) const {
    float* const at = InState(to);
#pragma unroll
    for (int i = 0; i < kKeys; ++i) *PairOf(at, i) = state_[i];
  }

  // What a row brings, to registers.
  __device__ void Fetch(int64_t row) {
#pragma unroll
    for (int i = 0; i < kChannels; ++i) {
      if (!HasChannel(i)) continue;
      const int64_t c = first_ + ChannelOf(i);
      r_[i] = args_.r.row(row)[c];
      k_[i] = args_.k.row(row)[c];
      v_[i] = args_.v.row(row)[c];
      g_[i] = args_.g.row(row)[c];
      decay_[i] = args_.decay.row(row)[c];
      rate_[i] = args_.rate.row(row)[c];
      if constexpr (kMixes) {
        first_v_[i] = args_.first_v.row(row)[c];
        mix_[i] = args_.mix.row(row)[c];
      }
    }
  }

  // What the recurrence reads of it, to shared memory.
  __device__ Kept Stage(Shared& shared, int t) const {
    Kept kept;
    float kk[kChannels];
    float squares = 0.0f;
#pragma unroll
    for (int i = 0; i < kChannels; ++i) {
      kk[i] = 0.0f;
      if (!HasChannel(i)) continue;
      kk[i] = __fmul_rn(ToFloat(k_[i]), args_.k_scale[first_ + ChannelOf(i)]);
      squares = fmaf(kk[i], kk[i], squares);
    }
    const float factor =
        __fdiv_rn(1.0f, fmaxf(__fsqrt_rn(WarpSum(squares)), kWkvLeastLength));
    float bonus = 0.0f;
#pragma unroll
    for (int i = 0; i < kChannels; ++i) {
      kept.v[i] = kept.g[i] = 0.0f;
      if (!HasChannel(i)) continue;
      const int c = ChannelOf(i);
      const float a = WkvSigmoid(rate_[i]);
      const float r = ToFloat(r_[i]);
      const float unit = __fmul_rn(kk[i], factor);
      const float k =
          __fmul_rn(ToFloat(k_[i]),
                    fmaf(__fsub_rn(a, 1.0f), args_.k_rate[first_ + c], 1.0f));
      float v = ToFloat(v_[i]);
      if constexpr (kMixes) {
        v = fmaf(__fsub_rn(ToFloat(first_v_[i]), v), WkvSigmoid(mix_[i]), v);
      }
      bonus = fmaf(__fmul_rn(r, k), args_.bonus[first_ + c], bonus);
      shared.r[t][c] = r;
      shared.w[t][c] = expf(
          __fmul_rn(static_cast<float>(-kWkvDecay), WkvSigmoid(decay_[i])));
      shared.k[t][c] = k;
      shared.kk[t][c] = unit;
      shared.gain[t][c] = -__fmul_rn(unit, a);
      shared.v[t][c] = v;
      kept.v[i] = v;
      kept.g[i] = ToFloat(g_[i]);
    }
    kept.bonus = WarpSum(bonus);
    return kept;
  }

  // Halves of the lanes of two columns have one column's sum each, which all
  // of the half's lanes end with: the first half the first column's.
  __device__ bool InSecondHalf() const { return lane_ >= 16; }

  __device__ float SumOfGroups(float2 x) const {
    const float own = InSecondHalf() ? x.y : x.x;
    const float others = InSecondHalf() ? x.x : x.y;
    float sum = __fadd_rn(own, __shfl_xor_sync(0xffffffffu, others, 16));
#pragma unroll
    for (int lane = kColumnLanes; lane < 16; lane *= 2) {
      sum = __fadd_rn(sum, __shfl_xor_sync(0xffffffffu, sum, lane));
    }
    return sum;
  }

  // A half's sum, for both.
  __device__ float2 BothOf(float sum) const {
    const float other = __shfl_xor_sync(0xffffffffu, sum, 16);
    return InSecondHalf() ? float2{other, sum} : float2{sum, other};
  }

  __device__ void Leave(Shared& shared, int t, float y) const {
    if (lane_ % 16 < kColumnLanes) {
      shared.y[t][column_ + (InSecondHalf() ? 1 : 0)] = y;
    }
  }

  static __device__ float4 FourOf(const float* row) {
    return *reinterpret_cast<const float4*>(row);
  }

  // What the lane's keys give of y. Those of the token before, `before`, are
  // summed here: beside the sums that this token waits for.
  __device__ float2 Token(Shared& shared, int t, float2 before) {
    float2 known = {0.0f, 0.0f};
#pragma unroll
    for (int i = 0; i < kKeys; i += 4) {
      const float4 kk4 = FourOf(&shared.kk[t][KeyOf(i)]);
      const float kk[] = {kk4.x, kk4.y, kk4.z, kk4.w};
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        known.x = fmaf(state_[i + j].x, kk[j], known.x);
        known.y = fmaf(state_[i + j].y, kk[j], known.y);
      }
    }
    known = BothOf(SumOfGroups(known));
    const float y_before = SumOfGroups(before);
    const float2 v = *reinterpret_cast<const float2*>(&shared.v[t][column_]);
    float2 y = {0.0f, 0.0f};
#pragma unroll
    for (int i = 0; i < kKeys; i += 4) {
      const int key = KeyOf(i);
      const float4 w4 = FourOf(&shared.w[t][key]);
      const float4 gain4 = FourOf(&shared.gain[t][key]);
      const float4 k4 = FourOf(&shared.k[t][key]);
      const float4 r4 = FourOf(&shared.r[t][key]);
      const float w[] = {w4.x, w4.y, w4.z, w4.w};
      const float gain[] = {gain4.x, gain4.y, gain4.z, gain4.w};
      const float k[] = {k4.x, k4.y, k4.z, k4.w};
      const float r[] = {r4.x, r4.y, r4.z, r4.w};
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        float2& s = state_[i + j];
        s.x = fmaf(v.x, k[j], fmaf(known.x, gain[j], __fmul_rn(s.x, w[j])));
        s.y = fmaf(v.y, k[j], fmaf(known.y, gain[j], __fmul_rn(s.y, w[j])));
        y.x = fmaf(s.x, r[j], y.x);
        y.y = fmaf(s.y, r[j], y.y);
      }
    }
    if (t > 0) Leave(shared, t - 1, y_before);
    return y;
  }

  // Norm, bonus and gate of what came out.
  __device__ void Finish(const Shared& shared, int t, int64_t row,
                         const Kept& kept) const {
    float y[kChannels];
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < kChannels; ++i) {
      y[i] = HasChannel(i) ? shared.y[t][ChannelOf(i)] : 0.0f;
      sum = __fadd_rn(sum, y[i]);
    }
    constexpr float kShare = 1.0f / kDim;
    const float mean = __fmul_rn(WarpSum(sum), kShare);
    float squares = 0.0f;
#pragma unroll
    for (int i = 0; i < kChannels; ++i) {
      y[i] = HasChannel(i) ? __fsub_rn(y[i], mean) : 0.0f;
      squares = fmaf(y[i], y[i], squares);
    }
    const float variance = __fmul_rn(WarpSum(squares), kShare);
    const float scale =
        __fdiv_rn(1.0f, __fsqrt_rn(__fadd_rn(variance, args_.epsilon)));
#pragma unroll
    for (int i = 0; i < kChannels; ++i) {
      if (!HasChannel(i)) continue;
      const int64_t c = first_ + ChannelOf(i);
      const float normed = fmaf(__fmul_rn(y[i], scale), args_.norm_weight[c],
                                args_.norm_bias[c]);
      args_.y.row(row)[c] = FromFloat<T>(
          __fmul_rn(fmaf(kept.bonus, kept.v[i], normed), kept.g[i]));
    }
  }

  const WkvArgs<T>& args_;
  Shared* const shared_;
  const int64_t first_;  // channel of the head
  const int warp_;
  const int lane_;
  const int group_;
  const int column_;  // the first of the lane's
  float2 state_[kKeys];
  // Of Fetch.
  T r_[kChannels], k_[kChannels], v_[kChannels];
  T g_[kChannels], first_v_[kChannels];
  float decay_[kChannels], rate_[kChannels], mix_[kChannels];
};

// Blocks: sequences * heads. y may be r, k, v or g: a row is written when it
// has been read, by the same block.
template <typename T, int kDim, bool kMixes, int kTokens>
__global__ void __launch_bounds__(WkvHead<T, kDim, kMixes, kTokens>::kThreads)
    Wkv7(const __grid_constant__ WkvArgs<T> args) {
  using Head = WkvHead<T, kDim, kMixes, kTokens>;
  __shared__ typename Head::Shared shared[Head::kBatches];
  LetNextBegin();
  const int sequence = static_cast<int>(blockIdx.x) / args.num_heads;
  Head head(args, shared, static_cast<int>(blockIdx.x) % args.num_heads);
  const int32_t run = args.plan.first_runs[sequence];
  const int32_t end_run = args.plan.first_runs[sequence + 1];
  // The plan and the states are of before the step.
  if (run < end_run && head.HasState()) head.Load(args.plan.runs[run].source);
  WaitForPrevious();
  if (run < end_run) head.Run(run, end_run);
}

template <typename T, int kDim, int kTokens>
absl::Status LaunchWkv7(const Wkv7Desc& desc, const WkvArgs<T>& args,
                        CudaStream& stream) {
  constexpr int kThreads = WkvHead<T, kDim, false, kTokens>::kThreads;
  const auto kernel =
      desc.mixes ? Wkv7<T, kDim, true, kTokens> : Wkv7<T, kDim, false, kTokens>;
  return LaunchCuda("wkv7", stream,
                    {args.plan.sequences * desc.num_heads, kThreads}, kernel,
                    args);
}

template <typename T, int kDim>
absl::Status LaunchWkv7(const Wkv7Desc& desc, const WkvArgs<T>& args,
                        CudaStream& stream) {
  // Two batches fit into 48 KB.
  constexpr int kTokens = kDim > 64 ? 4 : 8;
  return args.plan.longest <= 1
             ? LaunchWkv7<T, kDim, 1>(desc, args, stream)
             : LaunchWkv7<T, kDim, kTokens>(desc, args, stream);
}

}  // namespace

absl::Status RunWkv7Cuda(const Wkv7Desc& desc, const Wkv7Params& params,
                         Stream& stream) {
  CudaStream& cuda = CudaStream::Of(stream);
  return WithFloatType(desc.activation, [&](auto type) {
    using T = decltype(type);
    const WkvArgs<T> args = {CudaMatrix<const T>(params.r),
                             CudaMatrix<const T>(params.k),
                             CudaMatrix<const T>(params.v),
                             CudaMatrix<const T>(params.g),
                             CudaMatrix<const T>(params.first_v),
                             CudaMatrix<const float>(params.decay),
                             CudaMatrix<const float>(params.rate),
                             CudaMatrix<const float>(params.mix),
                             params.k_scale,
                             params.k_rate,
                             params.bonus,
                             params.norm_weight,
                             params.norm_bias,
                             params.epsilon,
                             CudaStates(params.state.state),
                             *params.state.plan,
                             desc.num_heads,
                             CudaMatrix<T>(params.y)};
    switch (desc.head_dim) {
      case 16:
        return LaunchWkv7<T, 16>(desc, args, cuda);
      case 32:
        return LaunchWkv7<T, 32>(desc, args, cuda);
      case 64:
        return LaunchWkv7<T, 64>(desc, args, cuda);
      default:
        return LaunchWkv7<T, 128>(desc, args, cuda);
    }
  });
}

}  // namespace inlay
