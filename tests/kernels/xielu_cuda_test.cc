// xielu's CUDA rows against float64: types, widths with and without vectors,
// strides, in place.
#if INLAY_HAS_CUDA

#include <cmath>
#include <limits>
#include <random>

#include "tests/kernels/xielu_test.h"
#include "tests/support/cuda_test_util.h"

namespace inlay {
namespace {

using ::inlay::testing::CudaTestMatrix;
using ::inlay::testing::ExpectClose;
using ::inlay::testing::ForEachCudaRow;
using ::inlay::testing::kXieluNumbers;
using ::inlay::testing::Rounding;
using ::inlay::testing::SetXieluEdges;
using ::inlay::testing::TestCuda;
using ::inlay::testing::TestMatrix;
using ::inlay::testing::XieluReference;
using ::inlay::testing::XieluTolerance;

TEST(XieluCudaTest, MatchesFloat64) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  for (const XieluNumbers& numbers : kXieluNumbers) {
    for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
      for (const int64_t width : {1, 7, 8, 101, 2056}) {
        SCOPED_TRACE(::testing::Message() << numbers.eps << " width " << width
                                          << " " << DTypeName(dtype));
        const XieluDesc desc{width, dtype};
        std::mt19937 rng(9);
        TestMatrix x(dtype, 4, width, width % 2 == 0 ? 8 : 3);
        x.Randomize(rng, 2.0f);
        SetXieluEdges(&x);
        x.Set(3, 0, std::numeric_limits<float>::quiet_NaN());
        const auto is_nan = [](int64_t r, int64_t c) {
          return r == 3 && c == 0;
        };
        const auto want = [&](int64_t r, int64_t c) {
          return is_nan(r, c) ? 0.0 : XieluReference(numbers, x(r, c));
        };
        const auto tolerance = [&](int64_t r, int64_t c) {
          return is_nan(r, c) ? 1.0
                              : XieluTolerance(numbers, x(r, c)) +
                                    Rounding(dtype, want(r, c));
        };
        ForEachCudaRow(XieluTable(), desc, cuda, [&](const XieluRow& row) {
          CudaTestMatrix in_place(x);
          CudaTestMatrix y(dtype, 4, width, width % 2 == 0 ? 8 : 1);
          XieluParams params{in_place.view(), y.view(), numbers};
          ASSERT_TRUE(row.run(desc, params, *cuda.stream).ok());
          TestMatrix got = y.Download();
          EXPECT_TRUE(std::isnan(got(3, 0)));
          got.Set(3, 0, 0.0f);
          ExpectClose(got, want, tolerance);
          params.y = params.x;
          ASSERT_TRUE(row.run(desc, params, *cuda.stream).ok());
          for (int64_t r = 0; r < 4; ++r) {
            EXPECT_EQ(in_place.Download().RowBits(r), y.Download().RowBits(r));
          }
        });
      }
    }
  }
}

}  // namespace
}  // namespace inlay

#endif  // INLAY_HAS_CUDA
