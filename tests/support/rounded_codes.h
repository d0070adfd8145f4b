// x of a product on a GPU as codes, made before it.
#ifndef INLAY_TESTS_SUPPORT_ROUNDED_CODES_H_
#define INLAY_TESTS_SUPPORT_ROUNDED_CODES_H_

#if INLAY_HAS_CUDA

#include "kernels/gemm/gemm.h"
#include "kernels/rounding/rounding_cuda.h"
#include "tests/support/cuda_test_util.h"

namespace inlay::testing {

// Where `wanted` and the row rounds so many rows: params.x becomes codes that
// live as long as this does.
class TestCodes {
 public:
  TestCodes(const GemmRow& row, const GemmDesc& desc, GemmParams& params,
            CudaStream& stream, bool wanted) {
    const int64_t rows = params.x.rows();
    RoundingParams round;
    round.rounding = GemmRounding(row, desc, rows);
    if (!wanted || round.rounding == RowRounding::kNone) return;
    RoundingDesc plain;
    plain.width = desc.k;
    plain.input = plain.activation = desc.activation;
    codes_ = std::make_unique<CudaBytes>(static_cast<size_t>(rows * desc.k));
    scales_ = std::make_unique<CudaBytes>(
        static_cast<size_t>(4 * RoundingScales(round.rounding, rows, desc.k)));
    round.x = params.x;
    round.codes = MatrixView(codes_->as<std::byte>(),
                             RoundingDType(round.rounding), rows, desc.k);
    round.scales = scales_->as<float>();
    EXPECT_TRUE(RunRoundingCuda(plain, round, stream).ok());
    params.x = round.codes;
    params.x_scales = round.scales;
  }

 private:
  std::unique_ptr<CudaBytes> codes_;
  std::unique_ptr<CudaBytes> scales_;
};

}  // namespace inlay::testing

#endif  // INLAY_HAS_CUDA

#endif  // INLAY_TESTS_SUPPORT_ROUNDED_CODES_H_
