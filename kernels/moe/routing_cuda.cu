// moe_routing on CUDA: the arithmetic of routing_cpu.cc, in float64 where it
// is there.
//
// RouteTokens: a warp a token, kTokens a block; a lane has every 32nd expert.
// Shared memory: a token's scores and its groups' (8 KB a token). Choosing is
// top_k times the largest of a warp, by keys whose order is that of scores; a
// lane remembers its best and looks again only when that was taken. One
// token's slots are listed by its warp. ListSlots, for more tokens: a block an
// expert counts the slots of the experts before it and lists its own; no
// atomics, so that lists ascend. Neither is bound by bandwidth: both are some
// microseconds beside the products of experts.
#include "kernels/cuda_row.cuh"
#include "kernels/moe/routing.h"

namespace inlay {
namespace {

constexpr unsigned kAll = 0xffffffffu;
constexpr int kTokens = 4;  // a block
constexpr double kTiny = 1e-20;
constexpr int kListThreads = 256;

struct TokenScores {
  float experts[kMaxExperts];
  float groups[kMaxExperts];
};

// Grows with the score; NaN above all; of equal scores the lower index's is
// larger. Never 0.
__device__ uint64_t KeyOf(float score, int index) {
  uint32_t bits = __float_as_uint(score + 0.0f);  // no -0
  bits = isnan(score) ? 0xffffffffu : bits >> 31 != 0 ? ~bits : bits | 1u << 31;
  return uint64_t{bits} << 32 | static_cast<uint32_t>(~index);
}
__device__ int IndexOf(uint64_t key) {
  return static_cast<int>(~static_cast<uint32_t>(key));
}

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

// Which of a lane's numbers lane, lane + 32, .. are out of the choice.
using Taken = uint32_t;
static_assert(kMaxExperts <= 32 * 32);

// Chooses from `count` scores, the best first, those in `taken` left out.
class Chooser {
 public:
  __device__ Chooser(const float* scores, int count, Taken taken)
      : scores_(scores), count_(count), taken_(taken) {
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
    for (int i = threadIdx.x % 32; i < count_; i += 32) {
      if (taken_ >> i / 32 & 1) continue;
      const uint64_t key = KeyOf(scores_[i], i);
      own_ = key > own_ ? key : own_;
    }
  }

  const float* scores_;
  int count_;
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
__device__ Taken LeaveGroups(const RoutingDesc& desc, TokenScores& scores) {
  if (desc.top_groups == desc.num_groups) return 0;
  const int lane = threadIdx.x % 32;
  const int size = desc.num_experts / desc.num_groups;
  for (int g = lane; g < desc.num_groups; g += 32) {
    scores.groups[g] = GroupValue(desc, scores.experts + g * size, size);
  }
  __syncwarp();
  Chooser groups(scores.groups, desc.num_groups, 0);
  for (int i = 0; i < desc.top_groups; ++i) groups.TakeBest();
  // Marked where all lanes see it.
  __syncwarp();
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

// exp(logit - largest) / sum, or the sigmoid.
struct Scorer {
  __device__ Scorer(const RoutingDesc& desc, const float* logits)
      : sigmoid(desc.score == RoutingScore::kSigmoid) {
    if (sigmoid) return;
    float most = __uint_as_float(0xff800000u);  // -infinity
    for (int e = threadIdx.x % 32; e < desc.num_experts; e += 32) {
      most = fmaxf(most, logits[e]);
    }
    largest = WarpMax(most);
    sum = 0.0;
    for (int e = threadIdx.x % 32; e < desc.num_experts; e += 32) {
      sum += exp(logits[e] - largest);
    }
    sum = WarpSum(sum);
  }
  __device__ double operator()(float logit) const {
    return sigmoid ? 1.0 / (1.0 + exp(-double{logit}))
                   : exp(logit - largest) / sum;
  }
  bool sigmoid;
  double largest = 0.0;
  double sum = 1.0;
};

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
      before += params.experts[i] < params.experts[r];
    }
    params.slots[before] = r;
  }
}

__global__ void __launch_bounds__(32 * kTokens)
    RouteTokens(const __grid_constant__ RoutingDesc desc,
                const __grid_constant__ RoutingParams params, int64_t tokens) {
  LetNextBegin();
  WaitForPrevious();
  __shared__ TokenScores shared[kTokens];
  const int lane = threadIdx.x % 32;
  const int64_t token = int64_t{blockIdx.x} * kTokens + threadIdx.x / 32;
  if (token >= tokens) return;
  TokenScores& scores = shared[threadIdx.x / 32];
  const float* logits = CudaMatrix<const float>(params.logits).row(token);
  const Scorer score(desc, logits);
  for (int e = lane; e < desc.num_experts; e += 32) {
    float choice = static_cast<float>(score(logits[e]));
    if (params.correction != nullptr) choice += params.correction[e];
    scores.experts[e] = choice;
  }
  __syncwarp();
  Chooser chooser(scores.experts, desc.num_experts, LeaveGroups(desc, scores));
  int32_t* experts = params.experts + token * desc.top_k;
  float* weights = params.weights + token * desc.top_k;
  for (int r = 0; r < desc.top_k; ++r) {
    const int e = chooser.TakeBest();
    if (lane == 0) experts[r] = e;
  }
  __syncwarp();
  // A lane a rank; their sum in the order of ranks, as on the CPU.
  double own[kMaxExpertsPerToken / 32] = {};
  double sum = 0.0;
#pragma unroll
  for (int i = 0; i < kMaxExpertsPerToken / 32; ++i) {
    const int first = i * 32;
    if (first >= desc.top_k) break;
    if (first + lane < desc.top_k)
      own[i] = score(logits[experts[first + lane]]);
    for (int r = 0; r < min(32, desc.top_k - first); ++r) {
      sum += __shfl_sync(kAll, own[i], r);
    }
  }
  const double factor = desc.scale / (desc.normalised ? sum + kTiny : 1.0);
#pragma unroll
  for (int i = 0; i < kMaxExpertsPerToken / 32; ++i) {
    const int r = i * 32 + lane;
    if (r < desc.top_k) weights[r] = static_cast<float>(own[i] * factor);
  }
  if (tokens == 1) ListOne(desc, params);
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
  CudaStream& cuda = CudaStream::Of(stream);
  const int64_t tokens = params.logits.rows();
  INLAY_RETURN_IF_ERROR(LaunchCuda(
      "moe_routing", cuda, {(tokens + kTokens - 1) / kTokens, 32 * kTokens},
      RouteTokens, desc, params, tokens));
  if (tokens == 1) return absl::OkStatus();
  return LaunchCuda("moe_routing", cuda, {desc.num_experts, kListThreads},
                    ListSlots, params.experts,
                    static_cast<int>(tokens * desc.top_k), desc.num_experts,
                    params.offsets, params.slots);
}

}  // namespace inlay
