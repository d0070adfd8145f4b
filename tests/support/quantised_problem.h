// A product with quantised weights on CUDA against float64: random blocks,
// packed; by gemm's row or with a plan that the test chooses.
#ifndef INLAY_TESTS_SUPPORT_QUANTISED_PROBLEM_H_
#define INLAY_TESTS_SUPPORT_QUANTISED_PROBLEM_H_

#if INLAY_HAS_CUDA

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "kernels/activation/activation.h"
#include "kernels/gemm/gemm.h"
#include "kernels/gemm/quantised/many_rows_packed_cuda.h"
#include "kernels/gemm/quantised/quantised_cuda.h"
#include "kernels/gemm/quantised/streamed_cuda.h"
#include "kernels/gemm/quantised/wide_cuda.h"
#include "tests/support/cuda_test_util.h"
#include "tests/support/random_blocks.h"
#include "tests/support/rounded_weights.h"

namespace inlay::testing {

class QuantisedProblem {
 public:
  QuantisedProblem(TestCuda& cuda, const BlockCodec& codec,
                   const GemmDesc& desc, int64_t m, unsigned seed)
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
    FindWeights();
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
  }

  // y of rows [first, first + rows) of x by the row.
  // in_place: the residual is what y was.
  TestMatrix Run(int64_t first, int64_t rows, bool adds = true,
                 bool adds_residual = true, bool in_place = false) {
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
    TestMatrix before(desc.output, rows, gated ? desc.n / 2 : desc.n, 3);
    if (in_place) {
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t c = 0; c < desc.n; ++c) {
          before.Set(r, c, residual(first + r, c));
        }
      }
    }
    CudaTestMatrix y(std::move(before));
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
    if (in_place) params.residual = params.y;
    params.workspace = workspace.as<void>();
    const absl::Status status =
        plan.has_value() && many_rows
            ? RunManyRowsPacked(desc, params, QuantFormOf(desc.weight), *plan,
                                CudaStream::Of(*cuda_.stream))
        : plan.has_value() ? RunQuantisedStreamed(
                                 desc, params, QuantFormOf(desc.weight), *plan,
                                 CudaStream::Of(*cuda_.stream), function)
                           : (*row)->run(desc, params, *cuda_.stream);
    EXPECT_TRUE(status.ok()) << status;
    return y.Download();
  }

  void Check(int64_t first, int64_t rows) { Check(first, Run(first, rows)); }
  // y of rows [first, ..) of x.
  void Check(int64_t first, const TestMatrix& y) {
    const int64_t rows = y.rows();
    // Those kernels' weights are known to the bit.
    const bool one_order = HasOneOrder();
    if (one_order != one_order_) {
      one_order_ = one_order;
      computed_.clear();
      FindWeights();
    }
    for (int64_t r = first; r < first + rows; ++r) ComputeReference(r);
    const auto at = [&](int64_t r, int64_t c) {
      return static_cast<size_t>((first + r) * desc.n + c);
    };
    float most = 0.0f;
    for (const double w : weights_)
      most = std::max(most, static_cast<float>(std::abs(w)));
    ExpectClose(
        y, [&](int64_t r, int64_t c) { return want_[at(r, c)]; },
        [&](int64_t r, int64_t c) {
          // Weights for many rows are rounded to 16 bits, for not so many
          // their scales and minima are too; sums with the offset of the magic
          // numbers left in them are up to 16 times as large.
          const bool rounds =
              desc.batch_invariant || (plan.has_value() && plan->x_tiles > 2);
          // Other GPUs unpack from 49 on.
          const int64_t exact = rounds ? 0 : cuda_.info.sm == 90 ? 16 : 48;
          const bool rounded =
              !one_order && desc.activation != DType::kF32 && rows > exact;
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
  std::optional<StreamedPlan> plan;  // forced
  bool many_rows = false;            // with it: by the kernel for many, cut so
  Activation function = Activation::kSilu;  // where it is gated
  int64_t m;
  TestMatrix x, bias, residual;
  std::vector<int32_t> permutation;

 private:
  // Whether kernels that round weights for all numbers of rows serve.
  bool HasOneOrder() const {
    if (plan.has_value()) return plan->rounds_weights || many_rows;
    return desc.batch_invariant && desc.activation != DType::kF32 &&
           StreamedTakesColumns(desc.k) && !WideRoundsTooMuch(matrix_.form) &&
           cuda_.info.sm == 90;
  }
  void FindWeights() {
    weights_.resize(static_cast<size_t>(desc.n * desc.k));
    std::vector<float> row(static_cast<size_t>(desc.k));
    for (int64_t r = 0; r < desc.n; ++r) {
      double* const to = weights_.data() + r * desc.k;
      if (one_order_) {
        RoundedRow(matrix_, packed_.data(), r, desc.activation, to, true);
        continue;
      }
      UnpackQuantisedRow(matrix_, packed_.data(), r, row.data());
      std::copy(row.begin(), row.end(), to);
    }
  }
  // Of row r of x. Where products with unpacked weights are rounded to, and the
  // least that is left of sums where an offset was in them.
  void ComputeReference(int64_t r) {
    const auto all = static_cast<size_t>(m * desc.n);
    want_.resize(all), size_.resize(all), shifted_.resize(all);
    if (computed_.empty()) computed_.resize(static_cast<size_t>(m));
    if (computed_[static_cast<size_t>(r)]) return;
    computed_[static_cast<size_t>(r)] = true;
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
      const auto at = static_cast<size_t>(r * desc.n + c);
      want_[at] = want, size_[at] = size, shifted_[at] = shifted;
    }
  }

  TestCuda& cuda_;
  std::mt19937 rng_;
  QuantMatrix matrix_;
  std::vector<std::byte> rows_, packed_;
  bool one_order_ = false;  // what weights_ are of
  std::vector<double> weights_;
  std::vector<double> want_, size_, shifted_;
  std::vector<bool> computed_;
  std::unique_ptr<CudaBytes> device_, permutation_;
  std::unique_ptr<CudaTestMatrix> x_, bias_, residual_;
};

// K of about `columns`, in whole blocks.
inline int64_t Width(const BlockCodec& codec, int64_t columns) {
  const int64_t block = GetFormatInfo(codec.dtype).block_elements;
  return (columns + block - 1) / block * block;
}

}  // namespace inlay::testing

#endif  // INLAY_HAS_CUDA

#endif  // INLAY_TESTS_SUPPORT_QUANTISED_PROBLEM_H_
