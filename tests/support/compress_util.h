// Problems for the tests of compressed keys: a ragged batch whose tokens have
// values and gates in a cache of scattered blocks, and what they become in
// float64; and one whose keys of tokens and compressed keys lie in two groups,
// and which slots its queries see. Header only.
#ifndef INLAY_TESTS_SUPPORT_COMPRESS_UTIL_H_
#define INLAY_TESTS_SUPPORT_COMPRESS_UTIL_H_

#include <algorithm>
#include <cmath>
#include <random>
#include <utility>
#include <vector>

#include "kernels/kv_compress/kv_compress.h"
#include "kernels/kv_compress/kv_select.h"
#include "kernels/kv_write/kv_row.h"
#include "tests/support/kernel_test_util.h"

namespace inlay::testing {

// q_len and kv_len of sequences.
using CompressShapes = std::vector<std::pair<int, int>>;

// Their block tables in a group, and sequences that have these.
class CompressTables {
 public:
  CompressTables(const CompressShapes& shapes, int block_size,
                 int32_t* next_block, std::mt19937& rng) {
    int32_t begin = 0;
    for (const auto& [q_len, kv_len] : shapes) {
      std::vector<int32_t>& table = tables_.emplace_back();
      for (int i = 0; i * block_size < kv_len; ++i) {
        table.push_back((*next_block)++);
      }
      std::shuffle(table.begin(), table.end(), rng);
      sequences_.push_back({begin, q_len, kv_len, nullptr});
      begin += q_len;
    }
    num_tokens_ = begin;
  }
  absl::Span<const AttentionSequence> sequences() {
    for (size_t s = 0; s < tables_.size(); ++s) {
      sequences_[s].blocks = tables_[s].data();
    }
    return sequences_;
  }
  int64_t num_tokens() const { return num_tokens_; }
  int64_t num_blocks() const {
    int64_t blocks = 0;
    for (const auto& table : tables_) {
      blocks += static_cast<int64_t>(table.size());
    }
    return blocks;
  }

 private:
  std::vector<std::vector<int32_t>> tables_;
  std::vector<AttentionSequence> sequences_;
  int64_t num_tokens_ = 0;
};

class CompressProblem {
 public:
  CompressProblem(const KvCompressDesc& desc, const CompressShapes& shapes,
                  int block_size, unsigned seed)
      : desc_(desc),
        rng_(seed),
        layout_({{1, 24}, {desc.num_heads(), desc.head_dim}}, desc.kv,
                block_size),
        tables_(shapes, block_size, &blocks_, rng_) {
    // All ones is NaN, as an element and as a scale.
    storage_.resize(layout_.block_bytes() * static_cast<size_t>(blocks_),
                    std::byte{0xff});
    bias_ = TestMatrix(DType::kF32, desc.row_tokens,
                       int64_t{desc.num_heads()} * desc.head_dim);
    bias_.Randomize(rng_);
    std::normal_distribution<float> normal(0.0f, 2.0f);
    std::vector<float> row(static_cast<size_t>(desc.head_dim));
    const KvLayerView kv = View();
    for (const AttentionSequence& sequence : tables_.sequences()) {
      // What is before the reach of the first query is not there.
      const int first =
          std::max(0, sequence.kv_len - sequence.q_len + 1 - desc.reach());
      for (int p = first; p < sequence.kv_len; ++p) {
        for (int head = 0; head < desc.num_heads(); ++head) {
          const int64_t block = sequence.blocks[p / block_size];
          for (std::byte* to : {kv.KeyRow(block, head, p % block_size),
                                kv.ValueRow(block, head, p % block_size)}) {
            for (float& x : row) x = normal(rng_);
            EncodeKvRow(desc.kv, row.data(), desc.head_dim, to);
          }
        }
      }
    }
  }

  const KvCompressDesc& desc() const { return desc_; }
  KvLayerView View() { return layout_.LayerView(1, storage_.data()); }
  std::vector<std::byte>& storage() { return storage_; }
  TestMatrix& bias() { return bias_; }
  CompressTables& tables() { return tables_; }
  TestMatrix NewOutput() const {
    return TestMatrix(desc_.activation, tables_.num_tokens(), desc_.head_dim,
                      8);
  }

  KvCompressParams Params(TestMatrix& y) {
    KvCompressParams params;
    params.kv = View();
    params.bias = bias_.floats();
    params.sequences = tables_.sequences();
    params.y = y.view();
    return params;
  }

  // `unit`: the relative error of one rounding of y.
  void Expect(const TestMatrix& y, double unit) {
    for (const AttentionSequence& sequence : tables_.sequences()) {
      for (int i = 0; i < sequence.q_len; ++i) {
        const int p = sequence.kv_len - sequence.q_len + i;
        for (int d = 0; d < desc_.head_dim; ++d) {
          double size = 0.0, gates = 0.0;
          const double want = Expected(sequence, p, d, &size, &gates);
          // A weight: the sum of gate and bias, less the largest, and e^x off
          // by 2 units in the last place; it is in the numerator and in the
          // denominator, as are the sums of 2 * row_tokens of them; division.
          const double roundings =
              2.0 * (3.0 * gates + 4.0 + 2.0 * desc_.row_tokens) + 2.0;
          ASSERT_NEAR(y(sequence.q_begin + i, d), want,
                      kUnitF32 * roundings * size + unit * std::fabs(want))
              << "position " << p << " dimension " << d;
        }
      }
    }
    EXPECT_TRUE(y.PaddingIsPoisoned());
  }

 private:
  float At(bool gate, const AttentionSequence& sequence, int p, int head,
           int d) {
    const KvLayerView kv = View();
    const int64_t block = sequence.blocks[p / kv.block_size];
    std::vector<float> row(static_cast<size_t>(desc_.head_dim));
    DecodeKvRow(desc_.kv,
                gate ? kv.ValueRow(block, head, p % kv.block_size)
                     : kv.KeyRow(block, head, p % kv.block_size),
                desc_.head_dim, row.data());
    return row[static_cast<size_t>(d)];
  }

  // `size`: of the largest value; `gates`: of the largest gate and bias.
  double Expected(const AttentionSequence& sequence, int p, int d, double* size,
                  double* gates) {
    const int r = desc_.row_tokens;
    if ((p + 1) % r != 0) return 0.0;
    double sum = 0.0, weights = 0.0;
    const auto add = [&](int at, int head) {
      const double gate =
          At(true, sequence, at, head, d) +
          double{bias_(at % r, int64_t{head} * desc_.head_dim + d)};
      const double value = At(false, sequence, at, head, d);
      sum += std::exp(gate) * value;
      weights += std::exp(gate);
      *gates = std::max(*gates, std::fabs(gate));
      *size = std::max(*size, std::fabs(value));
    };
    for (int j = p + 1 - r; j <= p; ++j) {
      if (desc_.overlaps && j - r >= 0) add(j - r, 0);
      add(j, desc_.overlaps ? 1 : 0);
    }
    return sum / weights;
  }

  KvCompressDesc desc_;
  std::mt19937 rng_;
  KvLayout layout_;
  int32_t blocks_ = 1;  // block 0 belongs to nobody
  CompressTables tables_;
  std::vector<std::byte> storage_;
  TestMatrix bias_;
};

class SelectProblem {
 public:
  SelectProblem(const KvSelectDesc& desc, const CompressShapes& shapes,
                DType kv, unsigned seed)
      : desc_(desc),
        rng_(seed),
        layout_({{1, 40, desc.window},
                 {1, 24, desc.window, 24, 1, true},
                 {1, 56},
                 {1, 24, 0, 24, desc.row_tokens, true}},
                kv, 16),
        near_tables_(shapes, TokensABlock(1), &blocks_, rng_),
        far_tables_(shapes, TokensABlock(3), &blocks_, rng_) {
    storage_.resize(layout_.block_bytes() * static_cast<size_t>(blocks_));
    selection_.assign(
        static_cast<size_t>(near_tables_.num_tokens() * desc.selects()), -1);
    chosen_.assign(static_cast<size_t>(near_tables_.num_tokens() * desc.most),
                   -1);
    for (const AttentionSequence& sequence : far_tables_.sequences()) {
      for (int i = 0; i < sequence.q_len; ++i) {
        const int64_t row = sequence.q_begin + i;
        const int count = KeysOf(sequence, i);
        for (int k = 0; k < NumFar(sequence, i); ++k) {
          chosen_[static_cast<size_t>(row * desc.most + k)] =
              SlotOf(sequence, Chosen(count, NumFar(sequence, i), k));
        }
      }
    }
  }

  const KvSelectDesc& desc() const { return desc_; }
  KvLayerView Near() { return layout_.LayerView(1, storage_.data()); }
  KvLayerView Far() { return layout_.LayerView(3, storage_.data()); }
  int TokensABlock(int layer) const {
    return layout_.groups()[layout_.group_of(layer)].block_size;
  }
  CompressTables& near_tables() { return near_tables_; }
  CompressTables& far_tables() { return far_tables_; }
  std::vector<int32_t>& selection() { return selection_; }
  std::vector<int32_t>& chosen() { return chosen_; }

  KvSelectParams Params() {
    KvSelectParams params;
    params.tokens = near_tables_.num_tokens();
    params.near = Near();
    params.far = Far();
    params.near_sequences = near_tables_.sequences();
    params.far_sequences = far_tables_.sequences();
    params.chosen = desc_.is_chosen ? chosen_.data() : nullptr;
    params.selection = selection_.data();
    return params;
  }

  // Each slot names, in the view of all rows, the very row of the key; there
  // are as many as KeyMix says, and nothing behind them.
  void Expect(const std::vector<int32_t>& selection) {
    const KvLayerView rows = Near().InRows();
    for (size_t s = 0; s < near_tables_.sequences().size(); ++s) {
      const AttentionSequence& near = near_tables_.sequences()[s];
      const AttentionSequence& far = far_tables_.sequences()[s];
      for (int i = 0; i < near.q_len; ++i) {
        const int p = near.kv_len - near.q_len + i;
        std::vector<const std::byte*> want;
        const KvLayerView layer = Near();
        for (int k = std::max(0, p + 1 - desc_.window); k <= p; ++k) {
          want.push_back(layer.KeyRow(near.blocks[k / layer.block_size], 0,
                                      k % layer.block_size));
        }
        const int num_far = NumFar(far, i);
        for (int k = 0; k < num_far; ++k) {
          const int key =
              desc_.is_chosen ? Chosen(KeysOf(far, i), num_far, k) : k;
          const int32_t slot = SlotOf(far, key);
          want.push_back(Far().KeyRow(slot / Far().block_size, 0,
                                      slot % Far().block_size));
        }
        ASSERT_EQ(static_cast<size_t>(desc_.mix().Count(desc_.selects(), p)),
                  want.size());
        const int32_t* got =
            selection.data() + (near.q_begin + i) * desc_.selects();
        for (size_t k = 0; k < want.size(); ++k) {
          ASSERT_EQ(rows.KeyRow(got[k] / rows.block_size, 0,
                                got[k] % rows.block_size),
                    want[k])
              << "position " << p << " key " << k;
        }
        for (auto k = static_cast<int>(want.size()); k < desc_.selects(); ++k) {
          ASSERT_EQ(got[k], -1);
        }
      }
    }
  }

 private:
  // Compressed keys there are for query `i`.
  int KeysOf(const AttentionSequence& sequence, int i) const {
    return (sequence.kv_len - sequence.q_len + i + 1) / desc_.row_tokens;
  }
  int NumFar(const AttentionSequence& sequence, int i) const {
    return std::min(KeysOf(sequence, i), desc_.most);
  }
  // The k-th of `num` keys spread over `count`, the last ones.
  static int Chosen(int count, int num, int k) { return count - num + k; }
  int32_t SlotOf(const AttentionSequence& sequence, int key) {
    const int size = Far().block_size;
    return sequence.blocks[key / size] * size + key % size;
  }

  KvSelectDesc desc_;
  std::mt19937 rng_;
  KvLayout layout_;
  int32_t blocks_ = 1;
  CompressTables near_tables_;
  CompressTables far_tables_;
  std::vector<std::byte> storage_;
  std::vector<int32_t> selection_;
  std::vector<int32_t> chosen_;
};

}  // namespace inlay::testing

#endif  // INLAY_TESTS_SUPPORT_COMPRESS_UTIL_H_
