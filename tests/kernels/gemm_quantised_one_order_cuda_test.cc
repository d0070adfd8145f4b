// Quantised weights where the batch must not tell: a row of x gives the same
// bits alone and among any others, by every kernel that shares the order of
// sums, and the product.
#if INLAY_HAS_CUDA

#include <string>
#include <vector>

#include "kernels/gemm/quantised/many_rows_packed_cuda.h"
#include "kernels/gemm/quantised/streamed_cuda.h"
#include "kernels/gemm/quantised/wide_cuda.h"
#include "tests/support/cuda_test_util.h"
#include "tests/support/quantised_problem.h"

namespace inlay {
namespace {

using namespace ::inlay::testing;  // NOLINT

// Rows [first, ..) of `all` are those of `some`.
void ExpectRows(const TestMatrix& all, int64_t first, const TestMatrix& some) {
  for (int64_t r = 0; r < some.rows(); ++r) {
    ASSERT_EQ(some.RowBits(r), all.RowBits(first + r))
        << "row " << first + r << " of " << some.rows();
  }
}

// Each format, in both types: numbers of rows that every kernel has, the
// residual in y's place and elsewhere. k is a multiple of 64 and not of 128;
// for bf16 also of 32 only where blocks are that small, which another kernel
// serves.
TEST(GemmQuantisedOneOrderTest, ARowDependsOnNothingBesideIt) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  unsigned seed = 20;
  for (const BlockCodec* codec : BlockCodecs()) {
    for (const DType type : {DType::kBF16, DType::kF16}) {
      for (const int64_t columns : {1216, 1120}) {
        if (columns == 1120 && type == DType::kF16) continue;
        GemmDesc desc{600, Width(*codec, columns), codec->dtype, type,
                      seed % 3 == 0 ? type : DType::kF32};
        desc.batch_invariant = true;
        SCOPED_TRACE(::testing::Message()
                     << DTypeName(codec->dtype) << " x " << DTypeName(type)
                     << ", k " << desc.k << " seed " << seed);
        QuantisedProblem problem(cuda, *codec, desc, 600, seed++);
        const TestMatrix all = problem.Run(0, 600);
        if (columns == 1216) problem.Check(0, problem.Run(0, 9));
        for (const auto& [first, rows] : {std::pair<int64_t, int64_t>{0, 1},
                                          {599, 1},
                                          {2, 8},
                                          {7, 9},
                                          {300, 32},
                                          {33, 33},
                                          {64, 65},
                                          {100, 193},
                                          {5, 400}}) {
          ExpectRows(all, first,
                     problem.Run(first, rows, true, true, rows % 2 != 0));
          if (::testing::Test::HasFatalFailure()) return;
        }
      }
    }
  }
}

// The kernel for many rows and that for up to 32, K cut in every way: ranges,
// shares that divide K and that do not, groups of two units; tiles of w that
// are not full.
TEST(GemmQuantisedOneOrderTest, ManyRowsHaveTheBitsOfFew) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  if (cuda.info.sm != 90) GTEST_SKIP() << "a kernel of compute capability 9.0";
  unsigned seed = 50;
  for (const BlockCodec* codec : BlockCodecs()) {
    const QuantForm form = QuantFormOf(codec->dtype);
    if (WideRoundsTooMuch(form)) continue;
    for (const DType type : {DType::kBF16, DType::kF16}) {
      const GemmDesc desc{291, Width(*codec, 2112), codec->dtype, type,
                          seed % 2 != 0 ? DType::kF32 : type};
      SCOPED_TRACE(::testing::Message() << DTypeName(codec->dtype) << " x "
                                        << DTypeName(type) << " seed " << seed);
      QuantisedProblem problem(cuda, *codec, desc, 150, seed++);
      for (const int cluster : {1, 2, 4}) {
        for (const int shares : {1, 3}) {
          SCOPED_TRACE(::testing::Message() << "clusters of " << cluster << ", "
                                            << shares << " shares");
          StreamedPlan plan;
          plan.rounds_weights = true;
          plan.cluster = cluster;
          plan.shares = shares;
          plan.place_units = 1 + static_cast<int>(seed + shares / 2) % 2;
          ASSERT_TRUE(FitStreamedPlan(form, desc.n, desc.k, 20, plan));
          problem.plan = plan;
          problem.many_rows = true;
          const TestMatrix many = problem.Run(0, 150);
          problem.Check(128, problem.Run(128, 3));
          problem.many_rows = false;
          for (const int x_tiles : {1, 2, 4}) {
            plan.x_tiles = x_tiles;
            ASSERT_TRUE(FitStreamedPlan(form, desc.n, desc.k, 20, plan));
            ASSERT_EQ(plan.shares, problem.plan->shares);
            problem.plan = plan;
            const int64_t rows = 8 * x_tiles - 1;
            ExpectRows(many, 140 - rows, problem.Run(140 - rows, rows));
          }
          if (::testing::Test::HasFatalFailure()) return;
        }
      }
    }
  }
}

// More tiles than clusters, so that they go on to others, both widths of tiles
// of x; of each kind of codes one format, and a factor that is no power of two.
TEST(GemmQuantisedOneOrderTest, ManyTiles) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  unsigned seed = 90;
  for (const DType dtype : {DType::kU4_G128, DType::kQ6_K, DType::kQ8_0,
                            DType::kNVFP4_F32, DType::kF8_G128}) {
    for (const DType type : {DType::kBF16, DType::kF16}) {
      GemmDesc desc{8448, 512, dtype, type, type};
      desc.batch_invariant = true;
      SCOPED_TRACE(::testing::Message() << DTypeName(dtype) << " x "
                                        << DTypeName(type) << " seed " << seed);
      QuantisedProblem problem(cuda, *FindBlockCodec(dtype), desc, 520, seed++);
      const TestMatrix all = problem.Run(0, 384);  // 192 at a time
      problem.Check(190, problem.Run(190, 4));
      ExpectRows(all, 200, problem.Run(200, 8));
      ExpectRows(all, 370, problem.Run(370, 14));
      ExpectRows(problem.Run(0, 520), 0, all);
      if (::testing::Test::HasFatalFailure()) return;
    }
  }
}

// Needs no GPU: all numbers of rows have plans that cut K alike, for all that
// bears rounding.
TEST(GemmQuantisedOneOrderTest, PlansCutAlike) {
  for (const BlockCodec* codec : BlockCodecs()) {
    const QuantForm form = QuantFormOf(codec->dtype);
    for (const int64_t n : {32, 1024, 4096, 29568, 262144}) {
      for (const int64_t columns : {1, 128, 4096, 14336, 53248}) {
        const int64_t k = Width(*codec, columns);
        for (const int sms : {2, 78, 132}) {
          SCOPED_TRACE(::testing::Message() << DTypeName(codec->dtype) << " "
                                            << n << " by " << k << ", " << sms);
          StreamedPlans plans;
          const bool fits = PlanStreamedInOneOrder(form, n, k, sms, plans);
          ASSERT_EQ(fits, !WideRoundsTooMuch(form));
          if (!fits) continue;
          const StreamedPlan& few = plans.For(1);
          for (const int64_t rows : {8, 9, 16, 17, 32, 33}) {
            const StreamedPlan& plan = plans.For(rows);
            ASSERT_GE(plan.places, 2);
            EXPECT_EQ(plan.x_tiles, rows <= 8 ? 1 : rows <= 16 ? 2 : 4);
            EXPECT_TRUE(plan.rounds_weights);
            EXPECT_EQ(plan.cluster, few.cluster);
            EXPECT_EQ(plan.shares, few.shares);
            EXPECT_EQ(plan.place_units, few.place_units);
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace inlay

#endif  // INLAY_HAS_CUDA
