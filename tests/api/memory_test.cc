// Memory that is short: budgets, allocators that refuse, a cache too small for
// its sessions.
#include <gmock/gmock.h>

#include <utility>

#include "tests/api/host.h"

namespace inlay::testing {
namespace {

TEST(Memory, BudgetIsNeverExceeded) {
  const std::vector<int32_t> prompt = {1, 2, 3};
  int loaded = 0, refused = 0;
  for (uint64_t budget = 1024; budget <= 8 << 20; budget = budget * 3 / 2) {
    for (const int32_t weights : {INLAY_WEIGHTS_MAP, INLAY_WEIGHTS_READ}) {
      CountingAllocator allocator;
      allocator.limit = budget;
      auto options = EngineDefaults();
      options.memory_budget_bytes = budget;
      allocator.AttachTo(options);
      Host host("", options);
      auto model_options = ModelDefaults();
      model_options.weights = weights;
      Error error;
      const auto status =
          inlay_model_load(host.engine, TinyModel().c_str(), &model_options,
                           &host.model, error.out());
      if (status == INLAY_OK) {
        ++loaded;
        EXPECT_EQ(host.RunAlone(TokensRequest(prompt, 3)).finish.status,
                  INLAY_OK);
        EXPECT_LE(host.Stats().memory_peak_bytes, budget);
        EXPECT_EQ(host.Stats().memory_budget_bytes, budget);
      } else {
        ++refused;
        EXPECT_EQ(status, INLAY_RESOURCE_EXHAUSTED) << error.message();
        EXPECT_THAT(error.message(), ::testing::ContainsRegex("[0-9]+ bytes"));
        EXPECT_EQ(allocator.live_bytes(), 0) << "a failed load keeps nothing";
      }
      EXPECT_FALSE(allocator.misused()) << "budget " << budget;
      inlay_engine_release(host.engine);
      EXPECT_EQ(allocator.live_bytes(), 0);
    }
  }
  EXPECT_GT(loaded, 2);
  EXPECT_GT(refused, 2);
}

TEST(Memory, AllocatorThatRefusesAtAnyCall) {
  const std::vector<int32_t> prompt = {1, 2, 3};
  bool completed = false;
  for (int64_t n = 1; n < 2000 && !completed; ++n) {
    CountingAllocator allocator;
    allocator.fail_at = n;
    auto options = EngineDefaults();
    options.num_threads = 1;
    allocator.AttachTo(options);
    Host host("", options);
    auto model_options = ModelDefaults();
    model_options.weights = INLAY_WEIGHTS_READ;
    Error error;
    const auto status =
        inlay_model_load(host.engine, TinyModel().c_str(), &model_options,
                         &host.model, error.out());
    if (status == INLAY_OK) {
      // Generation allocates nothing from here: it is planned at load.
      const int64_t calls = allocator.calls();
      EXPECT_EQ(host.RunAlone(TokensRequest(prompt, 3)).finish.status,
                INLAY_OK);
      EXPECT_EQ(allocator.calls(), calls);
      completed = allocator.calls() < n;
    } else {
      EXPECT_TRUE(status == INLAY_OUT_OF_MEMORY ||
                  status == INLAY_RESOURCE_EXHAUSTED)
          << n << ": " << inlay_status_name(status) << ": " << error.message();
      EXPECT_THAT(error.message(), ::testing::ContainsRegex("[0-9]+ bytes"));
      EXPECT_EQ(allocator.live_bytes(), 0) << "call " << n;
      // With memory again the engine serves.
      allocator.fail_at = 0;
      ASSERT_EQ(inlay_model_load(host.engine, TinyModel().c_str(), nullptr,
                                 &host.model, error.out()),
                INLAY_OK)
          << error.message();
      host.ExpectWorks();
    }
    EXPECT_FALSE(allocator.misused());
    inlay_engine_release(host.engine);
    EXPECT_EQ(allocator.live_bytes(), 0);
  }
  EXPECT_TRUE(completed);
}

// More sessions than the cache holds: idle ones are evicted, running ones
// preempted, and nobody's tokens change.
TEST(Memory, PressureForKvBlocksChangesNothing) {
  constexpr int kSessions = 6;
  std::vector<std::vector<int32_t>> prompts, expected;
  Host roomy;
  for (int i = 0; i < kSessions; ++i) {
    prompts.push_back({1, 40 + i, 7, 300 - i});
    expected.push_back(
        roomy.RunAlone(TokensRequest(prompts.back(), 60)).tokens);
  }
  auto options = ModelDefaults();
  options.kv_block_size = 8;
  options.kv_budget_bytes = 128 * 1024;
  Host host(TinyModel(), EngineDefaults(), options);
  std::vector<inlay_session*> sessions;
  for (int i = 0; i < kSessions; ++i) sessions.push_back(host.NewSession());
  std::vector<std::vector<int32_t>> got(kSessions);
  for (const int32_t half : {0, 1}) {
    std::vector<inlay_request*> requests;
    for (int i = 0; i < kSessions; ++i) {
      requests.push_back(host.Submit(
          sessions[i],
          TokensRequest(half == 0 ? prompts[i] : std::vector<int32_t>(), 30)));
    }
    for (int i = 0; i < kSessions; ++i) {
      const Outcome outcome = host.Finish(requests[i]);
      EXPECT_EQ(outcome.finish.status, INLAY_OK) << outcome.message;
      got[i].insert(got[i].end(), outcome.tokens.begin(), outcome.tokens.end());
    }
  }
  EXPECT_EQ(got, expected);
  EXPECT_GT(host.Stats().preemptions + host.Stats().evictions, 0u);
  for (inlay_session* session : sessions) inlay_session_release(session);
  EXPECT_EQ(host.Stats().kv_blocks_used, 0u);
}

// What a host cache takes and holds is in the figures, and goes with the model.
TEST(Memory, HostCachesAreAccountedFor) {
  CountingAllocator allocator;
  auto engine_options = EngineDefaults();
  allocator.AttachTo(engine_options);
  Host host("", engine_options);
  auto options = ModelDefaults();
  options.kv_block_size = 8;
  options.kv_budget_bytes = 256 * 1024;
  options.host_cache_bytes = 1 << 20;
  options.weights = INLAY_WEIGHTS_READ;
  Error error;
  ASSERT_EQ(inlay_model_load(host.engine, SmallModel().c_str(), &options,
                             &host.model, error.out()),
            INLAY_OK)
      << error.message();
  inlay_stats stats = host.Stats();
  EXPECT_EQ(stats.host_cache_bytes, 0u);
  EXPECT_EQ(stats.host_cache_peak_bytes, 0u);
  EXPECT_LE(stats.host_cache_budget_bytes, options.host_cache_bytes);
  // Allocated whole; bookkeeping is the part that no allocator sees.
  const uint64_t beside =
      static_cast<uint64_t>(allocator.live_bytes()) - stats.memory_bytes;
  EXPECT_GT(beside, stats.host_cache_budget_bytes * 9 / 10);
  EXPECT_LE(beside, stats.host_cache_budget_bytes);
  // More prompts than the KV cache holds; what a block saves is learnt.
  for (int32_t n = 0; n < 2000 && stats.host_cache_bytes == 0; ++n) {
    const std::vector<int32_t> prompt(48, n % 900 + 10);
    host.RunAlone(TokensRequest(prompt, 1));
    stats = host.Stats();
  }
  EXPECT_GT(stats.host_cache_bytes, 0u);
  EXPECT_LE(stats.host_cache_bytes, stats.host_cache_peak_bytes);
  EXPECT_LT(stats.host_cache_peak_bytes, stats.host_cache_budget_bytes);
  EXPECT_EQ(stats.disk_cache_budget_bytes, 0u);
  EXPECT_EQ(static_cast<uint64_t>(allocator.live_bytes()) - stats.memory_bytes,
            beside);
  inlay_model_release(std::exchange(host.model, nullptr));
  host.Step();
  stats = host.Stats();
  EXPECT_EQ(stats.host_cache_bytes, 0u);
  EXPECT_EQ(stats.host_cache_peak_bytes, 0u);
  EXPECT_EQ(stats.host_cache_budget_bytes, 0u);
  EXPECT_EQ(allocator.live_bytes(), 0);
}

}  // namespace
}  // namespace inlay::testing
