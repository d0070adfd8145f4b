// sparse_gate's CPU rows against float64.
#include "tests/kernels/sparse_gate_test.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "tests/support/simd_target_loop.h"

namespace inlay {
namespace {

using ::inlay::testing::DrawGates;
using ::inlay::testing::ExpectClose;
using ::inlay::testing::ForEachCpuRow;
using ::inlay::testing::GateCut;
using ::inlay::testing::GateTolerance;
using ::inlay::testing::OnEverySimdTarget;
using ::inlay::testing::TestCpu;
using ::inlay::testing::TestMatrix;

TEST(SparseGateTest, MatchesFloat64) {
  TestCpu cpu;
  OnEverySimdTarget([&] {
    for (const int64_t width : {1, 7, 8, 101, 2056}) {
      for (const float deviations : {1.645f, 0.0f, -0.5f}) {
        SCOPED_TRACE(::testing::Message() << width << " at " << deviations);
        const SparseGateDesc desc{width, DType::kF32};
        std::mt19937 rng(9);
        TestMatrix x(DType::kF32, 4, width, 3);
        DrawGates(rng, &x);
        std::vector<double> cuts;
        for (int64_t r = 0; r < 4; ++r) {
          cuts.push_back(GateCut(x, r, deviations));
        }
        ForEachCpuRow(
            SparseGateTable(), desc, cpu, [&](const SparseGateRow& row) {
              TestMatrix y = x;
              ASSERT_TRUE(
                  row.run(desc, {y.view(), deviations}, *cpu.stream).ok());
              ExpectClose(
                  y,
                  [&](int64_t r, int64_t c) {
                    return std::max(x(r, c) - cuts[static_cast<size_t>(r)],
                                    0.0);
                  },
                  [&](int64_t r, int64_t c) { return GateTolerance(x(r, c)); });
            });
      }
    }
  });
}

// Few are left of many: the part that a normal variable has above the cut.
TEST(SparseGateTest, AndNanStays) {
  TestCpu cpu;
  const SparseGateDesc desc{20000, DType::kF32};
  std::mt19937 rng(4);
  TestMatrix x(DType::kF32, 2, 20000);
  x.Randomize(rng);
  x.Set(1, 3, std::numeric_limits<float>::quiet_NaN());
  ForEachCpuRow(SparseGateTable(), desc, cpu, [&](const SparseGateRow& row) {
    TestMatrix y = x;
    ASSERT_TRUE(row.run(desc, {y.view(), 1.6448536f}, *cpu.stream).ok());
    int left = 0;
    for (int64_t i = 0; i < 20000; ++i) left += y(0, i) > 0.0f ? 1 : 0;
    EXPECT_NEAR(left, 1000, 100);
    EXPECT_TRUE(std::isnan(y(1, 3)));
  });
}

}  // namespace
}  // namespace inlay
