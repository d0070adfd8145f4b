// The arithmetic of moe_routing on CUDA, for its kernels and for others that
// route: routing_cpu.cc's, in float64 where it is there. A warp routes a token;
// a lane has every 32nd expert. Choosing is top_k times the largest of a warp,
// by keys whose order is that of scores.
#ifndef INLAY_KERNELS_MOE_ROUTING_CUH_
#define INLAY_KERNELS_MOE_ROUTING_CUH_

#include "kernels/cuda_row.cuh"
#include "kernels/moe/routing.h"
#include "kernels/moe/routing_key.cuh"

namespace inlay {
namespace {

constexpr unsigned kAll = 0xffffffffu;
constexpr double kTiny = 1e-20;
// Of an expert that is not there: -infinity.
constexpr float kNoLogit = -__builtin_huge_valf();

// Experts lane, lane + 32, .. are a lane's; kPerLane of them at most.
constexpr int kMostPerLane = kMaxExperts / 32;
static_assert(kMostPerLane <= 32);  // Taken

// What is out of the choice, a bit a number.
using Taken = uint32_t;

// In shared memory, of a token.
struct TokenScores {
  // What one has of `memory`, for so many experts.
  __host__ __device__ static constexpr int Bytes(int num_experts) {
    return 8 * num_experts + 8 * num_experts;
  }
  __device__ TokenScores(uint8_t* memory, int num_experts)
      : scores(reinterpret_cast<double*>(memory)),
        choices(reinterpret_cast<float*>(scores + num_experts)),
        groups(choices + num_experts) {}

  double* scores;  // [num_experts]
  float* choices;  // [num_experts]: by which groups are chosen
  float* groups;   // [num_groups]: 1: chosen
};

__device__ inline uint64_t WarpMax(uint64_t key) {
  const auto high = static_cast<uint32_t>(key >> 32);
  const uint32_t most = __reduce_max_sync(kAll, high);
  const uint32_t low = high == most ? static_cast<uint32_t>(key) : 0;
  return uint64_t{most} << 32 | __reduce_max_sync(kAll, low);
}
__device__ inline float WarpMax(float x) {
#pragma unroll
  for (int lane = 16; lane > 0; lane /= 2) {
    x = fmaxf(x, __shfl_xor_sync(kAll, x, lane));
  }
  return x;
}
__device__ inline double WarpSum(double x) {
#pragma unroll
  for (int lane = 16; lane > 0; lane /= 2) {
    x += __shfl_xor_sync(kAll, x, lane);
  }
  return x;
}

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
    if (index % 32 == static_cast<int>(threadIdx.x) % 32) {
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
      if ((taken_ >> i & 1) == 0) own_ = max(own_, keys_[i]);
    }
  }

  const uint64_t (&keys_)[kPerLane];  // 0: there is no such number
  Taken taken_;
  uint64_t own_;  // the lane's best
};

__device__ inline float GroupValue(const RoutingDesc& desc, const float* scores,
                                   int size) {
  uint64_t first = 0, second = 0;
#pragma unroll 1
  for (int i = 0; i < size; ++i) {
    const uint64_t key = KeyOf(scores[i], i);
    second = max(second, min(first, key));
    first = max(first, key);
  }
  const float best = scores[IndexOf(first)];
  if (desc.group_score == GroupScore::kMax || size == 1) return best;
  return best + scores[IndexOf(second)];
}

// What is out of the choice of experts because its group is.
template <int kPerLane>
__device__ Taken LeaveGroups(const RoutingDesc& desc,
                             const TokenScores& token) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int size = desc.num_experts / desc.num_groups;
  uint64_t keys[kPerLane];
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    const int g = lane + 32 * i;
    keys[i] = g < desc.num_groups
                  ? KeyOf(GroupValue(desc, token.choices + g * size, size), g)
                  : 0;
  }
  Chooser groups(keys, 0);
#pragma unroll 1
  for (int i = 0; i < desc.top_groups; ++i) groups.TakeBest();
    // Marked where all lanes see it.
#pragma unroll 1
  for (int g = lane; g < desc.num_groups; g += 32) {
    token.groups[g] = groups.taken() >> g / 32 & 1 ? 1.0f : 0.0f;
  }
  __syncwarp();
  Taken taken = 0;
#pragma unroll 1
  for (int e = lane; e < desc.num_experts; e += 32) {
    if (token.groups[e / size] == 0.0f) taken |= 1u << e / 32;
  }
  return taken;
}

// Of a kind but softmax, whose scores are of all experts.
__device__ inline double ScoreAlone(RoutingScore kind, double logit) {
  const bool sigmoid =
      kind == RoutingScore::kSigmoid || kind == RoutingScore::kLogitSigmoid;
  const double power = exp(-(sigmoid ? logit : fabs(logit)));
  return sigmoid
             ? 1.0 / (1.0 + power)
             : sqrt(log1p(power) + (logit > 0.0 || isnan(logit) ? logit : 0.0));
}

// A token's logits in float32 to scores: exp(logit - largest) / sum, the
// sigmoid, or the root of log(1 + e^logit). Experts that are not there have
// -infinity.
template <int kPerLane>
__device__ void Score(const RoutingDesc& desc, const float (&logits)[kPerLane],
                      double (&scores)[kPerLane]) {
  if (desc.score != RoutingScore::kSoftmax) {
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      scores[i] = ScoreAlone(desc.score, logits[i]);
    }
    return;
  }
  float most = logits[0];
#pragma unroll
  for (int i = 1; i < kPerLane; ++i) most = fmaxf(most, logits[i]);
  const double largest = WarpMax(most);
  double sum = 0.0;
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    scores[i] = exp(logits[i] - largest);
    sum += scores[i];
  }
  sum = WarpSum(sum);
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) scores[i] /= sum;
}

// RoutingScore::kSparseMixer, a warp's token. NaN is near.
template <int kPerLane>
__device__ void MixToken(const RoutingDesc& desc, const RoutingParams& params,
                         int64_t token, const float (&logits)[kPerLane]) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  uint64_t keys[kPerLane];
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    const int e = lane + 32 * i;
    keys[i] = e < desc.num_experts ? KeyOf(logits[i], e) : 0;
  }
  Chooser chooser(keys, 0);
#pragma unroll 1
  for (int r = 0; r < desc.top_k; ++r) {
    const Taken taken = chooser.taken();
    const int expert = chooser.TakeBest();
    float best = 0.0f;
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      if (i == expert / 32) best = logits[i];
    }
    best = __shfl_sync(kAll, best, expert % 32);
    double sum = 0.0;
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      const float x = logits[i];
      const bool is_far =
          __fdiv_rn(best - x, fabsf(x) > best ? fabsf(x) : best) >
          desc.threshold;
      const bool is_left =
          lane + 32 * i < desc.num_experts && (taken >> i & 1) == 0;
      if (is_left && !is_far) sum += exp(double{x} - best);
    }
    sum = WarpSum(sum);
    if (lane == 0) {
      params.experts[token * desc.top_k + r] = expert;
      params.weights[token * desc.top_k + r] =
          static_cast<float>(desc.scale / sum);
    }
  }
  // Others read what the first wrote.
  __syncwarp();
}

// A warp's token.
template <int kPerLane>
__device__ void RouteToken(const RoutingDesc& desc, const RoutingParams& params,
                           int64_t token, const float (&logits)[kPerLane],
                           const TokenScores& own) {
  if (desc.score == RoutingScore::kSparseMixer) {
    MixToken(desc, params, token, logits);
    return;
  }
  const int lane = static_cast<int>(threadIdx.x) % 32;
  double scores[kPerLane];
  Score(desc, logits, scores);
  uint64_t keys[kPerLane];
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    const int e = lane + 32 * i;
    keys[i] = 0;
    if (e < desc.num_experts) {
      float choice = desc.score == RoutingScore::kLogitSigmoid
                         ? logits[i]
                         : static_cast<float>(scores[i]);
      if (params.correction != nullptr) choice += params.correction[e];
      own.scores[e] = scores[i];
      own.choices[e] = choice;
      keys[i] = KeyOf(choice, e);
    }
  }
  __syncwarp();
  Taken taken = 0;
  if (desc.top_groups < desc.num_groups) {
    taken = LeaveGroups<kPerLane>(desc, own);
  }
  Chooser chooser(keys, taken);
  const int32_t* const chosen =
      desc.hashed ? params.table + int64_t{params.ids[token]} * desc.top_k
                  : nullptr;
  int experts[kMaxExpertsPerToken / 32] = {};  // of ranks lane, lane + 32, ..
#pragma unroll 1
  for (int r = 0; r < desc.top_k; ++r) {
    const int e = chosen != nullptr ? chosen[r] : chooser.TakeBest();
#pragma unroll
    for (int i = 0; i < kMaxExpertsPerToken / 32; ++i) {
      if (i * 32 + lane == r) experts[i] = e;
    }
  }
  double weights[kMaxExpertsPerToken / 32];
  double sum = 0.0;
#pragma unroll
  for (int i = 0; i < kMaxExpertsPerToken / 32; ++i) {
    weights[i] = i * 32 + lane < desc.top_k ? own.scores[experts[i]] : 0.0;
    sum += weights[i];
  }
  const double factor =
      desc.scale / (desc.normalised ? WarpSum(sum) + kTiny : 1.0);
#pragma unroll
  for (int i = 0; i < kMaxExpertsPerToken / 32; ++i) {
    const int r = i * 32 + lane;
    if (r >= desc.top_k) break;
    double weight = weights[i] * factor;
    if (desc.scales_experts) weight *= params.expert_scales[experts[i]];
    params.experts[token * desc.top_k + r] = experts[i];
    params.weights[token * desc.top_k + r] = static_cast<float>(weight);
  }
}

// The most tokens whose experts' lists are masks.
constexpr int kMostMaskedTokens = 64;

// In shared memory: what lists are made from where no token has an expert
// twice.
struct TokenMasks {
  unsigned long long* tokens;  // [num_experts]: a bit a token that chose it
  int* chosen;                 // [slots]: its expert
  int* starts;                 // [num_experts]: made by ListByMasks
  int* sums;                   // [32]: likewise
};

// The slots by expert. All threads of the block call it, as many as there are
// experts at least, once all wrote `masks` and met.
__device__ inline void ListByMasks(const RoutingDesc& desc,
                                   const RoutingParams& params, int tokens,
                                   const TokenMasks& masks) {
  const int e = static_cast<int>(threadIdx.x);
  const int lane = e % 32;
  const int warp = e / 32;
  const bool exists = e < desc.num_experts;
  const int own = exists ? __popcll(masks.tokens[e]) : 0;
  int sum = own;
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const int other = __shfl_up_sync(kAll, sum, step);
    if (lane >= step) sum += other;
  }
  if (lane == 31) masks.sums[warp] = sum;
  __syncthreads();
  int before = sum - own;
  for (int w = 0; w < warp; ++w) before += masks.sums[w];
  if (exists) {
    masks.starts[e] = before;
    params.offsets[e] = before;
    if (e == desc.num_experts - 1) params.offsets[e + 1] = before + own;
  }
  __syncthreads();
  const int slots = tokens * desc.top_k;
  for (int n = e; n < slots; n += static_cast<int>(blockDim.x)) {
    const int expert = masks.chosen[n];
    const unsigned long long earlier = (1ull << n / desc.top_k) - 1;
    params.slots[masks.starts[expert] +
                 __popcll(masks.tokens[expert] & earlier)] = n;
  }
}

}  // namespace
}  // namespace inlay

#endif  // INLAY_KERNELS_MOE_ROUTING_CUH_
