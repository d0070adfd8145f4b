// attention on CPUs for tests: a cache and its queries, every row held against
// a float64 softmax over what each query sees; slots that nobody wrote hold
// NaN. Header only.
#ifndef INLAY_TESTS_SUPPORT_ATTENTION_CPU_UTIL_H_
#define INLAY_TESTS_SUPPORT_ATTENTION_CPU_UTIL_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <utility>
#include <vector>

#include "kernels/attention/attention.h"
#include "kernels/attention/attention_mask.h"
#include "kernels/attention/biased_attention.h"
#include "kernels/kv_write/kv_row.h"
#include "tests/support/attention_mask_util.h"
#include "tests/support/kernel_test_util.h"
#include "tests/support/relative_rows_util.h"

// attention_cuda_util.h has some of these names one namespace out.
namespace inlay::testing::cpu {

struct SequenceShape {
  int q_len;
  int kv_len;
};

// A cache in which each sequence's blocks are scattered, and its queries.
class Problem {
 public:
  Problem(const AttentionDesc& desc, std::vector<SequenceShape> shapes,
          int block_size, unsigned seed, std::vector<TestMask> masks = {})
      : desc_(desc),
        shapes_(std::move(shapes)),
        masks_(std::move(masks)),
        rng_(seed),
        layout_(
            {{3, 16}, {desc.num_kv_heads, desc.head_dim, 0, desc.value_dim}},
            desc.kv, block_size) {
    int32_t tokens = 0;
    int32_t blocks = 1;  // block 0 belongs to nobody
    for (const SequenceShape& shape : shapes_) {
      std::vector<int32_t> table;
      for (int i = 0; i * block_size < shape.kv_len; ++i) {
        table.push_back(blocks++);
      }
      std::shuffle(table.begin(), table.end(), rng_);
      tables_.push_back(std::move(table));
      tokens += shape.q_len;
    }
    // All ones is NaN, as an element and as a scale.
    storage_.resize(layout_.block_bytes() * static_cast<size_t>(blocks),
                    std::byte{0xff});
    q_ = TestMatrix(DType::kF32, tokens, desc.num_heads * desc.head_dim, 5);
    q_.Randomize(rng_, 2.0f);
    WriteCache();
    std::normal_distribution<float> normal;
    for (int h = 0; h < desc.num_heads; ++h) sinks_.push_back(normal(rng_));
  }

  AttentionParams Params(TestMatrix& out) {
    AttentionParams params;
    params.q = q_.view();
    params.out = out.view();
    params.kv = View();
    int32_t begin = 0;
    sequences_.clear();
    for (size_t s = 0; s < shapes_.size(); ++s) {
      sequences_.push_back(
          {begin, shapes_[s].q_len, shapes_[s].kv_len, tables_[s].data()});
      begin += shapes_[s].q_len;
    }
    params.sequences = sequences_;
    if (with_sinks_) params.sinks = sinks_.data();
    if (!slopes_.empty()) params.alibi_slopes = slopes_.data();
    if (!masks_.empty()) {
      std::vector<AttentionMaskSpec> specs;
      for (const TestMask& mask : masks_) specs.push_back(mask.Spec());
      auto mask = CompileAttentionMask(desc_, sequences_, specs);
      EXPECT_TRUE(mask.ok()) << mask.status();
      mask_ = *std::move(mask);
      params.mask = &mask_;
    }
    return params;
  }

  void ComputeReference();
  void Check(TestCpu& cpu);

  const AttentionDesc& desc() const { return desc_; }
  void set_sinks(bool on) { with_sinks_ = on; }
  void set_alibi() {
    slopes_.resize(static_cast<size_t>(desc_.num_heads));
    FillAlibiSlopes(desc_.num_heads, slopes_.data());
  }
  // biased_attention's, drawn.
  void set_bias(int reach) {
    reach_ = reach;
    std::normal_distribution<float> normal;
    bias_.resize(static_cast<size_t>(desc_.num_heads * (2 * reach + 1)));
    for (float& x : bias_) x = 2.0f * normal(rng_);
  }
  ScoreBias bias() const { return {bias_.data(), reach_}; }
  // disentangled_attention's, drawn.
  void set_relative(int reach, int exact,
                    RelativeTables tables = RelativeTables::kBoth) {
    relative_ = TestRelativeRows(desc_, reach, exact, tables, 3, 99);
  }
  RelativeRows relative() { return relative_.view(); }
  TestMatrix NewOutput() const {
    return TestMatrix(DType::kF32, q_.rows(), desc_.num_heads * desc_.out_dim(),
                      2);
  }

 private:
  KvLayerView View() { return layout_.LayerView(1, storage_.data()); }

  void WriteCache() {
    const KvLayerView view = View();
    std::normal_distribution<float> normal;
    for (size_t s = 0; s < shapes_.size(); ++s) {
      // What lies outside of what a mask shows stays NaN.
      std::pair<int, int> seen{0, shapes_[s].kv_len - 1};
      if (!masks_.empty()) {
        seen = SeenKeys(masks_[s], desc_, shapes_[s].q_len, shapes_[s].kv_len);
      }
      for (int t = seen.first; t <= seen.second; ++t) {
        const int block = tables_[s][static_cast<size_t>(t / view.block_size)];
        for (int h = 0; h < desc_.num_kv_heads; ++h) {
          for (std::byte* to : {view.KeyRow(block, h, t % view.block_size),
                                view.ValueRow(block, h, t % view.block_size)}) {
            std::vector<float> row(static_cast<size_t>(desc_.head_dim));
            for (float& x : row) x = normal(rng_);
            EncodeKvRow(desc_.kv, row.data(), desc_.head_dim, to);
          }
        }
      }
    }
  }

  void ReferenceQuery(size_t s, int row, int index, int head);
  // The boolean matrix.
  bool Sees(size_t s, int position, int t) const {
    static const TestMask no_mask;
    return (masks_.empty() ? no_mask : masks_[s]).Sees(desc_, position, t);
  }
  std::vector<float> Decode(const std::byte* row) const {
    std::vector<float> x(static_cast<size_t>(desc_.head_dim));
    DecodeKvRow(desc_.kv, row, desc_.head_dim, x.data());
    return x;
  }

  AttentionDesc desc_;
  std::vector<SequenceShape> shapes_;
  std::vector<TestMask> masks_;  // of each sequence, or none
  std::mt19937 rng_;
  KvLayout layout_;
  std::vector<std::byte> storage_;
  std::vector<std::vector<int32_t>> tables_;
  std::vector<AttentionSequence> sequences_;
  TestMatrix q_;
  std::vector<float> sinks_;
  std::vector<float> slopes_;
  std::vector<float> bias_;  // of each head and distance
  int reach_ = 0;
  TestRelativeRows relative_;
  AttentionMask mask_;
  bool with_sinks_ = false;
  std::vector<double> want_;
  std::vector<double> tolerance_;
};

inline void Problem::ReferenceQuery(size_t s, int row, int index, int head) {
  const KvLayerView view = View();
  const int kv_head = head / (desc_.num_heads / desc_.num_kv_heads);
  const int position = shapes_[s].kv_len - shapes_[s].q_len + index;
  std::vector<double> scores(static_cast<size_t>(shapes_[s].kv_len),
                             -std::numeric_limits<double>::infinity());
  double max = with_sinks_ ? sinks_[static_cast<size_t>(head)]
                           : -std::numeric_limits<double>::infinity();
  double score_error = 0.0;
  for (int t = 0; t < shapes_[s].kv_len; ++t) {
    if (!Sees(s, position, t)) continue;
    const int block = tables_[s][static_cast<size_t>(t / view.block_size)];
    const std::vector<float> key =
        Decode(view.KeyRow(block, kv_head, t % view.block_size));
    double dot = 0.0;
    double magnitude = 0.0;
    for (int d = 0; d < desc_.head_dim; ++d) {
      const double product = double{q_(row, head * desc_.head_dim + d)} *
                             key[static_cast<size_t>(d)];
      dot += product;
      magnitude += std::abs(product);
    }
    int products = desc_.head_dim;
    if (!relative_.empty()) {
      const auto q = [&](int d) { return q_(row, head * desc_.head_dim + d); };
      dot += relative_.Product(desc_, head, position - t, q, key.data(),
                               &magnitude);
      products *= 3;
    }
    double score = dot * desc_.scale;
    if (desc_.softcap > 0) {
      score = desc_.softcap * std::tanh(score / desc_.softcap);
    }
    if (!slopes_.empty()) {
      score -= double{slopes_[static_cast<size_t>(head)]} *
               static_cast<double>(std::abs(t - position));
    }
    double added = 0.0;
    if (!bias_.empty()) {
      added =
          bias_[static_cast<size_t>(head * (2 * reach_ + 1) + reach_ +
                                    std::clamp(t - position, -reach_, reach_))];
    }
    score += added;
    scores[static_cast<size_t>(t)] = score;
    max = std::max(max, score);
    // As many fused multiply-adds in any order, the scale, and the softcap
    // (whose slope is at most 1, with a few roundings of its own), adding
    // ALiBi's term or a bias, the subtraction of the maximum.
    score_error = std::max(
        score_error,
        kUnitF32 * ((products + 2) * magnitude * desc_.scale +
                    6 * desc_.softcap + 2 * std::abs(score) + std::abs(added)));
  }
  const bool sees_nothing = std::isinf(max);
  if (sees_nothing) max = 0.0;
  score_error += kUnitF32 * 2 * std::abs(max);
  double sum =
      with_sinks_ ? std::exp(sinks_[static_cast<size_t>(head)] - max) : 0.0;
  for (const double score : scores) sum += std::exp(score - max);
  std::vector<double> values(static_cast<size_t>(desc_.out_dim()));
  std::vector<double> magnitudes(values.size());
  for (int t = 0; t < shapes_[s].kv_len; ++t) {
    const double p = std::exp(scores[static_cast<size_t>(t)] - max) / sum;
    if (sees_nothing || p == 0.0) continue;
    const int block = tables_[s][static_cast<size_t>(t / view.block_size)];
    const std::vector<float> v =
        Decode(view.ValueRow(block, kv_head, t % view.block_size));
    for (size_t d = 0; d < values.size(); ++d) {
      values[d] += p * v[d];
      magnitudes[d] += p * std::abs(v[d]);
    }
  }
  for (size_t d = 0; d < values.size(); ++d) {
    want_.push_back(values[d]);
    // Errors of the scores enter numerator and denominator as relative errors;
    // so do each exp (3 units) and the kv_len roundings of either sum, the
    // rescalings and the division.
    tolerance_.push_back(
        magnitudes[d] *
            (2 * score_error + kUnitF32 * (2 * shapes_[s].kv_len + 24)) +
        1e-30);
  }
}

inline void Problem::ComputeReference() {
  want_.clear();
  tolerance_.clear();
  int row = 0;
  for (size_t s = 0; s < shapes_.size(); ++s) {
    for (int i = 0; i < shapes_[s].q_len; ++i, ++row) {
      for (int head = 0; head < desc_.num_heads; ++head) {
        ReferenceQuery(s, row, i, head);
      }
    }
  }
}

inline void Problem::Check(TestCpu& cpu) {
  ComputeReference();
  const auto compare = [&](const TestMatrix& out) {
    const auto at = [&](const std::vector<double>& values) {
      return [&](int64_t r, int64_t c) {
        return values[static_cast<size_t>(r * out.cols() + c)];
      };
    };
    ExpectClose(out, at(want_), at(tolerance_));
  };
  if (!bias_.empty()) {
    return ForEachCpuRow(
        BiasedAttentionTable(), desc_, cpu, [&](const BiasedAttentionRow& row) {
          TestMatrix out = NewOutput();
          const BiasedAttentionParams params = {Params(out), bias()};
          ASSERT_TRUE(ValidateBiasedAttention(desc_, params).ok());
          ASSERT_TRUE(row.run(desc_, params, *cpu.stream).ok());
          compare(out);
        });
  }
  if (!relative_.empty()) {
    return ForEachCpuRow(
        DisentangledAttentionTable(), desc_, cpu,
        [&](const DisentangledAttentionRow& row) {
          TestMatrix out = NewOutput();
          const DisentangledAttentionParams params = {Params(out), relative()};
          const absl::Status valid =
              ValidateDisentangledAttention(desc_, params);
          ASSERT_TRUE(valid.ok()) << valid;
          ASSERT_TRUE(row.run(desc_, params, *cpu.stream).ok());
          compare(out);
        });
  }
  ForEachCpuRow(AttentionTable(), desc_, cpu, [&](const AttentionRow& row) {
    TestMatrix out = NewOutput();
    const AttentionParams params = Params(out);
    ASSERT_TRUE(ValidateAttention(desc_, params).ok());
    ASSERT_TRUE(row.run(desc_, params, *cpu.stream).ok());
    compare(out);
  });
}

inline AttentionDesc Desc(int heads, int kv_heads, int head_dim,
                          DType kv = DType::kF32) {
  AttentionDesc desc;
  desc.num_heads = heads;
  desc.num_kv_heads = kv_heads;
  desc.head_dim = head_dim;
  desc.kv = kv;
  desc.scale = 1.0f / std::sqrt(static_cast<float>(head_dim));
  return desc;
}

}  // namespace inlay::testing::cpu

#endif  // INLAY_TESTS_SUPPORT_ATTENTION_CPU_UTIL_H_
