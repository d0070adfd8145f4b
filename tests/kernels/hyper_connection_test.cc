// hyper_mix and hyper_spread: every row against the equations in float64, what
// the matrix promises, independence of other tokens and of threads.
#include "kernels/hyper_connection/hyper_connection.h"

#include <cmath>
#include <vector>

#include "tests/support/hyper_util.h"
#include "tests/support/kernel_test_util.h"
#include "tests/support/simd_target_loop.h"

namespace inlay {
namespace {

using ::inlay::testing::ForEachCpuRow;
using ::inlay::testing::HyperKind;
using ::inlay::testing::HyperProblem;
using ::inlay::testing::kHyperKinds;
using ::inlay::testing::OnEverySimdTarget;
using ::inlay::testing::TestCpu;
using ::inlay::testing::TestMatrix;

// Of factors, relative. A logit is off by what the sum of n * width squares is,
// in four lanes or more: at most 645 / 4 roundings, halved by the root, 4.8e-6
// of it; a sigmoid hands that on by no more than its logit, here a unit or two.
// Of the matrix this is no worst case, which grows with the rounds (up to 4
// times as many as there are, from rows to columns and back) and would let a
// forgotten epsilon pass: rounds bring matrices together, so that the first
// ones' errors fade.
constexpr double kTolerance = 1e-5;

TEST(HyperConnectionTest, MixesAndSpreadsAsTheEquationsSay) {
  TestCpu cpu;
  OnEverySimdTarget([&] {
    unsigned seed = 1;
    for (const int n : {1, 2, 3, 4, 5}) {
      for (const int64_t width : {1, 7, 64, 129}) {
        for (const HyperKind kind : kHyperKinds) {
          SCOPED_TRACE(::testing::Message()
                       << n << " streams of " << width << " seed " << seed);
          const HyperProblem fresh(n, width, kind, 5, seed++);
          ForEachCpuRow(
              HyperMixTable(), fresh.desc(), cpu, [&](const HyperMixRow& row) {
                HyperProblem problem = fresh;
                ASSERT_TRUE(
                    row.run(problem.desc(), problem.MixParams(), *cpu.stream)
                        .ok());
                problem.ExpectMixed(kTolerance);
              });
          if (fresh.desc().only_mixes) continue;
          HyperProblem problem = fresh;
          ASSERT_TRUE(HyperMixTable()
                          .back()
                          .run(problem.desc(), problem.MixParams(), *cpu.stream)
                          .ok());
          ForEachCpuRow(
              HyperSpreadTable(), problem.spread_desc(), cpu,
              [&](const HyperSpreadRow& row) {
                TestMatrix streams = problem.streams();
                HyperSpreadParams params;
                params.y = problem.y().view();
                params.weights = problem.weights().data();
                params.streams = streams.view();
                ASSERT_TRUE(
                    row.run(problem.spread_desc(), params, *cpu.stream).ok());
                problem.ExpectSpread(streams);
              });
        }
      }
    }
  });
}

// Sums of columns, divided by themselves and epsilon (1e-3) last, are 1 but for
// that; of rows, but for theirs and what columns then differ in.
TEST(HyperConnectionTest, TheMatrixIsDoublyStochastic) {
  TestCpu cpu;
  HyperProblem problem(4, 32, HyperKind::kMixed, 6, 3);
  ASSERT_TRUE(HyperMixTable()
                  .back()
                  .run(problem.desc(), problem.MixParams(), *cpu.stream)
                  .ok());
  for (size_t t = 0; t < 6; ++t) {
    const float* c = problem.weights().data() + t * 20 + 4;
    for (size_t i = 0; i < 4; ++i) {
      float row = 0.0f, column = 0.0f;
      for (size_t j = 0; j < 4; ++j) {
        row += c[4 * i + j];
        column += c[4 * j + i];
      }
      EXPECT_NEAR(row, 1.0f, 2.1e-3f);
      EXPECT_NEAR(column, 1.0f, 1.01e-3f);
    }
  }
}

TEST(HyperConnectionTest, ATokenDependsOnItselfOnly) {
  TestCpu one(1), three(3);
  const HyperProblem fresh(4, 96, HyperKind::kMixed, 9, 5);
  ForEachCpuRow(
      HyperMixTable(), fresh.desc(), one, [&](const HyperMixRow& row) {
        HyperProblem all = fresh, alone = fresh;
        ASSERT_TRUE(row.run(all.desc(), all.MixParams(), *three.stream).ok());
        HyperMixParams params = alone.MixParams();
        params.streams = params.streams.RowSlice(7, 1);
        params.products = params.products.RowSlice(7, 1);
        params.x = params.x.RowSlice(7, 1);
        params.weights += 7 * alone.desc().num_weights();
        ASSERT_TRUE(row.run(alone.desc(), params, *one.stream).ok());
        EXPECT_EQ(all.x().RowBits(7), alone.x().RowBits(7));
        for (size_t i = 140; i < 160; ++i) {
          EXPECT_EQ(all.weights()[i], alone.weights()[i]);
        }
      });
}

TEST(HyperConnectionTest, NumbersOutOfRangeAreNamed) {
  const HyperProblem problem(4, 96, HyperKind::kMixed, 1, 5);
  EXPECT_TRUE(ValidateHyperMix(problem.desc()).ok());
  const auto refuses = [&](const char* name, auto change) {
    HyperMixDesc desc = problem.desc();
    change(desc);
    const absl::Status status = ValidateHyperMix(desc);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(status.message().find(name), std::string_view::npos) << status;
  };
  refuses("num_streams", [](auto& d) { d.num_streams = kMaxHyperStreams + 1; });
  refuses("num_streams", [](auto& d) { d.num_streams = 0; });
  refuses("width", [](auto& d) { d.width = 0; });
  refuses("rounds", [](auto& d) { d.rounds = 0; });
  refuses("epsilon", [](auto& d) { d.epsilon = NAN; });
  refuses("magnitude", [](auto& d) { d.magnitude = NAN; });
  refuses("averages", [](auto& d) { d.averages = true; });
  EXPECT_FALSE(ValidateHyperSpread({0, 4}).ok());
}

}  // namespace
}  // namespace inlay
