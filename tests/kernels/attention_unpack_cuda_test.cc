// Tiles over caches of bytes: their keys and values are unpacked into the
// workspace, in rounds where it has not room for all. The same bits whatever
// the rounds and the batch; and within what float64 says of the unpacked cache.
#if INLAY_HAS_CUDA
#include <gtest/gtest.h>

#include <random>

#include "tests/support/attention_cuda_util.h"

namespace inlay {
namespace {

using ::inlay::testing::AttentionCudaTest;
using ::inlay::testing::AttentionProblem;
using ::inlay::testing::Desc;
using ::inlay::testing::SequenceShape;
using ::inlay::testing::TestMask;
using ::inlay::testing::TestMatrix;

class AttentionUnpackCudaTest : public AttentionCudaTest {
 protected:
  void SetUp() override {
    AttentionCudaTest::SetUp();
    if (IsSkipped()) return;
    if (gpu_->info.sm < 90) GTEST_SKIP() << "needs compute capability 9.0";
  }
  // Runs twice: the second time finds what the first left.
  TestMatrix RunAndCompare(AttentionProblem& problem) {
    problem.ComputeReference(row_, *gpu_);
    TestMatrix out = problem.Run(row_, *gpu_, problem.sequences(), true, 2);
    problem.Compare(out, true);
    return out;
  }

  const AttentionRow& row_ = AttentionTable()[0];
};

// Prompts whole and in chunks, beside single tokens.
const std::vector<SequenceShape> kPrompts = {
    {1, 700}, {150, 150}, {90, 410}, {0, 33}, {1, 20}, {60, 700}, {260, 515}};

TEST_F(AttentionUnpackCudaTest, BlockSizesAndWindows) {
  unsigned seed = 1;
  for (const int block_size : {16, 32, 48, 64, 256}) {
    for (const int head_dim : {64, 128, 192, 256}) {
      for (const int window : {0, 1, 100, 300}) {
        SCOPED_TRACE(::testing::Message()
                     << "block size " << block_size << " head_dim " << head_dim
                     << " window " << window);
        AttentionDesc desc =
            Desc(8, 2, head_dim, seed % 3 == 0 ? DType::kF16 : DType::kBF16,
                 seed % 2 == 0 ? DType::kI8 : DType::kF8E4M3);
        desc.window = window;
        AttentionProblem problem(desc, kPrompts, block_size, seed++);
        RunAndCompare(problem);
        EXPECT_EQ(problem.num_unpacked(), 4);
        EXPECT_EQ(problem.rounds(), 1);
      }
    }
  }
}

// Rooms for several sequences, for one, for some of its heads, and for nothing.
TEST_F(AttentionUnpackCudaTest, RoundsChangeNothing) {
  for (const DType kv : {DType::kI8, DType::kF8E4M3}) {
    AttentionProblem problem(Desc(20, 5, 128, DType::kBF16, kv), kPrompts, 16,
                             7);
    problem.set_sinks(true);
    problem.set_alibi();
    const TestMatrix whole = RunAndCompare(problem);
    EXPECT_EQ(problem.rounds(), 1);
    // Blocks of one head: 8 KB. The prompts have 10, 26, 44 and 33.
    constexpr int64_t kBlock = 4 * 128 * 16;
    for (const auto& [blocks, rounds, tiles] : {std::tuple{220, 1, 4},
                                                {100, 2, 4},
                                                {78, 2, 4},
                                                {70, 3, 4},
                                                {44, 3, 4},
                                                {43, 2, 3},
                                                {33, 3, 3},
                                                {26, 2, 2},
                                                {25, 1, 1},
                                                {9, 0, 0}}) {
      SCOPED_TRACE(::testing::Message() << blocks << " blocks");
      problem.set_unpack_bytes(blocks * kBlock);
      const TestMatrix out = RunAndCompare(problem);
      EXPECT_EQ(problem.rounds(), rounds);
      EXPECT_EQ(problem.num_unpacked(), tiles);
      if (tiles < 4) continue;
      for (int64_t r = 0; r < out.rows(); ++r) {
        ASSERT_EQ(out.RowBits(r), whole.RowBits(r)) << "row " << r;
      }
    }
  }
}

TEST_F(AttentionUnpackCudaTest, APromptDependsOnNothingBesideItself) {
  AttentionDesc desc = Desc(8, 2, 128, DType::kBF16, DType::kI8);
  for (const int window : {0, 120}) {
    desc.window = window;
    AttentionProblem problem(desc, kPrompts, 16, 9);
    problem.set_unpack_bytes(60 * 4 * 128 * 16);
    const TestMatrix whole = RunAndCompare(problem);
    for (const AttentionSequence& sequence : problem.sequences()) {
      if (sequence.q_len == 0) continue;
      const TestMatrix alone = problem.Run(row_, *gpu_, {&sequence, 1});
      for (int i = 0; i < sequence.q_len; ++i) {
        ASSERT_EQ(whole.RowBits(sequence.q_begin + i),
                  alone.RowBits(sequence.q_begin + i));
      }
    }
  }
}

TEST_F(AttentionUnpackCudaTest, Masks) {
  for (unsigned seed = 1; seed <= 12; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    std::mt19937 rng(seed);
    constexpr int kDims[] = {64, 96, 128, 192, 256};
    AttentionDesc desc = Desc(6, 2, kDims[seed % 5], DType::kBF16,
                              seed % 2 == 0 ? DType::kI8 : DType::kF8E4M3);
    if (seed % 3 == 0) desc.causal = false;
    if (seed % 3 == 1) desc.window = 1 + static_cast<int>(rng() % 200);
    std::vector<TestMask> masks;
    for (const SequenceShape& shape : kPrompts) {
      masks.push_back(TestMask::Random(rng, shape.q_len, shape.kv_len));
    }
    // Nothing of these is unpacked: no row sees anything.
    if (seed % 4 == 0)
      masks[1] = masks[6] = TestMask().Blocks(rng, 515, 1, 1, 0);
    AttentionProblem problem(desc, kPrompts, 32, seed, masks);
    if (seed % 4 == 2) problem.set_unpack_bytes(25 * 4 * desc.head_dim * 32);
    problem.set_sinks(seed % 3 == 1);
    RunAndCompare(problem);
  }
}

TEST_F(AttentionUnpackCudaTest, BidirectionalWithSoftcap) {
  for (const int head_dim : {64, 96, 128, 192, 256}) {
    SCOPED_TRACE(::testing::Message() << "head_dim " << head_dim);
    AttentionDesc desc = Desc(12, 12, head_dim, DType::kF16, DType::kI8);
    desc.causal = false;
    desc.softcap = 5.0f;
    AttentionProblem problem(desc, kPrompts, 16, 3);
    RunAndCompare(problem);
    EXPECT_EQ(problem.num_unpacked(), 3);  // 60 rows are few
  }
}

// f8_e4m3 rounds what is next to f16's largest value up to 2^16.
TEST_F(AttentionUnpackCudaTest, LargeValuesStayFinite) {
  for (const DType kv : {DType::kI8, DType::kF8E4M3}) {
    AttentionProblem problem(Desc(4, 2, 64, DType::kF16, kv),
                             {{100, 100}, {110, 300}}, 16, 5, {}, 40000.0f);
    RunAndCompare(problem);
    EXPECT_EQ(problem.num_unpacked(), 2);
  }
}

TEST_F(AttentionUnpackCudaTest, LongPrompts) {
  AttentionProblem whole(Desc(4, 1, 128, DType::kBF16, DType::kI8),
                         {{2100, 2100}, {1, 5000}}, 16, 6);
  RunAndCompare(whole);
  AttentionProblem chunk(Desc(8, 2, 64, DType::kBF16, DType::kF8E4M3),
                         {{70, 30000}, {60, 9000}}, 64, 6);
  chunk.set_unpack_bytes(int64_t{30000} * 4 * 64 + 100000);
  RunAndCompare(chunk);
  EXPECT_EQ(chunk.rounds(), 2);
}

}  // namespace
}  // namespace inlay
#endif  // INLAY_HAS_CUDA
