// block_indexer: every row against a sort of all scores; bit equality over
// chunkings, batches and thread counts; ties; slots that nobody wrote hold NaN.
#include "kernels/indexer/block_indexer.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "tests/support/block_indexer_util.h"
#include "tests/support/simd_target_loop.h"

namespace inlay {
namespace {

using ::inlay::testing::BlockIndexerProblem;
using ::inlay::testing::ForEachCpuRow;
using ::inlay::testing::kKvTypes;
using ::inlay::testing::OnEverySimdTarget;
using ::inlay::testing::RunWithWorkspace;
using ::inlay::testing::TestCpu;

const std::vector<BlockIndexerProblem::Shape> kRaggedBlocks = {
    {1, 1}, {1, 137}, {5, 5}, {7, 170}, {1, 64}, {0, 12}, {33, 97}, {1, 65}};

BlockIndexerDesc MakeBlockDesc(int heads, int head_dim, int block, int selects,
                               int neighbours, DType kv = DType::kF32) {
  BlockIndexerDesc desc;
  desc.num_heads = heads;
  desc.head_dim = head_dim;
  desc.block = block;
  desc.selects = selects;
  desc.neighbours = neighbours;
  desc.max_keys = 1000;
  desc.kv = kv;
  return desc;
}

void CheckBlockIndexer(BlockIndexerProblem& problem, TestCpu& cpu) {
  ForEachCpuRow(BlockIndexerTable(), problem.desc(), cpu,
                [&](const BlockIndexerRow& row) {
                  std::vector<int32_t> selection = problem.NewSelection();
                  RunWithWorkspace(row, problem.desc(),
                                   problem.Params(selection.data()), cpu);
                  problem.Expect(selection);
                });
}

TEST(BlockIndexerTest, SelectsTheBestOverSizesAndTypes) {
  TestCpu cpu(2);
  unsigned seed = 1;
  constexpr int kBlocks[] = {16, 4, 32, 1};
  for (const DType kv : kKvTypes) {
    for (const int head_dim : {32, 128, 20, 7, 256}) {
      const int neighbours = 1 + static_cast<int>(seed % 3);
      const int selects = neighbours + static_cast<int>(seed % 4);
      const int block = kBlocks[seed % 4];
      SCOPED_TRACE(::testing::Message()
                   << "head_dim " << head_dim << " " << DTypeName(kv)
                   << " blocks of " << block << ", " << selects << " with "
                   << neighbours << " seed " << seed);
      BlockIndexerProblem problem(
          MakeBlockDesc(1 + static_cast<int>(seed % 5), head_dim, block,
                        selects, neighbours, kv),
          kRaggedBlocks, seed % 2 == 0 ? 32 : 64, seed);
      CheckBlockIndexer(problem, cpu);
      ++seed;
    }
  }
}

TEST(BlockIndexerTest, EverySimdTarget) {
  TestCpu cpu(2);
  OnEverySimdTarget([&] {
    for (const DType kv : {DType::kF32, DType::kBF16, DType::kKvQ4}) {
      BlockIndexerProblem problem(MakeBlockDesc(3, 20, 16, 4, 1, kv),
                                  kRaggedBlocks, 16, 3);
      CheckBlockIndexer(problem, cpu);
      BlockIndexerProblem wide(MakeBlockDesc(4, 128, 8, 5, 2, kv),
                               kRaggedBlocks, 16, 4);
      CheckBlockIndexer(wide, cpu);
    }
  });
}

// Integers so small that every sum is exact: scores tie often, and all rows and
// the sort must agree on every block.
TEST(BlockIndexerTest, OfEqualScoresTheLowerPositionIsSelected) {
  TestCpu cpu(2);
  for (unsigned seed = 1; seed <= 8; ++seed) {
    SCOPED_TRACE(seed);
    BlockIndexerProblem problem(
        MakeBlockDesc(4, 6, 4, 7, 1,
                      seed % 2 == 0 ? DType::kBF16 : DType::kF32),
        kRaggedBlocks, 16, seed);
    problem.keys().UseIntegers(1);
    CheckBlockIndexer(problem, cpu);
  }
}

// More blocks than there are ranges, of many queries.
TEST(BlockIndexerTest, ManyQueries) {
  TestCpu cpu(3);
  BlockIndexerProblem problem(MakeBlockDesc(2, 16, 8, 6, 2, DType::kBF16),
                              {{1, 900}, {70, 700}, {1, 3}, {5, 990}}, 16, 9);
  CheckBlockIndexer(problem, cpu);
}

// The same query selects the same blocks decoded one by one, in any chunk, next
// to other sequences, on any number of threads.
TEST(BlockIndexerTest, AQueryDependsOnNothingBesideItsSequence) {
  constexpr int kLength = 150;
  TestCpu cpus[] = {TestCpu(1), TestCpu(2), TestCpu(3)};
  BlockIndexerProblem problem(MakeBlockDesc(3, 40, 8, 5, 1, DType::kF16),
                              {{kLength, kLength}, {9, 80}}, 16, 5);
  ForEachCpuRow(BlockIndexerTable(), problem.desc(), cpus[0],
                [&](const BlockIndexerRow& row) {
                  std::vector<int32_t> whole = problem.NewSelection();
                  RunWithWorkspace(row, problem.desc(),
                                   problem.Params(whole.data()), cpus[1]);
                  int turn = 0;
                  for (const int chunk : {1, 3, 16, 67}) {
                    std::vector<int32_t> chunked = problem.NewSelection();
                    BlockIndexerParams part = problem.Params(chunked.data());
                    const AttentionSequence all = part.sequences[0];
                    for (int begin = 0; begin < kLength; begin += chunk) {
                      AttentionSequence sequence = all;
                      sequence.q_begin = begin;
                      sequence.q_len = std::min(chunk, kLength - begin);
                      sequence.kv_len = begin + sequence.q_len;
                      part.sequences = absl::MakeConstSpan(&sequence, 1);
                      RunWithWorkspace(row, problem.desc(), part,
                                       cpus[turn++ % 3]);
                    }
                    const auto end = whole.begin() + int64_t{kLength} * 3 * 5;
                    EXPECT_TRUE(std::equal(whole.begin(), end, chunked.begin()))
                        << "in chunks of " << chunk;
                  }
                });
}

TEST(BlockIndexerTest, WhatIsNotFiniteSelectsOwnBlocksToo) {
  TestCpu cpu(2);
  for (const float value : {std::numeric_limits<float>::quiet_NaN(),
                            std::numeric_limits<float>::infinity(),
                            -std::numeric_limits<float>::infinity()}) {
    for (const bool in_key : {true, false}) {
      BlockIndexerProblem problem(MakeBlockDesc(2, 16, 4, 6, 1), {{9, 90}}, 16,
                                  2);
      problem.keys().Spoil(value, in_key);
      ForEachCpuRow(BlockIndexerTable(), problem.desc(), cpu,
                    [&](const BlockIndexerRow& row) {
                      std::vector<int32_t> selection = problem.NewSelection();
                      RunWithWorkspace(row, problem.desc(),
                                       problem.Params(selection.data()), cpu);
                      problem.ExpectOwnBlocks(selection);
                    });
    }
  }
}

TEST(BlockIndexerTest, RefusesAndValidates) {
  const DeviceInfo cpu{DeviceKind::kCpu, "cpu"};
  const auto served = [&](const BlockIndexerDesc& desc) {
    return Select("block_indexer", BlockIndexerTable(), desc, cpu).ok();
  };
  EXPECT_TRUE(served(MakeBlockDesc(4, 128, 128, 16, 1)));
  EXPECT_FALSE(served(MakeBlockDesc(0, 128, 128, 16, 1)));
  EXPECT_FALSE(served(MakeBlockDesc(4, kMaxIndexHeadDim + 1, 128, 16, 1)));
  EXPECT_FALSE(served(MakeBlockDesc(4, 128, 96, 16, 1)));
  EXPECT_FALSE(served(MakeBlockDesc(4, 128, 128, kMaxIndexTopK + 1, 1)));
  EXPECT_FALSE(served(MakeBlockDesc(4, 128, 128, 16, 17)));
  EXPECT_FALSE(served(MakeBlockDesc(4, 128, 128, 16, 0)));
  EXPECT_FALSE(served(MakeBlockDesc(4, 128, 128, 16, 1, DType::kI32)));
  EXPECT_EQ(ValidateBlockIndexer(MakeBlockDesc(4, 128, 96, 16, 1)).message(),
            "block_indexer: block is 96; expected a power of two");
}

}  // namespace
}  // namespace inlay
