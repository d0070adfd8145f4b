// sparse_gate's CUDA rows against float64: types, widths with and without
// vectors, strides.
#if INLAY_HAS_CUDA

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "tests/kernels/sparse_gate_test.h"
#include "tests/support/cuda_test_util.h"

namespace inlay {
namespace {

using ::inlay::testing::CudaTestMatrix;
using ::inlay::testing::DrawGates;
using ::inlay::testing::ExpectClose;
using ::inlay::testing::ForEachCudaRow;
using ::inlay::testing::GateCut;
using ::inlay::testing::GateTolerance;
using ::inlay::testing::Rounding;
using ::inlay::testing::TestCuda;
using ::inlay::testing::TestMatrix;

TEST(SparseGateCudaTest, MatchesFloat64) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (const int64_t width : {1, 7, 8, 101, 2056, 16384}) {
      for (const float deviations : {1.645f, -0.5f}) {
        SCOPED_TRACE(::testing::Message()
                     << DTypeName(dtype) << " " << width << " " << deviations);
        const SparseGateDesc desc{width, dtype};
        std::mt19937 rng(9);
        TestMatrix x(dtype, 4, width, width % 8 == 0 ? 8 : 3);
        DrawGates(rng, &x);
        ForEachCudaRow(
            SparseGateTable(), desc, cuda, [&](const SparseGateRow& row) {
              CudaTestMatrix y(x);
              ASSERT_TRUE(
                  row.run(desc, {y.view(), deviations}, *cuda.stream).ok());
              std::vector<double> cuts;
              for (int64_t r = 0; r < 4; ++r) {
                cuts.push_back(GateCut(x, r, deviations));
              }
              const auto want = [&](int64_t r, int64_t c) {
                return std::max(x(r, c) - cuts[static_cast<size_t>(r)], 0.0);
              };
              ExpectClose(y.Download(), want, [&](int64_t r, int64_t c) {
                return GateTolerance(x(r, c)) + Rounding(dtype, want(r, c));
              });
            });
      }
    }
  }
}

TEST(SparseGateCudaTest, NanStays) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  const SparseGateDesc desc{101, DType::kF32};
  TestMatrix x(DType::kF32, 2, 101);
  std::mt19937 rng(10);
  x.Randomize(rng);
  x.Set(1, 3, std::numeric_limits<float>::quiet_NaN());
  ForEachCudaRow(SparseGateTable(), desc, cuda, [&](const SparseGateRow& row) {
    CudaTestMatrix y(x);
    ASSERT_TRUE(row.run(desc, {y.view(), 1.0f}, *cuda.stream).ok());
    const TestMatrix got = y.Download();
    EXPECT_TRUE(std::isnan(got(1, 3)));
    for (int64_t c = 0; c < 101; ++c) EXPECT_FALSE(std::isnan(got(0, c)));
  });
}

}  // namespace
}  // namespace inlay

#endif  // INLAY_HAS_CUDA
