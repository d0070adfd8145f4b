// attention's CUDA rows over caches of bytes, whose codes are multiplied as
// they are (kernels/attention/attention_items_8bit_sm90.h).
#if INLAY_HAS_CUDA
#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/attention_cuda_util.h"

namespace inlay {
namespace {

using ::inlay::testing::AttentionProblem;
using ::inlay::testing::Desc;
using ::inlay::testing::ForEachCudaRow;
using ::inlay::testing::kRagged;
using ::inlay::testing::TestMatrix;
using AttentionBytesCudaTest = ::inlay::testing::AttentionCudaTest;

TEST_F(AttentionBytesCudaTest, MatchFloat64) {
  unsigned seed = 200;
  for (const int head_dim : {64, 96, 128, 192, 256}) {
    for (const DType kv : {DType::kI8, DType::kF8E4M3}) {
      for (const DType activation : {DType::kBF16, DType::kF16}) {
        SCOPED_TRACE(::testing::Message()
                     << "head_dim " << head_dim << " " << DTypeName(activation)
                     << " " << DTypeName(kv));
        AttentionDesc desc =
            Desc(seed % 3 == 0 ? 16 : 4, 2, head_dim, activation, kv);
        if (seed % 4 == 1) desc.window = 37;
        if (seed % 4 == 2) desc.softcap = 20.0f;
        constexpr int kBlockSizes[] = {16, 48, 32, 64, 128};
        AttentionProblem problem(desc, kRagged, kBlockSizes[seed % 5], seed);
        problem.set_sinks(seed % 4 == 3);
        problem.Check(*gpu_);
        ++seed;
      }
    }
  }
}

// Up to eight rows of an item go another way than more.
TEST_F(AttentionBytesCudaTest, AQueryDependsOnNoRowsBesideIt) {
  for (const DType kv : {DType::kI8, DType::kF8E4M3}) {
    for (const int head_dim : {64, 128, 256}) {
      SCOPED_TRACE(::testing::Message() << DTypeName(kv) << " " << head_dim);
      const AttentionDesc desc = Desc(8, 2, head_dim, DType::kBF16, kv);
      AttentionProblem problem(desc, {{4, 1234}, {3, 90}, {4, 5000}}, 16, 5);
      int compared = 0;
      ForEachCudaRow(
          AttentionTable(), desc, *gpu_, [&](const AttentionRow& row) {
            problem.ComputeReference(row, *gpu_);
            const TestMatrix all = problem.Run(row, *gpu_, problem.sequences());
            problem.Compare(all, row.name != "cuda_plain");
            for (AttentionSequence last : problem.sequences()) {
              last.q_begin += last.q_len - 1;
              last.q_len = 1;
              const TestMatrix alone = problem.Run(row, *gpu_, {&last, 1});
              ASSERT_EQ(all.RowBits(last.q_begin), alone.RowBits(last.q_begin))
                  << row.name << ", " << last.kv_len << " keys";
              ++compared;
            }
          });
      EXPECT_GE(compared, 3);
    }
  }
}

// A request whose KV is not finite ends with an error, not with words: NaN has
// to come out. (Plain formats are AttentionTest's.)
TEST_F(AttentionBytesCudaTest, ARowThatIsNotFiniteGivesNan) {
  for (const DType kv : {DType::kI8, DType::kF8E4M3}) {
    for (const int head_dim : {64, 128, 256}) {
      for (const bool in_key : {true, false}) {
        SCOPED_TRACE(::testing::Message() << DTypeName(kv) << " " << head_dim
                                          << (in_key ? " key" : " value"));
        const AttentionDesc desc = Desc(8, 2, head_dim, DType::kBF16, kv);
        AttentionProblem problem(desc, {{1, 700}, {3, 700}, {1, 100}}, 16, 5);
        problem.SetNan(0, 33, in_key);
        problem.SetNan(1, 690, in_key);
        ForEachCudaRow(AttentionTable(), desc, *gpu_,
                       [&](const AttentionRow& row) {
                         const TestMatrix out =
                             problem.Run(row, *gpu_, problem.sequences());
                         for (int64_t c = 0; c < out.cols(); ++c) {
                           for (int64_t r = 0; r < 4; ++r) {
                             ASSERT_TRUE(std::isnan(out(r, c)))
                                 << row.name << " [" << r << ", " << c << "]";
                           }
                           ASSERT_FALSE(std::isnan(out(4, c))) << row.name;
                         }
                       });
      }
    }
  }
}

}  // namespace
}  // namespace inlay
#endif  // INLAY_HAS_CUDA
