// gemm's CUDA row for int8 weights with one scale a row: many rows against a
// float64 product of the weights and x rounded to int8 here, and how far that
// is from x as it is; other scales; numbers that are not finite; few rows.
#if INLAY_HAS_CUDA

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "kernels/gemm/fp8_cuda.h"
#include "kernels/gemm/gemm.h"
#include "kernels/gemm/int8_cuda.h"
#include "kernels/gemm/quantised/wide_cuda.h"
#include "tests/support/cuda_test_util.h"
#include "tests/support/rounded_codes.h"

namespace inlay {
namespace {

using namespace ::inlay::testing;  // NOLINT

// What keeps a matrix from one scale a row.
enum class Spoilt { kNot, kScale, kMin, kInfinity };

constexpr int64_t kGroup = 128;

// Rows of i8_g128 blocks with one scale a row and minima of 0; the last group
// of the last row spoilt.
std::vector<std::byte> RowsOfOneScale(int64_t n, int64_t k, Spoilt spoilt,
                                      std::mt19937& rng) {
  const FormatInfo& format = GetFormatInfo(DType::kI8_G128);
  std::uniform_real_distribution<float> scales(0.001f, 0.01f);
  std::vector<std::byte> out(static_cast<size_t>(n * k / kGroup) *
                             static_cast<size_t>(format.block_bytes));
  std::byte* block = out.data();
  for (int64_t r = 0; r < n; ++r) {
    // As checkpoints store them.
    const float scale = r == 3 ? 0.0f : BF16ToF32(F32ToBF16(scales(rng)));
    for (int64_t g = 0; g < k / kGroup; ++g, block += format.block_bytes) {
      float values[] = {scale, 0.0f};
      if (r == n - 1 && g == k / kGroup - 1) {
        if (spoilt == Spoilt::kScale) values[0] *= 2.0f;
        if (spoilt == Spoilt::kMin) values[1] = scale;
        if (spoilt == Spoilt::kInfinity) {
          values[0] = std::numeric_limits<float>::infinity();
        }
      }
      std::memcpy(block, values, sizeof(values));
      for (int64_t i = 0; i < kGroup; ++i) {
        block[8 + i] = static_cast<std::byte>(rng());
      }
    }
  }
  return out;
}

class Int8Problem {
 public:
  Int8Problem(TestCuda& cuda, const GemmDesc& desc, int64_t m,
              Spoilt spoilt = Spoilt::kNot)
      : desc(desc), m(m), cuda_(cuda), matrix_(desc.weight, desc.k) {
    std::mt19937 rng(7);
    const auto rows = RowsOfOneScale(desc.n, desc.k, spoilt, rng);
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

  // The row's y, with bias and residual where `adds`; y begins as NaNs, and is
  // the residual where `in_place`.
  TestMatrix Run(bool adds, bool in_place = false) {
    const auto row = Select("gemm", GemmTable(), desc, cuda_.info, "cuda_int8");
    EXPECT_TRUE(row.ok()) << row.status();
    const WeightPacking<GemmDesc>& packing = *(*row)->packing(desc);
    EXPECT_TRUE(
        packing.inspect(desc, device_->as<std::byte>(), *cuda_.stream).ok());
    const CudaBytes workspace((*row)->workspace_bytes(desc, m));
    CudaTestMatrix x_on(x), bias_on(bias), residual_on(residual);
    CudaTestMatrix y(desc.output, m, desc.n, 16);
    GemmParams params;
    params.x = x_on.view();
    params.w =
        MatrixView(device_->as<std::byte>(), desc.weight, desc.n, desc.k);
    if (adds) params.bias = bias_on.floats();
    if (adds) params.residual = residual_on.view();
    params.y = in_place ? params.residual : y.view();
    params.workspace = workspace.as<void>();
    const TestCodes codes(**row, desc, params, *cuda_.stream, rounds_before);
    const absl::Status status = (*row)->run(desc, params, *cuda_.stream);
    EXPECT_TRUE(status.ok()) << status;
    return in_place ? residual_on.Download() : y.Download();
  }

  // The same by one plan of the kernel on packed codes; x rounded before.
  TestMatrix RunPlan(WidePlan plan, int num_sms) {
    const auto row = Select("gemm", GemmTable(), desc, cuda_.info, "cuda_int8");
    EXPECT_TRUE(row.ok()) << row.status();
    CudaTestMatrix x_on(x), bias_on(bias), residual_on(residual);
    CudaTestMatrix y(desc.output, m, desc.n, 16);
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

  // x as the device must round it: in float32, as it does.
  std::vector<double> Rounded() const {
    std::vector<double> out;
    for (int64_t r = 0; r < m; ++r) {
      float most = 0.0f;
      for (int64_t i = 0; i < desc.k; ++i) {
        most = std::max(most, std::abs(x(r, i)));
      }
      const float inverse = most > 0.0f ? 127.0f / most : 0.0f;
      for (int64_t i = 0; i < desc.k; ++i) {
        out.push_back(double{std::nearbyint(x(r, i) * inverse)} *
                      (most / 127.0f));
      }
    }
    return out;
  }

  // y against x rounded, or as it is. Returns how far rounding x moved the
  // products: its root mean square over theirs.
  double Check(const TestMatrix& y, bool adds, bool rounds) {
    const std::vector<double> rounded = Rounded();
    std::vector<double> want, most;
    double moved = 0.0, all = 0.0;
    for (int64_t r = 0; r < m; ++r) {
      for (int64_t c = 0; c < desc.n; ++c) {
        double sum = 0.0, plain = 0.0, size = 0.0;
        for (int64_t i = 0; i < desc.k; ++i) {
          const double w = weights_[static_cast<size_t>(c * desc.k + i)];
          sum += w * rounded[static_cast<size_t>(r * desc.k + i)];
          plain += w * x(r, i);
          size += std::abs(w * x(r, i));
        }
        moved += (sum - plain) * (sum - plain);
        all += plain * plain;
        const double added = adds ? double{bias(0, c)} + residual(r, c) : 0.0;
        const double parts =
            adds ? std::abs(bias(0, c)) + std::abs(residual(r, c)) : 0.0;
        want.push_back((rounds ? sum : plain) + added);
        // Sums of codes are exact, up to 2048 rows those of parts of K: what is
        // rounded is their conversion, the scales' products, and the additions,
        // in float32, and y. Few rows sum up in float32, over weights of 16
        // bits.
        const double parts_of_k = m <= 2048 ? 4 * kUnitF32 * size : 0.0;
        const double inexact =
            rounds ? parts_of_k
                   : (0x1p-9 + static_cast<double>(desc.k) * kUnitF32) * size;
        most.push_back(inexact + 4 * kUnitF32 * (std::abs(sum) + parts) +
                       Rounding(desc.output, want.back()));
      }
    }
    const auto at = [&](int64_t r, int64_t c) {
      return static_cast<size_t>(r * desc.n + c);
    };
    ExpectClose(
        y, [&](int64_t r, int64_t c) { return want[at(r, c)]; },
        [&](int64_t r, int64_t c) { return most[at(r, c)]; });
    return std::sqrt(moved / all);
  }

  absl::StatusOr<ScaleReach> Reach() const {
    return FindScaleReach(matrix_, desc.n, device_->as<std::byte>(),
                          *cuda_.stream);
  }

  GemmDesc desc;
  int64_t m;
  TestMatrix x, bias, residual;
  bool rounds_before = false;  // x comes as codes

 private:
  TestCuda& cuda_;
  QuantMatrix matrix_;
  std::vector<std::byte> packed_;
  std::vector<float> weights_;
  std::unique_ptr<CudaBytes> device_;
};

TEST(GemmInt8CudaTest, ManyRows) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  const DType outputs[] = {DType::kF32, DType::kBF16, DType::kF16};
  int turn = 0;
  // Packed codes up to 2048 rows, cuBLASLt from there on.
  for (const int64_t m : {17, 70, 129, 521, 2060}) {
    for (const auto& [n, k] :
         {std::pair{264, 512}, std::pair{132, 1152}, std::pair{4, 128}}) {
      for (const bool adds : {false, true}) {
        const DType output = outputs[turn++ % 3];
        const DType input = output == DType::kF32 ? DType::kBF16 : output;
        SCOPED_TRACE(::testing::Message()
                     << "m " << m << " n " << n << " k " << k << " "
                     << DTypeName(output) << " adds " << adds);
        Int8Problem problem(cuda, {n, k, DType::kI8_G128, input, output}, m);
        const double moved = problem.Check(problem.Run(adds), adds, true);
        EXPECT_EQ(problem.desc.scale_reach, ScaleReach::kRow);
        // A step is most / 127, its error uniform: 1 / sqrt(12) of a step, over
        // values of a spread of most / 4 (normal, some hundreds of them) to
        // most / 1.7 (uniform).
        EXPECT_GT(moved, 0.002);
        EXPECT_LT(moved, 0.02);
      }
    }
  }
}

// Whole tiles of rows, and one more or less.
TEST(GemmInt8CudaTest, EveryNumberOfRows) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  if (cuda.info.sm != 90) GTEST_SKIP() << "others keep x of so few rows";
  int turn = 0;
  for (const int64_t m :
       {17, 18, 31, 32, 33, 63, 64, 65, 127, 128, 255, 256, 257, 511, 513}) {
    SCOPED_TRACE(m);
    const DType output = turn % 2 == 0 ? DType::kF32 : DType::kBF16;
    Int8Problem problem(cuda, {136, 384, DType::kI8_G128, DType::kBF16, output},
                        m);
    const bool adds = turn++ % 3 == 0;
    problem.Check(problem.Run(adds), adds, true);
  }
}

// Several blocks to a K, several jobs to a block.
TEST(GemmInt8CudaTest, AllPlansOfPackedCodes) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  if (cuda.info.sm != 90) GTEST_SKIP() << "for compute capability 9.0";
  Int8Problem problem(
      cuda, {600, 1408, DType::kI8_G128, DType::kBF16, DType::kF32}, 260);
  const TestMatrix want = problem.Run(true);
  problem.Check(want, true, true);
  for (const int columns : {64, 128}) {
    for (const int splits : {1, 2, 4, 8}) {
      for (const int sms : {1, 132}) {
        SCOPED_TRACE(::testing::Message() << "columns " << columns << " splits "
                                          << splits << " blocks " << sms);
        WidePlan plan;
        plan.codes = true;
        plan.columns = columns;
        plan.splits = splits;
        const TestMatrix y = problem.RunPlan(plan, sms);
        // Sums of up to 8 parts of K are rounded 8 times, on both sides: of K
        // products of normal numbers, whose largest partial sum is below
        // 2.7 sqrt(K) = 100.
        ExpectClose(
            y, [&](int64_t r, int64_t c) { return double{want(r, c)}; },
            [&](int64_t r, int64_t c) {
              return 32 * kUnitF32 * (std::abs(want(r, c)) + 100.0);
            });
      }
    }
  }
}

// More rows of w than are multiplied at a time.
TEST(GemmInt8CudaTest, MatricesInParts) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  Int8Problem problem(
      cuda, {1000, 128, DType::kI8_G128, DType::kBF16, DType::kBF16}, 9000);
  problem.Check(problem.Run(true), true, true);
}

TEST(GemmInt8CudaTest, ResidualInPlace) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  Int8Problem problem(
      cuda, {256, 384, DType::kI8_G128, DType::kBF16, DType::kF32}, 640);
  problem.Check(problem.Run(true, true), true, true);
}

TEST(GemmInt8CudaTest, FewRowsAndOtherScalesKeepX) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  const GemmDesc desc{136, 512, DType::kI8_G128, DType::kBF16, DType::kF32};
  for (const int64_t m : {1, 7, 16}) {
    SCOPED_TRACE(m);
    Int8Problem problem(cuda, desc, m);
    problem.Check(problem.Run(true), true, false);
  }
  for (const Spoilt spoilt : {Spoilt::kScale, Spoilt::kMin}) {
    Int8Problem problem(cuda, desc, 640, spoilt);
    problem.Check(problem.Run(false), false, false);
    EXPECT_NE(problem.desc.scale_reach, ScaleReach::kRow);
  }
}

TEST(GemmInt8CudaTest, WhatReachesOverARow) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  for (const int64_t n : {4, 16, 17, 400}) {
    for (const Spoilt spoilt :
         {Spoilt::kNot, Spoilt::kScale, Spoilt::kMin, Spoilt::kInfinity}) {
      SCOPED_TRACE(::testing::Message()
                   << n << " " << static_cast<int>(spoilt));
      // The spoilt row is not the one of zeros.
      Int8Problem problem(
          cuda, {n + 1, 640, DType::kI8_G128, DType::kBF16, DType::kF32}, 1,
          spoilt);
      const auto found = problem.Reach();
      ASSERT_TRUE(found.ok()) << found.status();
      EXPECT_EQ(*found == ScaleReach::kRow, spoilt == Spoilt::kNot);
    }
  }
}

TEST(GemmInt8CudaTest, WhatIsNotFiniteStaysInItsRow) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  const float kInfinity = std::numeric_limits<float>::infinity();
  const GemmDesc desc{256, 512, DType::kI8_G128, DType::kBF16, DType::kF32};
  for (const int64_t m : {80, 2100}) {
    Int8Problem problem(cuda, desc, m);
    Int8Problem bad(cuda, desc, m);
    bad.x.Set(1, 5, std::numeric_limits<float>::quiet_NaN());
    bad.x.Set(3, 6, kInfinity);
    bad.x.Set(5, 511, -kInfinity);
    for (int64_t i = 0; i < desc.k; ++i) {
      problem.x.Set(4, i, 0.0f);
      bad.x.Set(4, i, 0.0f);
    }
    const TestMatrix want = problem.Run(false);
    const TestMatrix got = bad.Run(false);
    for (int64_t r = 0; r < m; ++r) {
      if (r == 1 || r == 3 || r == 5) {
        for (int64_t c = 0; c < desc.n; ++c) EXPECT_TRUE(std::isnan(got(r, c)));
      } else {
        EXPECT_EQ(got.RowBits(r), want.RowBits(r));
      }
    }
    EXPECT_EQ(got(4, 7), 0.0f);
  }
}

TEST(GemmInt8CudaTest, CodesInsteadOfX) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  for (const int64_t m : {101, 2049}) {
    for (const DType output : {DType::kF32, DType::kBF16}) {
      Int8Problem problem(cuda,
                          {264, 640, DType::kI8_G128, DType::kBF16, output}, m);
      const TestMatrix want = problem.Run(true);
      problem.rounds_before = true;
      const TestMatrix got = problem.Run(true);
      for (int64_t r = 0; r < got.rows(); ++r) {
        ASSERT_EQ(got.RowBits(r), want.RowBits(r)) << r;
      }
    }
  }
}

TEST(GemmInt8CudaTest, ServesWhoeverNamesItButNoBatchInvariance) {
  GemmDesc desc{256, 512, DType::kI8_G128, DType::kBF16, DType::kF32};
  const DeviceInfo device{DeviceKind::kCuda, "cuda", 80};
  const auto named = [&](const GemmDesc& wanted) {
    return Select("gemm", GemmTable(), wanted, device, "cuda_int8").status();
  };
  EXPECT_EQ((*Select("gemm", GemmTable(), desc, device))->name,
            "cuda_quantised");
  EXPECT_TRUE(named(desc).ok());
  GemmDesc other = desc;
  other.batch_invariant = true;
  EXPECT_TRUE(absl::IsNotFound(named(other)));
  other = desc;
  other.n = 258;
  EXPECT_TRUE(absl::IsNotFound(named(other)));
  other = desc;
  other.k = 32896;  // rows that are too long to be rounded
  EXPECT_TRUE(absl::IsNotFound(named(other)));
  other = desc;
  other.weight = DType::kQ8_0;
  EXPECT_TRUE(absl::IsNotFound(named(other)));
}

}  // namespace
}  // namespace inlay

#endif  // INLAY_HAS_CUDA
