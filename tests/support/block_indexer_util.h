// Problems for the tests of block_indexer: the ragged batches of indexer_util.h
// and which blocks a sort of all scores selects. Header only.
#ifndef INLAY_TESTS_SUPPORT_BLOCK_INDEXER_UTIL_H_
#define INLAY_TESTS_SUPPORT_BLOCK_INDEXER_UTIL_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "kernels/indexer/block_indexer.h"
#include "kernels/kv_write/kv_row.h"
#include "tests/support/indexer_util.h"

namespace inlay::testing {

class BlockIndexerProblem {
 public:
  using Shape = IndexerProblem::Shape;

  BlockIndexerProblem(const BlockIndexerDesc& desc, std::vector<Shape> shapes,
                      int block_size, unsigned seed)
      : desc_(desc), keys_(KeysOf(desc), std::move(shapes), block_size, seed) {}

  const BlockIndexerDesc& desc() const { return desc_; }
  IndexerProblem& keys() { return keys_; }

  std::vector<int32_t> NewSelection() {
    return std::vector<int32_t>(
        static_cast<size_t>(keys_.q().rows() * desc_.num_heads * desc_.selects),
        -1);
  }
  BlockIndexerParams Params(int32_t* selection) {
    BlockIndexerParams params;
    params.q = keys_.q().view();
    params.kv = keys_.View();
    params.sequences = keys_.Sequences();
    params.selection = selection;
    return params;
  }

  // As a sort of all scores selects, but for blocks whose scores are so near
  // the last selected that rounding decides; those of equal scores by position
  // where sums are exact.
  void Expect(const std::vector<int32_t>& selection) {
    ForEachQuery([&](const AttentionSequence& sequence, int64_t row, int p) {
      const std::vector<std::vector<Scored>> scores = Scores(sequence, row, p);
      for (int h = 0; h < desc_.num_heads; ++h) {
        ExpectHead(scores[static_cast<size_t>(h)],
                   BlocksOf(sequence, selection, row, h), row, p);
      }
    });
  }

  // The query's own blocks, ascending, each once, the last ones among them, and
  // nothing behind.
  void ExpectOwnBlocks(const std::vector<int32_t>& selection) {
    ForEachQuery([&](const AttentionSequence& sequence, int64_t row, int p) {
      for (int h = 0; h < desc_.num_heads; ++h) {
        ExpectOwn(BlocksOf(sequence, selection, row, h), row, p);
      }
    });
  }

 private:
  struct Scored {
    double score;
    double error;  // that float32 sums may have
    int block;
  };

  static IndexerDesc KeysOf(const BlockIndexerDesc& desc) {
    IndexerDesc keys;
    keys.num_heads = desc.num_heads;
    keys.head_dim = desc.head_dim;
    keys.top_k = 1;
    keys.kv = desc.kv;
    keys.activation = desc.activation;
    return keys;
  }

  // fn(sequence, row of q, position)
  template <typename Fn>
  void ForEachQuery(Fn fn) {
    for (const AttentionSequence& sequence : keys_.Sequences()) {
      for (int i = 0; i < sequence.q_len; ++i) {
        fn(sequence, sequence.q_begin + i,
           sequence.kv_len - sequence.q_len + i);
      }
    }
  }

  // Of the entries before the first -1; -2 for what is no block of the
  // sequence.
  std::vector<int> BlocksOf(const AttentionSequence& sequence,
                            const std::vector<int32_t>& selection, int64_t row,
                            int head) {
    const int units = keys_.View().block_size / desc_.block;
    const int count = (sequence.kv_len + desc_.block - 1) / desc_.block;
    std::vector<int> blocks;
    for (int i = 0; i < desc_.selects; ++i) {
      const int32_t entry = selection[static_cast<size_t>(
          (row * desc_.num_heads + head) * desc_.selects + i)];
      if (entry == -1) break;
      int found = -2;
      for (int b = 0; b < count; ++b) {
        if (sequence.blocks[b / units] * units + b % units == entry) found = b;
      }
      blocks.push_back(found);
    }
    return blocks;
  }

  void ExpectOwn(const std::vector<int>& got, int64_t row, int p) {
    const int count = p / desc_.block + 1;
    ASSERT_EQ(got.size(), static_cast<size_t>(std::min(count, desc_.selects)))
        << "row " << row;
    for (size_t i = 0; i < got.size(); ++i) {
      ASSERT_GE(got[i], i == 0 ? 0 : got[i - 1] + 1) << "row " << row;
    }
    for (int i = 1; i <= std::min(desc_.neighbours, count); ++i) {
      ASSERT_EQ(got[got.size() - static_cast<size_t>(i)], count - i)
          << "row " << row;
    }
  }

  // [head][block] of the blocks that compete.
  std::vector<std::vector<Scored>> Scores(const AttentionSequence& sequence,
                                          int64_t row, int p) {
    const int dim = desc_.head_dim;
    const KvLayerView kv = keys_.View();
    std::vector<std::vector<Scored>> scores(
        static_cast<size_t>(desc_.num_heads));
    std::vector<float> key(static_cast<size_t>(dim));
    for (int b = 0; b < p / desc_.block + 1 - desc_.neighbours; ++b) {
      for (auto& of_head : scores) {
        of_head.push_back({-std::numeric_limits<double>::infinity(), 0.0, b});
      }
      for (int t = b * desc_.block; t < (b + 1) * desc_.block; ++t) {
        DecodeKvRow(
            desc_.kv,
            kv.KeyRow(sequence.blocks[t / kv.block_size], 0, t % kv.block_size),
            dim, key.data());
        for (int h = 0; h < desc_.num_heads; ++h) {
          double dot = 0.0, magnitude = 0.0;
          for (int d = 0; d < dim; ++d) {
            const double product = double{keys_.q()(row, h * dim + d)} *
                                   key[static_cast<size_t>(d)];
            dot += product;
            magnitude += std::abs(product);
          }
          Scored& scored = scores[static_cast<size_t>(h)].back();
          scored.score = std::max(scored.score, dot);
          scored.error =
              std::max(scored.error, kUnitF32 * magnitude * (dim + 1));
        }
      }
    }
    return scores;
  }

  void ExpectHead(std::vector<Scored> all, const std::vector<int>& got,
                  int64_t row, int p) {
    ExpectOwn(got, row, p);
    const int places = desc_.selects - desc_.neighbours;
    if (p / desc_.block + 1 <= desc_.selects || places == 0) return;
    std::sort(all.begin(), all.end(), [](const Scored& a, const Scored& b) {
      return a.score > b.score || (a.score == b.score && a.block < b.block);
    });
    const Scored last = all[static_cast<size_t>(places) - 1];
    const bool exact = std::all_of(all.begin(), all.end(), [](const Scored& a) {
      return a.score == std::round(a.score);
    });
    for (size_t i = 0; i < all.size(); ++i) {
      const bool wanted = i < static_cast<size_t>(places);
      const bool selected =
          std::binary_search(got.begin(), got.end(), all[i].block);
      if (wanted == selected) continue;
      EXPECT_TRUE(!exact && std::abs(all[i].score - last.score) <=
                                all[i].error + last.error)
          << "row " << row << " block " << all[i].block << " of score "
          << all[i].score << (wanted ? " is not" : " is")
          << " selected, the last one that should be has " << last.score;
    }
  }

  BlockIndexerDesc desc_;
  IndexerProblem keys_;
};

}  // namespace inlay::testing

#endif  // INLAY_TESTS_SUPPORT_BLOCK_INDEXER_UTIL_H_
