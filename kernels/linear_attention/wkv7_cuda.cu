// wkv7 on CUDA. A block takes one head of one sequence through all of the
// sequence's tokens, the state in registers: a column (a value) lies with
// kGroups lanes of one warp, each of which has a quarter of the keys. Tokens
// come kTokens at a time. What layers gave of them is on its way to registers
// while the tokens before are computed; then a warp makes of its tokens what
// the recurrence reads (shared memory), all threads take the tokens one after
// another, and the same warp norms and gates what came out.
//
// Barriers: one before the tokens are taken (what warps have staged), one after
// them (what lanes have left in y). A warp stages its tokens again only behind
// the second one.
//
// Sums over keys are kGroups sums in ascending order and a tree over the lanes,
// sums over a head's channels one of each lane and a tree: a token's result
// depends neither on the batch nor on how its sequence is cut. Arithmetic in
// float32, in operations that the compiler may not fuse otherwise; y is rounded
// once.
//
// Aims: one token a sequence at the memory's bandwidth (the state read and
// written once), prompts at what the sums over lanes take one after another.
#include "kernels/cuda_float.cuh"
#include "kernels/cuda_launch.cuh"
#include "kernels/cuda_row.cuh"
#include "kernels/linear_attention/state_plan.cuh"
#include "kernels/linear_attention/wkv7.h"

namespace inlay {
namespace {

constexpr int kGroups = 4;       // lanes that share a column's keys
constexpr int kColumnLanes = 8;  // columns of a warp
constexpr int kTokens = 8;       // in shared memory

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
  return __fdiv_rn(1.0f, __fadd_rn(1.0f, expf(-x)));
}

template <typename T, int kDim, bool kMixes>
class WkvHead {
 public:
  static constexpr int kThreads = kGroups * kDim;

  struct Shared {
    alignas(16) float r[kTokens][kDim];
    alignas(16) float w[kTokens][kDim];
    alignas(16) float k[kTokens][kDim];
    alignas(16) float kk[kTokens][kDim];
    alignas(16) float gain[kTokens][kDim];  // -kk a
    float v[kTokens][kDim];
    float y[kTokens][kDim];
  };

  __device__ WkvHead(const WkvArgs<T>& args, Shared& shared, int head)
      : args_(args),
        shared_(shared),
        head_(head),
        first_(int64_t{head} * kDim),
        warp_(static_cast<int>(threadIdx.x) / 32),
        lane_(static_cast<int>(threadIdx.x) % 32),
        group_(lane_ / kColumnLanes),
        column_(warp_ * kColumnLanes + lane_ % kColumnLanes) {}

  __device__ void Load(int32_t source) {
    const float* from = source < 0 ? nullptr : InState(source);
#pragma unroll
    for (int i = 0; i < kKeys; ++i) {
      state_[i] = from == nullptr ? 0.0f : from[int64_t{KeyOf(i)} * kDim];
    }
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
#pragma unroll 1
      for (int t = 0; t < count; ++t) {
        Token(t);
        if (--left_of_run == 0) {
          Store(runs[run].to);
          if (++run < end_run) left_of_run = runs[run].count;
        }
      }
      __syncthreads();
      Finish(row, count);
      row = next;
    }
  }

 private:
  static constexpr int kKeys = kDim / kGroups;  // of a lane
  static constexpr int kWarps = kThreads / 32;
  static constexpr int kOwn = (kTokens + kWarps - 1) / kWarps;  // of a warp
  static constexpr int kChannels = (kDim + 31) / 32;            // of a lane

  static __device__ int Count(int64_t row, int64_t end) {
    return end - row < kTokens ? static_cast<int>(end - row) : kTokens;
  }

  // The lane's i-th key: fours of them, group by group.
  __device__ int KeyOf(int i) const {
    return (i / 4 * kGroups + group_) * 4 + i % 4;
  }
  // The lane's i-th channel, where a warp has a whole token; heads of 16 leave
  // half of the lanes without.
  __device__ int ChannelOf(int i) const { return lane_ + 32 * i; }
  __device__ bool HasChannel(int i) const { return ChannelOf(i) < kDim; }
  // The warp's j-th token of those in shared memory.
  __device__ int TokenOf(int j) const { return warp_ + kWarps * j; }

  // Of the lane's column, of key 0.
  __device__ float* InState(int32_t block) const {
    return args_.states.Of(block) + first_ * kDim + column_;
  }

  __device__ void Store(int32_t to) const {
    float* const at = InState(to);
#pragma unroll
    for (int i = 0; i < kKeys; ++i) at[int64_t{KeyOf(i)} * kDim] = state_[i];
  }

  // What rows [row, row + count) bring, to registers.
  __device__ void Fetch(int64_t row, int count) {
#pragma unroll
    for (int j = 0; j < kOwn; ++j) {
      if (TokenOf(j) >= count) continue;
      const int64_t from = row + TokenOf(j);
#pragma unroll
      for (int i = 0; i < kChannels; ++i) {
        if (!HasChannel(i)) continue;
        const int64_t c = first_ + ChannelOf(i);
        r_[j][i] = args_.r.row(from)[c];
        k_[j][i] = args_.k.row(from)[c];
        v_[j][i] = args_.v.row(from)[c];
        g_[j][i] = args_.g.row(from)[c];
        decay_[j][i] = args_.decay.row(from)[c];
        rate_[j][i] = args_.rate.row(from)[c];
        if constexpr (kMixes) {
          first_v_[j][i] = args_.first_v.row(from)[c];
          mix_[j][i] = args_.mix.row(from)[c];
        }
      }
    }
  }

  // What the recurrence reads of them, to shared memory; what Finish needs
  // besides stays with the lane, as the registers of Fetch are filled again.
  __device__ void Stage(int count) {
#pragma unroll
    for (int j = 0; j < kOwn; ++j) {
      const int t = TokenOf(j);
      if (t >= count) continue;  // of the whole warp
      float kk[kChannels];
      float squares = 0.0f;
#pragma unroll
      for (int i = 0; i < kChannels; ++i) {
        kk[i] = 0.0f;
        if (!HasChannel(i)) continue;
        kk[i] =
            __fmul_rn(ToFloat(k_[j][i]), args_.k_scale[first_ + ChannelOf(i)]);
        squares = fmaf(kk[i], kk[i], squares);
      }
      const float factor =
          __fdiv_rn(1.0f, fmaxf(__fsqrt_rn(WarpSum(squares)), kWkvLeastLength));
      float bonus = 0.0f;
#pragma unroll
      for (int i = 0; i < kChannels; ++i) {
        own_v_[j][i] = own_g_[j][i] = 0.0f;
        if (!HasChannel(i)) continue;
        const int c = ChannelOf(i);
        const float a = WkvSigmoid(rate_[j][i]);
        const float r = ToFloat(r_[j][i]);
        const float unit = __fmul_rn(kk[i], factor);
        const float k =
            __fmul_rn(ToFloat(k_[j][i]),
                      fmaf(__fsub_rn(a, 1.0f), args_.k_rate[first_ + c], 1.0f));
        float v = ToFloat(v_[j][i]);
        if constexpr (kMixes) {
          v = fmaf(__fsub_rn(ToFloat(first_v_[j][i]), v),
                   WkvSigmoid(mix_[j][i]), v);
        }
        bonus = fmaf(__fmul_rn(r, k), args_.bonus[first_ + c], bonus);
        shared_.r[t][c] = r;
        shared_.w[t][c] = expf(__fmul_rn(static_cast<float>(-kWkvDecay),
                                         WkvSigmoid(decay_[j][i])));
        shared_.k[t][c] = k;
        shared_.kk[t][c] = unit;
        shared_.gain[t][c] = -__fmul_rn(unit, a);
        shared_.v[t][c] = v;
        own_v_[j][i] = v;
        own_g_[j][i] = ToFloat(g_[j][i]);
      }
      bonus_[j] = WarpSum(bonus);
    }
  }

  // For all lanes of a column.
  static __device__ float SumOfGroups(float x) {
#pragma unroll
    for (int lane = kColumnLanes; lane < 32; lane *= 2) {
      x = __fadd_rn(x, __shfl_xor_sync(0xffffffffu, x, lane));
    }
    return x;
  }

  static __device__ float4 FourOf(const float* row) {
    return *reinterpret_cast<const float4*>(row);
  }

  __device__ void Token(int t) {
    float known = 0.0f;
#pragma unroll
    for (int i = 0; i < kKeys; i += 4) {
      const float4 kk = FourOf(&shared_.kk[t][KeyOf(i)]);
      known = fmaf(state_[i], kk.x, known);
      known = fmaf(state_[i + 1], kk.y, known);
      known = fmaf(state_[i + 2], kk.z, known);
      known = fmaf(state_[i + 3], kk.w, known);
    }
    known = SumOfGroups(known);
    const float v = shared_.v[t][column_];
    float y = 0.0f;
#pragma unroll
    for (int i = 0; i < kKeys; i += 4) {
      const int key = KeyOf(i);
      const float4 w4 = FourOf(&shared_.w[t][key]);
      const float4 gain4 = FourOf(&shared_.gain[t][key]);
      const float4 k4 = FourOf(&shared_.k[t][key]);
      const float4 r4 = FourOf(&shared_.r[t][key]);
      const float w[] = {w4.x, w4.y, w4.z, w4.w};
      const float gain[] = {gain4.x, gain4.y, gain4.z, gain4.w};
      const float k[] = {k4.x, k4.y, k4.z, k4.w};
      const float r[] = {r4.x, r4.y, r4.z, r4.w};
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        float& s = state_[i + j];
        s = fmaf(v, k[j], fmaf(known, gain[j], __fmul_rn(s, w[j])));
        y = fmaf(s, r[j], y);
      }
    }
    y = SumOfGroups(y);
    if (group_ == 0) shared_.y[t][column_] = y;
  }

  // Norm, bonus and gate of the warp's own tokens.
  __device__ void Finish(int64_t row, int count) const {
#pragma unroll
    for (int j = 0; j < kOwn; ++j) {
      const int t = TokenOf(j);
      if (t >= count) continue;
      float y[kChannels];
      float sum = 0.0f;
#pragma unroll
      for (int i = 0; i < kChannels; ++i) {
        y[i] = HasChannel(i) ? shared_.y[t][ChannelOf(i)] : 0.0f;
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
        args_.y.row(row + t)[c] = FromFloat<T>(
            __fmul_rn(fmaf(bonus_[j], own_v_[j][i], normed), own_g_[j][i]));
      }
    }
  }

  const WkvArgs<T>& args_;
  Shared& shared_;
  const int head_;
  const int64_t first_;  // channel of the head
  const int warp_;
  const int lane_;
  const int group_;
  const int column_;
  float state_[kKeys];
  // Of Fetch.
  T r_[kOwn][kChannels], k_[kOwn][kChannels], v_[kOwn][kChannels];
  T g_[kOwn][kChannels], first_v_[kOwn][kChannels];
  float decay_[kOwn][kChannels], rate_[kOwn][kChannels];
  float mix_[kOwn][kChannels];
  // Of the tokens in shared memory.
  float own_v_[kOwn][kChannels], own_g_[kOwn][kChannels];
  float bonus_[kOwn];
};

// Blocks: sequences * heads. y may be r, k, v or g: a row is written when it
// has been read, by the same block.
template <typename T, int kDim, bool kMixes>
__global__ void __launch_bounds__(WkvHead<T, kDim, kMixes>::kThreads)
    Wkv7(const __grid_constant__ WkvArgs<T> args) {
  using Head = WkvHead<T, kDim, kMixes>;
  __shared__ typename Head::Shared shared;
  LetNextBegin();
  const int sequence = static_cast<int>(blockIdx.x) / args.num_heads;
  Head head(args, shared, static_cast<int>(blockIdx.x) % args.num_heads);
  const int32_t run = args.plan.first_runs[sequence];
  const int32_t end_run = args.plan.first_runs[sequence + 1];
  // The plan and the states are of before the step.
  if (run < end_run) head.Load(args.plan.runs[run].source);
  WaitForPrevious();
  if (run < end_run) head.Run(run, end_run);
}

template <typename T, int kDim>
absl::Status LaunchWkv7(const Wkv7Desc& desc, const WkvArgs<T>& args,
                        CudaStream& stream) {
  constexpr int kThreads = WkvHead<T, kDim, false>::kThreads;
  const auto kernel = desc.mixes ? Wkv7<T, kDim, true> : Wkv7<T, kDim, false>;
  return LaunchCuda("wkv7", stream,
                    {args.plan.sequences * desc.num_heads, kThreads}, kernel,
                    args);
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
