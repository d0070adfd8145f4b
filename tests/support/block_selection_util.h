// A ragged batch for the tests of selected blocks: keys of some KV heads in a
// cache of scattered blocks, summaries beside them, queries, and which blocks a
// sort of all scores selects. Header only.
#ifndef INLAY_TESTS_SUPPORT_BLOCK_SELECTION_UTIL_H_
#define INLAY_TESTS_SUPPORT_BLOCK_SELECTION_UTIL_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <utility>
#include <vector>

#include "kernels/block_selection/block_hash.h"
#include "kernels/block_selection/block_selection.h"
#include "kernels/block_selection/block_summary.h"
#include "kernels/kv_write/kv_row.h"
#include "tests/support/kernel_test_util.h"

namespace inlay::testing {

class BlockProblem {
 public:
  struct Shape {
    int q_len;
    int kv_len;
  };

  BlockProblem(const BlockSelectionDesc& desc, DType kv,
               std::vector<Shape> shapes, int block_size, unsigned seed)
      : desc_(desc), kv_(kv), shapes_(std::move(shapes)), rng_(seed) {
    const KvLayerShape keys = {desc.num_kv_heads, desc.head_dim};
    layout_ =
        KvLayout({{2, 24}, keys, BlockSummaryShape(desc.method, keys, kv)}, kv,
                 block_size);
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
    q_.Randomize(rng_);
    std::normal_distribution<float> normal;
    WriteKeys([&] { return normal(rng_); });
  }

  // Everything in {-most .. most}: sums are exact.
  void UseIntegers(int most) {
    std::uniform_int_distribution<int> draw(-most, most);
    for (int64_t r = 0; r < q_.rows(); ++r) {
      for (int64_t c = 0; c < q_.cols(); ++c) {
        q_.Set(r, c, static_cast<float>(draw(rng_)));
      }
    }
    WriteKeys([&] { return static_cast<float>(draw(rng_)); });
  }

  KvLayerView Keys() { return layout_.LayerView(1, storage_.data()); }
  KvLayerView Summaries() { return layout_.LayerView(2, storage_.data()); }
  const KvLayout& layout() const { return layout_; }
  std::vector<std::byte>& storage() { return storage_; }
  const BlockSelectionDesc& desc() const { return desc_; }
  BlockSummaryDesc summary_desc() const {
    return {desc_.method, desc_.num_kv_heads, desc_.head_dim, kv_};
  }
  TestMatrix& q() { return q_; }
  int ties() const { return ties_; }

  // Of every position of every sequence.
  std::vector<int64_t> Slots() {
    std::vector<int64_t> slots;
    const int size = Keys().block_size;
    for (size_t s = 0; s < shapes_.size(); ++s) {
      for (int t = 0; t < shapes_[s].kv_len; ++t) {
        slots.push_back(int64_t{tables_[s][static_cast<size_t>(t / size)]} *
                            size +
                        t % size);
      }
    }
    return slots;
  }
  BlockSummaryParams SummaryParams(const std::vector<int64_t>& slots) {
    BlockSummaryParams params;
    params.keys = Keys();
    params.summaries = Summaries();
    params.tokens = static_cast<int64_t>(slots.size());
    params.slots = slots.data();
    return params;
  }

  // Blocks as no sequence has them.
  std::vector<int32_t> NewSelection() const {
    return std::vector<int32_t>(
        static_cast<size_t>(tokens_ * desc_.num_kv_heads * desc_.num_blocks),
        -1);
  }
  BlockSelectionParams Params(int32_t* selection) {
    BlockSelectionParams params;
    params.q = q_.view();
    params.summaries = Summaries();
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

  std::vector<float> Key(size_t s, int head, int position) {
    std::vector<float> key(static_cast<size_t>(desc_.head_dim));
    DecodeKvRow(kv_, KeyRow(s, head, position), desc_.head_dim, key.data());
    return key;
  }
  const std::byte* Summary(size_t s, int head, int block) {
    const int position = block * kSelectBlock, size = Keys().block_size;
    return Summaries().KeyRow(tables_[s][static_cast<size_t>(position / size)],
                              head, position % size);
  }

  // As a sort of all scores selects, but for blocks whose scores are so near
  // the last selected that rounding decides.
  void Expect(const std::vector<int32_t>& selection) {
    int64_t row = 0;
    for (size_t s = 0; s < shapes_.size(); ++s) {
      for (int i = 0; i < shapes_[s].q_len; ++i, ++row) {
        for (int head = 0; head < desc_.num_kv_heads; ++head) {
          const int last = shapes_[s].kv_len - shapes_[s].q_len + i;
          ExpectQuery(s, row, head, last / kSelectBlock + 1, selection);
          if (::testing::Test::HasFailure()) return;
        }
      }
    }
  }

 private:
  std::byte* KeyRow(size_t s, int head, int t) {
    const KvLayerView kv = Keys();
    return kv.KeyRow(tables_[s][static_cast<size_t>(t / kv.block_size)], head,
                     t % kv.block_size);
  }

  template <typename Draw>
  void WriteKeys(Draw draw) {
    std::vector<float> row(static_cast<size_t>(desc_.head_dim));
    for (size_t s = 0; s < shapes_.size(); ++s) {
      for (int t = 0; t < shapes_[s].kv_len; ++t) {
        for (int head = 0; head < desc_.num_kv_heads; ++head) {
          for (float& x : row) x = draw();
          EncodeKvRow(kv_, row.data(), desc_.head_dim, KeyRow(s, head, t));
        }
      }
    }
  }

  struct Scored {
    double score;
    double error;  // that float32 sums may have
    int block;
  };

  Scored Score(size_t s, int64_t row, int head, int block) {
    const std::byte* summary = Summary(s, head, block);
    const int dim = desc_.head_dim;
    const int group = desc_.num_heads / desc_.num_kv_heads;
    const auto element = [&](int i) {
      uint16_t bits;
      std::memcpy(&bits, summary + 2 * i, sizeof(bits));
      return double{BF16ToF32(bits)};
    };
    const auto query = [&](int h, int d) {
      return double{q_(row, (head * group + h) * dim + d)};
    };
    Scored scored = {0.0, 0.0, block};
    double magnitude = 0.0;
    if (desc_.method == BlockMethod::kLsh) {
      uint64_t keys[kHashWords][kSelectBlock];
      std::memcpy(keys, summary, sizeof(keys));
      for (int h = 0; h < group; ++h) {
        std::vector<float> q(static_cast<size_t>(dim));
        for (int d = 0; d < dim; ++d) {
          q[static_cast<size_t>(d)] = static_cast<float>(query(h, d));
        }
        std::vector<float> space(static_cast<size_t>(HashWidth(dim)));
        uint64_t words[kHashWords];
        HashVector(q.data(), dim, space.data(), words);
        int most = 0;
        for (int t = 0; t < kSelectBlock; ++t) {
          int equal = kHashBits;
          for (int w = 0; w < kHashWords; ++w) {
            equal -= std::popcount(words[w] ^ keys[w][t]);
          }
          most = std::max(most, equal);
        }
        scored.score += most;
      }
      return scored;
    }
    if (desc_.method == BlockMethod::kBounds) {
      for (int h = 0; h < group; ++h) {
        for (int d = 0; d < dim; ++d) {
          const double q = query(h, d);
          scored.score += std::max(q * element(d), q * element(dim + d));
          magnitude += std::max(std::abs(q * element(d)),
                                std::abs(q * element(dim + d)));
        }
      }
    } else {
      for (int c = 0; c < kCentroids; ++c) {
        double dot = 0.0;
        for (int h = 0; h < group; ++h) {
          for (int d = 0; d < dim; ++d) {
            dot += query(h, d) * element(c * dim + d);
            magnitude += std::abs(query(h, d) * element(c * dim + d));
          }
        }
        if (c == 0 || dot > scored.score) scored.score = dot;
      }
    }
    // Sums over heads, then over dimensions, and rounding to float32.
    scored.error = kUnitF32 * magnitude * (2 * dim + group + 2);
    return scored;
  }

  void ExpectQuery(size_t s, int64_t row, int head, int count,
                   const std::vector<int32_t>& selection) {
    const auto begin = static_cast<size_t>((row * desc_.num_kv_heads + head) *
                                           desc_.num_blocks);
    const int seen = std::min(count, desc_.num_blocks);
    const int units = Keys().block_size / kSelectBlock;
    std::vector<int> got;
    for (int i = 0; i < desc_.num_blocks; ++i) {
      const int32_t place = selection[begin + static_cast<size_t>(i)];
      if (i >= seen) {
        EXPECT_EQ(place, -1) << "row " << row << " " << i;
        continue;
      }
      const auto& table = tables_[s];
      const auto found = std::find(table.begin(), table.end(), place / units);
      ASSERT_TRUE(place >= 0 && found != table.end()) << place;
      got.push_back(static_cast<int>(found - table.begin()) * units +
                    place % units);
      ASSERT_TRUE(i == 0 || got.back() > got[static_cast<size_t>(i) - 1])
          << "row " << row << ": ascending";
      ASSERT_LT(got.back(), count);
    }
    const auto selected = [&](int block) {
      return std::binary_search(got.begin(), got.end(), block);
    };
    EXPECT_TRUE(selected(0));
    EXPECT_TRUE(selected(count - 1));
    if (count <= desc_.num_blocks) return;
    for (int b = count - kLocalBlocks; b < count; ++b) {
      EXPECT_TRUE(selected(b)) << b;
    }
    std::vector<Scored> all;
    for (int b = kSinkBlocks; b < count - kLocalBlocks; ++b) {
      all.push_back(Score(s, row, head, b));
    }
    std::sort(all.begin(), all.end(), [](const Scored& a, const Scored& b) {
      return a.score > b.score || (a.score == b.score && a.block < b.block);
    });
    const auto free = static_cast<size_t>(desc_.num_blocks - kForcedBlocks);
    const Scored& last = all[free - 1];
    ties_ += all[free].score == last.score;
    const bool exact = std::all_of(all.begin(), all.end(), [](const Scored& a) {
      return a.score == std::round(a.score);
    });
    for (size_t i = 0; i < all.size(); ++i) {
      if ((i < free) == selected(all[i].block)) continue;
      EXPECT_TRUE(!exact && std::abs(all[i].score - last.score) <=
                                all[i].error + last.error)
          << "row " << row << " head " << head << " block " << all[i].block
          << " of score " << all[i].score << (i < free ? " is not" : " is")
          << " selected, the last one that should be has " << last.score;
    }
  }

  BlockSelectionDesc desc_;
  DType kv_;
  std::vector<Shape> shapes_;
  std::mt19937 rng_;
  KvLayout layout_;
  std::vector<std::byte> storage_;
  std::vector<std::vector<int32_t>> tables_;
  std::vector<AttentionSequence> sequences_;
  int64_t tokens_ = 0;
  TestMatrix q_;
  int ties_ = 0;
};

inline BlockSelectionDesc BlockDesc(BlockMethod method, int heads, int kv_heads,
                                    int head_dim, int num_blocks) {
  BlockSelectionDesc desc;
  desc.method = method;
  desc.num_heads = heads;
  desc.num_kv_heads = kv_heads;
  desc.head_dim = head_dim;
  desc.num_blocks = num_blocks;
  desc.max_keys = 9000;
  return desc;
}

inline constexpr BlockMethod kBlockMethods[] = {
    BlockMethod::kBounds, BlockMethod::kKMeans, BlockMethod::kLsh};

}  // namespace inlay::testing

#endif  // INLAY_TESTS_SUPPORT_BLOCK_SELECTION_UTIL_H_
