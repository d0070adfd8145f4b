// head_scale's CUDA rows against float64: types, heads with and without
// vectors, strides.
#if INLAY_HAS_CUDA

#include "tests/kernels/head_scale_test.h"
#include "tests/support/cuda_test_util.h"

namespace inlay {
namespace {

using ::inlay::testing::CudaBytes;
using ::inlay::testing::CudaTestMatrix;
using ::inlay::testing::ExpectClose;
using ::inlay::testing::ForEachCudaRow;
using ::inlay::testing::HeadScaleProblem;
using ::inlay::testing::Rounding;
using ::inlay::testing::TestCuda;

TEST(HeadScaleCudaTest, MatchesFloat64) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (const int heads : {1, 3, 64}) {
      for (const int head_dim : {1, 7, 64, 128}) {
        SCOPED_TRACE(::testing::Message() << heads << " heads of " << head_dim
                                          << " " << DTypeName(dtype));
        const HeadScaleProblem problem(heads, head_dim, dtype,
                                       heads == 3 ? 8 : 0);
        ForEachCudaRow(
            HeadScaleTable(), problem.desc, cuda, [&](const HeadScaleRow& row) {
              CudaTestMatrix x(problem.x);
              const CudaBytes positions(problem.positions);
              const CudaBytes scale(problem.scale);
              const CudaBytes bias(problem.bias);
              const HeadScaleParams params = {x.view(), positions.as<int32_t>(),
                                              scale.as<float>(),
                                              bias.as<float>()};
              ASSERT_TRUE(row.run(problem.desc, params, *cuda.stream).ok());
              ExpectClose(
                  x.Download(),
                  [&](int64_t r, int64_t c) { return problem.Want(r, c); },
                  [&](int64_t r, int64_t c) {
                    return problem.Tolerance(r, c) +
                           Rounding(dtype, problem.Want(r, c));
                  });
            });
      }
    }
  }
}

}  // namespace
}  // namespace inlay

#endif  // INLAY_HAS_CUDA
