// AttentionMask: what is compiled says of every query and key what the
// description says; lists of blocks of keys skip nothing that is needed and
// call nothing full that is not; a plan with a mask covers what is seen.
#include "kernels/attention/attention_mask.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>

#include "kernels/attention/attention_plan.h"
#include "tests/support/attention_mask_util.h"

namespace inlay {
namespace {

using ::inlay::testing::TestMask;

struct Step {
  explicit Step(unsigned seed) : rng(seed) {
    if (rng() % 3 == 0) desc.window = 1 + static_cast<int>(rng() % 300);
    desc.causal = desc.window > 0 || rng() % 3 != 0;
    const int count = 1 + static_cast<int>(rng() % 4);
    int32_t begin = static_cast<int32_t>(rng() % 3);
    for (int i = 0; i < count; ++i) {
      const auto q_len = static_cast<int>(rng() % (rng() % 2 == 0 ? 4 : 500));
      const int kv_len = q_len + static_cast<int>(rng() % 700) + 1;
      TestMask mask = TestMask::Random(rng, q_len, kv_len);
      sequences.push_back({begin, q_len, kv_len, nullptr});
      begin += q_len;
      masks.push_back(std::move(mask));
    }
    for (const TestMask& mask : masks) specs.push_back(mask.Spec());
  }

  std::mt19937 rng;
  AttentionDesc desc;
  std::vector<AttentionSequence> sequences;
  std::vector<TestMask> masks;
  std::vector<AttentionMaskSpec> specs;
};

TEST(AttentionMaskTest, SaysWhatTheDescriptionSays) {
  for (unsigned seed = 1; seed <= 100; ++seed) {
    const Step step(seed);
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    const auto mask =
        CompileAttentionMask(step.desc, step.sequences, step.specs);
    ASSERT_TRUE(mask.ok()) << mask.status();
    for (size_t s = 0; s < step.sequences.size(); ++s) {
      const AttentionSequence& sequence = step.sequences[s];
      for (int i = 0; i < sequence.q_len; ++i) {
        const AttentionRowKeys& row =
            mask->rows[static_cast<size_t>(sequence.q_begin + i)];
        const int position = sequence.kv_len - sequence.q_len + i;
        bool any = false;
        for (int k = 0; k < sequence.kv_len; ++k) {
          const bool want = step.masks[s].Sees(step.desc, position, k);
          any = any || want;
          ASSERT_EQ(mask->Sees(row, k), want)
              << "sequence " << s << " query " << position << " key " << k;
        }
        ASSERT_EQ(any, row.begin < row.end);
        if (any) {
          ASSERT_TRUE(mask->Sees(row, row.begin));
          ASSERT_TRUE(mask->Sees(row, row.end - 1));
        } else {
          ASSERT_EQ(row.end, 0);
        }
      }
    }
  }
}

// Blocks of keys by number: +1 all rows see all of it, -1 some see some.
std::map<int, int> Listed(const AttentionKeyRun* runs, int64_t count) {
  std::map<int, int> listed;
  int before = 1 << 30;
  for (int64_t i = 0; i < count; ++i) {
    for (int j = 0; j < std::abs(runs[i].count); ++j) {
      const int n = runs[i].last - j;
      EXPECT_LT(n, before) << "from the last to the first, each once";
      before = n;
      listed[n] = runs[i].count > 0 ? 1 : -1;
    }
  }
  return listed;
}

std::map<int, int> Needed(const Step& step, size_t s, int first, int count,
                          int block_keys) {
  const AttentionSequence& sequence = step.sequences[s];
  std::map<int, int> needed;
  for (int n = 0; n * block_keys < sequence.kv_len; ++n) {
    bool any = false;
    bool all = (n + 1) * block_keys <= sequence.kv_len;
    for (int i = first; i < first + count; ++i) {
      const int position = sequence.kv_len - sequence.q_len + i;
      for (int k = n * block_keys;
           k < std::min((n + 1) * block_keys, sequence.kv_len); ++k) {
        const bool sees = step.masks[s].Sees(step.desc, position, k);
        any = any || sees;
        all = all && sees;
      }
    }
    if (any) needed[n] = all ? 1 : -1;
  }
  return needed;
}

TEST(AttentionMaskTest, ListsExactlyTheBlocksThatAreNeeded) {
  for (unsigned seed = 1; seed <= 60; ++seed) {
    Step step(seed);
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    const auto mask =
        CompileAttentionMask(step.desc, step.sequences, step.specs);
    ASSERT_TRUE(mask.ok()) << mask.status();
    for (size_t s = 0; s < step.sequences.size(); ++s) {
      const AttentionSequence& sequence = step.sequences[s];
      const int block_keys = seed % 3 == 0 ? 128 : seed % 3 == 1 ? 112 : 16;
      const int rows = 1 + static_cast<int>(step.rng() % 64);
      for (int first = 0; first < sequence.q_len; first += rows) {
        const int count = std::min(rows, sequence.q_len - first);
        const int64_t row = sequence.q_begin + first;
        const int64_t most =
            MaxAttentionKeyRuns(*mask, row, count, sequence.kv_len, block_keys);
        std::vector<AttentionKeyRun> runs(static_cast<size_t>(most));
        int32_t blocks = -1;
        const int64_t used = ListAttentionKeyRuns(*mask, row, count, block_keys,
                                                  runs.data(), blocks);
        ASSERT_LE(used, most);
        const std::map<int, int> listed = Listed(runs.data(), used);
        ASSERT_EQ(static_cast<size_t>(blocks), listed.size());
        ASSERT_EQ(listed, Needed(step, s, first, count, block_keys))
            << "sequence " << s << " rows from " << first;
      }
    }
  }
}

// Items and tiles begin and end where what their rows see does, and a plan
// stays within what was laid out.
TEST(AttentionMaskTest, PlansCoverWhatIsSeen) {
  for (unsigned seed = 1; seed <= 60; ++seed) {
    Step step(seed);
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    const std::vector<int32_t> table(2000, 7);
    for (AttentionSequence& sequence : step.sequences) {
      sequence.blocks = table.data();
    }
    const auto mask =
        CompileAttentionMask(step.desc, step.sequences, step.specs);
    ASSERT_TRUE(mask.ok()) << mask.status();
    AttentionPlanShape shape;
    shape.num_kv_heads = 2;
    shape.group = 1 + static_cast<int>(seed % 5);
    shape.head_dim = 128;
    shape.window = step.desc.window;
    shape.causal = step.desc.causal;
    shape.block_size = 16;
    shape.grid = 132;
    shape.tile_tokens = seed % 3 == 0 ? 0 : 128 / shape.group;
    shape.mma_keys = seed % 2 == 0 ? 0 : 32;
    const AttentionPlanLimits limits =
        AttentionPlanLimitsOf(shape, step.sequences, &*mask);
    const size_t bytes = LayOutAttentionPlan(shape, limits).bytes;
    std::vector<AttentionItem> storage(bytes / sizeof(AttentionItem) + 1);
    auto* image = reinterpret_cast<std::byte*>(storage.data());
    std::memset(image, 0x5a, storage.size() * sizeof(storage[0]));
    const AttentionPlan plan =
        BuildAttentionPlan(shape, limits, step.sequences, image, &*mask);
    ASSERT_TRUE(plan.masked);
    ASSERT_LE(plan.used_bytes, bytes);
    ASSERT_EQ(image[bytes], std::byte{0x5a}) << "wrote beyond the image";
    const auto hull = [&](int first, int count) {
      std::pair<int, int> keys{1 << 30, 0};
      for (int i = first; i < first + count; ++i) {
        const AttentionRowKeys& row = mask->rows[static_cast<size_t>(i)];
        if (row.end > 0) keys.first = std::min(keys.first, row.begin);
        keys.second = std::max(keys.second, row.end);
      }
      if (keys.second == 0) keys.first = 0;
      return keys;
    };
    std::map<int, int> tokens;  // of kv head 0, and how often
    const auto* cta_items =
        reinterpret_cast<const int32_t*>(image + plan.layout.cta_items);
    const auto* items =
        reinterpret_cast<const AttentionItem*>(image + plan.layout.items);
    std::map<std::pair<int, int>, std::pair<int, int>> keys_of;
    for (int i = 0; i < cta_items[shape.grid]; ++i) {
      const AttentionItem& item = items[i];
      if (item.kv_head != 0) continue;
      const auto rows = std::pair{item.q_begin, item.row_begin};
      const auto [at, added] =
          keys_of.try_emplace(rows, item.key_begin, item.key_end);
      if (!added) {
        ASSERT_EQ(at->second.second, item.key_begin);
        at->second.second = item.key_end;
        continue;
      }
      const int first = item.q_begin + item.row_begin / shape.group;
      const int last =
          item.q_begin + (item.row_begin + item.num_rows - 1) / shape.group;
      for (int t = first; t <= last; ++t) tokens[t] = 1;
    }
    for (const auto& [rows, keys] : keys_of) {
      const auto& [q_begin, row] = rows;
      int num_rows = 0;
      for (const AttentionSequence& sequence : step.sequences) {
        if (sequence.q_begin == q_begin && sequence.q_len > 0) {
          num_rows = std::min(16, sequence.q_len * shape.group - row);
        }
      }
      const int first = row / shape.group;
      const int count = (row + num_rows - 1) / shape.group + 1 - first;
      ASSERT_EQ(keys, hull(q_begin + first, count));
    }
    const auto* tiles =
        reinterpret_cast<const AttentionTile*>(image + plan.layout.tiles);
    for (int i = 0; i < plan.num_tiles; ++i) {
      const AttentionTile& tile = tiles[i];
      ASSERT_EQ((std::pair{tile.key_begin, tile.key_end}),
                hull(tile.q_row, tile.num_tokens));
      std::vector<AttentionKeyRun> runs(200);
      int32_t blocks = 0;
      const int64_t count =
          ListAttentionKeyRuns(*mask, tile.q_row, tile.num_tokens,
                               seed % 2 == 0 ? 128 : 32, runs.data(), blocks);
      ASSERT_EQ(tile.num_blocks, blocks);
      ASSERT_EQ(std::memcmp(runs.data(),
                            image + plan.layout.runs +
                                static_cast<size_t>(tile.runs_begin) *
                                    sizeof(AttentionKeyRun),
                            static_cast<size_t>(count) * sizeof(runs[0])),
                0);
      for (int t = 0; t < tile.num_tokens; ++t) ++tokens[tile.q_row + t];
      if (i == 0) continue;
      ASSERT_LE(tile.num_blocks, tiles[i - 1].num_blocks);
    }
    size_t queries = 0;
    for (const AttentionSequence& sequence : step.sequences) {
      queries += static_cast<size_t>(sequence.q_len);
    }
    ASSERT_EQ(tokens.size(), queries);
    for (const auto& [token, times] : tokens) ASSERT_EQ(times, 1) << token;
  }
}

// Windows both ways, laid out before the sequences are known by more than their
// number: any of them fit.
TEST(AttentionMaskTest, ReachesFitTheirLimits) {
  for (unsigned seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    Step step(seed);
    step.desc.window = 0;
    step.desc.causal = false;
    const std::vector<int32_t> table(2000, 7);
    std::vector<AttentionMaskSpec> specs(step.sequences.size());
    const int reach = 1 + static_cast<int>(step.rng() % 200);
    AttentionPlanLimits limits;
    limits.sequences = static_cast<int64_t>(step.sequences.size());
    for (size_t s = 0; s < specs.size(); ++s) {
      // As encoders have them.
      AttentionSequence& sequence = step.sequences[s];
      sequence.q_begin = static_cast<int32_t>(limits.tokens);
      sequence.kv_len = sequence.q_len;
      sequence.blocks = table.data();
      specs[s].reach = reach;
      limits.tokens += sequence.q_len;
      limits.blocks += (sequence.kv_len + 15) / 16;
    }
    const auto mask = CompileAttentionMask(step.desc, step.sequences, specs);
    ASSERT_TRUE(mask.ok()) << mask.status();
    AttentionPlanShape shape;
    shape.num_kv_heads = 2;
    shape.group = 1 + static_cast<int>(seed % 5);
    shape.head_dim = 128;
    shape.causal = false;
    shape.block_size = 16;
    shape.grid = 132;
    shape.tile_tokens = seed % 3 == 0 ? 0 : 128 / shape.group;
    AddReachLimits(shape, &limits);
    const AttentionPlanLimits least =
        AttentionPlanLimitsOf(shape, step.sequences, &*mask);
    ASSERT_GE(limits.mask_rows, least.mask_rows);
    ASSERT_EQ(least.mask_words, 0);
    ASSERT_GE(limits.key_runs, least.key_runs);
    const size_t bytes = LayOutAttentionPlan(shape, limits).bytes;
    std::vector<AttentionItem> storage(bytes / sizeof(AttentionItem) + 1);
    auto* image = reinterpret_cast<std::byte*>(storage.data());
    std::memset(image, 0x5a, storage.size() * sizeof(storage[0]));
    const AttentionPlan plan =
        BuildAttentionPlan(shape, limits, step.sequences, image, &*mask);
    ASSERT_TRUE(plan.masked);
    ASSERT_LE(plan.used_bytes, bytes);
    ASSERT_EQ(image[bytes], std::byte{0x5a}) << "wrote beyond the image";
  }
}

TEST(AttentionMaskTest, RefusesWhatCannotBe) {
  AttentionDesc desc;
  const AttentionSequence sequence{0, 10, 100, nullptr};
  const auto compile = [&](const AttentionMaskSpec& spec) {
    return CompileAttentionMask(desc, {&sequence, 1}, {&spec, 1}).status();
  };
  AttentionMaskSpec spec;
  EXPECT_TRUE(compile(spec).ok());
  spec.prefix = 90;  // before the step's first query
  EXPECT_TRUE(compile(spec).ok());
  spec.prefix = 100;
  EXPECT_TRUE(compile(spec).ok());
  spec.prefix = 101;
  EXPECT_EQ(compile(spec).message(),
            "attention mask: prefix is 101; expected 0 to 100");
  spec = {};
  const int32_t documents[] = {0, 50, 40};
  spec.documents = documents;
  EXPECT_EQ(compile(spec).message(),
            "attention mask: the begin of a document is 40; expected 50 to "
            "2147483647");
  spec = {};
  spec.reach = 2147483647;
  EXPECT_TRUE(compile(spec).ok());
  spec.reach = -1;
  EXPECT_EQ(compile(spec).message(),
            "attention mask: reach is -1; expected 0 to 2147483647");
  spec = {};
  const std::vector<uint32_t> words(13 * 2);
  spec.blocks = words;
  spec.query_block = 8;
  spec.key_block = 2;
  spec.row_words = 2;
  EXPECT_TRUE(compile(spec).ok());
  spec.key_block = 3;
  EXPECT_FALSE(compile(spec).ok());
  spec.key_block = 1;  // needs four words
  EXPECT_FALSE(compile(spec).ok());
  spec.key_block = 2;
  spec.query_block = 7;
  EXPECT_FALSE(compile(spec).ok());
  // Rows from the step's first query on are enough, later ones are not.
  spec.query_block = 8;
  spec.first_row = 11;
  spec.blocks = absl::MakeConstSpan(words).first(4);
  EXPECT_TRUE(compile(spec).ok());
  spec.first_row = 12;
  EXPECT_EQ(compile(spec).message(),
            "attention mask: first_row is 12; expected 0 to 11");
  spec.first_row = 10;
  EXPECT_FALSE(compile(spec).ok()) << "three rows";
  spec.first_row = -1;
  EXPECT_FALSE(compile(spec).ok());
  EXPECT_FALSE(CompileAttentionMask(desc, {&sequence, 1}, {}).ok());
}

TEST(AttentionMaskTest, AlibiSlopesAreThePapers) {
  float slopes[12];
  FillAlibiSlopes(8, slopes);
  for (int i = 0; i < 8; ++i) EXPECT_EQ(slopes[i], std::exp2f(-(i + 1)));
  FillAlibiSlopes(1, slopes);
  EXPECT_EQ(slopes[0], 0x1p-8f);
  FillAlibiSlopes(12, slopes);
  for (int i = 0; i < 8; ++i) EXPECT_EQ(slopes[i], std::exp2f(-(i + 1)));
  for (int i = 0; i < 4; ++i) {
    EXPECT_FLOAT_EQ(slopes[8 + i], std::exp2f(-0.5f - i));
  }
}

}  // namespace
}  // namespace inlay
