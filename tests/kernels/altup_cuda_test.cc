// AltUp's CUDA rows against the equations in float64.
#if INLAY_HAS_CUDA

#include <gtest/gtest.h>

#include "tests/kernels/altup_test.h"
#include "tests/support/cuda_test_util.h"

namespace inlay {
namespace {

using ::inlay::testing::AltUpProblem;
using ::inlay::testing::CudaBytes;
using ::inlay::testing::CudaTestMatrix;
using ::inlay::testing::ExpectClose;
using ::inlay::testing::ForEachCudaRow;
using ::inlay::testing::kUnitF32;
using ::inlay::testing::MatchFactor;
using ::inlay::testing::TestCuda;
using ::inlay::testing::TestMatrix;

TEST(AltUpCudaTest, PredictsAndCorrectsAsTheEquationsSay) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  unsigned seed = 1;
  for (const int n : {1, 2, 4, kMaxAltUpStreams}) {
    for (const int64_t width : {1, 7, 64, 2056}) {
      SCOPED_TRACE(::testing::Message() << n << " streams of " << width);
      AltUpProblem problem(n, n / 2, width, 5, seed++);
      const CudaBytes router(problem.router()), norm(problem.norm());
      const CudaBytes predict(problem.predict()), correct(problem.correct());
      const CudaBytes scale(problem.scale());
      const auto router_of = [&](const CudaBytes& coefs) {
        return AltUpRouter{router.as<float>(), norm.as<float>(),
                           coefs.as<float>()};
      };
      ForEachCudaRow(
          AltUpPredictTable(), problem.desc(), cuda,
          [&](const AltUpPredictRow& row) {
            CudaTestMatrix streams(problem.streams());
            CudaTestMatrix x(DType::kF32, 5, width, 3);
            ASSERT_TRUE(row.run(problem.desc(),
                                {streams.view(), router_of(predict), x.view()},
                                *cuda.stream)
                            .ok());
            problem.ExpectPredicted(streams.Download(), x.Download());
          });
      for (const bool scales : {true, false}) {
        ForEachCudaRow(
            AltUpCorrectTable(), problem.desc(), cuda,
            [&](const AltUpCorrectRow& row) {
              CudaTestMatrix streams(problem.streams());
              CudaTestMatrix x(problem.x());
              ASSERT_TRUE(
                  row.run(problem.desc(),
                          {streams.view(), router_of(correct),
                           scales ? scale.as<float>() : nullptr, x.view()},
                          *cuda.stream)
                      .ok());
              problem.ExpectCorrected(
                  streams.Download(), x.Download(),
                  scales ? problem.scale().data() : nullptr);
            });
      }
      ForEachCudaRow(
          AltUpAddTable(), problem.desc(), cuda, [&](const AltUpAddRow& row) {
            CudaTestMatrix streams(problem.streams()), y(problem.x());
            ASSERT_TRUE(row.run(problem.desc(), {y.view(), streams.view()},
                                *cuda.stream)
                            .ok());
            const auto want = [&](int64_t t, int64_t c) {
              return problem.streams()(t, c) +
                     (c < width ? 0.0 : double{problem.x()(t, c % width)});
            };
            ExpectClose(streams.Download(), want, [&](int64_t t, int64_t c) {
              return 2 * kUnitF32 * std::fabs(want(t, c)) + 1e-30;
            });
          });
    }
  }
}

TEST(AltUpCudaTest, MatchesMagnitudes) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  std::mt19937 rng(3);
  for (const int64_t width : {1, 37, 2056}) {
    const MatchMagnitudeDesc desc = {width, 1e-5f};
    TestMatrix x(DType::kF32, 4, width, 2), target(DType::kF32, 4, width);
    x.Randomize(rng);
    target.Randomize(rng, 4.0f);
    for (int64_t i = 0; i < width; ++i) x.Set(1, i, 1e-4f);
    for (int64_t i = 0; i < width; ++i) x.Set(2, i, 0.0f);
    ForEachCudaRow(
        MatchMagnitudeTable(), desc, cuda, [&](const MatchMagnitudeRow& row) {
          for (const bool accumulate : {false, true}) {
            CudaTestMatrix from(x), wanted(target), y(x);
            MatchMagnitudeParams params{from.view(), wanted.view(), y.view(),
                                        accumulate};
            if (!accumulate) params.x = params.y;
            ASSERT_TRUE(row.run(desc, params, *cuda.stream).ok());
            const auto want = [&](int64_t r, int64_t c) {
              return x(r, c) * (MatchFactor(x, target, desc.epsilon, r) +
                                (accumulate ? 1.0 : 0.0));
            };
            // Two sums over 256 threads, halved by the root, and a few
            // roundings.
            ExpectClose(y.Download(), want, [&](int64_t r, int64_t c) {
              return 24 * kUnitF32 * std::fabs(want(r, c)) + 1e-30;
            });
          }
        });
  }
}

}  // namespace
}  // namespace inlay

#endif  // INLAY_HAS_CUDA
