// Routing on CUDA against the CPU's row.
#if INLAY_HAS_CUDA

#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "kernels/moe/routing.h"
#include "tests/support/cuda_test_util.h"
#include "tests/support/moe_test_util.h"

namespace inlay {
namespace {

using namespace ::inlay::testing;  // NOLINT

// Every row of CUDA gives what the CPU did; `params` has what it reads, on the
// device.
void ExpectRoutes(TestCuda& cuda, const RoutingDesc& desc, RoutingParams params,
                  const Routed& want) {
  ForEachCudaRow(RoutingTable(), desc, cuda, [&](const RoutingRow& row) {
    Routed got(desc, params.logits.rows());
    const CudaBytes experts(got.experts), weights(got.weights),
        offsets(got.offsets), slots(got.slots);
    params.experts = experts.as<int32_t>();
    params.weights = weights.as<float>();
    params.offsets = offsets.as<int32_t>();
    params.slots = slots.as<int32_t>();
    ASSERT_TRUE(row.run(desc, params, *cuda.stream).ok());
    experts.Download(got.experts.data());
    weights.Download(got.weights.data());
    offsets.Download(got.offsets.data());
    slots.Download(got.slots.data());
    EXPECT_EQ(got.experts, want.experts);
    EXPECT_EQ(got.offsets, want.offsets);
    EXPECT_EQ(got.slots, want.slots);
    for (size_t i = 0; i < want.weights.size(); ++i) {
      if (std::isnan(want.weights[i])) {
        EXPECT_TRUE(std::isnan(got.weights[i])) << i;
        continue;
      }
      // Rounded from float64 on both sides.
      EXPECT_NEAR(got.weights[i], want.weights[i],
                  2 * kUnitF32 * std::abs(want.weights[i]))
          << i;
    }
  });
}

TEST(MoeCudaTest, RoutesAsTheCpuDoes) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  for (RoutingDesc desc : kRoutings) {
    for (const int64_t tokens : {1, 2, 5, 32, 300}) {
      desc.scales_experts = tokens == 1 || tokens == 300;
      SCOPED_TRACE(::testing::Message()
                   << desc.num_experts << " experts, " << desc.top_k
                   << " chosen, tokens " << tokens);
      std::mt19937 rng(static_cast<unsigned>(desc.num_experts + tokens));
      TestMatrix logits(DType::kF32, tokens, desc.num_experts, 3);
      logits.Randomize(rng, 2.0f);
      // Ties, and a token that is broken.
      if (desc.num_experts > 4) logits.Set(0, 3, logits(0, 1));
      if (tokens > 1) {
        logits.Set(1, 0, std::numeric_limits<float>::quiet_NaN());
      }
      TestMatrix bias(DType::kF32, 1, desc.num_experts);
      bias.Randomize(rng, 0.1f);
      TestMatrix scales(DType::kF32, 1, desc.num_experts);
      scales.Randomize(rng, 3.0f);
      const bool corrected = tokens % 2 == 1;
      CudaTestMatrix device_logits(logits);
      CudaTestMatrix device_bias(bias);
      CudaTestMatrix device_scales(scales);
      // Null: not looked at.
      const float* scaled =
          desc.scales_experts ? device_scales.floats() : nullptr;
      Routed want = RouteOnCpu(
          desc, logits, corrected ? bias.floats() : nullptr, scales.floats());
      RoutingParams params;
      params.logits = device_logits.view();
      params.correction = corrected ? device_bias.floats() : nullptr;
      params.expert_scales = scaled;
      ExpectRoutes(cuda, desc, params, want);
    }
  }
}

TEST(MoeCudaTest, MixesAsTheCpuDoes) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  for (const RoutingDesc& desc : kMixings) {
    for (const int64_t tokens : {1, 2, 5, 32, 300}) {
      SCOPED_TRACE(::testing::Message()
                   << desc.num_experts << " experts, tokens " << tokens);
      std::mt19937 rng(static_cast<unsigned>(desc.num_experts + tokens));
      TestMatrix logits(DType::kF32, tokens, desc.num_experts, 3);
      logits.Randomize(rng, 0.5f);
      logits.Set(0, 3, logits(0, 1));
      for (int e = 0; tokens > 2 && e < desc.num_experts; ++e) {
        logits.Set(1, e, -1.0f - 0.1f * static_cast<float>(e % 8));
        logits.Set(2, e, 0.0f);
      }
      if (tokens > 3) {
        logits.Set(3, 0, std::numeric_limits<float>::quiet_NaN());
        logits.Set(4, 1, -std::numeric_limits<float>::infinity());
      }
      CudaTestMatrix device_logits(logits);
      RoutingParams params;
      params.logits = device_logits.view();
      ExpectRoutes(cuda, desc, params, RouteOnCpu(desc, logits, nullptr));
    }
  }
}

// The table chooses, scores weigh.
TEST(MoeCudaTest, RoutesByTokenAsTheCpuDoes) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  TestCpu cpu(1);
  constexpr unsigned kRows = 11;
  for (RoutingDesc desc : kRoutings) {
    if (desc.num_groups > 1) continue;
    desc.hashed = true;
    for (const int64_t tokens : {1, 2, 31, 300}) {
      SCOPED_TRACE(::testing::Message()
                   << desc.num_experts << " experts, " << desc.top_k
                   << " chosen, tokens " << tokens);
      std::mt19937 rng(static_cast<unsigned>(desc.num_experts + tokens));
      TestMatrix logits(DType::kF32, tokens, desc.num_experts, 3);
      logits.Randomize(rng, 2.0f);
      if (tokens > 1) {
        logits.Set(1, 0, std::numeric_limits<float>::quiet_NaN());
      }
      std::vector<int32_t> ids, table;
      for (int64_t t = 0; t < tokens; ++t) {
        ids.push_back(static_cast<int32_t>(rng() % kRows));
      }
      for (unsigned i = 0; i < kRows * static_cast<unsigned>(desc.top_k); ++i) {
        table.push_back(static_cast<int32_t>(
            rng() % static_cast<unsigned>(desc.num_experts)));
      }
      Routed want(desc, tokens);
      RoutingParams params = want.Params(logits.view(), nullptr);
      params.ids = ids.data();
      params.table = table.data();
      ASSERT_TRUE(RoutingTable().back().run(desc, params, *cpu.stream).ok());
      CudaTestMatrix device_logits(logits);
      const CudaBytes device_ids(ids), device_table(table);
      params.logits = device_logits.view();
      params.ids = device_ids.as<int32_t>();
      params.table = device_table.as<int32_t>();
      ExpectRoutes(cuda, desc, params, want);
    }
  }
}

}  // namespace
}  // namespace inlay

#endif  // INLAY_HAS_CUDA
