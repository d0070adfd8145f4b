// A ragged batch for the indexer's tests: index keys in a cache of scattered
// blocks, queries, and which keys a sort of all scores selects. Header only.
#ifndef INLAY_TESTS_SUPPORT_INDEXER_UTIL_H_
#define INLAY_TESTS_SUPPORT_INDEXER_UTIL_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "kernels/indexer/indexer.h"
#include "kernels/kv_write/kv_row.h"
#include "tests/support/kernel_test_util.h"

namespace inlay::testing {

class IndexerProblem {
 public:
  struct Shape {
    int q_len;
    int kv_len;
  };

  IndexerProblem(const IndexerDesc& desc, std::vector<Shape> shapes,
                 int block_size, unsigned seed)
      : desc_(desc),
        shapes_(std::move(shapes)),
        rng_(seed),
        layout_({{3, 16}, {1, desc.head_dim, 0, desc.head_dim}}, desc.kv,
                block_size) {
    int32_t blocks = 1;  // block 0 belongs to nobody
    for (const Shape& shape : shapes_) {
      std::vector<int32_t> table;
      for (int i = 0; i * block_size < shape.kv_len; ++i) {
        table.push_back(blocks++);
      }
      std::shuffle(table.begin(), table.end(), rng_);
      tables_.push_back(std::move(table));
      tokens_ += shape.q_len;
    }
    // All ones is NaN, as an element and as a scale.
    storage_.resize(layout_.block_bytes() * static_cast<size_t>(blocks),
                    std::byte{0xff});
    q_ =
        TestMatrix(desc.activation, tokens_, desc.num_heads * desc.head_dim, 8);
    weights_ = TestMatrix(DType::kF32, tokens_, desc.num_heads, 4);
    q_.Randomize(rng_);
    weights_.Randomize(rng_);
    std::normal_distribution<float> normal;
    WriteKeys([&](size_t, int, int) { return normal(rng_); });
  }

  // Everything in {-most .. most}.
  void UseIntegers(int most) {
    std::uniform_int_distribution<int> draw(-most, most);
    const auto fill = [&](TestMatrix& to) {
      for (int64_t r = 0; r < to.rows(); ++r) {
        for (int64_t c = 0; c < to.cols(); ++c) {
          to.Set(r, c, static_cast<float>(draw(rng_)));
        }
      }
    };
    fill(q_);
    fill(weights_);
    WriteKeys([&](size_t, int, int) { return static_cast<float>(draw(rng_)); });
  }
  // Scores that grow by `step` from key to key.
  void UseRamp(int step) {
    for (int64_t r = 0; r < tokens_; ++r) {
      q_.Set(r, 0, 1.0f);
      weights_.Set(r, 0, 1.0f);
    }
    WriteKeys([&](size_t s, int t, int) {
      return static_cast<float>(shapes_[s].kv_len + step * t);
    });
  }
  // One number of the first sequence: of a key, or of its last query.
  void Spoil(float value, bool in_key) {
    if (!in_key) return q_.Set(shapes_[0].q_len - 1, 1, value);
    std::vector<float> row(static_cast<size_t>(desc_.head_dim), value);
    EncodeKvRow(desc_.kv, row.data(), desc_.head_dim, KeyRow(0, 3));
  }

  // Slots as no sequence has them.
  std::vector<int32_t> NewSelection() const {
    return std::vector<int32_t>(static_cast<size_t>(tokens_ * desc_.top_k), -1);
  }
  IndexerParams Params(int32_t* selection) {
    IndexerParams params;
    params.q = q_.view();
    params.weights = weights_.view();
    params.kv = View();
    params.sequences = Sequences();
    params.selection = selection;
    return params;
  }
  absl::Span<const AttentionSequence> Sequences() {
    sequences_.clear();
    int32_t begin = 0;
    for (size_t s = 0; s < shapes_.size(); ++s) {
      sequences_.push_back(
          {begin, shapes_[s].q_len, shapes_[s].kv_len, tables_[s].data()});
      begin += shapes_[s].q_len;
    }
    return sequences_;
  }

  const IndexerDesc& desc() const { return desc_; }
  KvLayerView View() { return layout_.LayerView(1, storage_.data()); }
  std::vector<std::byte>& storage() { return storage_; }
  TestMatrix& q() { return q_; }
  TestMatrix& weights() { return weights_; }
  // Queries of Expect() whose last selected score another key has, too.
  int ties() const { return ties_; }

  // As a sort of all scores selects, but for keys whose scores are so near the
  // last selected that rounding decides; those of equal scores by position
  // where sums are exact.
  void Expect(const std::vector<int32_t>& selection) {
    ExpectOwnKeys(selection);
    int64_t row = 0;
    for (size_t s = 0; s < shapes_.size(); ++s) {
      for (int i = 0; i < shapes_[s].q_len; ++i, ++row) {
        ExpectQuery(s, row, shapes_[s].kv_len - shapes_[s].q_len + i + 1,
                    PositionsOf(s, selection, row));
      }
    }
  }

  // min(p + 1, top_k) different keys of the query's own, ascending, and nothing
  // behind them.
  void ExpectOwnKeys(const std::vector<int32_t>& selection) {
    int64_t row = 0;
    for (size_t s = 0; s < shapes_.size(); ++s) {
      for (int i = 0; i < shapes_[s].q_len; ++i, ++row) {
        const int seen = shapes_[s].kv_len - shapes_[s].q_len + i + 1;
        const std::vector<int> got = PositionsOf(s, selection, row);
        ASSERT_EQ(got.size(), static_cast<size_t>(std::min(seen, desc_.top_k)))
            << "row " << row;
        for (size_t t = 0; t < got.size(); ++t) {
          ASSERT_GE(got[t], t == 0 ? 0 : got[t - 1] + 1) << "row " << row;
        }
        ASSERT_LT(got.back(), seen) << "row " << row;
      }
    }
  }

 private:
  std::byte* KeyRow(size_t s, int t) {
    const KvLayerView kv = View();
    return kv.KeyRow(tables_[s][static_cast<size_t>(t / kv.block_size)], 0,
                     t % kv.block_size);
  }

  // value(s, t, d)
  template <typename Value>
  void WriteKeys(Value value) {
    std::vector<float> row(static_cast<size_t>(desc_.head_dim));
    for (size_t s = 0; s < shapes_.size(); ++s) {
      for (int t = 0; t < shapes_[s].kv_len; ++t) {
        for (int d = 0; d < desc_.head_dim; ++d) {
          row[static_cast<size_t>(d)] = value(s, t, d);
        }
        EncodeKvRow(desc_.kv, row.data(), desc_.head_dim, KeyRow(s, t));
      }
    }
  }

  // Of the slots before the first -1; -2 for what is no slot of the sequence.
  std::vector<int> PositionsOf(size_t s, const std::vector<int32_t>& selection,
                               int64_t row) {
    const int size = View().block_size;
    std::vector<int> positions;
    for (int i = 0; i < desc_.top_k; ++i) {
      const int32_t slot =
          selection[static_cast<size_t>(row * desc_.top_k + i)];
      if (slot == -1) break;
      const auto found =
          std::find(tables_[s].begin(), tables_[s].end(), slot / size);
      positions.push_back(slot < 0 || found == tables_[s].end()
                              ? -2
                              : static_cast<int>(found - tables_[s].begin()) *
                                        size +
                                    slot % size);
    }
    return positions;
  }

  struct Scored {
    double score;
    double error;  // that float32 sums may have
    int position;
  };

  Scored Score(size_t s, int64_t row, int t) {
    std::vector<float> key(static_cast<size_t>(desc_.head_dim));
    DecodeKvRow(desc_.kv, KeyRow(s, t), desc_.head_dim, key.data());
    Scored scored = {0.0, 0.0, t};
    for (int h = 0; h < desc_.num_heads; ++h) {
      double dot = 0.0, magnitude = 0.0;
      for (int d = 0; d < desc_.head_dim; ++d) {
        const double product = double{q_(row, h * desc_.head_dim + d)} *
                               key[static_cast<size_t>(d)];
        dot += product;
        magnitude += std::abs(product);
      }
      const double weight = weights_(row, h);
      scored.score += weight * std::max(dot, 0.0);
      // head_dim fused multiply-adds, and one a head from here on.
      scored.error += kUnitF32 * std::abs(weight) * magnitude *
                      (desc_.head_dim + desc_.num_heads + 1);
    }
    return scored;
  }

  void ExpectQuery(size_t s, int64_t row, int seen,
                   const std::vector<int>& got) {
    if (seen <= desc_.top_k) return;  // ExpectOwnKeys says it all
    std::vector<Scored> all;
    for (int t = 0; t < seen; ++t) all.push_back(Score(s, row, t));
    std::sort(all.begin(), all.end(), [](const Scored& a, const Scored& b) {
      return a.score > b.score ||
             (a.score == b.score && a.position < b.position);
    });
    const Scored& last = all[static_cast<size_t>(desc_.top_k) - 1];
    ties_ += all[static_cast<size_t>(desc_.top_k)].score == last.score;
    const bool exact = std::all_of(all.begin(), all.end(), [](const Scored& a) {
      return a.score == std::round(a.score);
    });
    for (size_t i = 0; i < all.size(); ++i) {
      const bool wanted = i < static_cast<size_t>(desc_.top_k);
      const bool selected =
          std::binary_search(got.begin(), got.end(), all[i].position);
      if (wanted == selected) continue;
      EXPECT_TRUE(!exact && std::abs(all[i].score - last.score) <=
                                all[i].error + last.error)
          << "row " << row << " key " << all[i].position << " of score "
          << all[i].score << (wanted ? " is not" : " is")
          << " selected, the last one that should be has " << last.score;
    }
  }

  IndexerDesc desc_;
  std::vector<Shape> shapes_;
  std::mt19937 rng_;
  KvLayout layout_;
  std::vector<std::byte> storage_;
  std::vector<std::vector<int32_t>> tables_;
  std::vector<AttentionSequence> sequences_;
  int64_t tokens_ = 0;
  TestMatrix q_;
  TestMatrix weights_;
  int ties_ = 0;
};

}  // namespace inlay::testing

#endif  // INLAY_TESTS_SUPPORT_INDEXER_UTIL_H_
