// biased_attention's CUDA rows against a float64 softmax: ragged batches, every
// format, block sizes, masks, tables that reach as far as keys are or not; and
// the same bits in every batch.
#if INLAY_HAS_CUDA
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "kernels/attention/biased_attention.h"
#include "tests/support/attention_cuda_util.h"

namespace inlay {
namespace {

using ::inlay::testing::AttentionCudaTest;
using ::inlay::testing::AttentionProblem;
using ::inlay::testing::Desc;
using ::inlay::testing::ForEachCudaRow;
using ::inlay::testing::SequenceShape;
using ::inlay::testing::TestMask;
using ::inlay::testing::TestMatrix;

class BiasedAttentionCudaTest : public AttentionCudaTest {};

// Texts, whole, of lengths around tiles; and a few queries of long ones.
const std::vector<SequenceShape> kTexts = {{1, 1},     {63, 63}, {64, 64},
                                           {65, 65},   {0, 7},   {130, 130},
                                           {384, 384}, {3, 500}, {90, 1000}};

TEST_F(BiasedAttentionCudaTest, MatchesFloat64) {
  unsigned seed = 1;
  for (const int head_dim : {64, 128, 32, 72, 256}) {
    for (const DType dtype : {DType::kBF16, DType::kF16, DType::kF32}) {
      for (const int reach : {0, 5, 128, kMaxBiasReach}) {
        SCOPED_TRACE(::testing::Message()
                     << "head_dim " << head_dim << " " << DTypeName(dtype)
                     << " reach " << reach << " seed " << seed);
        AttentionDesc desc = Desc(3, 3, head_dim, dtype);
        desc.causal = seed % 5 == 0;
        AttentionProblem problem(desc, kTexts, seed % 2 == 0 ? 16 : 48, seed);
        problem.set_bias(reach);
        problem.Check(*gpu_);
        ++seed;
      }
    }
  }
}

TEST_F(BiasedAttentionCudaTest, GroupsAndFormatsOfTheCache) {
  unsigned seed = 100;
  for (const DType kv : {DType::kF32, DType::kF16, DType::kBF16, DType::kI8,
                         DType::kF8E4M3, DType::kKvQ4}) {
    for (const DType activation : {DType::kF32, DType::kBF16, DType::kF16}) {
      SCOPED_TRACE(::testing::Message()
                   << DTypeName(activation) << " " << DTypeName(kv));
      AttentionDesc desc = Desc(6, 2, 64, activation, kv);
      desc.causal = false;
      AttentionProblem problem(desc, {{9, 40}, {100, 100}, {1, 300}}, 16,
                               seed++);
      problem.set_bias(50);
      problem.Check(*gpu_);
    }
  }
}

TEST_F(BiasedAttentionCudaTest, BesideEverythingElse) {
  for (const int head_dim : {64, 128}) {
    AttentionDesc desc = Desc(4, 4, head_dim, DType::kBF16);
    desc.window = 100;
    desc.softcap = 20.0f;
    AttentionProblem capped(desc, kTexts, 16, 1);
    capped.set_bias(128);
    capped.set_sinks(true);
    capped.Check(*gpu_);
    std::mt19937 rng(7);
    std::vector<TestMask> masks(3);
    masks[0].Reach(40);
    masks[1].Blocks(rng, 500, 64, 64, 40);
    masks[2].Blocks(rng, 300, 16, 16, 10);
    desc = Desc(2, 2, head_dim, DType::kF16);
    desc.causal = false;
    AttentionProblem masked(desc, {{200, 200}, {70, 500}, {300, 300}}, 16, 2,
                            masks);
    masked.set_bias(128);
    masked.set_sinks(true);
    masked.Check(*gpu_);
  }
}

// Few CTAs with many items each, and more CTAs than items.
TEST_F(BiasedAttentionCudaTest, ListsOfItems) {
  for (const int grid : {1, 3, 40, 1000}) {
    AttentionDesc desc = Desc(4, 4, 64, DType::kBF16);
    desc.causal = false;
    AttentionProblem problem(desc, kTexts, 16, 3);
    problem.set_bias(128);
    problem.set_grid(grid);
    problem.Check(*gpu_);
  }
}

// A text's bits do not depend on the others, as embeddings must not.
TEST_F(BiasedAttentionCudaTest, TheSameBitsInEveryBatch) {
  for (const DType dtype : {DType::kBF16, DType::kF32}) {
    AttentionDesc desc = Desc(4, 4, 64, dtype);
    desc.causal = false;
    AttentionProblem problem(desc, kTexts, 16, 4);
    problem.set_bias(128);
    ForEachCudaRow(
        BiasedAttentionTable(), desc, *gpu_,
        [&](const BiasedAttentionRow& row) {
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
