// The engine's own thread, and many host threads at once (run under
// ThreadSanitizer).
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <random>
#include <thread>
#include <vector>

#include "tests/support/engine_harness.h"

namespace inlay {
namespace {

using ::inlay::testing::EngineHarness;
using ::inlay::testing::GoldenModel;
using ::inlay::testing::Outcome;
using ::inlay::testing::TokenRequest;

EngineOptions OwnThread() {
  EngineOptions options;
  options.own_thread = true;
  options.num_threads = 2;
  options.scheduler.max_batch_tokens = 32;
  options.scheduler.max_running = 8;
  return options;
}

TEST(ThreadsTest, ManySubmittersEachTakeTheirOwnEvents) {
  std::vector<int32_t> wanted;
  {
    EngineHarness alone(GoldenModel("llama3"));
    wanted = alone.RunAlone(TokenRequest({1, 2, 3}, 10)).tokens;
  }
  EngineHarness harness(GoldenModel("llama3"), OwnThread());
  ASSERT_TRUE(harness.ok());
  EXPECT_FALSE(harness.engine().Step(0).ok());  // it steps itself
  std::atomic<int> right{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 6; ++t) {
    threads.emplace_back([&] {
      const SessionId session = *harness.runner().CreateSession();
      for (int turn = 0; turn < 4; ++turn) {
        RequestOptions options = TokenRequest({1, 2, 3}, 10);
        options.mode = InputMode::kReplace;
        const RequestId request = *harness.runner().Submit(session, options);
        Outcome outcome;
        while (!outcome.finished) {
          const auto event =
              harness.engine().events().NextOf(request, UINT64_MAX);
          if (!event.ok()) return;
          outcome.Take(*event);
        }
        harness.engine().events().Drop(request);
        if (outcome.tokens == wanted) ++right;
      }
      harness.runner().ReleaseSession(session);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, 24);
  EXPECT_EQ(harness.BlocksUsed(), 0u);
}

TEST(ThreadsTest, AnIdleEngineReclaimsAModelWhenWoken) {
  EngineHarness harness(GoldenModel("llama3"), OwnThread());
  ASSERT_TRUE(harness.ok());
  harness.DropModel();
  harness.engine().Wake();
  // Its memory goes after it is off the list.
  for (int i = 0; i < 5000 && harness.Stats().memory.total_bytes > 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_EQ(harness.Stats().metrics.models, 0u);
  EXPECT_EQ(harness.Stats().memory.total_bytes, 0u);
}

TEST(ThreadsTest, CancelReleaseForkAndCloseInAnyOrder) {
  EngineHarness harness(GoldenModel("llama3"), OwnThread());
  ASSERT_TRUE(harness.ok());
  std::vector<std::thread> threads;
  for (uint32_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 random(t);
      for (int i = 0; i < 60; ++i) {
        const auto session = harness.runner().CreateSession();
        if (!session.ok()) return;
        const auto request = harness.runner().Submit(
            *session, TokenRequest(std::vector<int32_t>(1 + random() % 50, 3),
                                   static_cast<int64_t>(random() % 20)));
        if (!request.ok()) return;
        if (random() % 2 == 0) {
          static_cast<void>(harness.engine().events().NextOf(*request, 500));
        }
        if (random() % 2 == 0) {
          static_cast<void>(harness.runner().Cancel(*request));
        }
        const auto fork = harness.runner().Fork(*session);
        static_cast<void>(harness.Metrics());
        harness.runner().ReleaseSession(*session);
        harness.engine().events().Drop(*request);
        if (fork.ok()) harness.runner().ReleaseSession(*fork);
      }
    });
  }
  threads[0].join();
  harness.engine().Close();
  for (size_t t = 1; t < threads.size(); ++t) threads[t].join();
  EXPECT_EQ(harness.Stats().memory.total_bytes, 0u);
}

}  // namespace
}  // namespace inlay
