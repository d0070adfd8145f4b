// The sampling pipeline written as plainly as possible: double precision, a
// full sort, no blocks. What the tests hold the real one against.
#ifndef INLAY_TESTS_CORE_SAMPLING_NAIVE_SAMPLER_H_
#define INLAY_TESTS_CORE_SAMPLING_NAIVE_SAMPLER_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

#include "core/sampling/sampling_params.h"

namespace inlay {

struct TokenLog {
  std::vector<int32_t> tokens;
  size_t num_prompt = 0;
};

struct NaiveDistribution {
  std::vector<double> weights;  // a token, 0 = dropped; not normalised
  double total = 0;
  // A cut lies within rounding of a token: the real sampler may decide
  // otherwise.
  bool ambiguous = false;
};

inline std::vector<float> NaiveAdjust(const SamplingParams& p,
                                      std::vector<float> x,
                                      const TokenLog& log) {
  for (const auto& [token, bias] : p.logit_bias) x[token] += bias;
  const size_t n = log.tokens.size();
  const size_t first =
      p.penalty_last_n < 0 ? 0 : n - std::min<size_t>(n, p.penalty_last_n);
  for (size_t token = 0; token < x.size(); ++token) {
    int seen = 0, generated = 0;
    for (size_t i = first; i < n; ++i) {
      if (log.tokens[i] != static_cast<int32_t>(token)) continue;
      ++seen;
      generated += i >= log.num_prompt;
    }
    if (seen > 0) {
      x[token] = x[token] > 0 ? x[token] / p.repetition_penalty
                              : x[token] * p.repetition_penalty;
    }
    if (generated > 0) {
      x[token] -= p.frequency_penalty * static_cast<float>(generated);
      x[token] -= p.presence_penalty;
    }
  }
  for (int32_t token : p.banned_tokens) {
    x[token] = -std::numeric_limits<float>::infinity();
  }
  return x;
}

inline NaiveDistribution NaiveDistributionOf(const SamplingParams& p,
                                             const std::vector<float>& x) {
  // Float weights and their sums are within 1e-6 of exact ones here.
  constexpr double kRounding = 1e-5;
  NaiveDistribution d;
  std::vector<int32_t> order(x.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int32_t a, int32_t b) { return x[a] > x[b]; });
  if (p.top_k > 0 && static_cast<size_t>(p.top_k) < order.size()) {
    order.resize(p.top_k);
  }
  std::vector<double> w;
  for (int32_t id : order) {
    w.push_back(std::exp((double{x[id]} - x[order[0]]) / p.temperature));
  }
  if (p.top_p < 1) {
    const double target = p.top_p * std::accumulate(w.begin(), w.end(), 0.0);
    double sum = 0;
    size_t kept = 0;
    do {
      sum += w[kept++];
      d.ambiguous |= std::abs(sum - target) < kRounding * target;
    } while (kept < w.size() && sum < target);
    w.resize(kept);
  }
  d.weights.assign(x.size(), 0.0);
  for (size_t i = 0; i < w.size(); ++i) {
    // A tie with the likeliest token has weight 1 exactly in both.
    d.ambiguous |= w[i] != 1 && std::abs(w[i] - p.min_p) < kRounding * p.min_p;
    if (w[i] >= p.min_p) d.weights[order[i]] = w[i];
  }
  for (double weight : d.weights) d.total += weight;
  return d;
}

// The token of uniform number u, or -1 where it lies within rounding of the
// boundary between two tokens.
inline int32_t NaiveDraw(const NaiveDistribution& d, double u) {
  constexpr double kRounding = 2e-6;
  double sum = 0;
  for (size_t i = 0; i < d.weights.size(); ++i) {
    sum += d.weights[i] / d.total;
    if (std::abs(sum - u) < kRounding) return -1;
    if (sum > u) return static_cast<int32_t>(i);
  }
  return -1;
}

}  // namespace inlay

#endif  // INLAY_TESTS_CORE_SAMPLING_NAIVE_SAMPLER_H_
