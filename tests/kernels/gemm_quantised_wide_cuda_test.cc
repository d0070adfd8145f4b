// Quantised weights and 17 and more rows of x on Hopper, against a float64
// product with weights rounded as product_wide_sm90.cuh rounds them: every
// format, every way of cutting, remainders, the same bits every time.
#if INLAY_HAS_CUDA

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <vector>

#include "kernels/gemm/gemm.h"
#include "kernels/gemm/quantised/pack.h"
#include "kernels/gemm/quantised/wide_cuda.h"
#include "tests/support/cuda_test_util.h"
#include "tests/support/random_blocks.h"
#include "tests/support/rounded_weights.h"

namespace inlay {
namespace {

using namespace ::inlay::testing;  // NOLINT

constexpr int kSm = 90;

class Problem {
 public:
  Problem(TestCuda& cuda, const BlockCodec& codec, const GemmDesc& desc,
          int64_t m, unsigned seed)
      : desc(desc),
        m(m),
        cuda_(cuda),
        rng_(seed),
        matrix_(codec.dtype, desc.k),
        // Rows of y lie for four elements at a time, or not.
        pad_(seed % 3 == 0 ? 3 : 8 - desc.n % 4) {
    const int64_t blocks = desc.k / matrix_.block_elements;
    const std::vector<std::byte> rows =
        RandomBlocks(codec, desc.n * blocks, rng_);
    packed_.resize(
        static_cast<size_t>(QuantBytes(matrix_.form, desc.n, desc.k)));
    PackQuantised(matrix_, rows.data(), 0, desc.n, packed_.data());
    x = TestMatrix(desc.activation, m, desc.k, 16 - desc.k % 8);
    x.Randomize(rng_);
    bias_ = TestMatrix(DType::kF32, 1, desc.n);
    bias_.Randomize(rng_);
    residual_ = TestMatrix(desc.output, m, desc.n, pad_);
    residual_.Randomize(rng_);
    permutation_.resize(static_cast<size_t>(desc.k));
    std::iota(permutation_.begin(), permutation_.end(), 0);
    if (desc.permuted) {
      std::shuffle(permutation_.begin(), permutation_.end(), rng_);
    }
    device_ = std::make_unique<CudaBytes>(packed_);
    device_bias_ = std::make_unique<CudaTestMatrix>(bias_);
    device_permutation_ = std::make_unique<CudaBytes>(permutation_);
  }

  // The row's plan, or `plan`; adds bias and residual or does not.
  TestMatrix Run(int64_t rows, const WidePlan* plan = nullptr,
                 bool adds = true) {
    CudaTestMatrix x_there(x);
    CudaTestMatrix y(desc.output, rows, desc.n, pad_);
    CudaTestMatrix residual(residual_);
    const auto row = Select("gemm", GemmTable(), desc, cuda_.info);
    EXPECT_TRUE(row.ok()) << row.status();
    const CudaBytes workspace(std::vector<std::byte>(
        std::max<size_t>((*row)->workspace_bytes(desc, rows), 16)));
    GemmParams params;
    params.x = x_there.view().RowSlice(0, rows);
    params.w =
        MatrixView(device_->as<std::byte>(), desc.weight, desc.n, desc.k);
    if (adds) params.bias = device_bias_->floats();
    if (adds) params.residual = residual.view().RowSlice(0, rows);
    if (desc.permuted) params.permutation = device_permutation_->as<int32_t>();
    params.y = y.view();
    params.workspace = workspace.as<void>();
    const absl::Status status =
        plan != nullptr
            ? RunQuantisedWide(desc, params, matrix_.form, *plan, *cuda_.stream)
            : (*row)->run(desc, params, *cuda_.stream);
    EXPECT_TRUE(status.ok()) << status;
    return y.Download();
  }

  void Check(int64_t rows, const WidePlan* plan = nullptr, bool adds = true) {
    if (want_.empty()) Reference();
    const TestMatrix y = Run(rows, plan, adds);
    const auto added = [&](int64_t r, int64_t c) {
      return adds ? double{bias_(0, c)} + residual_(r, c) : 0.0;
    };
    ExpectClose(
        y,
        [&](int64_t r, int64_t c) {
          return want_[static_cast<size_t>(r * desc.n + c)] + added(r, c);
        },
        [&](int64_t r, int64_t c) {
          const auto at = static_cast<size_t>(r * desc.n + c);
          const double size = size_[at] + std::abs(added(r, c)) + 1e-6;
          // Errors of float32 sums of k terms, which add up as their root does.
          return 16.0 * std::sqrt(static_cast<double>(desc.k)) * kUnitF32 *
                     size +
                 Rounding(desc.output, want_[at] + added(r, c));
        });
  }

  const QuantForm& form() const { return matrix_.form; }

  GemmDesc desc;
  int64_t m;
  TestMatrix x;

 private:
  void Reference() {
    std::vector<double> row(static_cast<size_t>(desc.k));
    std::vector<double> values(static_cast<size_t>(m * desc.k));
    for (int64_t r = 0; r < m; ++r) {
      for (int64_t i = 0; i < desc.k; ++i) {
        values[static_cast<size_t>(r * desc.k + i)] =
            x(r, permutation_[static_cast<size_t>(i)]);
      }
    }
    want_.resize(static_cast<size_t>(m * desc.n));
    size_.resize(want_.size());
    for (int64_t c = 0; c < desc.n; ++c) {
      RoundedRow(matrix_, packed_.data(), c, desc.activation, row.data());
      for (int64_t r = 0; r < m; ++r) {
        const double* value = values.data() + r * desc.k;
        double sum = 0.0;
        double size = 0.0;
        for (int64_t i = 0; i < desc.k; ++i) {
          const double product = row[static_cast<size_t>(i)] * value[i];
          sum += product;
          size += std::abs(product);
        }
        want_[static_cast<size_t>(r * desc.n + c)] = sum;
        size_[static_cast<size_t>(r * desc.n + c)] = size;
      }
    }
  }

  TestCuda& cuda_;
  std::mt19937 rng_;
  QuantMatrix matrix_;
  int64_t pad_;
  std::vector<std::byte> packed_;
  TestMatrix bias_, residual_;
  std::vector<int32_t> permutation_;
  std::vector<double> want_, size_;
  std::unique_ptr<CudaBytes> device_, device_permutation_;
  std::unique_ptr<CudaTestMatrix> device_bias_;
};

// K of about `columns`, in whole blocks.
int64_t Width(const BlockCodec& codec, int64_t columns) {
  const int64_t block = GetFormatInfo(codec.dtype).block_elements;
  return (columns + block - 1) / block * block;
}

class GemmQuantisedWideCudaTest : public ::testing::Test {
 protected:
  void SetUp() override {
    INLAY_REQUIRE_CUDA();
    cuda_ = std::make_unique<TestCuda>();
    if (cuda_->info.sm != kSm) GTEST_SKIP() << "not a Hopper GPU";
  }
  std::unique_ptr<TestCuda> cuda_;
};

TEST_F(GemmQuantisedWideCudaTest, AllFormatsMatchFloat64) {
  unsigned seed = 1;
  for (const BlockCodec* codec : BlockCodecs()) {
    for (const DType type : {DType::kBF16, DType::kF16}) {
      const int64_t n = seed % 2 != 0 ? 300 : 72;
      const int64_t k = Width(*codec, seed % 4 < 2 ? 700 : 100);
      const GemmDesc desc{n, k, codec->dtype, type,
                          seed % 5 < 3 ? type : DType::kF32};
      SCOPED_TRACE(::testing::Message()
                   << DTypeName(codec->dtype) << " x " << DTypeName(type)
                   << " n " << n << " k " << k << " seed " << seed);
      Problem problem(*cuda_, *codec, desc, 130, seed++);
      for (const int64_t rows : {17, 64, 130}) {
        SCOPED_TRACE(rows);
        // The row leaves q2_k to others.
        const WidePlan plan = PlanWide(QuantFormOf(codec->dtype), n, k, rows,
                                       cuda_->stream->num_sms());
        problem.Check(rows, &plan);
      }
    }
  }
}

TEST_F(GemmQuantisedWideCudaTest, AllNumbersOfRows) {
  unsigned seed = 50;
  for (const DType dtype : {DType::kU4_G128, DType::kQ4_0, DType::kQ8_0}) {
    const BlockCodec& codec = *FindBlockCodec(dtype);
    for (const DType type : {DType::kBF16, DType::kF16}) {
      const GemmDesc desc{330, Width(codec, 900), dtype, type, DType::kF32};
      SCOPED_TRACE(::testing::Message()
                   << DTypeName(dtype) << " x " << DTypeName(type));
      Problem problem(*cuda_, codec, desc, 520, seed++);
      for (const int64_t rows : {17, 24, 31, 32, 33, 48, 63, 64, 65, 100, 127,
                                 128, 129, 200, 255, 256}) {
        SCOPED_TRACE(rows);
        problem.Check(rows, nullptr, rows % 2 != 0);
      }
      const WidePlan plan =
          PlanWide(problem.form(), desc.n, desc.k, 520, /*num_sms=*/132);
      problem.Check(520, &plan);
    }
  }
}

// Several blocks to a K, several jobs to a block, K that shares out unevenly.
TEST_F(GemmQuantisedWideCudaTest, AllPlans) {
  unsigned seed = 70;
  for (const DType dtype :
       {DType::kU4_G128, DType::kQ6_K, DType::kI8_G32, DType::kF8_G128}) {
    const BlockCodec& codec = *FindBlockCodec(dtype);
    for (const int64_t columns : {1100, 2900}) {
      const GemmDesc desc{600, Width(codec, columns), dtype, DType::kBF16,
                          DType::kBF16};
      Problem problem(*cuda_, codec, desc, 280, seed++);
      for (const int of : {64, 128, 256}) {
        for (const int splits : {1, 2, 3, 7, 8}) {
          for (const int sms : {1, 132}) {
            for (const int64_t rows : {20, 280}) {
              SCOPED_TRACE(::testing::Message()
                           << DTypeName(dtype) << " k " << desc.k << " columns "
                           << of << " splits " << splits << " rows " << rows
                           << " blocks " << sms);
              WidePlan plan;
              plan.columns = of;
              plan.splits = splits;
              plan.last = splits > 1 && sms == 1;
              FitWidePlan(problem.form(), desc.n, desc.k, rows, sms, plan);
              problem.Check(rows, &plan);
            }
          }
        }
      }
    }
  }
}

TEST_F(GemmQuantisedWideCudaTest, LargeMatrices) {
  const int64_t shapes[][3] = {
      {36000, 256, 40}, {18000, 256, 256}, {1024, 14336, 64}, {4096, 4096, 33}};
  unsigned seed = 90;
  for (const auto& [n, k, rows] : shapes) {
    SCOPED_TRACE(::testing::Message() << n << " by " << k << " by " << rows);
    const GemmDesc desc{n, k, DType::kU4_G128, DType::kBF16, DType::kF32};
    Problem problem(*cuda_, *FindBlockCodec(desc.weight), desc, rows, seed++);
    problem.Check(rows);
    const TestMatrix once = problem.Run(rows);
    const TestMatrix again = problem.Run(rows);
    for (int64_t r = 0; r < rows; ++r) {
      ASSERT_EQ(once.RowBits(r), again.RowBits(r));
    }
  }
}

// Act order: the formats of GPTQ's checkpoints.
TEST_F(GemmQuantisedWideCudaTest, PermutedColumns) {
  for (const DType dtype :
       {DType::kU4_G32, DType::kU4_G128, DType::kI8_G32, DType::kI8_G128}) {
    for (const DType type : {DType::kBF16, DType::kF16}) {
      SCOPED_TRACE(::testing::Message()
                   << DTypeName(dtype) << " x " << DTypeName(type));
      GemmDesc desc{80, 640, dtype, type, DType::kF32};
      desc.permuted = true;
      Problem problem(*cuda_, *FindBlockCodec(dtype), desc, 200, 5);
      for (const int64_t rows : {17, 40, 64, 200}) {
        SCOPED_TRACE(rows);
        problem.Check(rows);
      }
    }
  }
}

TEST_F(GemmQuantisedWideCudaTest, WhatIsNotFiniteStaysInItsRow) {
  for (const DType dtype : {DType::kQ4_K, DType::kF8_G32}) {
    const BlockCodec& codec = *FindBlockCodec(dtype);
    const GemmDesc desc{40, Width(codec, 500), dtype, DType::kBF16,
                        DType::kF32};
    Problem problem(*cuda_, codec, desc, 40, 11);
    const TestMatrix want = problem.Run(40);
    problem.x.Set(1, 5, std::numeric_limits<float>::quiet_NaN());
    problem.x.Set(39, desc.k - 1, std::numeric_limits<float>::infinity());
    const TestMatrix got = problem.Run(40);
    for (int64_t r = 0; r < 40; ++r) {
      if (r == 1 || r == 39) {
        EXPECT_FALSE(std::isfinite(got(r, 3)));
      } else {
        EXPECT_EQ(got.RowBits(r), want.RowBits(r)) << r;
      }
    }
  }
}

}  // namespace
}  // namespace inlay

#endif  // INLAY_HAS_CUDA
