// The CUDA rows of hyper_mix and hyper_spread against the equations in float64.
#if INLAY_HAS_CUDA

#include "tests/support/cuda_test_util.h"
#include "tests/support/hyper_util.h"

namespace inlay {
namespace {

using ::inlay::testing::CudaBytes;
using ::inlay::testing::CudaTestMatrix;
using ::inlay::testing::ForEachCudaRow;
using ::inlay::testing::HyperKind;
using ::inlay::testing::HyperProblem;
using ::inlay::testing::kHyperKinds;
using ::inlay::testing::TestCuda;
using ::inlay::testing::TestMatrix;

// As on CPU (hyper_connection_test.cc): squares are added up by 256 threads,
// 5 * 4096 / 256 each, and over these, 90 roundings; twice the bound, as
// exponentials and divisions of devices are off by 2 units where others are by
// half a one.
constexpr double kTolerance = 2e-5;

TEST(HyperConnectionCudaTest, MixesAsTheEquationsSay) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  unsigned seed = 1;
  for (const int n : {1, 2, 3, 4, 5}) {
    for (const int64_t width : {1, 7, 64, 129, 4096}) {
      for (const HyperKind kind : kHyperKinds) {
        SCOPED_TRACE(::testing::Message()
                     << n << " streams of " << width << " seed " << seed);
        HyperProblem problem(n, width, kind, 5, seed++);
        ForEachCudaRow(
            HyperMixTable(), problem.desc(), cuda, [&](const HyperMixRow& row) {
              CudaTestMatrix streams(problem.streams());
              CudaTestMatrix products(problem.products());
              CudaTestMatrix x(problem.x());
              const CudaBytes base(problem.base());
              const CudaBytes scale(problem.scale());
              const CudaBytes weights(problem.weights());
              HyperMixParams params;
              params.streams = streams.view();
              if (!problem.desc().averages) {
                params.products = products.view();
                params.base = base.as<float>();
                params.scale = scale.as<float>();
              }
              params.x = x.view();
              params.weights =
                  problem.desc().only_mixes ? nullptr : weights.as<float>();
              ASSERT_TRUE(row.run(problem.desc(), params, *cuda.stream).ok());
              problem.x() = x.Download();
              weights.Download(problem.weights().data());
              problem.ExpectMixed(kTolerance);
            });
      }
    }
  }
}

TEST(HyperConnectionCudaTest, SpreadsAsTheEquationsSay) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  unsigned seed = 1;
  for (const int n : {1, 2, 3, 4, 5}) {
    for (const int64_t width : {1, 7, 64, 129, 4096}) {
      SCOPED_TRACE(::testing::Message()
                   << n << " streams of " << width << " seed " << seed);
      const HyperKind kind =
          seed % 2 == 0 ? HyperKind::kMixed : HyperKind::kIndependent;
      HyperProblem problem(n, width, kind, 5, seed++);
      for (size_t i = 0; i < problem.weights().size(); ++i) {
        problem.weights()[i] = 0.1f * static_cast<float>(i % 13) - 0.4f;
      }
      ForEachCudaRow(
          HyperSpreadTable(), problem.spread_desc(), cuda,
          [&](const HyperSpreadRow& row) {
            CudaTestMatrix streams(problem.streams());
            CudaTestMatrix y(problem.y());
            const CudaBytes weights(problem.weights());
            HyperSpreadParams params;
            params.y = y.view();
            params.weights = weights.as<float>();
            params.streams = streams.view();
            ASSERT_TRUE(
                row.run(problem.spread_desc(), params, *cuda.stream).ok());
            problem.ExpectSpread(streams.Download());
          });
    }
  }
}

}  // namespace
}  // namespace inlay

#endif  // INLAY_HAS_CUDA
