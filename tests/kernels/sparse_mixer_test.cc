// moe_routing's SparseMixer on CPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "kernels/moe/routing.h"
#include "tests/support/kernel_test_util.h"
#include "tests/support/moe_test_util.h"

namespace inlay {
namespace {

using ::inlay::testing::kMixings;
using ::inlay::testing::kUnitF32;
using ::inlay::testing::Mixing;
using ::inlay::testing::Routed;
using ::inlay::testing::RouteOnCpu;
using ::inlay::testing::TestCpu;
using ::inlay::testing::TestMatrix;

// One expert after another: the weight of the largest logit in the softmax of
// all whose distance from it, by its own or their size, is within the
// threshold; then it is gone.
TEST(RoutingTest, SparseMixerMatchesASoftmaxOfWhatIsLeft) {
  TestCpu cpu(2);
  constexpr int64_t kTokens = 37;
  constexpr double kGone = -std::numeric_limits<double>::infinity();
  for (const RoutingDesc& desc : kMixings) {
    SCOPED_TRACE(::testing::Message() << desc.num_experts << " experts");
    std::mt19937 rng(5);
    TestMatrix logits(DType::kF32, kTokens, desc.num_experts, 3);
    logits.Randomize(rng, 0.5f);
    // All negative; equal ones.
    for (int e = 0; e < desc.num_experts; ++e) {
      logits.Set(1, e, -1.0f - 0.1f * static_cast<float>(e % 8));
      logits.Set(2, e, 0.0f);
    }
    ASSERT_TRUE(ValidateRouting(desc).ok());
    Routed got = RouteOnCpu(desc, logits, nullptr);
    for (int64_t t = 0; t < kTokens; ++t) {
      std::vector<float> left;
      for (int e = 0; e < desc.num_experts; ++e) left.push_back(logits(t, e));
      for (int r = 0; r < desc.top_k; ++r) {
        const auto slot = static_cast<size_t>(t * desc.top_k + r);
        const auto best = std::max_element(left.begin(), left.end());
        double sum = 0.0;
        for (const float x : left) {
          if (x == kGone) continue;
          const float size = std::fabs(x) < *best ? *best : std::fabs(x);
          const bool is_far = (*best - x) / size > desc.threshold;
          sum += is_far ? 0.0 : std::exp(double{x});
        }
        ASSERT_EQ(got.experts[slot], best - left.begin());
        const double want = double{desc.scale} * std::exp(double{*best}) / sum;
        ASSERT_NEAR(got.weights[slot], want, 2 * kUnitF32 * want) << t;
        *best = static_cast<float>(kGone);
      }
    }
  }
}

TEST(RoutingTest, SparseMixerHasNoGroupsAndSums) {
  for (const RoutingDesc& bad :
       {RoutingDesc{8, 2, RoutingScore::kSparseMixer, true},
        RoutingDesc{8, 2, RoutingScore::kSparseMixer, false, 4, 4},
        Mixing(8, 2, 1.0f, -0.1f)}) {
    EXPECT_FALSE(ValidateRouting(bad).ok());
  }
}

TEST(RoutingTest, SparseMixersNansShow) {
  const RoutingDesc desc = Mixing(5, 2, 1.0f, 0.02f);
  TestMatrix logits(DType::kF32, 1, 5);
  for (int e = 0; e < 5; ++e) logits.Set(0, e, 0.5f);
  logits.Set(0, 3, std::numeric_limits<float>::quiet_NaN());
  const Routed got = RouteOnCpu(desc, logits, nullptr);
  EXPECT_EQ(got.experts, (std::vector<int32_t>{3, 0}));
  EXPECT_TRUE(std::isnan(got.weights[0]));
  EXPECT_EQ(got.weights[1], 0.25f);
}

}  // namespace
}  // namespace inlay
