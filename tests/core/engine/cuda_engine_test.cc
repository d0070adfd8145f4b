// The engine on a GPU: what it does on the CPU, with the same tokens.
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "tests/support/engine_harness.h"

namespace inlay {
namespace {

using testing::EngineHarness;
using testing::GoldenModel;
using testing::Outcome;
using testing::PocketModel;
using testing::RandomTokens;
using testing::TokenRequest;

EngineOptions OnGpu() {
  EngineOptions options;
  options.backend = Backend::kCuda;
  options.scheduler.max_batch_tokens = 64;
  options.scheduler.max_running = 8;
  return options;
}

class CudaEngineTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto device = CreateCudaDevice(0, 0);
    if (!device.ok()) GTEST_SKIP() << "needs a GPU: " << device.status();
  }
};

std::vector<RequestOptions> Requests(int count) {
  std::vector<RequestOptions> requests;
  for (int i = 0; i < count; ++i) {
    const auto seed = static_cast<uint32_t>(i);
    requests.push_back(
        TokenRequest(RandomTokens(seed, 5 + static_cast<size_t>(i * 37 % 150)),
                     4 + i * 7 % 40));
    requests.back().sampling.temperature = i % 2 == 0 ? 0.0f : 0.8f;
    requests.back().sampling.seed = seed;
  }
  return requests;
}

TEST_F(CudaEngineTest, TheTokensOfTheCpu) {
  for (const char* name : {"llama3", "gemma2", "gpt2", "phi3_longrope"}) {
    SCOPED_TRACE(name);
    EngineHarness cpu(GoldenModel(name));
    EngineHarness gpu(GoldenModel(name), OnGpu());
    ASSERT_TRUE(cpu.ok() && gpu.ok());
    const auto requests = Requests(12);
    const auto together = gpu.RunTogether(requests);
    for (size_t i = 0; i < requests.size(); ++i) {
      const auto want = cpu.RunAlone(requests[i]).tokens;
      EXPECT_EQ(together[i].tokens, want) << i;
      EXPECT_EQ(gpu.RunAlone(requests[i]).tokens, want) << i;
    }
    EXPECT_EQ(gpu.BlocksUsed(), 0u);
  }
}

TEST_F(CudaEngineTest, BudgetsComeAndGo) {
  const auto requests = Requests(10);
  ModelOptions model;
  model.kv_budget_bytes = 64 << 20;
  EngineHarness free(GoldenModel("llama3"), OnGpu(), model);
  EngineHarness leased(GoldenModel("llama3"), OnGpu(), model);
  ASSERT_TRUE(free.ok() && leased.ok());
  const auto want = free.RunTogether(requests);
  std::mt19937 random(1);
  // Recorded steps count as scratch until the cache has to shrink.
  const uint64_t fixed = leased.FixedBytes() + (16 << 20);
  const auto got = leased.RunTogether(requests, 0, [&] {
    // Extents are a few MiB here: some of these budgets leave no cache at all.
    const uint64_t bytes = fixed + random() % (80 << 20);
    ASSERT_TRUE(leased.engine().SetMemoryBudget(0, bytes).ok());
    EXPECT_LE(leased.Stats().memory.total_bytes, bytes);
  });
  for (size_t i = 0; i < requests.size(); ++i)
    EXPECT_EQ(got[i].tokens, want[i].tokens) << i;
}

TEST_F(CudaEngineTest, SnapshotsGoBetweenDevices) {
  EngineHarness gpu(GoldenModel("llama3"), OnGpu());
  EngineHarness cpu(GoldenModel("llama3"));
  ASSERT_TRUE(gpu.ok() && cpu.ok());
  const RequestOptions first = TokenRequest(RandomTokens(3, 70), 20);
  const RequestOptions second = TokenRequest(RandomTokens(4, 9), 20);
  const SessionId session = *gpu.runner().CreateSession();
  gpu.Run(session, first);
  std::string bytes;
  ASSERT_TRUE(gpu.runner()
                  .Save(session,
                        [&](absl::Span<const std::byte> piece) {
                          bytes.append(
                              reinterpret_cast<const char*>(piece.data()),
                              piece.size());
                          return absl::OkStatus();
                        })
                  .ok());
  const auto span = absl::MakeConstSpan(
      reinterpret_cast<const std::byte*>(bytes.data()), bytes.size());
  const auto want = gpu.Run(session, second).tokens;
  EngineHarness other(GoldenModel("llama3"), OnGpu());
  for (EngineHarness* harness : {&gpu, &other, &cpu}) {
    const auto restored = harness->runner().Restore(span);
    ASSERT_TRUE(restored.ok()) << restored.status();
    EXPECT_GE(restored->num_kv_tokens, 64u) << restored->note;
    EXPECT_EQ(harness->Run(restored->session, second).tokens, want);
  }
}

TEST_F(CudaEngineTest, WhatMakesWayComesBackFromTheTier) {
  ModelOptions model;
  model.kv_budget_bytes = 2 << 20;  // one extent: 256 blocks of 16 tokens
  model.host_cache_bytes = 64 << 20;
  EngineHarness gpu(GoldenModel("llama3"), OnGpu(), model);
  EngineHarness free(GoldenModel("llama3"), OnGpu());
  ASSERT_TRUE(gpu.ok() && free.ok());
  std::vector<RequestOptions> requests;
  for (uint32_t i = 0; i < 24; ++i)
    requests.push_back(TokenRequest(RandomTokens(i, 230), 4));
  for (int round = 0; round < 2; ++round) {
    for (const RequestOptions& request : requests) {
      EXPECT_EQ(gpu.RunAlone(request).tokens, free.RunAlone(request).tokens);
    }
  }
}

TEST_F(CudaEngineTest, LeavesNothingBehind) {
  EngineHarness gpu(PocketModel(), OnGpu());
  ASSERT_TRUE(gpu.ok());
  std::mt19937 random(5);
  for (int round = 0; round < 20; ++round) {
    std::vector<std::pair<SessionId, RequestId>> ids;
    for (int i = 0; i < 12; ++i) {
      const SessionId session = *gpu.runner().CreateSession();
      ids.emplace_back(
          session, *gpu.runner().Submit(
                       session, TokenRequest(RandomTokens(random() % 9,
                                                          1 + random() % 99),
                                             random() % 30)));
    }
    for (int step = 0; step < 10; ++step) {
      ASSERT_TRUE(gpu.engine().Step(0).ok());
      ASSERT_TRUE(gpu.runner().Cancel(ids[random() % ids.size()].second).ok());
    }
    gpu.RunAll();
    for (const auto& [session, request] : ids) {
      Outcome outcome;
      gpu.Drain(request, outcome);
      EXPECT_TRUE(outcome.finished);
      gpu.engine().events().Drop(request);
      gpu.runner().ReleaseSession(session);
    }
    EXPECT_EQ(gpu.BlocksUsed(), 0u);
  }
  gpu.DropModel();
  ASSERT_TRUE(gpu.engine().Step(0).ok());
  EXPECT_EQ(gpu.Stats().memory.total_bytes, 0u);
}

}  // namespace
}  // namespace inlay
