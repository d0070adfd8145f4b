// Chains of layers in one launch, step after step: what blocks hand on in one
// step is not taken for that of another, in recorded steps, alone and by two.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/engine_harness.h"
#include "tests/support/paths/paths.h"

namespace inlay {
namespace {

using testing::EngineHarness;
using testing::RandomTokens;
using testing::TokenRequest;

TEST(CudaChainTest, TokensAreTheSameEachTime) {
  EngineOptions options;
  options.backend = Backend::kCuda;
  options.scheduler.max_running = 4;
  for (const char* type : {"u4_g128", "q4_0", "q8_0"}) {
    SCOPED_TRACE(type);
    if (auto device = CreateCudaDevice(0, 0); !device.ok()) {
      GTEST_SKIP() << "needs a GPU: " << device.status();
    }
    EngineHarness engine(
        "random:" + TestData() + "/shapes/llama-1b?dtype=" + type, options);
    ASSERT_TRUE(engine.ok());
    std::vector<RequestOptions> requests;
    for (uint32_t i = 0; i < 3; ++i) {
      requests.push_back(
          TokenRequest(RandomTokens(i, 5 + 20 * i), 40 + 30 * i));
    }
    // From the second time on the same prefixes are shared.
    engine.RunTogether(requests);
    const auto alone = engine.RunAlone(requests[0]);
    ASSERT_EQ(alone.tokens.size(), 40u);
    // Three, then two, then one run.
    const auto together = engine.RunTogether(requests);
    for (int again = 0; again < 3; ++again) {
      EXPECT_EQ(engine.RunAlone(requests[0]).tokens, alone.tokens);
      const auto got = engine.RunTogether(requests);
      for (size_t i = 0; i < requests.size(); ++i) {
        EXPECT_EQ(got[i].tokens, together[i].tokens) << i;
      }
    }
  }
}

}  // namespace
}  // namespace inlay
