// cuda_mma's tiles beside what attention_cuda_test.cc asks of every row: every
// number of rows and keys near where tiles, blocks of keys and stages end, and
// the same bits each time, in any company and however a prompt is cut.
#if INLAY_HAS_CUDA
#include <gtest/gtest.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "tests/support/attention_cuda_util.h"

namespace inlay {
namespace {

using ::inlay::testing::AttentionCudaTest;
using ::inlay::testing::AttentionProblem;
using ::inlay::testing::Desc;
using ::inlay::testing::SequenceShape;
using ::inlay::testing::TestMatrix;

class AttentionMmaCudaTest : public AttentionCudaTest {
 protected:
  // The row's, and right.
  void Check(AttentionProblem& problem) {
    problem.ComputeReference(*row_, *gpu_);
    problem.Compare(problem.Run(*row_, *gpu_, problem.sequences(), true, 2),
                    true);
  }

  const AttentionRow* row_ = std::find_if(
      AttentionTable().begin(), AttentionTable().end(),
      [](const AttentionRow& row) { return row.name == "cuda_mma"; });
};

TEST_F(AttentionMmaCudaTest, RemaindersOfTilesAndBlocks) {
  unsigned seed = 1;
  for (const int head_dim : {64, 80, 96, 128, 192, 256}) {
    for (const int group : {1, 3, 4, 128}) {
      SCOPED_TRACE(::testing::Message()
                   << "head_dim " << head_dim << " group " << group);
      std::vector<SequenceShape> shapes;
      // Rows of a tile less one, all, one more; a warp's; two tiles'.
      for (const int rows : {65, 96, 97, 127, 128, 129, 255, 256, 257}) {
        const int q_len = std::max(2, (rows + group - 1) / group);
        // Keys before them: none, and a block of keys less one, all, one more.
        for (const int before : {0, 63, 64, 65, 200}) {
          if (before > 0 && (rows + before) % 3 != 0) continue;
          shapes.push_back({q_len, q_len + before});
        }
      }
      AttentionProblem problem(
          Desc(group, 1, head_dim, seed % 2 == 0 ? DType::kF16 : DType::kBF16),
          shapes, seed % 3 == 0 ? 48 : 16, seed);
      Check(problem);
      ++seed;
    }
  }
}

// From one block of keys to more than a ring has stages, under windows too.
TEST_F(AttentionMmaCudaTest, NumbersOfBlocks) {
  for (const int head_dim : {64, 80, 96, 128, 192, 256}) {
    for (const int window : {0, 33, 150}) {
      SCOPED_TRACE(::testing::Message()
                   << "head_dim " << head_dim << " window " << window);
      AttentionDesc desc = Desc(2, 2, head_dim, DType::kBF16);
      desc.window = window;
      std::vector<SequenceShape> shapes;
      for (int keys = 70; keys < 700; keys += 61) shapes.push_back({70, keys});
      AttentionProblem problem(desc, shapes, 16, 3);
      problem.set_sinks(window == 33);
      Check(problem);
    }
  }
}

// Blocks of the cache that its kernel cannot read go to cuda_plain's items.
TEST_F(AttentionMmaCudaTest, BlockSizesOfAnyKind) {
  for (const int block_size : {8, 24, 40}) {
    SCOPED_TRACE(::testing::Message() << "block size " << block_size);
    AttentionProblem problem(Desc(4, 2, 128, DType::kBF16),
                             {{90, 210}, {1, 77}, {64, 64}}, block_size, 4);
    Check(problem);
  }
}

TEST_F(AttentionMmaCudaTest, TheSameBitsHoweverAPromptIsCut) {
  for (const int head_dim : {64, 80, 96, 128, 192, 256}) {
    for (const int what : {0, 1, 2}) {
      SCOPED_TRACE(::testing::Message()
                   << "head_dim " << head_dim << " what " << what);
      AttentionDesc desc =
          Desc(8, 2, head_dim, what == 1 ? DType::kF16 : DType::kBF16);
      if (what == 1) desc.window = 200;
      if (what == 2) desc.softcap = 10.0f;
      const std::vector<SequenceShape> shapes = {
          {400, 900}, {1, 333}, {130, 130}, {90, 700}};
      AttentionProblem problem(desc, shapes, 16, 11);
      if (what == 2) problem.set_alibi();
      const TestMatrix whole = problem.Run(*row_, *gpu_, problem.sequences());
      const TestMatrix again =
          problem.Run(*row_, *gpu_, problem.sequences(), true, 3);
      for (int64_t r = 0; r < whole.rows(); ++r) {
        ASSERT_EQ(whole.RowBits(r), again.RowBits(r)) << "row " << r;
      }
      for (const AttentionSequence& sequence : problem.sequences()) {
        if (sequence.q_len == 1) continue;
        // Of more than 64 rows: tiles, as the whole is.
        for (const int first : {0, 17, 32, 50}) {
          AttentionSequence chunk = sequence;
          chunk.q_begin += first;
          chunk.q_len = std::min(40 + first, sequence.q_len - first);
          chunk.kv_len -= sequence.q_len - first - chunk.q_len;
          const TestMatrix part = problem.Run(*row_, *gpu_, {&chunk, 1});
          for (int i = 0; i < chunk.q_len; ++i) {
            ASSERT_EQ(whole.RowBits(chunk.q_begin + i),
                      part.RowBits(chunk.q_begin + i))
                << "query " << first + i << " of a chunk from " << first;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace inlay
#endif  // INLAY_HAS_CUDA
