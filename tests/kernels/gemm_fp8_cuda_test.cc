// gemm's CUDA row for e4m3 weights: many rows against a float64 product of the
// weights and x rounded to e4m3 here, and how far that is from x as it is; how
// far scales reach; numbers that are not finite; few rows.
#if INLAY_HAS_CUDA

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "kernels/gemm/fp8_cuda.h"
#include "kernels/gemm/gemm.h"
#include "kernels/gemm/quantised/wide_cuda.h"
#include "tests/support/cuda_test_util.h"
#include "tests/support/rounded_codes.h"

namespace inlay {
namespace {

using namespace ::inlay::testing;  // NOLINT

constexpr ScaleReach kReaches[] = {ScaleReach::kGroup, ScaleReach::kBlock,
                                   ScaleReach::kRow};

// Blocks of f8_g128 or f8_g32 whose scales reach as far as told, some smaller
// by powers of two.
std::vector<std::byte> Blocks(DType dtype, int64_t n, int64_t k,
                              ScaleReach reach, std::mt19937& rng) {
  const FormatInfo& format = GetFormatInfo(dtype);
  const int64_t across = k / format.block_elements;
  std::uniform_real_distribution<float> scales(0.5f, 1.0f);
  std::normal_distribution<float> normal(0.0f, 100.0f);
  const auto units = static_cast<size_t>(QuantUnits(k));
  std::vector<float> of_row(static_cast<size_t>(n));
  std::vector<float> of_block(static_cast<size_t>(n / 128 + 1) * units);
  for (float& scale : of_row) scale = scales(rng);
  for (float& scale : of_block) scale = scales(rng);
  std::vector<std::byte> out(
      static_cast<size_t>(n * across * format.block_bytes));
  std::byte* block = out.data();
  for (int64_t i = 0; i < n * across; ++i, block += format.block_bytes) {
    const auto row = static_cast<size_t>(i / across);
    const auto unit =
        static_cast<size_t>(i % across * format.block_elements / 128);
    float scale = reach == ScaleReach::kRow ? of_row[row]
                  : reach == ScaleReach::kBlock
                      ? of_block[row / 128 * units + unit]
                      : scales(rng);
    scale = std::ldexp(scale, -3 - static_cast<int>(rng() % 4));
    if (rng() % 50 == 0) scale = 0.0f;
    std::memcpy(block, &scale, sizeof(scale));
    for (int64_t j = 0; j < format.block_elements; ++j) {
      block[4 + j] = std::byte{F32ToF8E4M3(normal(rng))};
    }
  }
  return out;
}

class Problem {
 public:
  Problem(TestCuda& cuda, const GemmDesc& desc, int64_t m, ScaleReach reach,
          unsigned seed = 1)
      : desc(desc), m(m), cuda_(cuda), matrix_(desc.weight, desc.k) {
    std::mt19937 rng(seed);
    const auto rows = Blocks(desc.weight, desc.n, desc.k, reach, rng);
    packed_.resize(
        static_cast<size_t>(QuantBytes(matrix_.form, desc.n, desc.k)));
    PackQuantised(matrix_, rows.data(), 0, desc.n, packed_.data());
    weights_.resize(static_cast<size_t>(desc.n * desc.k));
    for (int64_t r = 0; r < desc.n; ++r) {
      UnpackQuantisedRow(matrix_, packed_.data(), r,
                         weights_.data() + r * desc.k);
    }
    x = TestMatrix(desc.activation, m, desc.k, 8);
    x.Randomize(rng);
    bias = TestMatrix(DType::kF32, 1, desc.n);
    bias.Randomize(rng);
    residual = TestMatrix(desc.output, m, desc.n, 8);
    residual.Randomize(rng);
    device_ = std::make_unique<CudaBytes>(packed_);
  }

  // The row's y, with bias and residual where `adds`.
  TestMatrix Run(bool adds = true) {
    const auto row = Select("gemm", GemmTable(), desc, cuda_.info, "cuda_fp8");
    EXPECT_TRUE(row.ok()) << row.status();
    const WeightPacking<GemmDesc>& packing = *(*row)->packing(desc);
    EXPECT_TRUE(
        packing.inspect(desc, device_->as<std::byte>(), *cuda_.stream).ok());
    const std::vector<std::byte> scratch((*row)->workspace_bytes(desc, m),
                                         std::byte{0xff});
    const CudaBytes workspace(scratch);
    CudaTestMatrix x_on(x), bias_on(bias), residual_on(residual);
    CudaTestMatrix y(desc.output, m, desc.n, y_padding);
    GemmParams params;
    params.x = x_on.view();
    params.w =
        MatrixView(device_->as<std::byte>(), desc.weight, desc.n, desc.k);
    if (adds) params.bias = bias_on.floats();
    if (adds) params.residual = residual_on.view();
    params.y = y.view();
    params.workspace = workspace.as<void>();
    const TestCodes codes(**row, desc, params, *cuda_.stream, rounds_before);
    const absl::Status status = (*row)->run(desc, params, *cuda_.stream);
    EXPECT_TRUE(status.ok()) << status;
    return y.Download();
  }

  // The same by one plan of the kernel on packed codes; x rounded before.
  TestMatrix RunPlan(WidePlan plan, int num_sms) {
    const auto row = Select("gemm", GemmTable(), desc, cuda_.info, "cuda_fp8");
    EXPECT_TRUE(row.ok()) << row.status();
    CudaTestMatrix x_on(x), bias_on(bias), residual_on(residual);
    CudaTestMatrix y(desc.output, m, desc.n, y_padding);
    GemmParams params;
    params.x = x_on.view();
    params.w =
        MatrixView(device_->as<std::byte>(), desc.weight, desc.n, desc.k);
    params.bias = bias_on.floats();
    params.residual = residual_on.view();
    params.y = y.view();
    const TestCodes codes(**row, desc, params, *cuda_.stream, true);
    FitWidePlan(matrix_.form, desc.n, desc.k, m, num_sms, plan);
    const absl::Status status = RunQuantisedWide(
        desc, params, matrix_.form, plan, CudaStream::Of(*cuda_.stream));
    EXPECT_TRUE(status.ok()) << status;
    return y.Download();
  }

  // x as the device must round it.
  std::vector<double> Rounded() const {
    std::vector<double> out;
    const int64_t width = desc.scale_reach == ScaleReach::kRow ? desc.k : 128;
    for (int64_t r = 0; r < m; ++r) {
      for (int64_t first = 0; first < desc.k; first += width) {
        float most = 0.0f;
        for (int64_t i = first; i < first + width; ++i) {
          most = std::max(most, std::abs(x(r, i)));
        }
        for (int64_t i = first; i < first + width; ++i) {
          const float code =
              F8E4M3ToF32(F32ToF8E4M3(x(r, i) * (448.0f / most)));
          out.push_back(double{code} * (most / 448.0f));
        }
      }
    }
    return out;
  }

  // What y may be, and how far rounding x moved the products: its root mean
  // square over theirs.
  struct Expected {
    std::vector<double> want, most;
    double moved;
  };
  // Of x rounded; the rows from `exact` on are of x as it is.
  Expected Expect(bool adds) const {
    const std::vector<double> rounded = Rounded();
    const int64_t exact = desc.scale_reach == ScaleReach::kRow ? m : m / 4 * 4;
    Expected expected;
    double moved = 0.0, all = 0.0;
    for (int64_t r = 0; r < m; ++r) {
      for (int64_t c = 0; c < desc.n; ++c) {
        double sum = 0.0, plain = 0.0, size = 0.0;
        for (int64_t i = 0; i < desc.k; ++i) {
          const double w = weights_[static_cast<size_t>(c * desc.k + i)];
          const double value = rounded[static_cast<size_t>(r * desc.k + i)];
          sum += w * value;
          plain += w * x(r, i);
          size += std::abs(w * value);
        }
        if (r >= exact) sum = plain;
        moved += (sum - plain) * (sum - plain);
        all += plain * plain;
        const double added = adds ? double{bias(0, c)} + residual(r, c) : 0.0;
        expected.want.push_back(sum + added);
        // The tensor cores cut products and sums to some 13 bits within 32
        // columns, and where cuBLASLt has scales of rows beyond them; codes
        // below the normal numbers lost half a step. What is added is rounded
        // to y's type, the product before it is added, too.
        const bool beyond = m > 512 && desc.scale_reach == ScaleReach::kRow;
        const double cuts =
            beyond ? std::sqrt(static_cast<double>(desc.k) / 32) : 1.0;
        expected.most.push_back(
            0x1p-12 * cuts * size + 1e-6 * std::abs(added) +
            Rounding(desc.output, sum + added) +
            (adds ? Rounding(desc.output, added) + Rounding(desc.output, sum)
                  : 0.0));
      }
    }
    expected.moved = std::sqrt(moved / all);
    return expected;
  }
  void Compare(const TestMatrix& y, const Expected& expected) const {
    const auto at = [&](int64_t r, int64_t c) {
      return static_cast<size_t>(r * desc.n + c);
    };
    ExpectClose(
        y, [&](int64_t r, int64_t c) { return expected.want[at(r, c)]; },
        [&](int64_t r, int64_t c) { return expected.most[at(r, c)]; });
  }
  // Returns how far rounding x moved the products.
  double Check(const TestMatrix& y, bool adds) const {
    const Expected expected = Expect(adds);
    Compare(y, expected);
    return expected.moved;
  }

  // How far y is from products of x as it is: root mean squares.
  double OffPlain(const TestMatrix& y) const {
    double off = 0.0, all = 0.0;
    for (int64_t r = 0; r < m; ++r) {
      for (int64_t c = 0; c < desc.n; ++c) {
        double sum = 0.0;
        for (int64_t i = 0; i < desc.k; ++i) {
          sum +=
              double{weights_[static_cast<size_t>(c * desc.k + i)]} * x(r, i);
        }
        off += (y(r, c) - sum) * (y(r, c) - sum);
        all += sum * sum;
      }
    }
    return std::sqrt(off / all);
  }

  absl::StatusOr<ScaleReach> Reach() const {
    return FindScaleReach(matrix_, desc.n, device_->as<std::byte>(),
                          *cuda_.stream);
  }

  GemmDesc desc;
  int64_t m;
  TestMatrix x, bias, residual;
  bool rounds_before = false;  // x comes as codes
  int64_t y_padding = 16;

 private:
  TestCuda& cuda_;
  QuantMatrix matrix_;
  std::vector<std::byte> packed_;
  std::vector<float> weights_;
  std::unique_ptr<CudaBytes> device_;
};

bool Serves(const TestCuda& cuda) { return cuda.info.sm == 90; }

#define INLAY_REQUIRE_FP8(cuda) \
  if (!Serves(cuda)) GTEST_SKIP() << "for compute capability 9.0"

TEST(GemmFp8CudaTest, ManyRows) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  INLAY_REQUIRE_FP8(cuda);
  const DType outputs[] = {DType::kF32, DType::kBF16, DType::kF16};
  int turn = 0;
  for (const ScaleReach reach : kReaches) {
    // Packed codes up to 512 rows, cuBLASLt from there on.
    for (const int64_t m : {20, 70, 129, 512, 514, 521, 700}) {
      for (const auto& [n, k] : {std::pair{264, 512}, std::pair{136, 1152}}) {
        for (const bool adds : {false, true}) {
          const DType output = outputs[turn++ % 3];
          const DType input = output == DType::kF32 ? DType::kBF16 : output;
          SCOPED_TRACE(::testing::Message()
                       << "reach " << static_cast<int>(reach) << " m " << m
                       << " n " << n << " k " << k << " " << DTypeName(output)
                       << " adds " << adds);
          Problem problem(cuda, {n, k, DType::kF8_G128, input, output}, m,
                          reach);
          const double moved = problem.Check(problem.Run(adds), adds);
          EXPECT_EQ(problem.desc.scale_reach, reach);
          // 3 bits of mantissa: a step of 2^-3 of a binade's least, uniform
          // errors, 2.5 % of values spread evenly over binades.
          EXPECT_GT(moved, 0.01);
          EXPECT_LT(moved, 0.03);
        }
      }
    }
  }
}

// Whole tiles of rows, and one more or less.
TEST(GemmFp8CudaTest, EveryNumberOfRows) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  INLAY_REQUIRE_FP8(cuda);
  int turn = 0;
  for (const int64_t m :
       {20, 21, 31, 32, 33, 63, 64, 65, 127, 128, 255, 256, 257, 511, 513}) {
    const ScaleReach reach = kReaches[turn % std::size(kReaches)];
    const DType output = turn % 2 == 0 ? DType::kF32 : DType::kBF16;
    SCOPED_TRACE(::testing::Message()
                 << "reach " << static_cast<int>(reach) << " m " << m);
    Problem problem(cuda, {136, 384, DType::kF8_G128, DType::kBF16, output}, m,
                    reach);
    const bool adds = turn++ % 3 == 0;
    problem.Check(problem.Run(adds), adds);
  }
}

// Several blocks to a K, several jobs to a block, K that shares out unevenly.
TEST(GemmFp8CudaTest, AllPlansOfPackedCodes) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  INLAY_REQUIRE_FP8(cuda);
  for (const ScaleReach reach : kReaches) {
    for (const int64_t m : {36, 260}) {
      Problem problem(cuda,
                      {600, 2944, DType::kF8_G128, DType::kBF16, DType::kF32},
                      m, reach);
      problem.desc.scale_reach = reach;
      const auto expected = problem.Expect(true);
      for (const int columns : {64, 128}) {
        for (const int splits : {1, 2, 4, 8}) {
          for (const int sms : {1, 132}) {
            SCOPED_TRACE(::testing::Message()
                         << "reach " << static_cast<int>(reach) << " m " << m
                         << " columns " << columns << " splits " << splits
                         << " blocks " << sms);
            WidePlan plan;
            plan.codes = true;
            plan.columns = columns;
            plan.splits = splits;
            problem.Compare(problem.RunPlan(plan, sms), expected);
          }
        }
      }
    }
  }
}

TEST(GemmFp8CudaTest, CodesInsteadOfX) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  INLAY_REQUIRE_FP8(cuda);
  for (const ScaleReach reach : kReaches) {
    for (const int64_t m : {100, 101, 513, 516}) {
      Problem problem(cuda,
                      {264, 512, DType::kF8_G128, DType::kBF16, DType::kF32}, m,
                      reach);
      const TestMatrix want = problem.Run();
      problem.rounds_before = true;
      const TestMatrix got = problem.Run();
      for (int64_t r = 0; r < m; ++r) {
        ASSERT_EQ(got.RowBits(r), want.RowBits(r)) << r;
      }
    }
  }
}

// Rows of y on odd addresses: nothing of cuBLASLt's serves, so that codes
// become numbers again.
TEST(GemmFp8CudaTest, CodesWithoutAnAlgorithm) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  INLAY_REQUIRE_FP8(cuda);
  for (const ScaleReach reach : kReaches) {
    Problem problem(cuda,
                    {264, 512, DType::kF8_G128, DType::kBF16, DType::kBF16},
                    1028, reach);
    const TestMatrix want = problem.Run(false);
    problem.rounds_before = true;
    problem.y_padding = 1;
    const TestMatrix got = problem.Run(false);
    double off = 0.0, all = 0.0;
    for (int64_t r = 0; r < problem.m; ++r) {
      for (int64_t c = 0; c < problem.desc.n; ++c) {
        off += std::pow(double{got(r, c)} - want(r, c), 2);
        all += std::pow(double{want(r, c)}, 2);
      }
    }
    // bf16 rounds by 2^-8 / sqrt(3) / 1.36 = 1.66e-3 in the mean of squares
    // (linear_attention_chunks_cuda_test.cc): codes that are numbers again, and
    // y on both sides. sqrt(3) times that is 2.9e-3.
    EXPECT_LT(std::sqrt(off / all), 0.004);
    EXPECT_GT(all, 0.0);
  }
}

TEST(GemmFp8CudaTest, GroupsOf32) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  INLAY_REQUIRE_FP8(cuda);
  for (const ScaleReach reach : {ScaleReach::kBlock, ScaleReach::kRow}) {
    Problem problem(cuda, {152, 640, DType::kF8_G32, DType::kBF16, DType::kF32},
                    642, reach);
    problem.Check(problem.Run(), true);
    EXPECT_EQ(problem.desc.scale_reach, reach);
  }
}

// As other quantised weights, whose x is not rounded: what is off is that
// weights, and for some rows their scales, are rounded to x's type, each by
// 1.66e-3 in the mean of squares: sqrt(2) times that is 2.3e-3.
TEST(GemmFp8CudaTest, FewRowsAndGroupsOf32KeepX) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  INLAY_REQUIRE_FP8(cuda);
  for (const auto& [dtype, m] :
       {std::pair{DType::kF8_G128, 16}, std::pair{DType::kF8_G32, 100}}) {
    Problem problem(cuda, {152, 640, dtype, DType::kBF16, DType::kF32}, m,
                    ScaleReach::kRow);
    EXPECT_LT(problem.OffPlain(problem.Run(false)), 0.004);
  }
}

TEST(GemmFp8CudaTest, ScalesThatReachLessFar) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  INLAY_REQUIRE_FP8(cuda);
  for (const DType dtype : {DType::kF8_G32, DType::kF8_G128}) {
    for (const ScaleReach reach : kReaches) {
      for (const int64_t n : {1, 16, 127, 128, 129, 400}) {
        // A matrix of one row has blocks of one row.
        if (n == 1 && reach == ScaleReach::kGroup) continue;
        Problem problem(cuda, {n, 768, dtype, DType::kBF16, DType::kF32}, 1,
                        reach);
        const auto found = problem.Reach();
        ASSERT_TRUE(found.ok()) << found.status();
        EXPECT_TRUE(n == 1 || *found == reach) << DTypeName(dtype) << " " << n;
      }
    }
  }
}

TEST(GemmFp8CudaTest, WhatIsNotFiniteStaysInItsRow) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  INLAY_REQUIRE_FP8(cuda);
  const float kInfinity = std::numeric_limits<float>::infinity();
  for (const ScaleReach reach : kReaches) {
    const GemmDesc desc{256, 512, DType::kF8_G128, DType::kBF16, DType::kF32};
    for (const int64_t m : {80, 640}) {
      Problem problem(cuda, desc, m, reach);
      Problem bad(cuda, desc, m, reach);
      bad.x.Set(1, 5, std::numeric_limits<float>::quiet_NaN());
      bad.x.Set(3, 6, kInfinity);
      for (int64_t i = 0; i < desc.k; ++i) {
        problem.x.Set(4, i, 0.0f);
        bad.x.Set(4, i, 0.0f);
      }
      const TestMatrix want = problem.Run(false);
      const TestMatrix got = bad.Run(false);
      for (int64_t r = 0; r < m; ++r) {
        if (r == 1 || r == 3) {
          for (int64_t c = 0; c < desc.n; ++c)
            EXPECT_TRUE(std::isnan(got(r, c)));
        } else {
          EXPECT_EQ(got.RowBits(r), want.RowBits(r));
        }
      }
      EXPECT_EQ(got(4, 7), 0.0f);
    }
  }
}

TEST(GemmFp8CudaTest, ServesWhoeverNamesItButNoBatchInvariance) {
  GemmDesc desc{256, 512, DType::kF8_G128, DType::kBF16, DType::kF32};
  const DeviceInfo device{DeviceKind::kCuda, "cuda", 90};
  EXPECT_EQ((*Select("gemm", GemmTable(), desc, device))->name,
            "cuda_quantised");
  EXPECT_TRUE(Select("gemm", GemmTable(), desc, device, "cuda_fp8").ok());
  desc.batch_invariant = true;
  EXPECT_TRUE(absl::IsNotFound(
      Select("gemm", GemmTable(), desc, device, "cuda_fp8").status()));
}

}  // namespace
}  // namespace inlay

#endif  // INLAY_HAS_CUDA
