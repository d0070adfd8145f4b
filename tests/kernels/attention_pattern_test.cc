// AttentionPattern: every query and key as the definition says, for steps of
// any part of a sequence; what is drawn is drawn once and for all; spelling.
#include "kernels/attention/attention_pattern.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace inlay {
namespace {

// From the words of attention_pattern.h, but for random blocks.
bool SeesWithoutRandom(const AttentionPattern& p, int query, int key) {
  const int n = query / p.block;
  const int m = key / p.block;
  const int distance = std::abs(n - m);
  if (distance == 0 || distance * p.block < p.window) return true;
  if (std::min(n, m) * p.block < p.global) return true;
  if (p.context > 0 && n * p.block >= p.context) return true;
  if (p.segment > 0 && query / p.segment == key / p.segment) return true;
  if (p.dilation > 0 && distance * p.block % p.dilation == 0 &&
      distance * p.block <= p.dilated) {
    return true;
  }
  return p.stride > 0 && (m + 1) * p.block % p.stride == 0;
}

AttentionPattern RandomPattern(std::mt19937& rng) {
  AttentionPattern p;
  p.block = 16 << rng() % 3;
  const auto some = [&](int most) {
    return rng() % 2 == 0
               ? 0
               : p.block *
                     static_cast<int>(rng() % static_cast<unsigned>(most));
  };
  p.window = some(6);
  p.global = some(3);
  p.segment = some(7);
  p.stride = some(5);
  p.context = some(20);
  if (rng() % 2 == 0) {
    p.dilation = p.block * (1 + static_cast<int>(rng() % 3));
    p.dilated = p.dilation * (1 + static_cast<int>(rng() % 4));
  }
  return p;
}

// Whether the pattern's mask shows each key to each query of a step.
std::vector<std::vector<bool>> Shown(const AttentionPattern& pattern,
                                     bool causal, int q_len, int kv_len) {
  AttentionDesc desc;
  desc.causal = causal;
  const AttentionSequence sequence{0, q_len, kv_len, nullptr};
  const AttentionPatternRows rows(pattern, causal, sequence);
  const AttentionMaskSpec spec = rows.Spec();
  const auto mask = CompileAttentionMask(desc, {&sequence, 1}, {&spec, 1});
  EXPECT_TRUE(mask.ok()) << mask.status();
  std::vector<std::vector<bool>> shown(static_cast<size_t>(q_len));
  for (size_t i = 0; i < shown.size(); ++i) {
    for (int k = 0; k < kv_len; ++k) {
      shown[i].push_back(mask->Sees(mask->rows[i], k));
    }
  }
  return shown;
}

TEST(AttentionPatternTest, SaysWhatTheDefinitionSays) {
  for (unsigned seed = 1; seed <= 80; ++seed) {
    std::mt19937 rng(seed);
    const AttentionPattern pattern = RandomPattern(rng);
    SCOPED_TRACE(FormatAttentionPattern(pattern));
    const bool causal = rng() % 3 != 0;
    const int kv_len = 1 + static_cast<int>(rng() % 700);
    // All of it, some at the end, or one token.
    const int q_len =
        rng() % 3 == 0
            ? kv_len
            : 1 + static_cast<int>(rng() % static_cast<unsigned>(kv_len));
    const auto shown = Shown(pattern, causal, q_len, kv_len);
    for (int i = 0; i < q_len; ++i) {
      const int p = kv_len - q_len + i;
      for (int k = 0; k < kv_len; ++k) {
        const bool want =
            (!causal || k <= p) && SeesWithoutRandom(pattern, p, k);
        ASSERT_EQ(shown[static_cast<size_t>(i)][static_cast<size_t>(k)], want)
            << "query " << p << " key " << k << " causal " << causal;
      }
    }
  }
}

// The blocks that the last query of each block sees beside its own.
std::vector<std::set<int>> BlocksSeenBeside(const AttentionPattern& pattern,
                                            bool causal, int kv_len) {
  const auto shown = Shown(pattern, causal, kv_len, kv_len);
  std::vector<std::set<int>> blocks;
  for (int p = pattern.block - 1; p < kv_len; p += pattern.block) {
    std::set<int>& seen = blocks.emplace_back();
    for (int k = 0; k < kv_len; ++k) {
      if (k / pattern.block != p / pattern.block &&
          shown[static_cast<size_t>(p)][static_cast<size_t>(k)]) {
        seen.insert(k / pattern.block);
      }
    }
  }
  return blocks;
}

TEST(AttentionPatternTest, RandomBlocksAreSoManyAndSpreadOut) {
  constexpr int kBlocks = 64;
  AttentionPattern pattern;
  pattern.block = 16;
  pattern.random = 3 * pattern.block;
  std::vector<int> times(kBlocks);
  std::set<std::vector<std::set<int>>> drawn;
  for (pattern.seed = 0; pattern.seed < 30; ++pattern.seed) {
    const auto blocks =
        BlocksSeenBeside(pattern, true, kBlocks * pattern.block);
    drawn.insert(blocks);
    for (size_t n = 0; n < blocks.size(); ++n) {
      ASSERT_EQ(blocks[n].size(), std::min<size_t>(n, 3)) << "block " << n;
      for (const int m : blocks[n]) ++times[static_cast<size_t>(m)];
    }
  }
  EXPECT_EQ(drawn.size(), 30u) << "seeds differ";
  // Block m is one of 3 of n, for each n > m.
  for (size_t m = 0; m < kBlocks; ++m) {
    double expected = 0.0;
    for (size_t n = m + 1; n < kBlocks; ++n) {
      expected += 30.0 * std::min(1.0, 3.0 / static_cast<double>(n));
    }
    EXPECT_NEAR(times[m], expected, 5.0 * std::sqrt(expected) + 1e-9) << m;
  }
  pattern.seed = 1;
  const auto both = BlocksSeenBeside(pattern, false, kBlocks * pattern.block);
  bool ahead = false;
  for (size_t n = 0; n < both.size(); ++n) {
    EXPECT_LE(both[n].size(), 3u);
    EXPECT_GE(both[n].size(), 2u) << "one may be its own";
    ahead = ahead || *both[n].rbegin() > static_cast<int>(n);
  }
  EXPECT_TRUE(ahead);
}

TEST(AttentionPatternTest, APositionSeesTheSameInEveryStep) {
  for (const char* text :
       {"block=16,window=32,random=48,seed=7", "block=32,stride=96,random=32",
        "block=16,global=16,dilated=96,dilation=32,random=16"}) {
    const auto pattern = ParseAttentionPattern(text);
    ASSERT_TRUE(pattern.ok()) << pattern.status();
    constexpr int kLength = 500;
    const auto whole = Shown(*pattern, true, kLength, kLength);
    for (const int q_len : {1, 7, 100}) {
      for (int end = q_len; end <= kLength; end += 61) {
        const auto part = Shown(*pattern, true, q_len, end);
        for (int i = 0; i < q_len; ++i) {
          auto want = whole[static_cast<size_t>(end - q_len + i)];
          for (int k = end; k < kLength; ++k) {
            ASSERT_FALSE(want[static_cast<size_t>(k)]);
          }
          want.resize(static_cast<size_t>(end));
          ASSERT_EQ(part[static_cast<size_t>(i)], want)
              << text << " query " << end - q_len + i;
        }
      }
    }
  }
}

// Steps of any sequences within limits need no more than those say.
TEST(AttentionPatternTest, RoomInPlans) {
  std::mt19937 rng(5);
  for (int trial = 0; trial < 300; ++trial) {
    const AttentionPattern pattern = RandomPattern(rng);
    AttentionPlanShape shape;
    shape.num_kv_heads = shape.group = 1;
    shape.head_dim = 64;
    shape.block_size = 16 << rng() % 3;
    shape.grid = 8;
    shape.tile_tokens = rng() % 2 == 0 ? 0 : 128;
    shape.mma_keys = rng() % 2 == 0 ? 0 : 32;
    const bool graph = rng() % 3 == 0;
    std::vector<AttentionSequence> sequences;
    std::vector<AttentionPatternRows> rows;
    std::vector<AttentionMaskSpec> specs;
    AttentionPlanLimits limits;
    limits.graph = graph;
    int64_t longest = 0;
    const size_t count = 1 + rng() % 6;
    rows.reserve(count);
    for (size_t i = 0; i < count; ++i) {
      const int q_len = graph ? 1 : static_cast<int>(rng() % 700);
      const int kv_len = q_len + static_cast<int>(rng() % 3000);
      sequences.push_back({static_cast<int32_t>(limits.tokens), q_len,
                           std::max(kv_len, 1), nullptr});
      rows.emplace_back(pattern, true, sequences.back());
      specs.push_back(rows.back().Spec());
      limits.tokens += q_len;
      limits.blocks +=
          (sequences.back().kv_len + shape.block_size - 1) / shape.block_size;
      longest = std::max<int64_t>(longest, sequences.back().kv_len);
    }
    limits.sequences = static_cast<int64_t>(count);
    const auto mask = CompileAttentionMask({}, sequences, specs);
    ASSERT_TRUE(mask.ok()) << mask.status();
    AddPatternLimits(pattern, shape, graph ? 0 : longest, &limits);
    const auto exact = AttentionPlanLimitsOf(shape, sequences, &*mask);
    EXPECT_GE(limits.mask_rows, exact.mask_rows) << trial;
    EXPECT_GE(limits.mask_words, exact.mask_words) << trial;
    if (!graph) {
      EXPECT_GE(limits.key_runs, exact.key_runs) << trial;
    }
    // And not much more, of one sequence: two rows, and a word in each.
    if (count == 1 && sequences[0].q_len > 0) {
      EXPECT_LE(limits.mask_words, 3 * exact.mask_words + 4) << trial;
    }
  }
}

// Lengths beyond the sequence cost nothing.
TEST(AttentionPatternTest, TheLongestLengths) {
  const auto pattern = ParseAttentionPattern(
      "block=16,dilated=1073741824,dilation=16,stride=1073741824,"
      "segment=1073741824,random=4096");
  ASSERT_TRUE(pattern.ok()) << pattern.status();
  for (const auto& row : Shown(*pattern, false, 100, 100)) {
    for (const bool sees : row) ASSERT_TRUE(sees);
  }
}

TEST(AttentionPatternTest, SpellsWhatItReads) {
  const auto none = ParseAttentionPattern("");
  ASSERT_TRUE(none.ok());
  EXPECT_FALSE(none->any());
  EXPECT_EQ(FormatAttentionPattern(*none), "");
  const std::string all =
      "block=32,window=1024,global=64,segment=4096,dilated=512,dilation=128,"
      "stride=2048,random=96,context=8192,seed=9";
  const auto read = ParseAttentionPattern(all);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_TRUE(read->any());
  EXPECT_EQ(FormatAttentionPattern(*read), all);
  // Any order; what does not count is not there.
  const auto other = ParseAttentionPattern("global=64,seed=3,window=128,");
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_EQ(FormatAttentionPattern(*other), "block=64,window=128,global=64");
}

TEST(AttentionPatternTest, NamesWhatIsWrong) {
  const std::pair<const char*, const char*> wrong[] = {
      {"window", "\"window\"; expected block"},
      {"window=", "\"window=\"; expected block"},
      {"window=1e3", "\"window=1e3\""},
      {"windows=64", "\"windows=64\""},
      {"=64", "\"=64\""},
      {"window=99999999999", "\"window=99999999999\""},
      {"seed=-1", "\"seed=-1\""},
      {"window=64,window=64", "window is there twice"},
      {"window=-64", "window is -64; expected a multiple of block"},
      {"window=100",
       "window is 100; expected a multiple of block, which is 64"},
      {"block=48", "block is 48; expected a power of two from 16 to 1024"},
      {"block=8", "block is 8;"},
      {"block=2048", "block is 2048;"},
      {"block=-64", "block is -64;"},
      {"dilated=128", "dilated and dilation go together"},
      {"dilation=128", "dilated and dilation go together"},
      {"dilated=192,dilation=128", "dilated is 192; expected a multiple of"},
      {"context=1024", "context goes with what is seen before it"},
      {"window=64,context=100", "context is 100; expected a multiple of"},
      {"random=16448", "random is 257 blocks; expected at most 256"},
      {"a\x01\xff", "\"a\\x01\\xff\""}};
  for (const auto& [text, message] : wrong) {
    const auto pattern = ParseAttentionPattern(text);
    ASSERT_FALSE(pattern.ok()) << text;
    EXPECT_EQ(pattern.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(pattern.status().message().find(message), std::string::npos)
        << pattern.status();
  }
}

}  // namespace
}  // namespace inlay
