// disentangled_attention's CUDA rows against a float64 softmax: ragged batches,
// every format, block sizes, one table or both, distances in reach or not; and
// the same bits in every batch.
#if INLAY_HAS_CUDA
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "kernels/attention/disentangled_attention.h"
#include "tests/support/attention_cuda_util.h"

namespace inlay {
namespace {

using ::inlay::testing::AttentionCudaTest;
using ::inlay::testing::AttentionProblem;
using ::inlay::testing::Desc;
using ::inlay::testing::ForEachCudaRow;
using ::inlay::testing::RelativeTables;
using ::inlay::testing::SequenceShape;
using ::inlay::testing::TestMask;
using ::inlay::testing::TestMatrix;

class DisentangledAttentionCudaTest : public AttentionCudaTest {};

// Texts, whole, of lengths around tiles; and a few queries of long ones.
const std::vector<SequenceShape> kWholeTexts = {
    {1, 1}, {31, 31}, {32, 32}, {65, 65}, {0, 7}, {130, 130}, {3, 500}};

TEST_F(DisentangledAttentionCudaTest, MatchesFloat64) {
  unsigned seed = 1;
  for (const int head_dim : {64, 128, 16, 72}) {
    for (const DType dtype : {DType::kBF16, DType::kF16, DType::kF32}) {
      for (const int reach : {0, 5, 40, 511}) {
        SCOPED_TRACE(::testing::Message()
                     << "head_dim " << head_dim << " " << DTypeName(dtype)
                     << " reach " << reach << " seed " << seed);
        AttentionDesc desc = Desc(3, 3, head_dim, dtype);
        desc.causal = seed % 5 == 0;
        AttentionProblem problem(desc, kWholeTexts, seed % 2 == 0 ? 16 : 48,
                                 seed);
        problem.set_relative(reach, static_cast<int>(seed % 3) * 8,
                             seed % 4 == 0   ? RelativeTables::kKeys
                             : seed % 4 == 1 ? RelativeTables::kQueries
                                             : RelativeTables::kBoth);
        problem.Check(*gpu_);
        ++seed;
      }
    }
  }
}

TEST_F(DisentangledAttentionCudaTest, FormatsOfTheCache) {
  unsigned seed = 100;
  for (const DType kv : {DType::kF32, DType::kF16, DType::kBF16, DType::kI8,
                         DType::kF8E4M3, DType::kKvQ4}) {
    for (const DType activation : {DType::kF32, DType::kBF16}) {
      SCOPED_TRACE(::testing::Message()
                   << DTypeName(activation) << " " << DTypeName(kv));
      AttentionDesc desc = Desc(2, 2, 64, activation, kv);
      desc.causal = false;
      AttentionProblem problem(desc, {{9, 40}, {100, 100}, {1, 300}}, 16,
                               seed++);
      problem.set_relative(50, 10);
      problem.Check(*gpu_);
    }
  }
}

TEST_F(DisentangledAttentionCudaTest, BesideEverythingElse) {
  AttentionDesc desc = Desc(4, 4, 64, DType::kBF16);
  desc.window = 100;
  desc.softcap = 20.0f;
  AttentionProblem capped(desc, kWholeTexts, 16, 1);
  capped.set_relative(128, 32);
  capped.set_sinks(true);
  capped.Check(*gpu_);
  std::mt19937 rng(7);
  std::vector<TestMask> masks(2);
  masks[0].Reach(40);
  masks[1].Blocks(rng, 300, 64, 64, 40);
  desc = Desc(2, 2, 64, DType::kF16);
  desc.causal = false;
  AttentionProblem masked(desc, {{200, 200}, {70, 300}}, 16, 2, masks);
  masked.set_relative(128, 64);
  masked.Check(*gpu_);
}

// Few CTAs with many items each, and more CTAs than items.
TEST_F(DisentangledAttentionCudaTest, ListsOfItems) {
  for (const int grid : {1, 3, 40, 1000}) {
    AttentionDesc desc = Desc(4, 4, 64, DType::kBF16);
    desc.causal = false;
    AttentionProblem problem(desc, kWholeTexts, 16, 3);
    problem.set_relative(128, 32);
    problem.set_grid(grid);
    problem.Check(*gpu_);
  }
}

// A text's bits do not depend on the others, as embeddings must not.
TEST_F(DisentangledAttentionCudaTest, TheSameBitsInEveryBatch) {
  for (const DType dtype : {DType::kBF16, DType::kF32}) {
    AttentionDesc desc = Desc(4, 4, 64, dtype);
    desc.causal = false;
    AttentionProblem problem(desc, kWholeTexts, 16, 4);
    problem.set_relative(128, 32);
    ForEachCudaRow(
        DisentangledAttentionTable(), desc, *gpu_,
        [&](const DisentangledAttentionRow& row) {
          const TestMatrix all = problem.Run(row, *gpu_, problem.sequences());
          for (const AttentionSequence& sequence : problem.sequences()) {
            const TestMatrix alone =
                problem.Run(row, *gpu_, absl::MakeConstSpan(&sequence, 1));
            for (int i = 0; i < sequence.q_len; ++i) {
              const int64_t r = sequence.q_begin + i;
              ASSERT_EQ(alone.RowBits(r), all.RowBits(r)) << row.name << r;
            }
          }
        });
  }
}

}  // namespace
}  // namespace inlay
#endif  // INLAY_HAS_CUDA
