// moe_routing on CUDA: the arithmetic of routing_cpu.cc, in float64 where it
// is there.
//
// RouteTokens: a warp a token, kTokens a block; a lane has every 32nd expert.
// Shared memory: a token's scores and its groups' (8 KB a token). Choosing is
// top_k times the largest of a warp, by keys whose order is that of scores; a
// lane has its experts' scores and keys in registers. One token's slots are
// listed by its warp. ListSlots, for more tokens: a block an
// expert counts the slots of the experts before it and lists its own; no
// atomics, so that lists ascend. Neither is bound by bandwidth: both are some
// microseconds beside the products of experts.
#include <algorithm>

#include "kernels/cuda_row.cuh"
#include "kernels/moe/routing.h"
#include "kernels/moe/routing_key.cuh"

namespace inlay {
namespace {

constexpr unsigned kAll = 0xffffffffu;
constexpr int kTokens = 4;  // a block
constexpr double kTiny = 1e-20;
constexpr int kListThreads = 256;

// With more tokens or slots a launch of its own lists them sooner.
constexpr int kFewTokens = 32;
constexpr int kFewSlots = 512;

// In shared memory, of a token.
struct TokenScores {
  float* experts;  // [num_experts]
  float* groups;   // [num_groups]
};

__device__ uint64_t WarpMax(uint64_t key) {
  const auto high = static_cast<uint32_t>(key >> 32);
  const uint32_t most = __reduce_max_sync(kAll, high);
  const uint32_t low = high == most ? static_cast<uint32_t>(key) : 0;
  return uint64_t{most} << 32 | __reduce_max_sync(kAll, low);
}
__device__ float WarpMax(float x) {
#pragma unroll
  for (int lane = 16; lane > 0; lane /= 2) {
    x = fmaxf(x, __shfl_xor_sync(kAll, x, lane));
  }
  return x;
}
__device__ double WarpSum(double x) {
#pragma unroll
  for (int lane = 16; lane > 0; lane /= 2) {
    x += __shfl_xor_sync(kAll, x, lane);
  }
  return x;
}

// Numbers lane, lane + 32, .. are a lane's; kPerLane of them at most.
constexpr int kMostPerLane = kMaxExperts / 32;
static_assert(kMostPerLane <= 32);  // Taken

// What is out of the choice, a bit a number.
using Taken = uint32_t;

// Chooses by keys, the best first, those in `taken` left out.
template <int kPerLane>
class Chooser {
 public:
  __device__ Chooser(const uint64_t (&keys)[kPerLane], Taken taken)
      : keys_(keys), taken_(taken) {
    FindOwn();
  }

  // The best of what is left, which is then taken.
  __device__ int TakeBest() {
    const int index = IndexOf(WarpMax(own_));
    if (index % 32 == threadIdx.x % 32) {
      taken_ |= 1u << index / 32;
      FindOwn();
    }
    return index;
  }
  __device__ Taken taken() const { return taken_; }

 private:
  __device__ void FindOwn() {
    own_ = 0;
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      if (taken_ >> i & 1) continue;
      own_ = keys_[i] > own_ ? keys_[i] : own_;
    }
  }

  const uint64_t (&keys_)[kPerLane];  // 0: there is no such number
  Taken taken_;
  uint64_t own_;  // the lane's best
};

__device__ float GroupValue(const RoutingDesc& desc, const float* scores,
                            int size) {
  uint64_t first = 0, second = 0;
  for (int i = 0; i < size; ++i) {
    const uint64_t key = KeyOf(scores[i], i);
    if (key > first) {
      second = first;
      first = key;
    } else if (key > second) {
      second = key;
    }
  }
  const float best = scores[IndexOf(first)];
  if (desc.group_score == GroupScore::kMax || size == 1) return best;
  return best + scores[IndexOf(second)];
}

// What is out of the choice of experts because its group is.
template <int kPerLane>
__device__ Taken LeaveGroups(const RoutingDesc& desc,
                             const TokenScores& scores) {
  if (desc.top_groups == desc.num_groups) return 0;
  const int lane = threadIdx.x % 32;
  const int size = desc.num_experts / desc.num_groups;
  uint64_t keys[kPerLane];
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    const int g = lane + 32 * i;
    keys[i] = g < desc.num_groups
                  ? KeyOf(GroupValue(desc, scores.experts + g * size, size), g)
                  : 0;
  }
  Chooser groups(keys, 0);
  for (int i = 0; i < desc.top_groups; ++i) groups.TakeBest();
  // Marked where all lanes see it.
  for (int g = lane; g < desc.num_groups; g += 32) {
    scores.groups[g] = groups.taken() >> g / 32 & 1 ? 1.0f : 0.0f;
  }
  __syncwarp();
  Taken taken = 0;
  for (int e = lane; e < desc.num_experts; e += 32) {
    if (scores.groups[e / size] == 0.0f) taken |= 1u << e / 32;
  }
  return taken;
}

// Logits to scores: exp(logit - largest) / sum, the sigmoid, or the root of
// log(1 + e^logit).
template <int kPerLane>
__device__ void Score(const RoutingDesc& desc, const float* logits,
                      double (&scores)[kPerLane]) {
  const int lane = threadIdx.x % 32;
  const float kLeast = __uint_as_float(0xff800000u);  // -infinity
  float own[kPerLane];
  float most = kLeast;
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    const int e = lane + 32 * i;
    own[i] = e < desc.num_experts ? logits[e] : kLeast;
    most = fmaxf(most, own[i]);
  }
  if (desc.score == RoutingScore::kSigmoid) {
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      scores[i] = 1.0 / (1.0 + exp(-double{own[i]}));
    }
    return;
  }
  if (desc.score == RoutingScore::kSqrtSoftplus) {
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      const double x = own[i];
      scores[i] = sqrt(log1p(exp(-fabs(x))) + (x > 0.0 || isnan(x) ? x : 0.0));
    }
    return;
  }
  const double largest = WarpMax(most);
  double sum = 0.0;
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    const bool there = lane + 32 * i < desc.num_experts;
    scores[i] = there ? exp(own[i] - largest) : 0.0;
    sum += scores[i];
  }
  sum = WarpSum(sum);
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) scores[i] /= sum;
}

// That of number `index`, to all lanes.
template <int kPerLane>
__device__ double ScoreOf(const double (&scores)[kPerLane], int index) {
  double own = scores[0];
#pragma unroll
  for (int i = 1; i < kPerLane; ++i) {
    if (index / 32 == i) own = scores[i];
  }
  return __shfl_sync(kAll, own, index % 32);
}

// The slots of the only token, by expert.
__device__ void ListOne(const RoutingDesc& desc, const RoutingParams& params) {
  const int lane = threadIdx.x % 32;
  for (int e = lane; e <= desc.num_experts; e += 32) {
    int before = 0;
    for (int r = 0; r < desc.top_k; ++r) before += params.experts[r] < e;
    params.offsets[e] = before;
  }
  for (int r = lane; r < desc.top_k; r += 32) {
    int before = 0;
    for (int i = 0; i < desc.top_k; ++i) {
      // A table may name an expert twice.
      before += params.experts[i] < params.experts[r] ||
                (params.experts[i] == params.experts[r] && i < r);
    }
    params.slots[before] = r;
  }
}

// A warp's token.
template <int kPerLane>
__device__ void RouteToken(const RoutingDesc& desc, const RoutingParams& params,
                           int64_t token, const TokenScores& choices) {
  const int lane = threadIdx.x % 32;
  double scores[kPerLane];
  Score(desc, CudaMatrix<const float>(params.logits).row(token), scores);
  uint64_t keys[kPerLane];
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    const int e = lane + 32 * i;
    keys[i] = 0;
    if (e >= desc.num_experts) continue;
    float choice = static_cast<float>(scores[i]);
    if (params.correction != nullptr) choice += params.correction[e];
    choices.experts[e] = choice;
    keys[i] = KeyOf(choice, e);
  }
  __syncwarp();
  Chooser chooser(keys, LeaveGroups<kPerLane>(desc, choices));
  int32_t* experts = params.experts + token * desc.top_k;
  float* weights = params.weights + token * desc.top_k;
  double own[kMaxExpertsPerToken / 32] = {};  // of ranks lane, lane + 32, ..
  double sum = 0.0;
  const int32_t* const chosen =
      desc.hashed ? params.table + int64_t{params.ids[token]} * desc.top_k
                  : nullptr;
  for (int r = 0; r < desc.top_k; ++r) {
    const int e = chosen != nullptr ? chosen[r] : chooser.TakeBest();
    const double score = ScoreOf(scores, e);
    sum += score;
    if (lane == r % 32) experts[r] = e;
#pragma unroll
    for (int i = 0; i < kMaxExpertsPerToken / 32; ++i) {
      if (i * 32 + lane == r) own[i] = score;
    }
  }
  const double factor = desc.scale / (desc.normalised ? sum + kTiny : 1.0);
#pragma unroll
  for (int i = 0; i < kMaxExpertsPerToken / 32; ++i) {
    const int r = i * 32 + lane;
    if (r >= desc.top_k) break;
    double weight = own[i] * factor;
    if (desc.scales_experts) weight *= params.expert_scales[experts[r]];
    weights[r] = static_cast<float>(weight);
  }
  __syncwarp();
}

template <int kPerLane>
__global__ void __launch_bounds__(32 * kTokens)
    RouteTokens(const __grid_constant__ RoutingDesc desc,
                const __grid_constant__ RoutingParams params, int64_t tokens) {
  LetNextBegin();
  WaitForPrevious();
  __shared__ float shared[kTokens][2][kMaxExperts];
  const int warp = threadIdx.x / 32;
  const int64_t token = int64_t{blockIdx.x} * kTokens + warp;
  if (token >= tokens) return;
  RouteToken<kPerLane>(desc, params, token, {shared[warp][0], shared[warp][1]});
  if (tokens == 1) ListOne(desc, params);
}

// A warp a token; then a thread a slot finds how many come before it, and a
// thread an expert how many before its first.
template <int kPerLane>
__global__ void __launch_bounds__(32 * kFewTokens)
    RouteFewTokens(const __grid_constant__ RoutingDesc desc,
                   const __grid_constant__ RoutingParams params, int tokens) {
  LetNextBegin();
  WaitForPrevious();
  extern __shared__ float few_shared[];
  __shared__ int experts[kFewSlots];
  const int warp = threadIdx.x / 32;
  if (warp < tokens) {
    float* own = few_shared + warp * 2 * desc.num_experts;
    RouteToken<kPerLane>(desc, params, warp, {own, own + desc.num_experts});
  }
  __syncthreads();
  const int slots = tokens * desc.top_k;
  for (int i = threadIdx.x; i < slots; i += blockDim.x) {
    experts[i] = params.experts[i];
  }
  __syncthreads();
  for (int n = threadIdx.x; n < slots + desc.num_experts + 1; n += blockDim.x) {
    const bool is_slot = n < slots;
    const int expert = is_slot ? experts[n] : n - slots;
    int before = 0;
    for (int i = 0; i < slots; ++i) {
      before +=
          experts[i] < expert || (is_slot && experts[i] == expert && i < n);
    }
    if (is_slot) {
      params.slots[before] = n;
    } else {
      params.offsets[expert] = before;
    }
  }
}

// The number of threads of the block for which `yes` holds, before this one
// and in all.
struct BlockCount {
  __device__ BlockCount(bool yes, int* scratch) {
    const unsigned votes = __ballot_sync(kAll, yes);
    const int warp = threadIdx.x / 32;
    if (threadIdx.x % 32 == 0) scratch[warp] = __popc(votes);
    __syncthreads();
    before = __popc(votes & ((1u << threadIdx.x % 32) - 1));
    all = 0;
    for (int i = 0; i < kListThreads / 32; ++i) {
      if (i < warp) before += scratch[i];
      all += scratch[i];
    }
    __syncthreads();
  }
  int before;
  int all;
};

__global__ void __launch_bounds__(kListThreads)
    ListSlots(const int32_t* experts, int num_slots, int num_experts,
              int32_t* offsets, int32_t* slots) {
  LetNextBegin();
  WaitForPrevious();
  __shared__ int scratch[kListThreads / 32];
  const int own = blockIdx.x;
  int less = 0;
  for (int i = threadIdx.x; i < num_slots; i += kListThreads) {
    less += experts[i] < own;
  }
#pragma unroll
  for (int lane = 16; lane > 0; lane /= 2) {
    less += __shfl_xor_sync(kAll, less, lane);
  }
  if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = less;
  __syncthreads();
  int next = 0;
  for (int i = 0; i < kListThreads / 32; ++i) next += scratch[i];
  __syncthreads();
  if (threadIdx.x == 0) offsets[own] = next;
  for (int base = 0; base < num_slots; base += kListThreads) {
    const int i = base + threadIdx.x;
    const bool mine = i < num_slots && experts[i] == own;
    const BlockCount count(mine, scratch);
    if (mine) slots[next + count.before] = i;
    next += count.all;
  }
  if (own == num_experts - 1 && threadIdx.x == 0) offsets[num_experts] = next;
}

}  // namespace

absl::Status RunRoutingCuda(const RoutingDesc& desc,
                            const RoutingParams& params, Stream& stream) {
  constexpr char kWhat[] = "moe_routing";
  CudaStream& cuda = CudaStream::Of(stream);
  const int64_t tokens = params.logits.rows();
  const int64_t slots = tokens * desc.top_k;
  if (tokens > 1 && tokens <= kFewTokens && slots <= kFewSlots &&
      desc.num_experts <= 256) {
    // As many warps as list experts at once.
    const auto warps = static_cast<int>(std::max<int64_t>(tokens, 8));
    return LaunchCuda(
        kWhat, cuda,
        {1, 32 * warps,
         static_cast<size_t>(tokens * 2 * desc.num_experts) * sizeof(float)},
        desc.num_experts <= 128 ? RouteFewTokens<4> : RouteFewTokens<8>, desc,
        params, static_cast<int>(tokens));
  }
  INLAY_RETURN_IF_ERROR(
      LaunchCuda(kWhat, cuda, {(tokens + kTokens - 1) / kTokens, 32 * kTokens},
                 desc.num_experts <= 128   ? RouteTokens<4>
                 : desc.num_experts <= 256 ? RouteTokens<8>
                                           : RouteTokens<kMostPerLane>,
                 desc, params, tokens));
  if (tokens == 1) return absl::OkStatus();
  return LaunchCuda(kWhat, cuda, {desc.num_experts, kListThreads}, ListSlots,
                    params.experts, static_cast<int>(slots), desc.num_experts,
                    params.offsets, params.slots);
}

}  // namespace inlay
