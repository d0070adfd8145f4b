// SeenBlocks: the keys that few queries see, in order, and no blocks beside.
#include "kernels/attention/attention_gather.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <set>
#include <vector>

#include "kernels/attention/attention_pattern.h"

namespace inlay {
namespace {

// The keys that a query sees.
std::vector<int> KeysSeen(const AttentionMask& mask,
                          const AttentionSequence& sequence, int index) {
  const AttentionRowKeys& row =
      mask.rows[static_cast<size_t>(sequence.q_begin + index)];
  std::vector<int> keys;
  for (int key = 0; key < sequence.kv_len; ++key) {
    if (mask.Sees(row, key)) keys.push_back(key);
  }
  return keys;
}

// Where the cache has them.
std::vector<int64_t> SlotsOf(const std::vector<int>& keys,
                             const AttentionSequence& sequence,
                             int block_size) {
  std::vector<int64_t> slots;
  for (const int key : keys) {
    slots.push_back(int64_t{sequence.blocks[key / block_size]} * block_size +
                    key % block_size);
  }
  return slots;
}

class AttentionGatherTest : public ::testing::Test {
 protected:
  AttentionGatherTest() : table_(4096) {
    std::iota(table_.begin(), table_.end(), 100);
    std::shuffle(table_.begin(), table_.end(), rng_);
  }

  // The lengths of `queries` with keys of `keys`, under the pattern.
  void Compile(const char* pattern, const std::vector<int>& queries,
               const std::vector<int>& keys) {
    const AttentionPattern parsed = *ParseAttentionPattern(pattern);
    sequences_.clear();
    std::vector<AttentionPatternRows> rows;
    rows.reserve(queries.size());
    std::vector<AttentionMaskSpec> specs;
    int q_begin = 0;
    for (size_t i = 0; i < queries.size(); ++i) {
      sequences_.push_back(
          {q_begin, queries[i], keys[i], table_.data() + 300 * i});
      q_begin += queries[i];
      rows.emplace_back(parsed, /*causal=*/true, sequences_.back());
      specs.push_back(rows.back().Spec());
    }
    mask_ = *CompileAttentionMask({}, sequences_, specs);
  }

  std::mt19937 rng_{7};
  std::vector<int32_t> table_;
  std::vector<AttentionSequence> sequences_;
  AttentionMask mask_;
  SeenBlocks seen_;
};

TEST_F(AttentionGatherTest, KeepsTheKeysThatAreSeen) {
  constexpr const char* kPatterns[] = {
      "block=16,window=48,global=16",
      "window=128,random=192,seed=5",
      "block=32,stride=96",
      "block=16,dilated=96,dilation=32,global=32",
      "segment=128",
      "window=64"};
  for (const char* pattern : kPatterns) {
    for (const int block_size : {16, 32, 64}) {
      SCOPED_TRACE(::testing::Message() << pattern << " blocks " << block_size);
      const std::vector<int> queries = {1, 1, 5, 1, 0, 1, 64, 40, 65, 17};
      const std::vector<int> keys = {1,  1000, 700,  1024, 300,
                                     17, 1300, 1240, 900,  17};
      Compile(pattern, queries, keys);
      const int pattern_block = ParseAttentionPattern(pattern)->block;
      seen_.Gather(sequences_, block_size, mask_);
      ASSERT_EQ(seen_.sequences().size(), sequences_.size());
      for (size_t s = 0; s < sequences_.size(); ++s) {
        SCOPED_TRACE(s);
        const AttentionSequence& was = sequences_[s];
        const AttentionSequence& is = seen_.sequences()[s];
        EXPECT_EQ(is.q_begin, was.q_begin);
        EXPECT_EQ(is.q_len, was.q_len);
        std::set<int> blocks;
        for (int i = 0; i < was.q_len; ++i) {
          const std::vector<int> keys_seen = KeysSeen(mask_, was, i);
          EXPECT_EQ(SlotsOf(KeysSeen(seen_.mask(), is, i), is, block_size),
                    SlotsOf(keys_seen, was, block_size))
              << i;
          for (const int key : keys_seen) blocks.insert(key / pattern_block);
        }
        if (was.q_len == 0 || was.q_len > kMostGatheringQueries ||
            pattern_block % block_size != 0) {
          EXPECT_EQ(is.kv_len, was.kv_len);
          EXPECT_EQ(is.blocks, was.blocks);
          continue;
        }
        // Nothing else is left.
        const auto last = (was.kv_len - 1) % pattern_block + 1;
        EXPECT_EQ(is.kv_len,
                  (static_cast<int>(blocks.size()) - 1) * pattern_block + last);
        const auto* rows = &seen_.mask().rows[static_cast<size_t>(is.q_begin)];
        EXPECT_EQ(rows[is.q_len - 1].end, is.kv_len);
        if (is.q_len > 1) continue;
        EXPECT_EQ(rows->begin, 0);
        EXPECT_EQ(rows->bits, -1);
      }
    }
  }
}

TEST_F(AttentionGatherTest, LeavesWhatIsNotWholeBlocks) {
  // A query that does not see its own key last: keys end before.
  Compile("block=16,window=32,global=16", {1}, {1000});
  mask_.rows[0].end = 900;
  seen_.Gather(sequences_, 16, mask_);
  EXPECT_EQ(seen_.sequences()[0].kv_len, 1000);
  // No bits: all keys of an interval.
  mask_.rows[0] = {40, 1000};
  seen_.Gather(sequences_, 16, mask_);
  EXPECT_EQ(seen_.sequences()[0].kv_len, 1000);
  EXPECT_EQ(seen_.mask().rows[0].begin, 40);
}

}  // namespace
}  // namespace inlay
