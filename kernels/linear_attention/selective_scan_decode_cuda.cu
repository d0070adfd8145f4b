// selective_scan on CUDA for one token a sequence: all that there is to do is
// to read states and write them. A block takes kChannels channels of some
// sequences, one after another, the next one's state on its way while it works
// on one. A warp has four elements of the state of all its channels, whole
// lines of them, a lane four channels; before and after that a thread has one
// channel. A channel's sum is that of selective_scan_cuda.cu.
//
// Aims: the memory's bandwidth.
#include "kernels/cuda_float.cuh"
#include "kernels/cuda_launch.cuh"
#include "kernels/linear_attention/selective_scan.cuh"

namespace inlay {
namespace {

constexpr int kThreads = 32 * kScanGroups;
constexpr int kChannels = kThreads;
constexpr int kStates = 4;      // of a warp
constexpr int kMostTurns = 16;  // sequences of a block

struct Shared {
  alignas(16) float step[2][kChannels];
  alignas(16) float given[2][kChannels];
  alignas(16) float sums[2][kScanGroups][kChannels];
};

// One sequence's, on its way.
struct Token {
  int32_t row = -1;  // none
  int32_t to = 0;
  float4 state[kStates];
  float x, z, step;
  Four b, c;
};

__device__ inline float LoadOne(const Rows& rows, int64_t row, int64_t channel,
                                DType type) {
  const std::byte* from = rows.row<const std::byte>(row);
  if (type == DType::kF32) {
    return reinterpret_cast<const float*>(from)[channel];
  }
  if (type == DType::kF16) {
    return ToFloat(reinterpret_cast<const __half*>(from)[channel]);
  }
  return ToFloat(reinterpret_cast<const __nv_bfloat16*>(from)[channel]);
}

__device__ inline void StoreOne(float value, const Rows& rows, int64_t row,
                                int64_t channel, DType type) {
  std::byte* const to = rows.row<std::byte>(row);
  if (type == DType::kF32) {
    reinterpret_cast<float*>(to)[channel] = value;
  } else if (type == DType::kF16) {
    reinterpret_cast<__half*>(to)[channel] = FromFloat<__half>(value);
  } else {
    reinterpret_cast<__nv_bfloat16*>(to)[channel] =
        FromFloat<__nv_bfloat16>(value);
  }
}

class Slab {
 public:
  __device__ Slab(const ScanArgs& args, Shared& shared, int64_t first_channel)
      : args_(args),
        shared_(shared),
        warp_(static_cast<int>(threadIdx.x) / 32),
        own_(first_channel + threadIdx.x),
        fours_(first_channel + 4 * (threadIdx.x % 32)) {
    skip_ = own_ < args.channels ? args.skip[own_] : 0.0f;
#pragma unroll
    for (int i = 0; i < kStates; ++i) {
      const float4 rate = exists(i) ? Quad(args.rates, i) : float4{};
      rates_[i] = make_float4(ScanRate(rate.x), ScanRate(rate.y),
                              ScanRate(rate.z), ScanRate(rate.w));
    }
  }

  // What is of before the step.
  __device__ void FetchState(int64_t sequence, Token& token) const {
    const int32_t run = args_.plan.first_runs[sequence];
    token.row = -1;
    if (run == args_.plan.first_runs[sequence + 1]) return;
    token.row = args_.plan.runs[run].row;
    token.to = args_.plan.runs[run].to;
    const int32_t source = args_.plan.runs[run].source;
    const float* state = source < 0 ? nullptr : args_.states.Of(source);
#pragma unroll
    for (int i = 0; i < kStates; ++i) {
      token.state[i] =
          state != nullptr && exists(i) ? Quad(state, i) : float4{};
    }
  }

  __device__ void FetchRow(Token& token) const {
    if (token.row < 0) return;
    token.x = token.z = token.step = 0.0f;
    if (own_ < args_.channels) {
      token.x = LoadOne(args_.x, token.row, own_, args_.activation);
      token.z = LoadOne(args_.z, token.row, own_, args_.activation);
      token.step = LoadOne(args_.step, token.row, own_, DType::kF32);
    }
    const auto four = [&](const Rows& rows) {
      return LoadFour(rows.row<const std::byte>(token.row), kStates * warp_,
                      args_.state_size, args_.activation, args_.bc_aligned);
    };
    token.b = four(args_.b);
    token.c = four(args_.c);
  }

  // `turn`: of the block, for shared memory. All threads call it.
  __device__ void Take(int turn, Token& token) const {
    if (token.row < 0) return;
    const int at = turn % 2;
    const int thread = static_cast<int>(threadIdx.x);
    const float step = ScanStep(token.step);
    shared_.step[at][thread] = step;
    shared_.given[at][thread] = __fmul_rn(step, token.x);
    __syncthreads();
    Scan(at, token);
    __syncthreads();
    if (own_ >= args_.channels) return;
    const float sum = __fadd_rn(
        __fadd_rn(shared_.sums[at][0][thread], shared_.sums[at][1][thread]),
        __fadd_rn(shared_.sums[at][2][thread], shared_.sums[at][3][thread]));
    StoreOne(ScanOutput(sum, skip_, token.x, ScanGate(token.z)), args_.y,
             token.row, own_, args_.activation);
  }

 private:
  // The warp's i-th element of the state.
  __device__ int ElementOf(int i) const { return warp_ * kStates + i; }
  __device__ bool exists(int i) const {
    return fours_ < args_.channels && ElementOf(i) < args_.state_size;
  }
  __device__ int64_t Index(int i) const {
    return int64_t{ElementOf(i)} * args_.channels + fours_;
  }
  __device__ float4 Quad(const float* table, int i) const {
    return *reinterpret_cast<const float4*>(table + Index(i));
  }

  __device__ void Scan(int at, Token& token) const {
    const int column = 4 * (static_cast<int>(threadIdx.x) % 32);
    const float4 step =
        *reinterpret_cast<const float4*>(&shared_.step[at][column]);
    const float4 given =
        *reinterpret_cast<const float4*>(&shared_.given[at][column]);
    const float4 b4 = Widen(token.b, args_.activation);
    const float4 c4 = Widen(token.c, args_.activation);
    const float b[] = {b4.x, b4.y, b4.z, b4.w};
    const float c[] = {c4.x, c4.y, c4.z, c4.w};
    float4 sum = {};
    float* const to = args_.states.Of(token.to);
#pragma unroll
    for (int i = 0; i < kStates; ++i) {
      float4& s = token.state[i];
      const float4& rate = rates_[i];
      ScanElement(step.x, given.x, rate.x, b[i], c[i], s.x, sum.x);
      ScanElement(step.y, given.y, rate.y, b[i], c[i], s.y, sum.y);
      ScanElement(step.z, given.z, rate.z, b[i], c[i], s.z, sum.z);
      ScanElement(step.w, given.w, rate.w, b[i], c[i], s.w, sum.w);
      if (exists(i)) *reinterpret_cast<float4*>(to + Index(i)) = s;
    }
    *reinterpret_cast<float4*>(&shared_.sums[at][warp_][column]) = sum;
  }

  const ScanArgs& args_;
  Shared& shared_;
  const int warp_;
  const int64_t own_;    // the thread's channel
  const int64_t fours_;  // the lane's first channel
  float skip_;
  float4 rates_[kStates];
};

// Blocks: slabs * groups of `turns` sequences.
__global__ void __launch_bounds__(kThreads)
    ScanDecode(const __grid_constant__ ScanArgs args, int turns) {
  __shared__ Shared shared;
  LetNextBegin();
  const int slab = static_cast<int>(blockIdx.x) % args.slabs;
  const Slab state(args, shared, int64_t{slab} * kChannels);
  const int64_t first = int64_t{blockIdx.x} / args.slabs * turns;
  const int64_t left = args.plan.sequences - first;
  const int count = left < turns ? static_cast<int>(left) : turns;
  Token token, next;
  state.FetchState(first, token);
  WaitForPrevious();
  state.FetchRow(token);
  for (int turn = 0; turn < count; ++turn) {
    const bool more = turn + 1 < count;
    if (more) {
      state.FetchState(first + turn + 1, next);
      state.FetchRow(next);
    }
    state.Take(turn, token);
    if (more) token = next;
  }
}

}  // namespace

bool ScanDecodes(const ScanArgs& args) {
  return args.plan.longest <= 1 && args.state_size <= kScanGroups * kStates &&
         args.channels % 4 == 0;
}

absl::Status RunScanDecode(ScanArgs args, CudaStream& stream) {
  args.slabs = static_cast<int>((args.channels + kChannels - 1) / kChannels);
  // One wave of blocks, each with several sequences: rates are read once, and
  // states ahead.
  const int64_t all = args.plan.sequences * args.slabs;
  const int64_t wave = 4 * int64_t{stream.num_sms()};
  int64_t turns = (all + wave - 1) / wave;
  turns = turns < 1 ? 1 : turns > kMostTurns ? kMostTurns : turns;
  const int64_t groups = (args.plan.sequences + turns - 1) / turns;
  return LaunchCuda("selective_scan", stream, {groups * args.slabs, kThreads},
                    ScanDecode, args, static_cast<int>(turns));
}

}  // namespace inlay
