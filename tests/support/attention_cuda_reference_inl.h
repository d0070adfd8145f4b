// AttentionProblem's reference: what attention gives, in float64, and how far
// rounding may take a row of the table from it. A part of
// attention_cuda_util.h, which includes it.
#ifndef INLAY_TESTS_SUPPORT_ATTENTION_CUDA_REFERENCE_INL_H_
#define INLAY_TESTS_SUPPORT_ATTENTION_CUDA_REFERENCE_INL_H_

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "tests/support/attention_cuda_util.h"

namespace inlay::testing {

// Columns at a time in the sums below: chains of additions enough to hide their
// latency. Divides every head_dim.
inline constexpr size_t kChains = 8;

inline double Dot(const std::vector<double>& a, const float* b) {
  double sums[kChains] = {};
  for (size_t d = 0; d < a.size(); d += kChains) {
    for (size_t i = 0; i < kChains; ++i) sums[i] += a[d + i] * b[d + i];
  }
  return std::accumulate(sums, sums + kChains, 0.0);
}

// Sums over keys, kChains columns of them from `values` on, rows `dim` apart.
struct ValueSums {
  ValueSums(const std::vector<int>& keys, const std::vector<double>& weights,
            const float* values, size_t dim) {
    for (size_t n = 0; n < keys.size(); ++n) {
      const float* value = values + dim * static_cast<size_t>(keys[n]);
      for (size_t i = 0; i < kChains; ++i) {
        const double x = weights[n] * value[i];
        weighted[i] += x;
        magnitude[i] += std::abs(x);
        plain[i] += std::abs(value[i]);
      }
    }
  }
  double weighted[kChains] = {};
  double magnitude[kChains] = {};
  double plain[kChains] = {};
};

// fn(i) of 0 <= i < count, on several threads.
template <typename Fn>
void ForEachInParallel(size_t count, Fn fn) {
  std::atomic<size_t> next = 0;
  std::vector<std::thread> threads;
  const unsigned most = std::min(16u, std::thread::hardware_concurrency());
  for (unsigned i = 0; i < std::max(1u, most); ++i) {
    threads.emplace_back([&] {
      for (size_t at = next++; at < count; at = next++) fn(at);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

inline float AttentionProblem::Rounded(float x) const {
  if (desc_.activation != DType::kF16) return BF16ToF32(F32ToBF16(x));
  return F16ToF32(F32ToF16(std::clamp(x, -65504.0f, 65504.0f)));
}

inline void AttentionProblem::DecodeHead(size_t s, int kv_head,
                                         DecodedHead& head) const {
  const KvLayerView view =
      layout_.LayerView(1, const_cast<std::byte*>(storage_.data()));
  const auto dim = static_cast<size_t>(desc_.head_dim);
  const int length = shapes_[s].kv_len;
  head.keys.resize(dim * static_cast<size_t>(length));
  head.values.resize(head.keys.size());
  head.key_norms.resize(static_cast<size_t>(length));
  head.value_tops.resize(static_cast<size_t>(length));
  head.unpacked = unpacked_[s];
  for (int t = 0; t < length; ++t) {
    const int block = tables_[s][static_cast<size_t>(t / view.block_size)];
    if (block == 1 << 29) continue;
    float* key = &head.keys[dim * static_cast<size_t>(t)];
    float* value = &head.values[dim * static_cast<size_t>(t)];
    DecodeKvRow(desc_.kv, view.KeyRow(block, kv_head, t % view.block_size),
                desc_.head_dim, key);
    DecodeKvRow(desc_.kv, view.ValueRow(block, kv_head, t % view.block_size),
                desc_.head_dim, value);
    double norm = 0.0;
    double top = 0.0;
    for (size_t d = 0; d < dim; ++d) {
      if (unpacked_[s]) key[d] = Rounded(key[d]);
      if (unpacked_[s]) value[d] = Rounded(value[d]);
      norm += double{key[d]} * key[d];
      top = std::max(top, std::abs(double{value[d]}));
    }
    head.value_tops[static_cast<size_t>(t)] = top;
    head.key_norms[static_cast<size_t>(t)] = std::sqrt(norm);
  }
}

inline void AttentionProblem::ReferenceToken(size_t s, int kv_head, int token,
                                             const DecodedHead& head) {
  const int length = shapes_[s].kv_len;
  const int position = length - shapes_[s].q_len + token;
  const bool masked = !masks_.empty();
  const int end = desc_.causal && !masked ? position + 1 : length;
  const int begin =
      desc_.window > 0 && !masked ? std::max(0, end - desc_.window) : 0;
  std::vector<int> seen;
  for (int t = begin; t < end; ++t) {
    if (Sees(s, position, t)) seen.push_back(t);
  }
  const int group = desc_.num_heads / desc_.num_kv_heads;
  for (int i = 0; i < group; ++i) {
    ReferenceRow(sequences_[s].q_begin + token, kv_head * group + i, position,
                 seen, head);
  }
}

// Weights are rounded to the activations' type, but where codes of a cache of
// bytes are multiplied as they are. f8: to float16, times values' scales, in
// units of the largest scale so far; a code is at most 448. i8: those of a tile
// of 32 keys, times scales, to whole numbers of which the largest has 65,534,
// half a step each; a code is at most 127. Tiles may begin anywhere in `seen`,
// and keys be missing: their maxima are at most three of these.
inline AttentionProblem::WeightRounding AttentionProblem::RoundingOfWeights(
    const std::vector<int>& seen, const std::vector<double>& weights,
    const DecodedHead& head) const {
  const bool bytes = desc_.kv == DType::kI8 || desc_.kv == DType::kF8E4M3;
  if (!bytes || head.unpacked) {
    // Below 2^-14, f16 has an absolute error.
    return {UnitOf(desc_.activation),
            desc_.activation == DType::kF16 ? 0x1p-25 : 0.0, 0.0};
  }
  const auto top_of = [&](size_t n) {
    return head.value_tops[static_cast<size_t>(seen[n])];
  };
  double of_all = 0.0;
  double top = 0.0;
  for (size_t n = 0; n < seen.size(); ++n) {
    const bool i8 = desc_.kv == DType::kI8;
    top = std::max(top, (i8 ? weights[n] : 1.0) * top_of(n));
    if (!i8 || (n % 32 != 31 && n + 1 < seen.size())) continue;
    of_all += 3 * 32 * 0.5 / 65534 * top;
    top = 0.0;
  }
  if (desc_.kv == DType::kI8) return {0.0, 0.0, of_all};
  // 448 scales are less than twice the row's largest.
  return {0x1p-11, 0.0, 0x1p-25 * 2 * top * static_cast<double>(seen.size())};
}

inline void AttentionProblem::ReferenceRow(int row, int query_head,
                                           int position,
                                           const std::vector<int>& seen,
                                           const DecodedHead& head) {
  const auto dim = static_cast<size_t>(desc_.head_dim);
  const double sink = with_sinks_ ? sinks_[static_cast<size_t>(query_head)]
                                  : -std::numeric_limits<double>::infinity();
  double max = sink;
  double score_error = 0.0;
  std::vector<double> q(dim);
  double norm = 0.0;
  for (size_t d = 0; d < dim; ++d) {
    q[d] = q_(row, query_head * desc_.head_dim + static_cast<int64_t>(d));
    norm += q[d] * q[d];
  }
  norm = std::sqrt(norm);
  const bool whole_numbers = desc_.kv == DType::kI8 && !head.unpacked;
  double q_top = 0.0;
  for (const double x : q) q_top = std::max(q_top, std::abs(x));
  std::vector<double> scores(seen.size());
  for (size_t n = 0; n < seen.size(); ++n) {
    const auto t = static_cast<size_t>(seen[n]);
    double product = Dot(q, &head.keys[dim * t]);
    double magnitude = norm * head.key_norms[t];
    double products = desc_.head_dim + 4;
    if (!relative_.empty()) {
      const auto of_query = [&](int d) { return q[static_cast<size_t>(d)]; };
      product += relative_.Product(desc_, query_head, position - seen[n],
                                   of_query, &head.keys[dim * t], &magnitude);
      products += 2 * desc_.head_dim;
    }
    double score = product * desc_.scale;
    if (desc_.softcap > 0) {
      score = desc_.softcap * std::tanh(score / desc_.softcap);
    }
    double alibi_error = 0.0;
    if (!slopes_.empty()) {
      // Slopes in units of log 2; distances as the sum of two products with
      // one of at most 128.
      const double slope = slopes_[static_cast<size_t>(query_head)];
      score -= slope * static_cast<double>(std::abs(seen[n] - position));
      alibi_error = 4 * slope * (std::abs(seen[n] - position) + 256);
    }
    if (!bias_.empty()) {
      const double added = bias_[static_cast<size_t>(
          query_head * (2 * reach_ + 1) + reach_ +
          std::clamp(seen[n] - position, -reach_, reach_))];
      score += added;
      alibi_error = 4 * std::abs(added);
    }
    scores[n] = score;
    max = std::max(max, score);
    // As many multiply-adds in any order (the sum of |q k| is at most the
    // product of the norms), scaling; the hyperbolic tangent has a few units
    // of its own, of one.
    score_error = std::max(
        score_error,
        kUnitF32 * (products * magnitude * desc_.scale + 12 * desc_.softcap +
                    4 * std::abs(score) + alibi_error) +
            // Half a step of each element of q (attention_items_i8_sm90.h).
            (whole_numbers ? 0.5 / 32639 * q_top * desc_.scale *
                                 std::sqrt(desc_.head_dim) * head.key_norms[t]
                           : 0.0));
  }
  if (std::isinf(max)) return;  // sees nothing: zeros
  score_error += kUnitF32 * 4 * std::abs(max);
  double sum = with_sinks_ ? std::exp(sink - max) : 0.0;
  for (double& score : scores) {
    score = std::exp(score - max);  // a weight, from here on
    sum += score;
  }
  // Errors of the scores enter numerator and denominator as relative errors; so
  // do each 2^x (2^-22) and the roundings of either sum (worst case: as many as
  // keys, capped where pairwise merging bounds them).
  const double error =
      2 * score_error +
      kUnitF32 * (2.0 * std::min(seen.size(), size_t{2048}) + 64);
  const WeightRounding rounding = RoundingOfWeights(seen, scores, head);
  const auto out_dim = static_cast<size_t>(desc_.out_dim());
  for (size_t d = 0; d < out_dim; d += kChains) {
    const ValueSums sums(seen, scores, &head.values[d], dim);
    for (size_t i = 0; i < kChains; ++i) {
      const size_t at =
          static_cast<size_t>(row * out_cols() + query_head * desc_.out_dim()) +
          d + i;
      want_[at] = sums.weighted[i] / sum;
      magnitude_[at] = sums.magnitude[i] / sum;
      tolerance_[at] = magnitude_[at] * error + 1e-30;
      rounding_[at] =
          rounding.of_each * magnitude_[at] +
          (rounding.of_values * sums.plain[i] + rounding.of_all) / sum;
    }
  }
}

inline void AttentionProblem::ComputeReference(
    const std::vector<bool>& unpacked) {
  if (unpacked == unpacked_) return;
  unpacked_ = unpacked;
  const auto size = static_cast<size_t>(q_.rows() * out_cols());
  want_.assign(size, 0.0);
  tolerance_.assign(size, 1e-30);
  magnitude_.assign(size, 0.0);
  rounding_.assign(size, 0.0);
  const auto heads = static_cast<size_t>(desc_.num_kv_heads);
  std::vector<DecodedHead> decoded(shapes_.size() * heads);
  ForEachInParallel(decoded.size(), [&](size_t i) {
    DecodeHead(i / heads, static_cast<int>(i % heads), decoded[i]);
  });
  std::vector<std::pair<size_t, int>> tokens;
  for (size_t s = 0; s < shapes_.size(); ++s) {
    for (int i = 0; i < shapes_[s].q_len; ++i) tokens.push_back({s, i});
  }
  ForEachInParallel(tokens.size() * heads, [&](size_t i) {
    const auto [s, token] = tokens[i / heads];
    ReferenceToken(s, static_cast<int>(i % heads), token,
                   decoded[s * heads + i % heads]);
  });
}

}  // namespace inlay::testing

#endif  // INLAY_TESTS_SUPPORT_ATTENTION_CUDA_REFERENCE_INL_H_
