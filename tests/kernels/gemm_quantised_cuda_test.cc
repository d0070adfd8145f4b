// gemm's CUDA row for quantised weights: packing on the device against the
// host's, every format and number of rows against a float64 product with what
// the packed weights say, equal bits of a row.
#if INLAY_HAS_CUDA

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <random>
#include <vector>

#include "kernels/activation/activation.h"
#include "kernels/gemm/gemm.h"
#include "kernels/gemm/quantised/quantised_cuda.h"
#include "kernels/gemm/quantised/streamed_cuda.h"
#include "kernels/gemm/quantised/wide_cuda.h"
#include "tests/support/cuda_test_util.h"
#include "tests/support/random_blocks.h"

namespace inlay {
namespace {

using namespace ::inlay::testing;  // NOLINT

class Problem {
 public:
  Problem(TestCuda& cuda, const BlockCodec& codec, const GemmDesc& desc,
          int64_t m, unsigned seed)
      : desc(desc),
        m(m),
        cuda_(cuda),
        rng_(seed),
        matrix_(codec.dtype, desc.k) {
    const int64_t blocks = desc.k / matrix_.block_elements;
    rows_ = RandomBlocks(codec, desc.n * blocks, rng_);
    packed_.resize(
        static_cast<size_t>(QuantBytes(matrix_.form, desc.n, desc.k)));
    PackQuantised(matrix_, rows_.data(), 0, desc.n, packed_.data());
    weights_.resize(static_cast<size_t>(desc.n * desc.k));
    for (int64_t r = 0; r < desc.n; ++r) {
      UnpackQuantisedRow(matrix_, packed_.data(), r,
                         weights_.data() + r * desc.k);
    }
    x = TestMatrix(desc.activation, m, desc.k, 8);
    x.Randomize(rng_);
    bias = TestMatrix(DType::kF32, 1, desc.n);
    bias.Randomize(rng_);
    residual = TestMatrix(desc.output, m, desc.n, 5);
    residual.Randomize(rng_);
    permutation.resize(static_cast<size_t>(desc.k));
    std::iota(permutation.begin(), permutation.end(), 0);
    if (desc.permuted) {
      std::shuffle(permutation.begin(), permutation.end(), rng_);
    }
    // Where products with unpacked weights are rounded to, and the least that
    // is left of sums where an offset was in them.
    for (int64_t r = 0; r < m; ++r) {
      for (int64_t c = 0; c < desc.n; ++c) {
        double want = double{bias(0, c)} + residual(r, c);
        double size = std::abs(bias(0, c)) + std::abs(residual(r, c));
        double shifted = 0.0;
        for (int64_t i = 0; i < desc.k; ++i) {
          const double w = weights_[static_cast<size_t>(c * desc.k + i)];
          const double value = x(r, permutation[static_cast<size_t>(i)]);
          want += w * value;
          size += std::abs(w * value);
          shifted += std::abs(value);
        }
        want_.push_back(want);
        size_.push_back(size);
        shifted_.push_back(shifted);
      }
    }
  }

  // y of rows [first, first + rows) of x by the row.
  TestMatrix Run(int64_t first, int64_t rows, bool adds = true,
                 bool adds_residual = true) {
    if (device_ == nullptr) {
      device_ = std::make_unique<CudaBytes>(packed_);
      x_ = std::make_unique<CudaTestMatrix>(x);
      bias_ = std::make_unique<CudaTestMatrix>(bias);
      residual_ = std::make_unique<CudaTestMatrix>(residual);
      permutation_ = std::make_unique<CudaBytes>(permutation);
    }
    const auto row = Select("gemm", GemmTable(), desc, cuda_.info);
    EXPECT_TRUE(row.ok()) << row.status();
    std::vector<std::byte> scratch(
        std::max<size_t>((*row)->workspace_bytes(desc, rows), 16));
    const CudaBytes workspace(scratch);
    const bool gated = plan.has_value() && plan->gated;
    CudaTestMatrix y(desc.output, rows, gated ? desc.n / 2 : desc.n, 3);
    GemmParams params;
    params.x = x_->view().RowSlice(first, rows);
    params.w =
        MatrixView(device_->as<std::byte>(), desc.weight, desc.n, desc.k);
    if (adds) params.bias = bias_->floats();
    if (adds && adds_residual) {
      params.residual = residual_->view().RowSlice(first, rows);
    }
    if (desc.permuted) params.permutation = permutation_->as<int32_t>();
    params.y = y.view();
    params.workspace = workspace.as<void>();
    const absl::Status status =
        plan.has_value() ? RunQuantisedStreamed(
                               desc, params, QuantFormOf(desc.weight), *plan,
                               CudaStream::Of(*cuda_.stream), function)
                         : (*row)->run(desc, params, *cuda_.stream);
    EXPECT_TRUE(status.ok()) << status;
    return y.Download();
  }

  void Check(int64_t first, int64_t rows) {
    const TestMatrix y = Run(first, rows);
    const auto at = [&](int64_t r, int64_t c) {
      return static_cast<size_t>((first + r) * desc.n + c);
    };
    float most = 0.0f;
    for (const float w : weights_) most = std::max(most, std::abs(w));
    ExpectClose(
        y, [&](int64_t r, int64_t c) { return want_[at(r, c)]; },
        [&](int64_t r, int64_t c) {
          // Weights for many rows are rounded to 16 bits, for not so many
          // their scales and minima are too; sums with the offset of the magic
          // numbers left in them are up to 16 times as large.
          const int64_t exact = plan.has_value() && plan->x_tiles > 2 ? 0 : 16;
          const bool rounded = desc.activation != DType::kF32 && rows > exact;
          const double weights =
              2.0 * size_[at(r, c)] + 4.0 * double{most} * shifted_[at(r, c)];
          const double sums =
              16.0 * std::sqrt(static_cast<double>(desc.k)) * kUnitF32 *
              (size_[at(r, c)] + double{most} * shifted_[at(r, c)]);
          return sums + Rounding(desc.output, want_[at(r, c)]) +
                 (rounded ? UnitOf(desc.activation) * weights : 0.0);
        });
  }

  void CheckPacking() {
    const CudaBytes rows(rows_);
    std::vector<std::byte> poison(packed_.size(), std::byte{0xee});
    const CudaBytes packed(poison);
    const size_t row_bytes = RowBytes(desc.weight, static_cast<size_t>(desc.k));
    const int64_t half = desc.n / 2 / kQuantRows * kQuantRows;
    const auto run = [&](int64_t first, int64_t count) {
      if (count == 0) return;
      EXPECT_TRUE(RunPackQuantised(matrix_,
                                   rows.as<std::byte>() +
                                       static_cast<size_t>(first) * row_bytes,
                                   first, count, packed.as<std::byte>(),
                                   *cuda_.stream)
                      .ok());
    };
    run(0, half);
    run(half, desc.n - half);
    std::vector<std::byte> got(packed_.size());
    packed.Download(got.data());
    EXPECT_TRUE(got == packed_);
  }

  GemmDesc desc;
  std::optional<StreamedPlan> plan;         // forced
  Activation function = Activation::kSilu;  // where it is gated
  int64_t m;
  TestMatrix x, bias, residual;
  std::vector<int32_t> permutation;

 private:
  TestCuda& cuda_;
  std::mt19937 rng_;
  QuantMatrix matrix_;
  std::vector<std::byte> rows_, packed_;
  std::vector<float> weights_;
  std::vector<double> want_, size_, shifted_;
  std::unique_ptr<CudaBytes> device_, permutation_;
  std::unique_ptr<CudaTestMatrix> x_, bias_, residual_;
};

// K of about `columns`, in whole blocks.
int64_t Width(const BlockCodec& codec, int64_t columns) {
  const int64_t block = GetFormatInfo(codec.dtype).block_elements;
  return (columns + block - 1) / block * block;
}

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

// Where batches must not tell: up to 8 rows go by a kernel for as many, cut as
// that for 16 is.
TEST(GemmQuantisedCudaTest, ARowDependsOnNothingBesideIt) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  unsigned seed = 20;
  const auto check = [&](const BlockCodec& codec, int64_t n, int64_t k) {
    const DType type = seed % 2 != 0 ? DType::kBF16 : DType::kF16;
    GemmDesc desc{n, Width(codec, k), codec.dtype, type, DType::kF32};
    desc.batch_invariant = true;
    SCOPED_TRACE(::testing::Message() << DTypeName(codec.dtype) << " x "
                                      << DTypeName(type) << ", " << n);
    Problem problem(cuda, codec, desc, 20, seed++);
    const TestMatrix all = problem.Run(0, 20);
    for (const auto& [first, rows] : {std::pair<int64_t, int64_t>{0, 1},
                                      {15, 1},
                                      {19, 1},
                                      {2, 8},
                                      {7, 9}}) {
      const TestMatrix some = problem.Run(first, rows);
      for (int64_t r = 0; r < rows; ++r) {
        ASSERT_EQ(some.RowBits(r), all.RowBits(first + r))
            << "row " << first + r << " of " << rows;
      }
    }
  };
  for (const BlockCodec* codec : BlockCodecs()) check(*codec, 600, 4160);
  check(*FindBlockCodec(DType::kU4_G128), 6144, 4096);
  check(*FindBlockCodec(DType::kQ6_K), 6144, 4096);
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
