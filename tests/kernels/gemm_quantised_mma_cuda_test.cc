// gemm's CUDA row for quantised weights as GPUs other than Hopper run it
// (product_mma.cuh up to some dozen rows): against a float64 product with what
// the packed weights say, equal bits of a row.
#if INLAY_HAS_CUDA

#include <algorithm>

#include "kernels/gemm/gemm.h"
#include "kernels/gemm/quantised/quantised_cuda.h"
#include "tests/support/cuda_test_util.h"
#include "tests/support/quantised_problem.h"

namespace inlay {
namespace {

using namespace ::inlay::testing;  // NOLINT

using Problem = QuantisedProblem;

constexpr int kAmpere = 80;

// Every format; whole tiles of rows of x, and one more or less.
TEST(GemmQuantisedMmaCudaTest, EveryNumberOfRows) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda(kAmpere);
  unsigned seed = 1;
  for (const BlockCodec* codec : BlockCodecs()) {
    const DType type = seed % 2 != 0 ? DType::kBF16 : DType::kF16;
    const GemmDesc desc{83, Width(*codec, seed % 3 == 0 ? 1300 : 416),
                        codec->dtype, type, seed % 4 < 2 ? DType::kF32 : type};
    SCOPED_TRACE(::testing::Message()
                 << DTypeName(codec->dtype) << " x " << DTypeName(type) << " k "
                 << desc.k << " seed " << seed);
    Problem problem(cuda, *codec, desc, 50, seed++);
    for (const int64_t rows : {1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 33, 48, 50}) {
      SCOPED_TRACE(rows);
      problem.Check(50 - rows, rows);
    }
  }
}

// Tiles of w, pairs of them, and stages of four units of K that are not full.
TEST(GemmQuantisedMmaCudaTest, RemaindersOfNAndK) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda(kAmpere);
  unsigned seed = 300;
  for (const DType dtype : {DType::kQ4_1, DType::kQ5_0, DType::kQ8_0,
                            DType::kIQ4_NL, DType::kF8_G32}) {
    const BlockCodec& codec = *FindBlockCodec(dtype);
    for (const int64_t n : {1, 8, 9, 15, 16, 17, 31, 33, 65, 129}) {
      for (const int64_t k : {32, 128, 160, 512, 544, 2080}) {
        const DType type = seed % 2 != 0 ? DType::kBF16 : DType::kF16;
        const GemmDesc desc{n, k, dtype, type, DType::kF32};
        SCOPED_TRACE(::testing::Message()
                     << DTypeName(dtype) << " x " << DTypeName(type) << " n "
                     << n << " k " << k << " seed " << seed);
        Problem problem(cuda, codec, desc, 40, seed++);
        for (const int64_t rows : {1, 5, 17, 40}) {
          SCOPED_TRACE(rows);
          problem.Check(0, rows);
        }
      }
    }
  }
}

TEST(GemmQuantisedMmaCudaTest, PermutedColumns) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda(kAmpere);
  for (const DType dtype : {DType::kU4_G32, DType::kU4_G128, DType::kI8_G128}) {
    SCOPED_TRACE(DTypeName(dtype));
    GemmDesc desc{80, 640, dtype, DType::kBF16, DType::kF32};
    desc.permuted = true;
    Problem problem(cuda, *FindBlockCodec(dtype), desc, 40, 5);
    for (const int64_t rows : {1, 7, 40}) {
      SCOPED_TRACE(rows);
      problem.Check(0, rows);
    }
  }
}

// Large, with more stages of K than the ring has; and a row of x has the same
// bits alone and with others, in each number of tiles of x.
TEST(GemmQuantisedMmaCudaTest, ARowOfXGivesTheSameBitsInEveryBatch) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda(kAmpere);
  const int64_t shapes[][2] = {{2048, 4096}, {1024, 14336}};
  for (const DType dtype : {DType::kU4_G128, DType::kQ4_0, DType::kQ6_K,
                            DType::kIQ4_NL, DType::kQ8_0, DType::kF8_G128}) {
    for (const auto& [n, k] : shapes) {
      SCOPED_TRACE(::testing::Message()
                   << DTypeName(dtype) << " " << n << " by " << k);
      GemmDesc desc{n, k, dtype, DType::kBF16, DType::kF32};
      Problem problem(cuda, *FindBlockCodec(dtype), desc, 40, 9);
      problem.Check(0, 3);
      const TestMatrix all = problem.Run(0, 40);
      for (const int64_t row : {0, 9, 39}) {
        EXPECT_EQ(all.RowBits(row), problem.Run(row, 1).RowBits(0)) << row;
      }
      EXPECT_EQ(all.RowBits(12), problem.Run(0, 13).RowBits(12));
    }
  }
}

}  // namespace
}  // namespace inlay

#endif  // INLAY_HAS_CUDA
