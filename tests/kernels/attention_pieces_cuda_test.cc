// Plans of pieces (AttentionPlanShape::piece_keys): within what float64 says,
// and the same bits whether a query comes alone, with a prompt or in a batch,
// however tiles are cut, in graphs too.
#if INLAY_HAS_CUDA
#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "tests/support/attention_cuda_util.h"

namespace inlay {
namespace {

using ::inlay::testing::AttentionCudaTest;
using ::inlay::testing::AttentionProblem;
using ::inlay::testing::Desc;
using ::inlay::testing::SequenceShape;
using ::inlay::testing::TestMatrix;

class AttentionPiecesCudaTest : public AttentionCudaTest {
 protected:
  void SetUp() override {
    AttentionCudaTest::SetUp();
    if (IsSkipped()) return;
    if (gpu_->info.sm < 90) GTEST_SKIP() << "needs compute capability 9.0";
  }
  const AttentionRow& row_ = AttentionTable()[0];
};

// Prompts and single tokens, some of many pieces.
const std::vector<SequenceShape> kShapes = {
    {1, 700}, {150, 150}, {90, 2410}, {0, 33},   {1, 5000},
    {1, 1},   {33, 1040}, {3, 4000},  {1, 1024}, {260, 1284}};

TEST_F(AttentionPiecesCudaTest, AreTheProduct) {
  unsigned seed = 1;
  for (const int head_dim : {64, 80, 96, 128, 192, 256}) {
    for (const int window : {0, 300, 1500}) {
      for (const auto& [heads, kv_heads] : {std::pair{8, 2}, {5, 1}, {4, 4}}) {
        SCOPED_TRACE(::testing::Message()
                     << "head_dim " << head_dim << " window " << window
                     << " heads " << heads << " of " << kv_heads);
        AttentionDesc desc = Desc(heads, kv_heads, head_dim,
                                  seed % 3 == 0 ? DType::kF16 : DType::kBF16);
        desc.window = window;
        if (seed % 4 == 0) desc.softcap = 20.0f;
        AttentionProblem problem(desc, kShapes, seed % 2 == 0 ? 16 : 64, seed);
        problem.set_sinks(seed % 5 == 0);
        problem.set_pieces(true);
        if (seed % 2 == 0) problem.set_grid(20);
        problem.ComputeReference(row_, *gpu_);
        // Twice: the second time finds what the first left.
        problem.Compare(problem.Run(row_, *gpu_, problem.sequences(), true, 2),
                        true);
        ++seed;
      }
    }
  }
}

struct InvariantCase {
  int head_dim = 128;
  int window = 0;
  DType dtype = DType::kBF16;
  bool causal = true;
};

TEST_F(AttentionPiecesCudaTest, AQueryDependsOnNothingButItsKeys) {
  for (const InvariantCase& c :
       std::vector<InvariantCase>{{64},
                                  {64, 1100},
                                  {80},
                                  {80, 1100, DType::kF16},
                                  {96, 0, DType::kF16},
                                  {96, 1100},
                                  {128},
                                  {128, 1100},
                                  {128, 0, DType::kF16, false},
                                  {192},
                                  {192, 1100},
                                  {192, 0, DType::kBF16, false},
                                  {256},
                                  {256, 1100}}) {
    AttentionDesc desc = Desc(8, 2, c.head_dim, c.dtype);
    desc.window = c.window;
    desc.causal = c.causal;
    AttentionProblem problem(desc, kShapes, 16, 5);
    problem.set_pieces(true);
    SCOPED_TRACE(::testing::Message()
                 << "head_dim " << c.head_dim << " window " << c.window << " "
                 << DTypeName(c.dtype) << (c.causal ? "" : " not causal"));
    const TestMatrix whole = problem.Run(row_, *gpu_, problem.sequences());
    // Nothing is cut, and nearly everything is.
    for (const int grid : {1, 500}) {
      problem.set_grid(grid);
      const TestMatrix other =
          problem.Run(row_, *gpu_, problem.sequences(), true, 2);
      for (int64_t r = 0; r < whole.rows(); ++r) {
        ASSERT_EQ(whole.RowBits(r), other.RowBits(r))
            << "row " << r << " of a grid of " << grid;
      }
    }
    problem.set_grid(0);
    std::vector<AttentionSequence> decode;
    for (const AttentionSequence& sequence : problem.sequences()) {
      // Each on its own, as in a decode step, and some in a chunk.
      for (int i = 0; i < sequence.q_len; i += 1 + sequence.q_len / 5) {
        AttentionSequence query = sequence;
        query.q_begin += i;
        if (c.causal) query.kv_len -= sequence.q_len - 1 - i;
        query.q_len = 1;
        const TestMatrix alone = problem.Run(row_, *gpu_, {&query, 1});
        ASSERT_EQ(whole.RowBits(query.q_begin), alone.RowBits(query.q_begin))
            << "row " << query.q_begin;
        decode.push_back(query);
        query.q_len = std::min(2 + i % 40, sequence.q_len - i);
        if (c.causal) query.kv_len += query.q_len - 1;
        const TestMatrix chunk = problem.Run(row_, *gpu_, {&query, 1});
        for (int r = query.q_begin; r < query.q_begin + query.q_len; ++r) {
          ASSERT_EQ(whole.RowBits(r), chunk.RowBits(r)) << "row " << r;
        }
      }
    }
    const TestMatrix graph = problem.Run(row_, *gpu_, decode, true, 1, true);
    for (const AttentionSequence& query : decode) {
      ASSERT_EQ(whole.RowBits(query.q_begin), graph.RowBits(query.q_begin))
          << "row " << query.q_begin;
    }
  }
}

TEST_F(AttentionPiecesCudaTest, NoneOfMasks) {
  AttentionProblem problem(Desc(4, 2, 64, DType::kBF16), {{1, 700}}, 16, 5);
  problem.set_pieces(true);
  problem.set_alibi();
  EXPECT_NONFATAL_FAILURE(problem.Run(row_, *gpu_, problem.sequences()),
                          "piece_keys");
}

}  // namespace
}  // namespace inlay
#endif  // INLAY_HAS_CUDA
