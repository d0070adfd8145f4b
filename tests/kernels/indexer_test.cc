// indexer: every row against a sort of all scores; bit equality over chunkings,
// batches and thread counts; ties; slots that nobody wrote hold NaN. And
// attention over what is selected.
#include "kernels/indexer/indexer.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <vector>

#include "kernels/attention/attention.h"
#include "kernels/indexer/score_order.h"
#include "tests/support/indexer_util.h"
#include "tests/support/sanitized.h"
#include "tests/support/simd_target_loop.h"

namespace inlay {
namespace {

using ::inlay::testing::ForEachCpuRow;
using ::inlay::testing::IndexerProblem;
using ::inlay::testing::kKvTypes;
using ::inlay::testing::LatentDesc;
using ::inlay::testing::OnEverySimdTarget;
using ::inlay::testing::RunWithWorkspace;
using ::inlay::testing::SelectedProblem;
using ::inlay::testing::TestCpu;
using ::inlay::testing::TestMatrix;
using ::inlay::testing::TriedWith;

const std::vector<IndexerProblem::Shape> kRaggedIndexed = {
    {1, 1}, {1, 137}, {5, 5}, {7, 170}, {1, 64}, {0, 12}, {33, 97}, {1, 65}};

IndexerDesc MakeDesc(int heads, int head_dim, int top_k,
                     DType kv = DType::kF32) {
  IndexerDesc desc;
  desc.num_heads = heads;
  desc.head_dim = head_dim;
  desc.top_k = top_k;
  desc.kv = kv;
  return desc;
}

// Every row of the table gives what the problem's own sort gives, within what
// rounding of scores may change.
void Check(IndexerProblem& problem, TestCpu& cpu) {
  ForEachCpuRow(IndexerTable(), problem.desc(), cpu,
                [&](const IndexerRow& row) {
                  std::vector<int32_t> selection = problem.NewSelection();
                  RunWithWorkspace(row, problem.desc(),
                                   problem.Params(selection.data()), cpu);
                  problem.Expect(selection);
                });
}

TEST(IndexerTest, SelectsTheBestOverSizesAndTypes) {
  TestCpu cpu(2);
  constexpr int kTopKs[] = {1, 16, 40};
  unsigned seed = 1;
  // Every size and every type with each top_k.
  for (const DType kv : kKvTypes) {
    for (const int head_dim : {32, 128, 20, 7, 256}) {
      const int top_k = kTopKs[seed % 3];
      SCOPED_TRACE(::testing::Message()
                   << "head_dim " << head_dim << " " << DTypeName(kv)
                   << " top_k " << top_k << " seed " << seed);
      const int heads = 1 + static_cast<int>(seed * 5 % 17);
      IndexerProblem problem(MakeDesc(heads, head_dim, top_k, kv),
                             kRaggedIndexed, seed % 2 == 0 ? 16 : 32, seed);
      Check(problem, cpu);
      ++seed;
    }
  }
}

TEST(IndexerTest, EverySimdTarget) {
  TestCpu cpu(2);
  OnEverySimdTarget([&] {
    for (const DType kv : {DType::kF32, DType::kBF16, DType::kKvQ4}) {
      IndexerProblem problem(MakeDesc(5, 20, 24, kv), kRaggedIndexed, 16, 3);
      Check(problem, cpu);
      IndexerProblem wide(MakeDesc(64, 128, 24, kv), kRaggedIndexed, 16, 4);
      Check(wide, cpu);
    }
  });
}

// Few queries are cut into ranges of keys, many are not: in both, every range
// may have all of the best, or none.
TEST(IndexerTest, FewQueriesOfManyKeys) {
  TestCpu cpu(2);
  unsigned seed = 1;
  constexpr int kTopKs[] = {1, 100, 600};
  size_t turn = 0;
  for (const int queries : {1, 5, 14, 15, 40}) {
    for (size_t i = 0; i < std::size(kTopKs); ++i) {
      if (!TriedWith(turn, i, std::size(kTopKs))) continue;
      const int top_k = kTopKs[i];
      SCOPED_TRACE(::testing::Message() << queries << " of " << top_k);
      IndexerProblem problem(MakeDesc(3, 16, top_k, DType::kBF16),
                             {{1, 90}, {queries, 3000}, {1, 700}}, 16, seed++);
      Check(problem, cpu);
      problem.UseIntegers(2);
      Check(problem, cpu);
    }
    ++turn;
  }
}

// Integers so small that every sum is exact: scores tie often, and all rows and
// the sort must agree on every key.
TEST(IndexerTest, OfEqualScoresTheLowerPositionIsSelected) {
  TestCpu cpu(2);
  for (const DType kv : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (unsigned seed = 1; seed <= 8; ++seed) {
      SCOPED_TRACE(::testing::Message() << DTypeName(kv) << " seed " << seed);
      IndexerProblem problem(MakeDesc(4, 12, 30, kv), kRaggedIndexed, 16, seed);
      problem.UseIntegers(2);
      Check(problem, cpu);
      EXPECT_GT(problem.ties(), 10);
    }
  }
}

// More keys than are kept beside the best, in the order that is worst and in
// the one that is best; and nothing but ties.
TEST(IndexerTest, ManyKeys) {
  TestCpu cpu(2);
  for (const int step : {1, -1, 0}) {
    SCOPED_TRACE(step);
    IndexerProblem problem(MakeDesc(1, 1, 100), {{3, 9000}}, 16, 1);
    problem.UseRamp(step);
    Check(problem, cpu);
  }
  IndexerProblem most(MakeDesc(2, 8, kMaxIndexTopK),
                      {{2, kMaxIndexTopK + 3000}}, 16, 1);
  Check(most, cpu);
}

// The same query selects the same keys decoded one by one, in any chunk, next
// to other sequences, on any number of threads.
TEST(IndexerTest, AQueryDependsOnNothingBesideItsSequence) {
  constexpr int kLength = 150;
  TestCpu cpus[] = {TestCpu(1), TestCpu(2), TestCpu(3)};
  for (const DType kv : kKvTypes) {
    IndexerProblem problem(MakeDesc(7, 40, 20, kv),
                           {{kLength, kLength}, {9, 80}}, 16, 5);
    ForEachCpuRow(
        IndexerTable(), problem.desc(), cpus[0], [&](const IndexerRow& row) {
          std::vector<int32_t> whole = problem.NewSelection();
          const IndexerParams params = problem.Params(whole.data());
          RunWithWorkspace(row, problem.desc(), params, cpus[1]);
          int turn = 0;
          for (const int chunk : {1, 3, 16, 67}) {
            std::vector<int32_t> chunked = problem.NewSelection();
            IndexerParams part = problem.Params(chunked.data());
            const AttentionSequence all = part.sequences[0];
            for (int begin = 0; begin < kLength; begin += chunk) {
              AttentionSequence sequence = all;
              sequence.q_begin = begin;
              sequence.q_len = std::min(chunk, kLength - begin);
              sequence.kv_len = begin + sequence.q_len;
              part.sequences = absl::MakeConstSpan(&sequence, 1);
              RunWithWorkspace(row, problem.desc(), part, cpus[turn++ % 3]);
            }
            const auto end = whole.begin() + int64_t{kLength} * 20;
            EXPECT_TRUE(std::equal(whole.begin(), end, chunked.begin()))
                << "in chunks of " << chunk;
          }
        });
  }
}

// Whatever the numbers are, slots are those of the query's own keys, each once.
TEST(IndexerTest, WhatIsNotFiniteSelectsKeysToo) {
  TestCpu cpu(2);
  for (const float value : {std::numeric_limits<float>::quiet_NaN(),
                            std::numeric_limits<float>::infinity(),
                            -std::numeric_limits<float>::infinity()}) {
    for (const bool in_key : {true, false}) {
      IndexerProblem problem(MakeDesc(4, 16, 20), {{9, 90}}, 16, 2);
      problem.Spoil(value, in_key);
      ForEachCpuRow(IndexerTable(), problem.desc(), cpu,
                    [&](const IndexerRow& row) {
                      std::vector<int32_t> selection = problem.NewSelection();
                      RunWithWorkspace(row, problem.desc(),
                                       problem.Params(selection.data()), cpu);
                      problem.ExpectOwnKeys(selection);
                    });
    }
  }
}

TEST(IndexerTest, OrderOfScores) {
  const float ascending[] = {-std::numeric_limits<float>::infinity(),
                             -3e38f,
                             -1.0f,
                             -1e-45f,
                             0.0f,
                             1e-45f,
                             1.0f,
                             1.0000001f,
                             std::numeric_limits<float>::infinity(),
                             std::numeric_limits<float>::quiet_NaN()};
  const auto order = [](float score) {
    return ScoreOrder(std::bit_cast<uint32_t>(score));
  };
  for (size_t i = 1; i < std::size(ascending); ++i) {
    EXPECT_LT(order(ascending[i - 1]), order(ascending[i])) << i;
  }
  EXPECT_EQ(order(-0.0f), order(0.0f));
  EXPECT_EQ(order(-std::numeric_limits<float>::quiet_NaN()),
            order(std::numeric_limits<float>::quiet_NaN()));
}

TEST(IndexerTest, RefusesAndValidates) {
  const DeviceInfo cpu{DeviceKind::kCpu, "cpu"};
  const auto served = [&](const IndexerDesc& desc) {
    return Select("indexer", IndexerTable(), desc, cpu).ok();
  };
  EXPECT_TRUE(served(MakeDesc(64, 128, 2048)));
  EXPECT_FALSE(served(MakeDesc(0, 128, 2048)));
  EXPECT_FALSE(served(MakeDesc(kMaxIndexHeads + 1, 128, 2048)));
  EXPECT_FALSE(served(MakeDesc(64, kMaxIndexHeadDim + 1, 2048)));
  EXPECT_FALSE(served(MakeDesc(64, 128, kMaxIndexTopK + 1)));
  EXPECT_FALSE(served(MakeDesc(64, 128, 0)));
  EXPECT_FALSE(served(MakeDesc(64, 128, 2048, DType::kI32)));
  EXPECT_EQ(ValidateIndexer(MakeDesc(64, 128, 0)).message(),
            "indexer: top_k is 0; expected 1 to 8192");
}

// Where keys are of several tokens, the place of the one that the last tokens
// are to be a part of.
TEST(IndexerTest, WhatIsToComeIsBehindWhatIsSelected) {
  TestCpu cpu(2);
  for (const int key_tokens : {2, 8}) {
    for (const int queries : {3, 40}) {
      SCOPED_TRACE(::testing::Message() << key_tokens << " " << queries);
      IndexerDesc desc = MakeDesc(3, 16, 3);
      desc.key_tokens = key_tokens;
      const std::vector<IndexerProblem::Shape> shapes = {
          {1, 1}, {queries, 90}, {5, 5}, {1, 64}};
      IndexerProblem without(desc, shapes, 16, 7);
      desc.adds_partial = true;
      IndexerProblem with(desc, shapes, 16, 7);
      ForEachCpuRow(IndexerTable(), desc, cpu, [&](const IndexerRow& row) {
        std::vector<int32_t> all = without.NewSelection();
        RunWithWorkspace(row, without.desc(), without.Params(all.data()), cpu);
        std::vector<int32_t> selection = with.NewSelection();
        RunWithWorkspace(row, desc, with.Params(selection.data()), cpu);
        with.ExpectPartial(selection, all);
      });
    }
  }
  IndexerDesc desc = MakeDesc(3, 16, 3);
  desc.adds_partial = true;
  EXPECT_FALSE(ValidateIndexer(desc).ok());
}

// What CUDA rows read: the keys that each row sees and where its sequence's
// block table is; rows of nobody see none.
TEST(IndexPlanTest, HasEveryRow) {
  IndexerProblem problem(MakeDesc(1, 8, 4), {{3, 40}, {0, 9}, {1, 17}}, 16, 1);
  const auto sequences = problem.Sequences();
  std::vector<std::byte> image(IndexPlanBytes(6, 9), std::byte{0xff});
  const IndexPlan plan =
      BuildIndexPlan(sequences, 16, 6, image.data(), image.data());
  EXPECT_EQ(plan.used_bytes, IndexPlanBytes(6, 5));
  const int32_t keys[] = {38, 39, 40, 17, 0, 0};
  const int32_t begins[] = {0, 0, 0, 3, 0, 0};
  for (int i = 0; i < 6; ++i) {
    EXPECT_EQ(plan.queries[i].num_keys, keys[i]) << i;
    EXPECT_EQ(plan.queries[i].blocks_begin, begins[i]) << i;
  }
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(plan.blocks[i], sequences[0].blocks[i]);
  }
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(plan.blocks[3 + i], sequences[2].blocks[i]);
  }
}

// A selection of everything gives the bits of attention over everything. A tile
// has 64 keys of few dimensions and 16 of DeepSeek's (attention_tasks-inl.h), a
// task 60 rows and 16.
TEST(SelectedAttentionTest, AllKeysAreDenseAttention) {
  TestCpu cpu(2);
  constexpr struct {
    int heads, head_dim, value_dim, queries, keys;
  } kSizes[] = {
      {3, 40, 24, 30, 80}, {20, 40, 24, 30, 80}, {128, 576, 512, 3, 35}};
  for (const DType kv : kKvTypes) {
    for (const auto& [heads, head_dim, value_dim, queries, keys] : kSizes) {
      AttentionDesc dense = LatentDesc(heads, head_dim, value_dim, kv);
      AttentionDesc desc = dense;
      desc.selects = keys;
      SelectedProblem problem(desc, queries, keys, 16);
      std::vector<int32_t> selection(static_cast<size_t>(queries * keys));
      for (int i = 0; i < queries; ++i) {
        for (int t = 0; t < keys - queries + i + 1; ++t) {
          selection[static_cast<size_t>(i * keys + t)] = problem.Slot(t);
        }
      }
      ForEachCpuRow(AttentionTable(), desc, cpu, [&](const AttentionRow& row) {
        TestMatrix want = problem.NewOutput();
        TestMatrix got = problem.NewOutput();
        ASSERT_TRUE(row.run(dense, problem.Params(want), *cpu.stream).ok());
        AttentionParams params = problem.Params(got);
        params.selection = selection.data();
        ASSERT_TRUE(ValidateAttention(desc, params).ok());
        ASSERT_TRUE(row.run(desc, params, *cpu.stream).ok());
        for (int i = 0; i < problem.q().rows(); ++i) {
          ASSERT_EQ(want.RowBits(i), got.RowBits(i)) << "query " << i;
        }
      });
    }
  }
}

TEST(SelectedAttentionTest, MatchesFloat64) {
  TestCpu cpu(2);
  for (const DType kv : kKvTypes) {
    for (const int selects : {1, 70, 296}) {
      SCOPED_TRACE(::testing::Message() << DTypeName(kv) << " of " << selects);
      AttentionDesc desc = LatentDesc(19, 40, 24, kv);
      desc.selects = selects;
      SelectedProblem problem(desc, 9, 300, 32);
      const std::vector<int32_t> selection = problem.DrawAll();
      ForEachCpuRow(AttentionTable(), desc, cpu, [&](const AttentionRow& row) {
        TestMatrix out = problem.NewOutput();
        AttentionParams params = problem.Params(out);
        params.selection = selection.data();
        ASSERT_TRUE(row.run(desc, params, *cpu.stream).ok());
        problem.Expect(out, 0.0);
      });
    }
  }
}

TEST(SelectedAttentionTest, RefusesAndValidates) {
  const DeviceInfo cpu{DeviceKind::kCpu, "cpu"};
  AttentionDesc desc = LatentDesc(4, 40, 24, DType::kF32);
  desc.selects = 8;
  EXPECT_TRUE(Select("attention", AttentionTable(), desc, cpu).ok());
  SelectedProblem problem(desc, 2, 20, 16);
  TestMatrix out = problem.NewOutput();
  AttentionParams params = problem.Params(out);
  EXPECT_EQ(ValidateAttention(desc, params).message(),
            "attention: keys are selected, and there is no selection");
  std::vector<int32_t> selection(16, problem.Slot(0));
  params.selection = selection.data();
  EXPECT_TRUE(ValidateAttention(desc, params).ok());
  const float slopes[4] = {};
  params.alibi_slopes = slopes;
  EXPECT_FALSE(ValidateAttention(desc, params).ok());
  params.alibi_slopes = nullptr;
  for (const bool window : {true, false}) {
    AttentionDesc bad = desc;
    bad.window = window ? 4 : 0;
    bad.causal = window;
    EXPECT_FALSE(ValidateAttention(bad, params).ok());
    EXPECT_FALSE(Select("attention", AttentionTable(), bad, cpu).ok());
  }
}

}  // namespace
}  // namespace inlay
