// moe_routing on CPU. A few thousand comparisons a token, beside the products
// of its experts: one plain row serves.
#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/moe/routing.h"
#include "memory/device/thread_pool.h"

namespace inlay {
namespace {

// A sum of this is no divisor of 0 for scores that all vanish.
constexpr double kTiny = 1e-20;

// NaN is better than all.
bool Better(float a, float b) { return !(a <= b); }

// The index of the best of `scores` that is not taken, lowest first.
int Best(const float* scores, const bool* taken, int count) {
  int best = -1;
  for (int i = 0; i < count; ++i) {
    if (taken[i]) continue;
    if (best < 0 ||
        (!std::isnan(scores[best]) && Better(scores[i], scores[best])))
      best = i;
  }
  return best;
}

float GroupValue(const RoutingDesc& desc, const float* scores, int size) {
  bool taken[kMaxExperts] = {};
  const int first = Best(scores, taken, size);
  if (desc.group_score == GroupScore::kMax || size == 1) return scores[first];
  taken[first] = true;
  return scores[first] + scores[Best(scores, taken, size)];
}

// Marks the experts of groups that are not chosen.
void LeaveGroups(const RoutingDesc& desc, const float* scores, bool* taken) {
  if (desc.top_groups == desc.num_groups) return;
  const int size = desc.num_experts / desc.num_groups;
  float values[kMaxExperts];
  bool chosen[kMaxExperts] = {};
  for (int g = 0; g < desc.num_groups; ++g) {
    values[g] = GroupValue(desc, scores + g * size, size);
  }
  for (int i = 0; i < desc.top_groups; ++i) {
    chosen[Best(values, chosen, desc.num_groups)] = true;
  }
  for (int e = 0; e < desc.num_experts; ++e) taken[e] = !chosen[e / size];
}

// Scores in float64, before any correction.
void Score(const RoutingDesc& desc, const float* logits, double* scores) {
  if (desc.score == RoutingScore::kSigmoid ||
      desc.score == RoutingScore::kLogitSigmoid) {
    for (int e = 0; e < desc.num_experts; ++e) {
      scores[e] = 1.0 / (1.0 + std::exp(-double{logits[e]}));
    }
    return;
  }
  if (desc.score == RoutingScore::kSqrtSoftplus) {
    for (int e = 0; e < desc.num_experts; ++e) {
      // log(1 + e^x) as it does not overflow; NaN stays.
      const double x = logits[e];
      scores[e] = std::sqrt(std::log1p(std::exp(-std::fabs(x))) +
                            (x > 0.0 || std::isnan(x) ? x : 0.0));
    }
    return;
  }
  double largest = -std::numeric_limits<double>::infinity();
  for (int e = 0; e < desc.num_experts; ++e) {
    largest = std::max(largest, double{logits[e]});
  }
  double sum = 0.0;
  for (int e = 0; e < desc.num_experts; ++e) {
    scores[e] = std::exp(logits[e] - largest);
    sum += scores[e];
  }
  for (int e = 0; e < desc.num_experts; ++e) scores[e] /= sum;
}

// NaN is near: it shows in the weights.
bool IsNear(float x, float best, float threshold) {
  return !((best - x) / std::max(std::fabs(x), best) > threshold);
}

// RoutingScore::kSparseMixer.
void Mix(const RoutingDesc& desc, const float* logits, int32_t* experts,
         float* weights) {
  bool taken[kMaxExperts] = {};
  for (int r = 0; r < desc.top_k; ++r) {
    const int best = Best(logits, taken, desc.num_experts);
    double sum = 0.0;
    for (int e = 0; e < desc.num_experts; ++e) {
      if (taken[e] || !IsNear(logits[e], logits[best], desc.threshold)) {
        continue;
      }
      sum += std::exp(double{logits[e]} - logits[best]);
    }
    taken[best] = true;
    experts[r] = best;
    weights[r] = static_cast<float>(desc.scale / sum);
  }
}

void Route(const RoutingDesc& desc, const RoutingParams& params,
           int64_t token) {
  const auto* logits = params.logits.row<float>(token);
  const float* correction = params.correction;
  int32_t* experts = params.experts + token * desc.top_k;
  float* weights = params.weights + token * desc.top_k;
  if (desc.score == RoutingScore::kSparseMixer) {
    Mix(desc, logits, experts, weights);
    return;
  }
  double scores[kMaxExperts];
  float choice[kMaxExperts];
  bool taken[kMaxExperts] = {};
  Score(desc, logits, scores);
  for (int e = 0; e < desc.num_experts; ++e) {
    choice[e] = desc.score == RoutingScore::kLogitSigmoid
                    ? logits[e]
                    : static_cast<float>(scores[e]);
    if (correction != nullptr) choice[e] += correction[e];
  }
  LeaveGroups(desc, choice, taken);
  double sum = 0.0;
  const int32_t* const chosen =
      desc.hashed ? params.table + int64_t{params.ids[token]} * desc.top_k
                  : nullptr;
  for (int r = 0; r < desc.top_k; ++r) {
    const int e =
        chosen != nullptr ? chosen[r] : Best(choice, taken, desc.num_experts);
    taken[e] = true;
    experts[r] = e;
    sum += scores[e];
  }
  const double factor = desc.scale / (desc.normalised ? sum + kTiny : 1.0);
  for (int r = 0; r < desc.top_k; ++r) {
    double weight = scores[experts[r]] * factor;
    if (desc.scales_experts) weight *= params.expert_scales[experts[r]];
    weights[r] = static_cast<float>(weight);
  }
}

// Counting sort: stable, so an expert's slots ascend.
void ListSlots(const RoutingDesc& desc, int64_t num_slots,
               const RoutingParams& params) {
  int32_t* const offsets = params.offsets;
  std::fill_n(offsets, desc.num_experts + 1, 0);
  for (int64_t i = 0; i < num_slots; ++i) ++offsets[params.experts[i] + 1];
  for (int e = 0; e < desc.num_experts; ++e) offsets[e + 1] += offsets[e];
  int32_t next[kMaxExperts];
  std::copy_n(offsets, desc.num_experts, next);
  for (int64_t i = 0; i < num_slots; ++i) {
    params.slots[next[params.experts[i]]++] = static_cast<int32_t>(i);
  }
}

}  // namespace

absl::Status RunRoutingCpu(const RoutingDesc& desc, const RoutingParams& params,
                           Stream& stream) {
  constexpr int64_t kGrain = 8;
  const int64_t tokens = params.logits.rows();
  stream.thread_pool()->ParallelFor(tokens, kGrain,
                                    [&](int64_t begin, int64_t end) {
                                      for (int64_t t = begin; t < end; ++t)
                                        Route(desc, params, t);
                                    });
  ListSlots(desc, tokens * desc.top_k, params);
  return absl::OkStatus();
}

}  // namespace inlay
