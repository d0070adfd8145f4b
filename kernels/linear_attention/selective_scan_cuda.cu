// selective_scan on CUDA. A block takes kChannels channels through all tokens
// of a sequence, kTokens at a time. Half of its warps scan: states in
// registers, kScanGroups lanes share a channel's state, kStates elements each,
// and a warp has 8 channels. The other half bring tokens: what is read goes to
// registers two tiles ahead and to shared memory, with steps made of it, one
// tile ahead; what was scanned is gated and written one tile behind. One
// barrier a tile; shared memory has two of each.
//
// An element of the state needs one exponential a token and nothing of its
// neighbours. Sums over a channel's lanes are made for four tokens at once:
// each lane hands half of what it has to another one, twice, and ends with one
// token's sum, for three exchanges instead of eight.
//
// Aims: the rate of the exponentials (16 a clock and multiprocessor).
#include "kernels/cuda_float.cuh"
#include "kernels/cuda_launch.cuh"
#include "kernels/linear_attention/selective_scan.cuh"

namespace inlay {
namespace {

constexpr int kWarpChannels = 32 / kScanGroups;
constexpr int kWarps = 4;  // of each kind
constexpr int kThreads = 32 * kWarps;
constexpr int kChannels = kWarps * kWarpChannels;
constexpr int kTokens = 16;  // of a tile
constexpr int kChannelFours = kChannels / 4;
static_assert(kTokens * kChannelFours == kThreads);

// kStates: of each lane; elements of the state beyond its size are zeros.
template <int kStates>
struct Shared {
  static constexpr int kWidth = kScanGroups * kStates;
  alignas(16) float step[2][kTokens][kChannels];
  alignas(16) float given[2][kTokens][kChannels];  // step times x
  alignas(16) float sums[2][kTokens][kChannels];
  alignas(16) float b[2][kTokens][kWidth];
  alignas(16) float c[2][kTokens][kWidth];
};

// All threads of the block, whichever their kind.
__device__ void Meet() { asm volatile("barrier.sync 0;" ::: "memory"); }

// A sequence's tokens: runs [run, end_run) of the plan.
struct Tokens {
  __device__ Tokens(const StatePlan& plan, int sequence)
      : runs(plan.runs),
        run(plan.first_runs[sequence]),
        end_run(plan.first_runs[sequence + 1]) {
    if (run == end_run) return;
    row = runs[run].row;
    end = int64_t{runs[end_run - 1].row} + runs[end_run - 1].count;
    tiles = static_cast<int>((end - row + kTokens - 1) / kTokens);
  }
  __device__ int Count(int tile) const {
    const int64_t left = end - row - int64_t{tile} * kTokens;
    return left < kTokens ? static_cast<int>(left) : kTokens;
  }

  const StatePlanRun* runs;
  int32_t run;
  int32_t end_run;
  int64_t row = 0;
  int64_t end = 0;
  int tiles = 0;
};

// A thread of those that bring tokens: four channels of one token of a tile,
// and its share of b and c.
template <int kStates>
class Bringer {
 public:
  __device__ Bringer(const ScanArgs& args, Shared<kStates>& shared,
                     const Tokens& tokens, int64_t first_channel)
      : args_(args),
        shared_(shared),
        tokens_(tokens),
        first_channel_(first_channel),
        thread_(static_cast<int>(threadIdx.x) - kThreads),
        token_(thread_ / kChannelFours),
        first_(4 * (thread_ % kChannelFours)) {
    for (int i = 0; i < 4; ++i) {
      skip_[i] =
          first_ + i < width() ? args.skip[first_channel + first_ + i] : 0.0f;
    }
  }

  __device__ void Run() {
    Fetch(0);
    Stage(0);
    if (tokens_.tiles > 1) Fetch(1);
    Meet();
    for (int tile = 0; tile < tokens_.tiles; ++tile) {
      if (tile > 0) Write(tile - 1);
      before_ = last_;
      if (tile + 1 < tokens_.tiles) Stage(tile + 1);
      if (tile + 2 < tokens_.tiles) Fetch(tile + 2);
      Meet();
    }
    Write(tokens_.tiles - 1);
  }

 private:
  static constexpr int kWidthFours = Shared<kStates>::kWidth / 4;
  static constexpr int kFetched = 2 * kTokens * kWidthFours / kThreads;
  static_assert(kFetched * kThreads == 2 * kTokens * kWidthFours);

  // What of a tile waits for its sums.
  struct Waiting {
    float4 x;
    float4 gate;
  };

  // Channels of the slab that there are.
  __device__ int width() const {
    const int64_t left = args_.channels - first_channel_;
    return left < kChannels ? static_cast<int>(left) : kChannels;
  }

  __device__ void Fetch(int tile) {
    const int count = tokens_.Count(tile);
    const int64_t row = tokens_.row + int64_t{tile} * kTokens;
    if (token_ < count) {
      const auto four = [&](const Rows& rows, DType type, int64_t bytes) {
        return LoadFour(
            rows.row<const std::byte>(row + token_) + bytes * first_channel_,
            first_, width(), type, args_.aligned);
      };
      x_ = four(args_.x, args_.activation, args_.element_bytes());
      z_ = four(args_.z, args_.activation, args_.element_bytes());
      step_ = four(args_.step, DType::kF32, 4);
    }
#pragma unroll
    for (int i = 0; i < kFetched; ++i) {
      const int n = thread_ + i * kThreads;
      const int of = n / (2 * kWidthFours);
      if (of >= count) continue;
      const int place = n % (2 * kWidthFours);
      const Rows& rows = place < kWidthFours ? args_.b : args_.c;
      fetched_[i] = LoadFour(rows.row<const std::byte>(row + of),
                             4 * (place % kWidthFours), args_.state_size,
                             args_.activation, args_.bc_aligned);
    }
  }

  __device__ void Stage(int tile) {
    const int count = tokens_.Count(tile);
    const int at = tile % 2;
    if (token_ < count) {
      const float4 x = Widen(x_, args_.activation);
      const float4 z = Widen(z_, args_.activation);
      const float4 raw = Widen(step_, DType::kF32);
      const float4 step = make_float4(ScanStep(raw.x), ScanStep(raw.y),
                                      ScanStep(raw.z), ScanStep(raw.w));
      *reinterpret_cast<float4*>(&shared_.step[at][token_][first_]) = step;
      *reinterpret_cast<float4*>(&shared_.given[at][token_][first_]) =
          make_float4(__fmul_rn(step.x, x.x), __fmul_rn(step.y, x.y),
                      __fmul_rn(step.z, x.z), __fmul_rn(step.w, x.w));
      last_ = {x, make_float4(ScanGate(z.x), ScanGate(z.y), ScanGate(z.z),
                              ScanGate(z.w))};
    }
#pragma unroll
    for (int i = 0; i < kFetched; ++i) {
      const int n = thread_ + i * kThreads;
      const int of = n / (2 * kWidthFours);
      if (of >= count) continue;
      const int place = n % (2 * kWidthFours);
      float* const to =
          place < kWidthFours ? shared_.b[at][of] : shared_.c[at][of];
      *reinterpret_cast<float4*>(to + 4 * (place % kWidthFours)) =
          Widen(fetched_[i], args_.activation);
    }
  }

  __device__ void Write(int tile) const {
    if (token_ >= tokens_.Count(tile) || first_ >= width()) return;
    const float4 sum = *reinterpret_cast<const float4*>(
        &shared_.sums[tile % 2][token_][first_]);
    const auto& [x, gate] = before_;
    const float4 y = make_float4(ScanOutput(sum.x, skip_[0], x.x, gate.x),
                                 ScanOutput(sum.y, skip_[1], x.y, gate.y),
                                 ScanOutput(sum.z, skip_[2], x.z, gate.z),
                                 ScanOutput(sum.w, skip_[3], x.w, gate.w));
    const int64_t row = tokens_.row + int64_t{tile} * kTokens + token_;
    StoreFour(
        y, args_.y.row<std::byte>(row) + args_.element_bytes() * first_channel_,
        first_, width(), args_.activation, args_.aligned);
  }

  const ScanArgs& args_;
  Shared<kStates>& shared_;
  const Tokens& tokens_;
  const int64_t first_channel_;
  const int thread_;
  const int token_;
  const int first_;  // channel of the slab
  float skip_[4];
  Four x_, z_, step_;
  Four fetched_[kFetched];
  Waiting before_ = {};  // of the tile that was scanned last
  Waiting last_ = {};    // of the one that was staged last
};

// A thread of those that scan.
template <int kStates>
class Scanner {
 public:
  __device__ Scanner(const ScanArgs& args, Shared<kStates>& shared,
                     const Tokens& tokens, int64_t first_channel)
      : args_(args),
        shared_(shared),
        tokens_(tokens),
        group_(static_cast<int>(threadIdx.x) % 32 / kWarpChannels),
        column_(static_cast<int>(threadIdx.x) / 32 * kWarpChannels +
                static_cast<int>(threadIdx.x) % kWarpChannels),
        channel_(first_channel + column_),
        run_(tokens.run),
        left_of_run_(tokens.runs[tokens.run].count) {
    const int32_t source = tokens.runs[tokens.run].source;
    const float* state = source < 0 ? nullptr : args.states.Of(source);
#pragma unroll
    for (int i = 0; i < kStates; ++i) {
      rates_[i] = exists(i) ? ScanRate(args.rates[Index(i)]) : 0.0f;
      state_[i] = state != nullptr && exists(i) ? state[Index(i)] : 0.0f;
    }
  }

  __device__ void Run() {
    Meet();
    for (int tile = 0; tile < tokens_.tiles; ++tile) {
      const int count = tokens_.Count(tile);
      if (count == kTokens && left_of_run_ > kTokens) {
        Whole(tile % 2);
      } else {
        InPieces(tile % 2, count);
      }
      Meet();
    }
  }

 private:
  // The lane's i-th element of the channel's state.
  __device__ int ElementOf(int i) const { return group_ * kStates + i; }
  __device__ bool exists(int i) const {
    return channel_ < args_.channels && ElementOf(i) < args_.state_size;
  }
  // Of a table [state_size][channels].
  __device__ int64_t Index(int i) const {
    return int64_t{ElementOf(i)} * args_.channels + channel_;
  }

  __device__ void Store(int32_t to) const {
    float* const state = args_.states.Of(to);
#pragma unroll
    for (int i = 0; i < kStates; ++i) {
      if (exists(i)) state[Index(i)] = state_[i];
    }
  }

  // A tile that no run ends in.
  __device__ void Whole(int at) {
#pragma unroll(kStates > 4 ? 1 : kTokens / kScanGroups)
    for (int t = 0; t < kTokens; t += kScanGroups) {
      float sums[kScanGroups];
#pragma unroll
      for (int i = 0; i < kScanGroups; ++i) sums[i] = Token(at, t + i);
      Finish(at, t, sums);
    }
    left_of_run_ -= kTokens;
  }

  __device__ void InPieces(int at, int count) {
#pragma unroll 1
    for (int t = 0; t < count; t += kScanGroups) {
      float sums[kScanGroups];
#pragma unroll
      for (int i = 0; i < kScanGroups; ++i) {
        sums[i] = 0.0f;
        if (t + i >= count) continue;
        sums[i] = Token(at, t + i);
        if (--left_of_run_ > 0) continue;
        Store(tokens_.runs[run_].to);
        if (++run_ < tokens_.end_run) left_of_run_ = tokens_.runs[run_].count;
      }
      Finish(at, t, sums);
    }
  }

  // The state takes the token; what the lane's elements give for c.
  __device__ float Token(int at, int t) {
    const float step = shared_.step[at][t][column_];
    const float given = shared_.given[at][t][column_];
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < kStates; i += 4) {
      const float4 b =
          *reinterpret_cast<const float4*>(&shared_.b[at][t][ElementOf(i)]);
      const float4 c =
          *reinterpret_cast<const float4*>(&shared_.c[at][t][ElementOf(i)]);
      ScanElement(step, given, rates_[i], b.x, c.x, state_[i], sum);
      ScanElement(step, given, rates_[i + 1], b.y, c.y, state_[i + 1], sum);
      ScanElement(step, given, rates_[i + 2], b.z, c.z, state_[i + 2], sum);
      ScanElement(step, given, rates_[i + 3], b.w, c.w, state_[i + 3], sum);
    }
    return sum;
  }

  // Of tokens [t, t + 4) the lanes' parts: a lane ends with the sum of one of
  // them. Those that are not there have room in shared memory.
  __device__ void Finish(int at, int t, const float (&sums)[kScanGroups]) {
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
    const int token = t + (upper ? 2 : 0) + (second ? 1 : 0);
    shared_.sums[at][token][column_] =
        __fadd_rn(kept, __shfl_xor_sync(0xffffffffu, sent, 2 * kWarpChannels));
  }

  const ScanArgs& args_;
  Shared<kStates>& shared_;
  const Tokens& tokens_;
  const int group_;
  const int column_;  // of the slab
  const int64_t channel_;
  int32_t run_;
  int left_of_run_;
  float rates_[kStates];
  float state_[kStates];
};

// Blocks: sequences * slabs. y may be x or z: a row is written when it has been
// read, by the same thread.
template <int kStates>
__global__ void __launch_bounds__(2 * kThreads, 2)
    SelectiveScan(const __grid_constant__ ScanArgs args) {
  __shared__ Shared<kStates> shared;
  LetNextBegin();
  const int slab = static_cast<int>(blockIdx.x) % args.slabs;
  const int64_t first_channel = int64_t{slab} * kChannels;
  const Tokens tokens(args.plan, static_cast<int>(blockIdx.x) / args.slabs);
  if (tokens.tiles == 0) {
    WaitForPrevious();
    return;
  }
  // The plan and the states are of before the step.
  if (threadIdx.x < kThreads) {
    Scanner<kStates> scanner(args, shared, tokens, first_channel);
    WaitForPrevious();
    scanner.Run();
  } else {
    Bringer<kStates> bringer(args, shared, tokens, first_channel);
    WaitForPrevious();
    bringer.Run();
  }
}

template <int kStates>
absl::Status Launch(const ScanArgs& args, CudaStream& stream) {
  return LaunchCuda("selective_scan", stream,
                    {args.plan.sequences * args.slabs, 2 * kThreads},
                    SelectiveScan<kStates>, args);
}

}  // namespace

absl::Status RunSelectiveScanCuda(const SelectiveScanDesc& desc,
                                  const SelectiveScanParams& params,
                                  Stream& stream) {
  CudaStream& cuda = CudaStream::Of(stream);
  const ScanArgs args = {
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
  if (ScanDecodes(args)) return RunScanDecode(args, cuda);
  if (desc.state_size <= 16) return Launch<4>(args, cuda);
  if (desc.state_size <= 64) return Launch<16>(args, cuda);
  return Launch<32>(args, cuda);
}

}  // namespace inlay
