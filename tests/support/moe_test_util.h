// What the tests of mixtures of experts share: descriptions of routings that
// families use, a place for what routing gives, and what the CPU gives. Header
// only.
#ifndef INLAY_TESTS_SUPPORT_MOE_TEST_UTIL_H_
#define INLAY_TESTS_SUPPORT_MOE_TEST_UTIL_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <vector>

#include "kernels/moe/routing.h"
#include "tests/support/kernel_test_util.h"

namespace inlay::testing {

inline constexpr RoutingScore kSoftmaxScore = RoutingScore::kSoftmax;
inline constexpr RoutingScore kSigmoidScore = RoutingScore::kSigmoid;
inline constexpr RoutingScore kSoftplusScore = RoutingScore::kSqrtSoftplus;
inline constexpr RoutingScore kLogitScore = RoutingScore::kLogitSigmoid;
inline constexpr GroupScore kBestOfGroup = GroupScore::kMax;
inline constexpr GroupScore kTwoOfGroup = GroupScore::kTopTwo;

inline constexpr RoutingDesc kRoutings[] = {
    {1, 1, kSoftmaxScore, true},
    {8, 2, kSoftmaxScore, true},
    {60, 4, kSoftmaxScore, false},
    {128, 8, kSoftmaxScore, true},
    {32, 4, kSoftmaxScore, true, 1, 1, kBestOfGroup, 1.5f},
    {128, 8, kSigmoidScore, true, 1, 1, kTwoOfGroup, 1.0f},
    {160, 6, kSoftmaxScore, false, 8, 3, kBestOfGroup, 16.0f},
    {256, 8, kSigmoidScore, true, 8, 4, kTwoOfGroup, 2.5f},
    {7, 7, kSigmoidScore, false},
    {12, 4, kSigmoidScore, true, 12, 5, kTwoOfGroup, 1.0f},
    {256, 6, kSoftplusScore, true, 1, 1, kBestOfGroup, 1.5f},
    {384, 6, kLogitScore, false},
    {64, 5, kLogitScore, true, 8, 3, kTwoOfGroup, 2.5f},
    {kMaxExperts, kMaxExpertsPerToken, kSoftmaxScore, true},
};

// SparseMixer's: Phi-3.5-MoE's, with more chosen, where all are near, and where
// equal ones alone are.
inline constexpr RoutingDesc Mixing(int num_experts, int top_k, float scale,
                                    float threshold) {
  RoutingDesc desc = {num_experts, top_k, RoutingScore::kSparseMixer};
  desc.scale = scale;
  desc.threshold = threshold;
  return desc;
}
inline constexpr RoutingDesc kMixings[] = {
    Mixing(16, 2, 1.0f, 0.02f), Mixing(100, 5, 2.5f, 0.4f),
    Mixing(7, 7, 1.0f, 1e30f), Mixing(300, 2, 1.0f, 0.0f)};

// What routing gives, poisoned.
struct Routed {
  Routed(const RoutingDesc& desc, int64_t tokens)
      : experts(static_cast<size_t>(tokens * desc.top_k), -1),
        weights(experts.size(), std::numeric_limits<float>::quiet_NaN()),
        offsets(static_cast<size_t>(desc.num_experts) + 1, -1),
        slots(experts.size(), -1) {}

  RoutingParams Params(TensorView logits, const float* correction) {
    return {logits,         correction,     experts.data(),
            weights.data(), offsets.data(), slots.data()};
  }

  std::vector<int32_t> experts;
  std::vector<float> weights;
  std::vector<int32_t> offsets;
  std::vector<int32_t> slots;
};

inline Routed RouteOnCpu(const RoutingDesc& desc, TestMatrix& logits,
                         const float* correction,
                         const float* scales = nullptr) {
  TestCpu cpu(1);
  Routed routed(desc, logits.rows());
  const RoutingRow& row = RoutingTable().back();
  EXPECT_EQ(row.device, DeviceKind::kCpu);
  RoutingParams params = routed.Params(logits.view(), correction);
  params.expert_scales = scales;
  EXPECT_TRUE(row.run(desc, params, *cpu.stream).ok());
  return routed;
}

}  // namespace inlay::testing

#endif  // INLAY_TESTS_SUPPORT_MOE_TEST_UTIL_H_
