// Problems for the tests of selected keys. For the indexer a ragged batch:
// index keys in a cache of scattered blocks, queries, and which keys a sort of
// all scores selects; for attention a sequence with selections and a float64
// softmax. Header only.
#ifndef INLAY_TESTS_SUPPORT_INDEXER_UTIL_H_
#define INLAY_TESTS_SUPPORT_INDEXER_UTIL_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "kernels/attention/attention.h"
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
    return std::vector<int32_t>(static_cast<size_t>(tokens_ * desc_.width()),
                                -1);
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

  // Of a problem that adds what is to come (IndexerDesc::adds_partial):
  // `without` is what the same problem without gives.
  void ExpectPartial(const std::vector<int32_t>& selection,
                     const std::vector<int32_t>& without) {
    const int size = View().block_size;
    const int32_t* got = selection.data();
    const int32_t* own = without.data();
    for (size_t s = 0; s < shapes_.size(); ++s) {
      for (int i = 0; i < shapes_[s].q_len; ++i) {
        const int seen = shapes_[s].kv_len - shapes_[s].q_len + i + 1;
        const int key = seen / desc_.key_tokens;
        const int count = std::min(key, desc_.top_k);
        std::vector<int32_t> want(own, own + count);
        if (seen % desc_.key_tokens != 0) {
          want.push_back(tables_[s][static_cast<size_t>(key / size)] * size +
                         key % size);
        }
        want.resize(static_cast<size_t>(desc_.width()), -1);
        EXPECT_EQ(std::vector<int32_t>(got, got + desc_.width()), want)
            << "sequence " << s << " query " << i;
        got += desc_.width();
        own += desc_.top_k;
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

// One sequence of attention over keys that were selected.
class SelectedProblem {
 public:
  SelectedProblem(const AttentionDesc& desc, int q_len, int kv_len,
                  int block_size)
      : desc_(desc),
        q_len_(q_len),
        kv_len_(kv_len),
        layout_({{desc.num_kv_heads, desc.head_dim, 0, desc.value_dim}},
                desc.kv, block_size),
        blocks_(static_cast<size_t>((kv_len + block_size - 1) / block_size)) {
    std::mt19937 rng(9);
    std::iota(blocks_.begin(), blocks_.end(), 1);
    std::shuffle(blocks_.begin(), blocks_.end(), rng);
    storage_.resize(layout_.block_bytes() * (blocks_.size() + 1),
                    std::byte{0xff});
    const KvLayerView kv = View();
    std::normal_distribution<float> normal;
    for (int t = 0; t < kv_len; ++t) {
      const int block = blocks_[static_cast<size_t>(t / block_size)];
      for (int h = 0; h < desc.num_kv_heads; ++h) {
        for (std::byte* to : {kv.KeyRow(block, h, t % block_size),
                              kv.ValueRow(block, h, t % block_size)}) {
          std::vector<float> row(static_cast<size_t>(desc.head_dim));
          for (float& x : row) x = normal(rng);
          EncodeKvRow(desc.kv, row.data(), desc.head_dim, to);
        }
      }
    }
    q_ = TestMatrix(desc.activation, q_len, desc.num_heads * desc.head_dim, 8);
    q_.Randomize(rng, 2.0f);
  }

  std::vector<std::byte>& storage() { return storage_; }
  TestMatrix& q() { return q_; }
  KvLayerView View() { return layout_.LayerView(0, storage_.data()); }
  AttentionParams Params(TestMatrix& out) {
    AttentionParams params;
    params.q = q_.view();
    params.out = out.view();
    params.kv = View();
    sequence_ = {0, q_len_, kv_len_, blocks_.data()};
    params.sequences = absl::MakeConstSpan(&sequence_, 1);
    return params;
  }
  TestMatrix NewOutput() const {
    return TestMatrix(desc_.activation, q_len_,
                      desc_.num_heads * desc_.out_dim(), 8);
  }
  int32_t Slot(int position) {
    const int size = View().block_size;
    return blocks_[static_cast<size_t>(position / size)] * size +
           position % size;
  }
  // Of query i: some of the keys that it sees, ascending.
  std::vector<int> Draw(int i, std::mt19937& rng) const {
    std::vector<int> all(static_cast<size_t>(kv_len_ - q_len_ + i + 1));
    std::iota(all.begin(), all.end(), 0);
    std::vector<int> drawn;
    std::sample(all.begin(), all.end(), std::back_inserter(drawn),
                desc_.selects, rng);
    return drawn;
  }
  // Draws a selection for every query.
  std::vector<int32_t> DrawAll() {
    std::mt19937 rng(7);
    std::vector<int32_t> selection(static_cast<size_t>(q_len_ * desc_.selects),
                                   -1);
    drawn_.clear();
    for (int i = 0; i < q_len_; ++i) {
      drawn_.push_back(Draw(i, rng));
      for (size_t t = 0; t < drawn_.back().size(); ++t) {
        selection[static_cast<size_t>(i * desc_.selects) + t] =
            Slot(drawn_.back()[t]);
      }
    }
    return selection;
  }
  // That `out` is a softmax over what DrawAll() drew. `rounding`: of weights
  // and outputs, relative.
  void Expect(const TestMatrix& out, double rounding) {
    const auto dim = static_cast<size_t>(desc_.out_dim());
    for (int i = 0; i < q_len_; ++i) {
      for (int head = 0; head < desc_.num_heads; ++head) {
        double sum = 0.0, error = 0.0;
        std::vector<double> want(dim), magnitude(dim);
        for (const int t : drawn_[static_cast<size_t>(i)]) {
          double products = 0.0;
          // Scores are a few units, so no weight overflows.
          const double weight = std::exp(Score(i, head, t, &products));
          // Roundings of a sum of head_dim products, of the scale and of exp.
          error =
              std::max(error, kUnitF32 * ((desc_.head_dim + 2) * products + 8));
          const std::vector<float> value = Value(head, t);
          sum += weight;
          for (size_t d = 0; d < dim; ++d) {
            want[d] += weight * value[d];
            magnitude[d] += weight * std::abs(value[d]);
          }
        }
        const auto keys =
            static_cast<double>(drawn_[static_cast<size_t>(i)].size());
        for (size_t d = 0; d < dim; ++d) {
          // In the numerator and in the denominator.
          const double tolerance =
              magnitude[d] / sum *
                  (2 * error + kUnitF32 * (2 * keys + 24) + 2 * rounding) +
              1e-6 * rounding;
          ASSERT_NEAR(out(i, head * static_cast<int64_t>(dim) +
                                 static_cast<int64_t>(d)),
                      want[d] / sum, tolerance)
              << "query " << i << " head " << head << " " << d;
        }
      }
    }
  }

 private:
  // `products`: the sum of the products' magnitudes.
  double Score(int i, int head, int position, double* products) {
    const KvLayerView kv = View();
    std::vector<float> key(static_cast<size_t>(desc_.head_dim));
    const int kv_head = head / (desc_.num_heads / desc_.num_kv_heads);
    const int slot = Slot(position);
    DecodeKvRow(desc_.kv,
                kv.KeyRow(slot / kv.block_size, kv_head, slot % kv.block_size),
                desc_.head_dim, key.data());
    double dot = 0.0;
    for (int d = 0; d < desc_.head_dim; ++d) {
      const double product = double{q_(i, head * desc_.head_dim + d)} *
                             key[static_cast<size_t>(d)];
      dot += product;
      *products += std::abs(product) * desc_.scale;
    }
    return dot * desc_.scale;
  }
  std::vector<float> Value(int head, int position) {
    const KvLayerView kv = View();
    std::vector<float> value(static_cast<size_t>(desc_.head_dim));
    const int slot = Slot(position);
    DecodeKvRow(desc_.kv,
                kv.ValueRow(slot / kv.block_size,
                            head / (desc_.num_heads / desc_.num_kv_heads),
                            slot % kv.block_size),
                desc_.head_dim, value.data());
    return value;
  }

  AttentionDesc desc_;
  int q_len_;
  int kv_len_;
  KvLayout layout_;
  std::vector<int32_t> blocks_;
  std::vector<std::byte> storage_;
  AttentionSequence sequence_;
  std::vector<std::vector<int>> drawn_;
  TestMatrix q_;
};

// Of one KV head whose values lie in its keys.
inline AttentionDesc LatentDesc(int heads, int head_dim, int value_dim,
                                DType kv) {
  AttentionDesc desc;
  desc.num_heads = heads;
  desc.num_kv_heads = 1;
  desc.head_dim = head_dim;
  desc.value_dim = value_dim;
  desc.kv = kv;
  desc.scale = 1.0f / std::sqrt(static_cast<float>(head_dim));
  return desc;
}

}  // namespace inlay::testing

#endif  // INLAY_TESTS_SUPPORT_INDEXER_UTIL_H_
