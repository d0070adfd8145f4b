// Sessions of a model that selects blocks of keys on a GPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/support/engine_harness.h"

namespace inlay {
namespace {

using ::inlay::testing::EngineHarness;
using ::inlay::testing::Outcome;
using ::inlay::testing::PocketModel;
using ::inlay::testing::RandomTokens;
using ::inlay::testing::TokenRequest;

EngineOptions OnGpu() {
  EngineOptions options;
  options.backend = Backend::kCuda;
  options.batch_invariant = true;
  options.scheduler.max_batch_tokens = 128;
  options.scheduler.max_running = 8;
  return options;
}

class CudaBlockSelectionTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto device = CreateCudaDevice(0, 0);
    if (!device.ok()) GTEST_SKIP() << "needs a GPU: " << device.status();
  }

  const std::vector<int32_t> tokens_ = RandomTokens(3, 300);
};

// Decoding runs in CUDA graphs, prompts do not: what was decoded is decoded
// again when its beginning comes as a prompt; alone, together, in a fork.
TEST_F(CudaBlockSelectionTest, DecodedAsComputedAgain) {
  for (const BlockMethod method :
       {BlockMethod::kBounds, BlockMethod::kKMeans, BlockMethod::kLsh}) {
    SCOPED_TRACE(static_cast<int>(method));
    ModelOptions model;
    model.block_selection = {method, 64};
    EngineHarness engine(PocketModel(), OnGpu(), model);
    ASSERT_TRUE(engine.ok());
    std::vector<RequestOptions> requests;
    for (const int length : {30, 64, 100, 200, 211}) {
      requests.push_back(
          TokenRequest({tokens_.begin(), tokens_.begin() + length}, 80));
    }
    const std::vector<Outcome> together = engine.RunTogether(requests);
    for (size_t i = 0; i < requests.size(); ++i) {
      SCOPED_TRACE(i);
      const auto& decoded = together[i].tokens;
      ASSERT_EQ(decoded.size(), 80u);
      EXPECT_EQ(engine.RunAlone(requests[i]).tokens, decoded);
      for (const size_t done : {1, 17, 48, 79}) {
        std::vector<int32_t> prompt = requests[i].tokens;
        prompt.insert(prompt.end(), decoded.begin(),
                      decoded.begin() + static_cast<ptrdiff_t>(done));
        const auto rest = engine.RunAlone(
            TokenRequest(prompt, static_cast<int64_t>(80 - done)));
        EXPECT_TRUE(std::equal(rest.tokens.begin(), rest.tokens.end(),
                               decoded.begin() + static_cast<ptrdiff_t>(done)))
            << "after " << done;
      }
    }
    // A fork reads the blocks, and the summaries, of the session it is of.
    const SessionId session = *engine.runner().CreateSession();
    engine.Run(session, TokenRequest(tokens_, 1));
    const SessionId fork = *engine.runner().Fork(session);
    const std::vector<int32_t> more(tokens_.begin(), tokens_.begin() + 20);
    const auto here = engine.Run(session, TokenRequest(more, 40)).tokens;
    const auto there = engine.Run(fork, TokenRequest(more, 40)).tokens;
    EXPECT_EQ(here, there);
    EXPECT_EQ(here.size(), 40u);
  }
}

}  // namespace
}  // namespace inlay
