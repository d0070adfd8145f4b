// gemm's CUDA row for quantised weights: packing on the device against the
// host's, every format and number of rows against a float64 product with what
// the packed weights say, equal bits of a row.
#if INLAY_HAS_CUDA

#include <algorithm>
#include <vector>

#include "kernels/activation/activation.h"
#include "kernels/gemm/gemm.h"
#include "kernels/gemm/quantised/quantised_cuda.h"
#include "kernels/gemm/quantised/streamed_cuda.h"
#include "kernels/gemm/quantised/wide_cuda.h"
#include "tests/support/cuda_test_util.h"
#include "tests/support/quantised_problem.h"

namespace inlay {
namespace {

using namespace ::inlay::testing;  // NOLINT

using Problem = QuantisedProblem;

TEST(GemmQuantisedCudaTest, PacksAsTheHostDoes) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  for (const BlockCodec* codec : BlockCodecs()) {
    SCOPED_TRACE(DTypeName(codec->dtype));
    for (const int64_t columns : {1, 800}) {
      GemmDesc desc{53, Width(*codec, columns), codec->dtype, DType::kBF16};
      Problem(cuda, *codec, desc, 1, 3).CheckPacking();
    }
  }
}

TEST(GemmQuantisedCudaTest, FewRowsMatchFloat64) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  unsigned seed = 1;
  for (const BlockCodec* codec : BlockCodecs()) {
    for (const int64_t columns : {1, 300, 2100}) {
      for (const DType type : {DType::kBF16, DType::kF16, DType::kF32}) {
        const int64_t n = columns == 300 ? 291 : 72;
        GemmDesc desc{n, Width(*codec, columns), codec->dtype, type,
                      seed % 2 != 0 ? type : DType::kF32};
        SCOPED_TRACE(::testing::Message()
                     << DTypeName(codec->dtype) << " x " << DTypeName(type)
                     << " k " << desc.k << " seed " << seed);
        Problem problem(cuda, *codec, desc, 33, seed++);
        for (const int64_t rows : {1, 2, 3, 8, 9, 16, 21, 32}) {
          SCOPED_TRACE(rows);
          problem.Check(33 - rows, rows);
        }
      }
    }
  }
}

TEST(GemmQuantisedCudaTest, ManyRowsMatchFloat64) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  unsigned seed = 100;
  for (const BlockCodec* codec : BlockCodecs()) {
    const DType type = seed % 2 != 0 ? DType::kBF16 : DType::kF16;
    GemmDesc desc{88, Width(*codec, 500), codec->dtype, type, DType::kF32};
    SCOPED_TRACE(::testing::Message() << DTypeName(codec->dtype) << " x "
                                      << DTypeName(type) << " seed " << seed);
    Problem problem(cuda, *codec, desc, 300, seed++);
    for (const int64_t rows : {64, 100, 256, 300}) {
      SCOPED_TRACE(rows);
      problem.Check(0, rows);
    }
  }
}

// Whole tiles of rows of x, and one more or less, where kernels take turns: of
// each form one format.
TEST(GemmQuantisedCudaTest, EveryNumberOfRows) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  unsigned seed = 200;
  for (const DType dtype :
       {DType::kQ4_0, DType::kQ4_K, DType::kU4_G128, DType::kQ2_K, DType::kQ3_K,
        DType::kQ5_K, DType::kQ6_K, DType::kQ8_0, DType::kI8_G32,
        DType::kI8_G128, DType::kF8_G32, DType::kF8_G128, DType::kIQ4_NL,
        DType::kNF4, DType::kNVFP4, DType::kIQ2_S}) {
    const BlockCodec& codec = *FindBlockCodec(dtype);
    const DType type = seed % 2 != 0 ? DType::kBF16 : DType::kF16;
    const GemmDesc desc{83, Width(codec, 416), dtype, type,
                        seed % 4 < 2 ? DType::kF32 : type};
    SCOPED_TRACE(::testing::Message() << DTypeName(dtype) << " x "
                                      << DTypeName(type) << " seed " << seed);
    Problem problem(cuda, codec, desc, 257, seed++);
    for (const int64_t rows :
         {1,  2,  3,  4,  5,  6,  7,  8,   9,   15,  16,  17,  31, 32,
          33, 47, 48, 49, 63, 64, 65, 127, 128, 129, 255, 256, 257}) {
      SCOPED_TRACE(rows);
      problem.Check(257 - rows, rows);
    }
  }
}

// Tiles of 16 rows of w, units of 128 columns, and pairs of both, that are not
// full.
TEST(GemmQuantisedCudaTest, RemaindersOfNAndK) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  unsigned seed = 300;
  for (const DType dtype : {DType::kQ4_1, DType::kQ5_0, DType::kQ8_0,
                            DType::kIQ4_NL, DType::kF8_G32}) {
    const BlockCodec& codec = *FindBlockCodec(dtype);
    for (const int64_t n : {1, 2, 7, 8, 9, 15, 16, 17, 31, 33, 65, 127, 129}) {
      const DType type = seed % 2 != 0 ? DType::kBF16 : DType::kF16;
      const GemmDesc desc{n, 32 * (1 + seed % 9), dtype, type, DType::kF32};
      SCOPED_TRACE(::testing::Message()
                   << DTypeName(dtype) << " x " << DTypeName(type) << " n " << n
                   << " k " << desc.k << " seed " << seed);
      Problem problem(cuda, codec, desc, 65, seed++);
      for (const int64_t rows : {1, 2, 5, 17, 40, 65}) {
        SCOPED_TRACE(rows);
        problem.Check(0, rows);
      }
    }
  }
}

// Act order: the formats of GPTQ's checkpoints.
TEST(GemmQuantisedCudaTest, PermutedColumns) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  for (const DType dtype :
       {DType::kU4_G32, DType::kU4_G128, DType::kI8_G32, DType::kI8_G128}) {
    for (const DType type : {DType::kBF16, DType::kF32}) {
      SCOPED_TRACE(::testing::Message()
                   << DTypeName(dtype) << " x " << DTypeName(type));
      GemmDesc desc{80, 640, dtype, type, DType::kF32};
      desc.permuted = true;
      Problem problem(cuda, *FindBlockCodec(dtype), desc, 200, 5);
      for (const int64_t rows : {1, 7, 40, 200}) {
        SCOPED_TRACE(rows);
        problem.Check(0, rows);
      }
    }
  }
}

// Large enough for every way of cutting: several clusters, rounds and slots.
TEST(GemmQuantisedCudaTest, LargeMatrices) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  const int64_t shapes[][2] = {{6144, 4096}, {9000, 512}, {1024, 14336}};
  for (const DType dtype : {DType::kU4_G128, DType::kQ6_K}) {
    for (const auto& [n, k] : shapes) {
      SCOPED_TRACE(::testing::Message()
                   << DTypeName(dtype) << " " << n << " by " << k);
      GemmDesc desc{n, k, dtype, DType::kBF16, DType::kF32};
      Problem problem(cuda, *FindBlockCodec(dtype), desc, 3, 9);
      problem.Check(0, 3);
      problem.Check(0, 2);
      const TestMatrix again = problem.Run(0, 2);
      const TestMatrix alone = problem.Run(1, 1);
      EXPECT_EQ(again.RowBits(1), alone.RowBits(0));
    }
  }
}

// The kernel for some dozen rows, in every way that it can cut: jobs of
// different sizes, with and without a second tile of a pair, shares that divide
// K and that do not, a ring that each share goes through many times.
TEST(GemmQuantisedCudaTest, EveryCut) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  if (cuda.info.sm != 90) GTEST_SKIP() << "a kernel of compute capability 9.0";
  unsigned seed = 50;
  for (const BlockCodec* codec : BlockCodecs()) {
    const DType type = seed % 2 != 0 ? DType::kBF16 : DType::kF16;
    GemmDesc desc{600, Width(*codec, 4160), codec->dtype, type,
                  seed % 2 != 0 ? DType::kF32 : type};
    SCOPED_TRACE(::testing::Message() << DTypeName(codec->dtype) << " x "
                                      << DTypeName(type) << " seed " << seed);
    Problem problem(cuda, *codec, desc, 35, seed++);
    const QuantForm form = QuantFormOf(desc.weight);
    for (const int x_tiles : {1, 2, 4}) {
      if (x_tiles > 2 && WideRoundsTooMuch(form)) continue;
      for (const int cluster : {1, 2, 4}) {
        for (const int shares : {1, 3, 14}) {
          for (const int sms : {2, 20, 132}) {
            SCOPED_TRACE(::testing::Message()
                         << x_tiles << " tiles of x, clusters of " << cluster
                         << ", " << shares << " shares, " << sms << " blocks");
            StreamedPlan plan;
            plan.x_tiles = x_tiles;
            plan.cluster = cluster;
            plan.shares = shares;
            plan.place_units = 1 + static_cast<int>(seed + shares / 2) % 2;
            if (!FitStreamedPlan(form, desc.n, desc.k, sms, plan)) continue;
            problem.plan = plan;
            problem.Check(3, 8 * x_tiles - (sms == 20 ? 3 : 0));
          }
        }
      }
    }
  }
}

// Gates and ups: the bits of the product with the same cut, and activation.
TEST(GemmQuantisedCudaTest, GatedIsTheProductAndTheActivation) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  if (cuda.info.sm != 90) GTEST_SKIP() << "a kernel of compute capability 9.0";
  unsigned seed = 80;
  for (const DType dtype :
       {DType::kU4_G128, DType::kQ4_0, DType::kQ6_K, DType::kF8_G128}) {
    for (const int x_tiles : {1, 2, 4}) {
      for (const int cluster : {1, 2}) {
        const DType type = seed % 2 != 0 ? DType::kBF16 : DType::kF16;
        const auto function = static_cast<Activation>(seed % 5);
        // 19 tiles of gates: jobs of different sizes.
        const GemmDesc desc{608, 1024, dtype, type, type};
        const QuantForm form = QuantFormOf(dtype);
        SCOPED_TRACE(::testing::Message()
                     << DTypeName(dtype) << " " << x_tiles << " tiles of x, "
                     << "clusters of " << cluster << " seed " << seed);
        const int64_t m = 8 * x_tiles - static_cast<int64_t>(seed % 3);
        Problem problem(cuda, *FindBlockCodec(dtype), desc, m, seed++);
        StreamedPlan plan, gated;
        plan.x_tiles = gated.x_tiles = x_tiles;
        plan.cluster = gated.cluster = cluster;
        plan.shares = gated.shares = 2;
        gated.gated = true;
        ASSERT_TRUE(FitStreamedPlan(form, desc.n, desc.k, 12, plan));
        ASSERT_TRUE(FitStreamedPlan(form, desc.n, desc.k, 12, gated));
        ASSERT_EQ(plan.shares, gated.shares);
        problem.plan = plan;
        CudaTestMatrix both(problem.Run(0, m, true, false));
        CudaTestMatrix want(type, m, desc.n / 2);
        const ActivationDesc activation{function, true, desc.n / 2, type};
        const auto row =
            Select("activation", ActivationTable(), activation, cuda.info);
        ASSERT_TRUE(row.ok());
        ASSERT_TRUE(
            (*row)
                ->run(activation, {both.view(), want.view()}, *cuda.stream)
                .ok());
        problem.plan = gated;
        problem.function = function;
        const TestMatrix got = problem.Run(0, m, true, false);
        const TestMatrix wanted = want.Download();
        for (int64_t r = 0; r < m; ++r) {
          ASSERT_EQ(got.RowBits(r), wanted.RowBits(r)) << r;
        }
      }
    }
  }
}

// Plans fit and have no barrier that two phases would share; needs no GPU.
TEST(GemmQuantisedCudaTest, StreamedPlansFit) {
  constexpr size_t kMostShared = 227 << 10;
  for (const BlockCodec* codec : BlockCodecs()) {
    const QuantForm form = QuantFormOf(codec->dtype);
    for (const int64_t n : {32, 96, 1024, 4096, 29568, 65536, 262144}) {
      for (const int64_t columns : {1, 128, 4096, 14336, 53248}) {
        const int64_t k = Width(*codec, columns);
        for (const int sms : {1, 2, 78, 114, 132}) {
          for (const int x_tiles : {1, 2, 4}) {
            for (const bool gated : {false, true}) {
              SCOPED_TRACE(::testing::Message()
                           << DTypeName(codec->dtype) << " " << n << " by " << k
                           << ", " << sms << " blocks, " << x_tiles
                           << " tiles of x, gated " << gated);
              const StreamedPlan plan =
                  PlanStreamed(form, n, k, x_tiles, sms, gated);
              ASSERT_GE(plan.places, 2);
              EXPECT_LE(plan.shared_bytes, kMostShared);
              EXPECT_EQ(plan.places % plan.shares, 0);
              // Clusters have the same number of jobs, and those that share K
              // one, which has a part of K for each block and warp.
              EXPECT_EQ(plan.jobs % plan.rounds, 0);
              EXPECT_LE(plan.jobs / plan.rounds * plan.cluster,
                        std::max(sms, plan.cluster));
              if (plan.cluster > 1) {
                EXPECT_EQ(plan.rounds, 1);
              }
              const int64_t groups =
                  (QuantUnits(k) + plan.place_units - 1) / plan.place_units;
              EXPECT_LE(plan.shares,
                        std::max<int64_t>(1, groups / plan.cluster));
            }
          }
        }
      }
    }
  }
}

// As the planner has it: long K over two blocks; several jobs a block.
TEST(GemmQuantisedCudaTest, CutsOfThePlanner) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  if (cuda.info.sm != 90) GTEST_SKIP() << "a kernel of compute capability 9.0";
  const BlockCodec& codec = *FindBlockCodec(DType::kU4_G128);
  const QuantForm form = QuantFormOf(codec.dtype);
  const GemmDesc descs[] = {
      {4096, 14336, codec.dtype, DType::kBF16, DType::kBF16},
      {40000, 256, codec.dtype, DType::kBF16, DType::kF32}};
  EXPECT_EQ(PlanStreamed(form, descs[0].n, descs[0].k, 2, 132).cluster, 2);
  EXPECT_GT(PlanStreamed(form, descs[1].n, descs[1].k, 2, 132).rounds, 1);
  for (const GemmDesc& desc : descs) {
    SCOPED_TRACE(desc.n);
    Problem problem(cuda, codec, desc, 17, 3);
    for (const int64_t rows : {5, 9, 17}) {
      SCOPED_TRACE(rows);
      problem.Check(0, rows);
    }
  }
}

TEST(GemmQuantisedCudaTest, ARowOfXGivesTheSameBitsInEveryBatch) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  for (const BlockCodec* codec : BlockCodecs()) {
    SCOPED_TRACE(DTypeName(codec->dtype));
    for (const bool invariant : {true, false}) {
      GemmDesc desc{600,          Width(*codec, 1000), codec->dtype,
                    DType::kBF16, DType::kF32,         invariant};
      Problem problem(cuda, *codec, desc, invariant ? 40 : 8, 7);
      const int64_t m = problem.m;
      const TestMatrix whole = problem.Run(0, m);
      for (const int64_t rows : {1, 2, 3, 7, 8, 33}) {
        // Fewer than three rows go another way unless they must not.
        if (rows > m || (!invariant && rows < 3)) continue;
        const int64_t first = rows * 5 % (m - rows + 1);
        const TestMatrix part = problem.Run(first, rows);
        for (int64_t r = 0; r < rows; ++r) {
          ASSERT_EQ(part.RowBits(r), whole.RowBits(first + r))
              << "rows " << rows << " row " << r;
        }
      }
    }
  }
}

// Codes that are numbers below the normal ones (product_nibbles_sm90.cuh) leave
// products normal: x times a power of two gives y times that, bit for bit.
TEST(GemmQuantisedCudaTest, SmallAndLargeXLoseNothing) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  if (cuda.info.sm != 90) GTEST_SKIP() << "a kernel of compute capability 9.0";
  for (const DType dtype :
       {DType::kU4_G128, DType::kQ4_K, DType::kQ4_1, DType::kQ2_K}) {
    for (const int64_t m : {7, 13}) {
      const BlockCodec& codec = *FindBlockCodec(dtype);
      const GemmDesc desc{96, Width(codec, 700), dtype, DType::kBF16,
                          DType::kF32};
      Problem usual(cuda, codec, desc, m, 21);
      const TestMatrix want = usual.Run(0, m, false);
      for (const int power : {-20, 60}) {
        SCOPED_TRACE(::testing::Message() << DTypeName(dtype) << " " << m
                                          << " rows times 2^" << power);
        Problem problem(cuda, codec, desc, m, 21);
        for (int64_t r = 0; r < m; ++r) {
          for (int64_t c = 0; c < desc.k; ++c) {
            problem.x.Set(r, c, std::ldexp(usual.x(r, c), power));
          }
        }
        const TestMatrix got = problem.Run(0, m, false);
        for (int64_t r = 0; r < m; ++r) {
          for (int64_t c = 0; c < desc.n; ++c) {
            ASSERT_EQ(got(r, c), std::ldexp(want(r, c), power))
                << r << " " << c;
          }
        }
      }
    }
  }
}

TEST(GemmQuantisedCudaTest, WhatIsNotFiniteStaysInItsRow) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  for (const BlockCodec* codec : BlockCodecs()) {
    SCOPED_TRACE(DTypeName(codec->dtype));
    GemmDesc desc{40, Width(*codec, 500), codec->dtype, DType::kBF16,
                  DType::kF32};
    Problem problem(cuda, *codec, desc, 3, 11);
    Problem bad(cuda, *codec, desc, 3, 11);
    bad.x.Set(1, 5, std::numeric_limits<float>::quiet_NaN());
    const TestMatrix want = problem.Run(0, 3);
    const TestMatrix got = bad.Run(0, 3);
    EXPECT_EQ(got.RowBits(0), want.RowBits(0));
    EXPECT_EQ(got.RowBits(2), want.RowBits(2));
    EXPECT_FALSE(std::isfinite(got(1, 3)));
  }
}

}  // namespace
}  // namespace inlay

#endif  // INLAY_HAS_CUDA
