// AltUp's CPU rows against the equations in float64.
#include "tests/kernels/altup_test.h"

#include <gtest/gtest.h>

#include "tests/support/simd_target_loop.h"

namespace inlay {
namespace {

using ::inlay::testing::AltUpProblem;
using ::inlay::testing::ExpectClose;
using ::inlay::testing::ForEachCpuRow;
using ::inlay::testing::kUnitF32;
using ::inlay::testing::MatchFactor;
using ::inlay::testing::OnEverySimdTarget;
using ::inlay::testing::TestCpu;
using ::inlay::testing::TestMatrix;

AltUpRouter RouterOf(const AltUpProblem& problem,
                     const std::vector<float>& coefs) {
  return {problem.router().data(), problem.norm().data(), coefs.data()};
}

TEST(AltUpTest, PredictsAndCorrectsAsTheEquationsSay) {
  TestCpu cpu;
  OnEverySimdTarget([&] {
    unsigned seed = 1;
    for (const int n : {1, 2, 4, kMaxAltUpStreams}) {
      for (const int64_t width : {1, 7, 64, 129}) {
        SCOPED_TRACE(::testing::Message() << n << " streams of " << width);
        AltUpProblem problem(n, n / 2, width, 5, seed++);
        ForEachCpuRow(
            AltUpPredictTable(), problem.desc(), cpu,
            [&](const AltUpPredictRow& row) {
              TestMatrix streams = problem.streams();
              TestMatrix x(DType::kF32, 5, width, 3);
              ASSERT_TRUE(
                  row.run(problem.desc(),
                          {streams.view(), RouterOf(problem, problem.predict()),
                           x.view()},
                          *cpu.stream)
                      .ok());
              problem.ExpectPredicted(streams, x);
            });
        for (const float* scale :
             {problem.scale().data(), static_cast<const float*>(nullptr)}) {
          ForEachCpuRow(
              AltUpCorrectTable(), problem.desc(), cpu,
              [&](const AltUpCorrectRow& row) {
                TestMatrix streams = problem.streams();
                TestMatrix x = problem.x();
                ASSERT_TRUE(row.run(problem.desc(),
                                    {streams.view(),
                                     RouterOf(problem, problem.correct()),
                                     scale, x.view()},
                                    *cpu.stream)
                                .ok());
                problem.ExpectCorrected(streams, x, scale);
              });
        }
      }
    }
  });
}

TEST(AltUpTest, AddsToAllButTheFirst) {
  TestCpu cpu;
  AltUpProblem problem(3, 1, 20, 4, 5);
  ForEachCpuRow(
      AltUpAddTable(), problem.desc(), cpu, [&](const AltUpAddRow& row) {
        TestMatrix streams = problem.streams();
        ASSERT_TRUE(row.run(problem.desc(),
                            {problem.x().view(), streams.view()}, *cpu.stream)
                        .ok());
        ExpectClose(
            streams,
            [&](int64_t t, int64_t c) {
              return problem.streams()(t, c) +
                     (c < 20 ? 0.0 : double{problem.x()(t, c % 20)});
            },
            [&](int64_t t, int64_t c) {
              return 2 * kUnitF32 * std::fabs(streams(t, c)) + 1e-30;
            });
      });
}

TEST(AltUpTest, MatchesMagnitudes) {
  TestCpu cpu;
  std::mt19937 rng(3);
  const MatchMagnitudeDesc desc = {37, 1e-5f};
  TestMatrix x(DType::kF32, 4, 37, 2), target(DType::kF32, 4, 37);
  x.Randomize(rng);
  target.Randomize(rng, 4.0f);
  for (int64_t i = 0; i < 37; ++i) x.Set(1, i, 1e-4f);  // below the epsilon
  for (int64_t i = 0; i < 37; ++i) x.Set(2, i, 0.0f);
  ForEachCpuRow(
      MatchMagnitudeTable(), desc, cpu, [&](const MatchMagnitudeRow& row) {
        for (const bool accumulate : {false, true}) {
          TestMatrix y = x;
          MatchMagnitudeParams params{x.view(), target.view(), y.view(),
                                      accumulate};
          if (!accumulate) params.x = params.y;
          ASSERT_TRUE(row.run(desc, params, *cpu.stream).ok());
          const auto want = [&](int64_t r, int64_t c) {
            return x(r, c) * (MatchFactor(x, target, desc.epsilon, r) +
                              (accumulate ? 1.0 : 0.0));
          };
          ExpectClose(y, want, [&](int64_t r, int64_t c) {
            return 4 * kUnitF32 * std::fabs(want(r, c)) + 1e-30;
          });
        }
      });
}

TEST(AltUpTest, NumbersOutOfRangeAreNamed) {
  const auto refuses = [](const char* name, AltUpDesc desc) {
    const absl::Status status = ValidateAltUp(desc);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(status.message().find(name), std::string_view::npos) << status;
  };
  EXPECT_TRUE(ValidateAltUp({4, 8, 3, 1e-6f}).ok());
  refuses("num_streams", {0, 8, 0, 1e-6f});
  refuses("num_streams", {kMaxAltUpStreams + 1, 8, 0, 1e-6f});
  refuses("width", {4, 0, 0, 1e-6f});
  refuses("active", {4, 8, 4, 1e-6f});
  refuses("norm_epsilon", {4, 8, 0, -1.0f});
}

}  // namespace
}  // namespace inlay
