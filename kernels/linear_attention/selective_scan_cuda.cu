// selective_scan on CUDA. A block takes kChannels channels through all tokens
// of a sequence, states in registers: kGroups lanes share a channel's state,
// kStates elements each, and a warp has 8 channels. What tokens bring comes
// kTokens at a time: while the block works on some, the next are on their way
// to its registers, and reach shared memory, widened, steps and gates made of
// them, when it is done.
//
// An element of the state needs one exponential a token and nothing of its
// neighbours. Sums over a channel's lanes are made for kGroups tokens at once:
// each lane hands half of what it has to another one, twice, and ends with one
// token's sum, for three exchanges instead of eight. The tree is the same for
// all tokens: (lane 0 + 1) + (2 + 3).
//
// Aims: prompts at the rate of the exponentials (16 a clock and
// multiprocessor), one token a sequence at the memory's bandwidth.
#include "kernels/cuda_float.cuh"
#include "kernels/cuda_launch.cuh"
#include "kernels/linear_attention/linear_attention_rows.cuh"
#include "kernels/linear_attention/selective_scan.h"
#include "kernels/linear_attention/state_gates.cuh"
#include "kernels/linear_attention/state_plan.cuh"

namespace inlay {
namespace {

constexpr int kGroups = 4;  // lanes that share a channel
constexpr int kWarpChannels = 32 / kGroups;
constexpr int kWarps = 4;
constexpr int kThreads = 32 * kWarps;
constexpr int kChannels = kWarps * kWarpChannels;
constexpr int kTokens = 16;  // in shared memory
constexpr int kChannelFours = kChannels / 4;
static_assert(kTokens * kChannelFours == kThreads);

struct Args {
  Rows x, step, b, c, z, y;
  const float* rates;
  const float* skip;
  CudaStates states;
  StatePlan plan;
  int64_t channels;
  int state_size;
  int slabs;  // blocks that the channels are cut into
  DType activation;
  bool aligned;     // four elements of x, step, z and y at a time
  bool bc_aligned;  // of b and c
};

// 2^x; what would be subnormal is 0.
__device__ inline float Exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// kStates: of each lane; elements of the state beyond its size are zeros.
template <int kStates>
class Slab {
 public:
  static constexpr int kWidth = kGroups * kStates;

  struct Shared {
    alignas(16) float x[kTokens][kChannels];
    alignas(16) float step[kTokens][kChannels];
    // The gate, then what comes out.
    alignas(16) float y[kTokens][kChannels];
    alignas(16) float b[kTokens][kWidth];
    alignas(16) float c[kTokens][kWidth];
  };

  __device__ Slab(const Args& args, Shared& shared, int64_t first_channel)
      : args_(args),
        shared_(shared),
        first_channel_(first_channel),
        group_(static_cast<int>(threadIdx.x) % 32 / kWarpChannels),
        column_(static_cast<int>(threadIdx.x) / 32 * kWarpChannels +
                static_cast<int>(threadIdx.x) % kWarpChannels) {
    constexpr float kLog2E = 1.44269504f;
    skip_ = exists() ? args.skip[channel()] : 0.0f;
#pragma unroll
    for (int i = 0; i < kStates; ++i) {
      rates_[i] = exists(i) ? __fmul_rn(args.rates[Index(i)], kLog2E) : 0.0f;
    }
  }

  __device__ void Load(int32_t source) {
    const float* state = source < 0 ? nullptr : args_.states.Of(source);
#pragma unroll
    for (int i = 0; i < kStates; ++i) {
      state_[i] = state != nullptr && exists(i) ? state[Index(i)] : 0.0f;
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
      for (int t = 0; t < count; t += kGroups) {
        float sums[kGroups];
        if (t + kGroups <= count && left_of_run > kGroups) {
#pragma unroll
          for (int i = 0; i < kGroups; ++i) sums[i] = Token(t + i);
          left_of_run -= kGroups;
        } else {
#pragma unroll
          for (int i = 0; i < kGroups; ++i) {
            sums[i] = 0.0f;
            if (t + i >= count) continue;
            sums[i] = Token(t + i);
            if (--left_of_run == 0) {
              Store(runs[run].to);
              if (++run < end_run) left_of_run = runs[run].count;
            }
          }
        }
        Finish(t, sums);
      }
      __syncthreads();
      WriteRows(row, count);
      row = next;
    }
  }

 private:
  // Fours of b and c together, a thread's share.
  static constexpr int kWidthFours = kWidth / 4;
  static constexpr int kFetched = 2 * kTokens * kWidthFours / kThreads;
  static_assert(kFetched * kThreads == 2 * kTokens * kWidthFours);

  static __device__ int Count(int64_t row, int64_t end) {
    return end - row < kTokens ? static_cast<int>(end - row) : kTokens;
  }

  __device__ int64_t channel() const { return first_channel_ + column_; }
  __device__ bool exists() const { return channel() < args_.channels; }
  // The lane's i-th element of the channel's state.
  __device__ int ElementOf(int i) const { return group_ * kStates + i; }
  __device__ bool exists(int i) const {
    return exists() && ElementOf(i) < args_.state_size;
  }
  // Of a table [state_size][channels].
  __device__ int64_t Index(int i) const {
    return int64_t{ElementOf(i)} * args_.channels + channel();
  }

  __device__ void Store(int32_t to) const {
    float* const state = args_.states.Of(to);
#pragma unroll
    for (int i = 0; i < kStates; ++i) {
      if (exists(i)) state[Index(i)] = state_[i];
    }
  }

  // Channels of the slab that there are.
  __device__ int width() const {
    const int64_t left = args_.channels - first_channel_;
    return left < kChannels ? static_cast<int>(left) : kChannels;
  }
  __device__ int64_t element_bytes() const {
    return args_.activation == DType::kF32 ? 4 : 2;
  }

  // What rows [row, row + count) bring, to registers.
  __device__ void Fetch(int64_t row, int count) {
    const int thread = static_cast<int>(threadIdx.x);
    const int token = thread / kChannelFours;
    if (token < count) {
      const int first = 4 * (thread % kChannelFours);
      const auto four = [&](const Rows& rows, DType type, int64_t bytes) {
        return LoadFour(
            rows.row<const std::byte>(row + token) + bytes * first_channel_,
            first, width(), type, args_.aligned);
      };
      x_ = four(args_.x, args_.activation, element_bytes());
      z_ = four(args_.z, args_.activation, element_bytes());
      step_ = four(args_.step, DType::kF32, 4);
    }
#pragma unroll
    for (int i = 0; i < kFetched; ++i) {
      const int n = thread + i * kThreads;
      const int of = n / (2 * kWidthFours);
      if (of >= count) continue;
      const int place = n % (2 * kWidthFours);
      const Rows& rows = place < kWidthFours ? args_.b : args_.c;
      fetched_[i] = LoadFour(rows.row<const std::byte>(row + of),
                             4 * (place % kWidthFours), args_.state_size,
                             args_.activation, args_.bc_aligned);
    }
  }

  static __device__ float Step(float raw) {
    return GateStep(StateGatesDesc(), raw, 0.0f);
  }
  static __device__ float Gate(float z) { return __fmul_rn(z, GateBeta(z)); }

  // And on to shared memory.
  __device__ void Stage(int count) {
    const int thread = static_cast<int>(threadIdx.x);
    const int token = thread / kChannelFours;
    if (token < count) {
      const int first = 4 * (thread % kChannelFours);
      const float4 step = Widen(step_, DType::kF32);
      const float4 z = Widen(z_, args_.activation);
      *reinterpret_cast<float4*>(&shared_.x[token][first]) =
          Widen(x_, args_.activation);
      *reinterpret_cast<float4*>(&shared_.step[token][first]) =
          make_float4(Step(step.x), Step(step.y), Step(step.z), Step(step.w));
      *reinterpret_cast<float4*>(&shared_.y[token][first]) =
          make_float4(Gate(z.x), Gate(z.y), Gate(z.z), Gate(z.w));
    }
#pragma unroll
    for (int i = 0; i < kFetched; ++i) {
      const int n = thread + i * kThreads;
      const int of = n / (2 * kWidthFours);
      if (of >= count) continue;
      const int place = n % (2 * kWidthFours);
      float* const to = place < kWidthFours ? shared_.b[of] : shared_.c[of];
      *reinterpret_cast<float4*>(to + 4 * (place % kWidthFours)) =
          Widen(fetched_[i], args_.activation);
    }
  }

  // The state takes the token; what the lane's elements give for c.
  __device__ float Token(int t) {
    const float step = shared_.step[t][column_];
    const float given = __fmul_rn(step, shared_.x[t][column_]);
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < kStates; i += 4) {
      const int first = group_ * kStates + i;
      const float4 b4 = *reinterpret_cast<const float4*>(&shared_.b[t][first]);
      const float4 c4 = *reinterpret_cast<const float4*>(&shared_.c[t][first]);
      const float b[] = {b4.x, b4.y, b4.z, b4.w};
      const float c[] = {c4.x, c4.y, c4.z, c4.w};
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        float& s = state_[i + j];
        s = fmaf(Exp2(__fmul_rn(step, rates_[i + j])), s,
                 __fmul_rn(given, b[j]));
        sum = fmaf(s, c[j], sum);
      }
    }
    return sum;
  }

  // Of tokens [t, t + kGroups) the lanes' parts: a lane ends with the sum of
  // one of them. Those that are not there have room in shared memory.
  __device__ void Finish(int t, const float (&sums)[kGroups]) {
    const bool upper = group_ % 2 != 0;
    float own[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float kept = upper ? sums[2 + i] : sums[i];
      const float sent = upper ? sums[i] : sums[2 + i];
      own[i] =
          __fadd_rn(kept, __shfl_xor_sync(0xffffffffu, sent, kWarpChannels));
    }
    const bool second = group_ / 2 != 0;
    const float kept = second ? own[1] : own[0];
    const float sent = second ? own[0] : own[1];
    const float sum =
        __fadd_rn(kept, __shfl_xor_sync(0xffffffffu, sent, 2 * kWarpChannels));
    const int token = t + (upper ? 2 : 0) + (second ? 1 : 0);
    float& y = shared_.y[token][column_];
    y = __fmul_rn(fmaf(skip_, shared_.x[token][column_], sum), y);
  }

  __device__ void WriteRows(int64_t row, int count) const {
    const int thread = static_cast<int>(threadIdx.x);
    const int token = thread / kChannelFours;
    const int first = 4 * (thread % kChannelFours);
    if (token >= count || first >= width()) return;
    StoreFour(
        *reinterpret_cast<const float4*>(&shared_.y[token][first]),
        args_.y.row<std::byte>(row + token) + element_bytes() * first_channel_,
        first, width(), args_.activation, args_.aligned);
  }

  const Args& args_;
  Shared& shared_;
  const int64_t first_channel_;
  const int group_;
  const int column_;  // of the slab
  float skip_;
  float rates_[kStates];  // for powers of 2
  float state_[kStates];
  Four x_, z_, step_;
  Four fetched_[kFetched];
};

// Blocks: sequences * slabs. y may be x or z: a row is written when it has been
// read, by the same block.
template <int kStates>
__global__ void __launch_bounds__(kThreads)
    SelectiveScan(const __grid_constant__ Args args) {
  __shared__ typename Slab<kStates>::Shared shared;
  LetNextBegin();
  const int slab = static_cast<int>(blockIdx.x) % args.slabs;
  const int sequence = static_cast<int>(blockIdx.x) / args.slabs;
  Slab<kStates> state(args, shared, int64_t{slab} * kChannels);
  const int32_t run = args.plan.first_runs[sequence];
  const int32_t end_run = args.plan.first_runs[sequence + 1];
  // The plan and the states are of before the step.
  if (run < end_run) state.Load(args.plan.runs[run].source);
  WaitForPrevious();
  if (run < end_run) state.Run(run, end_run);
}

template <int kStates>
absl::Status Launch(const Args& args, CudaStream& stream) {
  return LaunchCuda("selective_scan", stream,
                    {args.plan.sequences * args.slabs, kThreads},
                    SelectiveScan<kStates>, args);
}

}  // namespace

absl::Status RunSelectiveScanCuda(const SelectiveScanDesc& desc,
                                  const SelectiveScanParams& params,
                                  Stream& stream) {
  CudaStream& cuda = CudaStream::Of(stream);
  const Args args = {
      Rows(params.x),
      Rows(params.step),
      Rows(params.b),
      Rows(params.c),
      Rows(params.z),
      Rows(params.y),
      params.rates,
      params.skip,
      CudaStates(params.state.state),
      *params.state.plan,
      desc.channels,
      desc.state_size,
      static_cast<int>((desc.channels + kChannels - 1) / kChannels),
      desc.activation,
      desc.channels % 4 == 0 && IsAlignedForFours(params.x) &&
          IsAlignedForFours(params.step) && IsAlignedForFours(params.z) &&
          IsAlignedForFours(params.y),
      desc.state_size % 4 == 0 && IsAlignedForFours(params.b) &&
          IsAlignedForFours(params.c)};
  if (desc.state_size <= 16) return Launch<4>(args, cuda);
  if (desc.state_size <= 64) return Launch<16>(args, cuda);
  return Launch<32>(args, cuda);
}

}  // namespace inlay
