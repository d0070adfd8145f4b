// KV that comes back from a tier, some blocks a step: others go on meanwhile,
// neither starves, and whatever happens in the middle, nobody loses anything
// but time.
#include <gtest/gtest.h>

#include <algorithm>
#include <thread>
#include <vector>

#include "tests/support/engine_harness.h"

namespace inlay {
namespace {

using ::inlay::testing::Blocks;
using ::inlay::testing::EngineHarness;
using ::inlay::testing::GoldenModel;
using ::inlay::testing::Outcome;
using ::inlay::testing::RandomTokens;
using ::inlay::testing::TokenRequest;

// Of llama3, 16 tokens and 16 KiB each.
constexpr uint64_t kCache = 48;
constexpr uint64_t kBlocks = 20;  // of the session that comes back

ModelOptions Tiered(uint64_t cache = kCache, uint64_t host_blocks = 256) {
  ModelOptions options = Blocks(cache);
  options.host_cache_bytes = host_blocks * ((16 << 10) + 1024);
  return options;
}

class StepLoadTest : public ::testing::Test {
 protected:
  explicit StepLoadTest(const ModelOptions& options = Tiered(),
                        const EngineOptions& engine = {})
      : harness_(GoldenModel("llama3"), engine, options) {}

  // A request of the prompt, whose KV has made way for others meanwhile.
  void SetUp() override {
    ASSERT_TRUE(harness_.ok());
    prompt_ = RandomTokens(1, kBlocks * 16 + 1);
    want_ = harness_.RunAlone(TokenRequest(prompt_, 8)).tokens;
    Evict();
    EXPECT_EQ(Loaded(), 0u);
  }
  void Evict() {
    for (const uint32_t seed : {7, 8})
      harness_.RunAlone(TokenRequest(RandomTokens(seed, kCache * 8 - 8), 1));
  }

  ModelRunner& runner() { return harness_.runner(); }
  uint64_t Loaded() { return harness_.Metrics().tier_host_hit_blocks; }
  RequestId Submit(RequestOptions options) {
    const auto request =
        runner().Submit(*runner().CreateSession(), std::move(options));
    EXPECT_TRUE(request.ok()) << request.status();
    return request.ok() ? *request : 0;
  }
  // A request that decodes, step after step.
  RequestId SubmitDecoder() {
    const RequestId id = Submit(TokenRequest({1, 2, 3}, 400));
    EXPECT_TRUE(harness_.engine().Step(0).ok());
    return id;
  }
  // Steps without time for anything but a decode, until `done`.
  template <typename Done>
  int StepUntil(const Done& done) {
    constexpr int kMostSteps = 390;
    int steps = 0;
    while (!done() && steps < kMostSteps) {
      EXPECT_TRUE(harness_.engine().Step(1).ok());
      ++steps;
    }
    EXPECT_LT(steps, kMostSteps);
    return steps;
  }
  Outcome Ended(RequestId id) {
    Outcome outcome;
    harness_.RunAll();
    harness_.Drain(id, outcome);
    EXPECT_TRUE(outcome.finished);
    return outcome;
  }

  EngineHarness harness_;
  std::vector<int32_t> prompt_, want_;
};

TEST_F(StepLoadTest, ComesABlockAtATimeWhereDecodesTakeAllOfTheTime) {
  const RequestId decoder = SubmitDecoder();
  Outcome decoded;
  harness_.Drain(decoder, decoded);
  const RequestId id = Submit(TokenRequest(prompt_, 8));
  int since = 0;
  uint64_t before = 0;
  // The scheduler waits for nine steps, too, before it lets the prompt in.
  const int steps = StepUntil([&] {
    const uint64_t loaded = Loaded();
    EXPECT_LE(loaded, before + 1) << "in one step";
    since = loaded > before ? 0 : since + 1;
    EXPECT_LE(since, 18);
    before = loaded;
    return loaded == kBlocks;
  });
  EXPECT_GE(steps, 9 * static_cast<int>(kBlocks));
  const size_t tokens = decoded.tokens.size();
  harness_.Drain(decoder, decoded);
  EXPECT_EQ(decoded.tokens.size(), tokens + static_cast<size_t>(steps));
  const Outcome outcome = Ended(id);
  EXPECT_EQ(outcome.tokens, want_);
  EXPECT_EQ(outcome.finish.cached_tokens, kBlocks * 16);
  EXPECT_EQ(harness_.BlocksUsed(), 0u);
}

TEST_F(StepLoadTest, WithoutABudgetAllComesAndIsComputedNoMore) {
  const uint64_t before = harness_.Metrics().prefill_tokens;
  const Outcome outcome = Ended(Submit(TokenRequest(prompt_, 8)));
  EXPECT_EQ(outcome.tokens, want_);
  EXPECT_EQ(outcome.finish.cached_tokens, kBlocks * 16);
  // But for the last, whose logits are wanted.
  EXPECT_EQ(harness_.Metrics().prefill_tokens, before + 1);
  EXPECT_EQ(Loaded(), kBlocks);
}

// What has come is there; what is still to come is not.
TEST_F(StepLoadTest, TheSessionSaysWhatHasCome) {
  SubmitDecoder();
  const SessionId session = *runner().CreateSession();
  const auto request = runner().Submit(session, TokenRequest(prompt_, 8));
  ASSERT_TRUE(request.ok()) << request.status();
  for (const uint64_t blocks : {1, 2, 5}) {
    StepUntil([&] { return Loaded() == blocks; });
    EXPECT_EQ(runner().GetSessionInfo(session)->num_cached, blocks * 16);
  }
  EXPECT_EQ(Ended(*request).tokens, want_);
}

// Steps' times have what was loaded in them, steps that did nothing else too.
TEST_F(StepLoadTest, StepsCountTheTimeOfLoading) {
  ASSERT_TRUE(harness_.engine().trace().Start(1000).ok());
  const uint64_t steps = harness_.Metrics().step_time_us.count();
  Submit(TokenRequest(prompt_, 1));
  while (Loaded() < kBlocks) ASSERT_TRUE(harness_.engine().Step(0).ok());
  EXPECT_GT(harness_.Metrics().step_time_us.count(), steps);
  harness_.RunAll();
  // Beside a decode, too.
  Evict();
  SubmitDecoder();
  Submit(TokenRequest(prompt_, 1));
  harness_.RunAll();
  const auto log = harness_.engine().trace().Stop();
  ASSERT_TRUE(log.ok());
  int alone = 0, beside = 0;
  for (const TraceEvent& event : log->events) {
    constexpr auto kLoad = static_cast<size_t>(StepPhase::kLoad);
    if (event.type != TraceEventType::kStep || event.values[kLoad] < 2000) {
      continue;
    }
    ++(event.values[kStepRequests] == 0 ? alone : beside);
  }
  EXPECT_GT(alone, 0);
  EXPECT_GT(beside, 0);
}

// What had come stays in the cache, unpinned, and does not come again.
TEST_F(StepLoadTest, CancelledInTheMiddle) {
  SubmitDecoder();
  const uint64_t before = harness_.BlocksUsed();
  const RequestId id = Submit(TokenRequest(prompt_, 8));
  StepUntil([&] { return Loaded() == 5; });
  EXPECT_GE(harness_.BlocksUsed(), before + 5);
  ASSERT_TRUE(runner().Cancel(id).ok());
  Outcome outcome;
  harness_.Drain(id, outcome);
  EXPECT_TRUE(outcome.finished);
  EXPECT_EQ(outcome.finish.reason, FinishReason::kCancelled);
  // The decoder has begun a block or two.
  EXPECT_LE(harness_.BlocksUsed(), before + 4);
  EXPECT_EQ(Ended(Submit(TokenRequest(prompt_, 8))).tokens, want_);
  EXPECT_EQ(Loaded(), kBlocks);
  EXPECT_EQ(harness_.BlocksUsed(), 0u);
}

TEST_F(StepLoadTest, ExpiredInTheMiddle) {
  SubmitDecoder();
  RequestOptions options = TokenRequest(prompt_, 8);
  options.deadline_us = 500000;
  const RequestId id = Submit(options);
  StepUntil([&] { return Loaded() == 3; });
  std::this_thread::sleep_for(std::chrono::microseconds(options.deadline_us));
  EXPECT_TRUE(harness_.engine().Step(1).ok());
  Outcome outcome;
  harness_.Drain(id, outcome);
  EXPECT_TRUE(outcome.finished);
  EXPECT_EQ(outcome.finish.reason, FinishReason::kError);
  harness_.RunAll();
  EXPECT_EQ(harness_.BlocksUsed(), 0u);
}

// Blocks that have come move as memory goes, or go with it.
TEST_F(StepLoadTest, TheBudgetShrinksInTheMiddle) {
  const uint64_t fixed = harness_.FixedBytes();
  for (const uint64_t blocks : {36, 22}) {
    Evict();
    const uint64_t before = Loaded();
    SubmitDecoder();
    const RequestId id = Submit(TokenRequest(prompt_, 8));
    StepUntil([&] { return Loaded() == before + 7; });
    const auto set = [&](uint64_t count) {
      const absl::Status status =
          harness_.engine().SetMemoryBudget(0, fixed + count * (16 << 10));
      EXPECT_TRUE(status.ok()) << status;
    };
    set(blocks);
    EXPECT_EQ(Ended(id).tokens, want_) << blocks;
    set(kCache);
    EXPECT_EQ(harness_.BlocksUsed(), 0u);
  }
}

// Who comes second finds what the first brought.
TEST_F(StepLoadTest, ComesOnceForAllWhoWantIt) {
  SubmitDecoder();
  const RequestId first = Submit(TokenRequest(prompt_, 8));
  const RequestId second = Submit(TokenRequest(prompt_, 8));
  StepUntil([&] { return Loaded() == 4; });
  const Outcome of_second = Ended(second);
  EXPECT_EQ(of_second.tokens, want_);
  EXPECT_EQ(of_second.finish.cached_tokens, kBlocks * 16);
  Outcome of_first;
  harness_.Drain(first, of_first);
  EXPECT_EQ(of_first.tokens, want_);
  EXPECT_EQ(Loaded(), kBlocks);
}

// A quote sets blocks aside that are empty: what is below comes to those.
TEST_F(StepLoadTest, ToBlocksThatWereSetAside) {
  const SessionId session = *runner().CreateSession();
  const auto quote =
      runner().Quote(session, TokenRequest(prompt_, 8), /*reserve=*/true);
  ASSERT_TRUE(quote.ok()) << quote.status();
  EXPECT_EQ(Loaded(), 0u);
  // 328 tokens.
  EXPECT_EQ(harness_.BlocksUsed(), kBlocks + 1);
  // Nothing else is free: without them it would have to wait.
  const SessionId other = *runner().CreateSession();
  ASSERT_TRUE(
      runner()
          .Quote(other,
                 TokenRequest(RandomTokens(9, 1),
                              static_cast<int64_t>(kCache - kBlocks - 1) * 16),
                 /*reserve=*/true)
          .ok());
  EXPECT_EQ(harness_.BlocksUsed(), kCache);
  const auto request = runner().Submit(session, TokenRequest(prompt_, 8));
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_EQ(Ended(*request).tokens, want_);
  EXPECT_EQ(Loaded(), kBlocks);
}

// Blocks that are still to come are promised: nobody else may have them set
// aside.
TEST_F(StepLoadTest, WhatIsToComeKeepsItsRoom) {
  SubmitDecoder();
  const RequestId id = Submit(TokenRequest(prompt_, 8));
  StepUntil([&] { return Loaded() == 2; });
  const SessionId other = *runner().CreateSession();
  const auto blocks = static_cast<int64_t>(kCache - harness_.BlocksUsed());
  const auto quote = runner().Quote(
      other, TokenRequest(RandomTokens(9, 1), blocks * 16), /*reserve=*/true);
  EXPECT_TRUE(absl::IsResourceExhausted(quote.status())) << quote.status();
  EXPECT_EQ(Ended(id).tokens, want_);
}

// With a window, and blocks of two sizes, of which the last are in the middle
// of what they hold. What has come stays here too.
TEST(StepLoadOfGroupsTest, CancelledAnywhere) {
  const std::vector<int32_t> prompt = RandomTokens(1, 330);
  ModelOptions options;
  std::vector<int32_t> want;
  {
    EngineHarness whole(GoldenModel("gemma3_text"));
    ASSERT_TRUE(whole.ok());
    want = whole.RunAlone(TokenRequest(prompt, 8)).tokens;
    options.kv_budget_bytes = 48 * whole.BlockBytes();
    options.host_cache_bytes = 256 * (whole.BlockBytes() + 1024);
  }
  EngineHarness harness(GoldenModel("gemma3_text"), {}, options);
  ASSERT_TRUE(harness.ok());
  EXPECT_EQ(harness.RunAlone(TokenRequest(prompt, 8)).tokens, want);
  const auto loaded = [&] { return harness.Metrics().tier_host_hit_blocks; };
  // No room: whatever is not in use makes way, whatever the time that it took.
  const uint64_t fixed = harness.FixedBytes();
  const auto evict = [&] {
    for (const uint64_t blocks : {0, 48}) {
      const absl::Status status = harness.engine().SetMemoryBudget(
          0, fixed + blocks * harness.BlockBytes());
      EXPECT_TRUE(status.ok()) << status;
    }
    EXPECT_EQ(harness.Metrics().kv_blocks_used, 0u);
  };
  evict();
  EXPECT_EQ(harness.RunAlone(TokenRequest(prompt, 8)).tokens, want);
  const uint64_t whole = loaded();
  EXPECT_GT(whole, 7u);
  for (uint64_t blocks = 1; blocks < 8; ++blocks) {
    evict();
    const uint64_t before = loaded();
    const SessionId session = *harness.runner().CreateSession();
    const SessionId other = *harness.runner().CreateSession();
    const auto decoder =
        harness.runner().Submit(other, TokenRequest({1, 2, 3}, 300));
    ASSERT_TRUE(decoder.ok());
    EXPECT_TRUE(harness.engine().Step(0).ok());
    const auto request =
        harness.runner().Submit(session, TokenRequest(prompt, 8));
    ASSERT_TRUE(request.ok());
    for (int i = 0; i < 250 && loaded() < before + blocks; ++i)
      EXPECT_TRUE(harness.engine().Step(1).ok());
    EXPECT_GE(loaded(), before + blocks);
    EXPECT_TRUE(harness.runner().Cancel(*request).ok());
    EXPECT_TRUE(harness.runner().Cancel(*decoder).ok());
    harness.RunAll();
    EXPECT_EQ(harness.BlocksUsed(), 0u);
    EXPECT_EQ(harness.RunAlone(TokenRequest(prompt, 8)).tokens, want);
    EXPECT_EQ(loaded(), before + whole) << "what had come stayed";
    harness.runner().ReleaseSession(session);
    harness.runner().ReleaseSession(other);
  }
}

// A tier so small that what comes is lost while it comes.
class LossyLoadTest : public StepLoadTest {
 protected:
  LossyLoadTest() : StepLoadTest(Tiered(kCache, kBlocks + 4)) {}
};

TEST_F(LossyLoadTest, WhatTheTierLosesIsComputed) {
  const RequestId decoder = SubmitDecoder();
  const RequestId id = Submit(TokenRequest(prompt_, 8));
  const uint64_t before = Loaded();
  StepUntil([&] { return Loaded() > before; });
  // Makes others make way, and so takes places in the tier.
  const RequestId other = Submit(TokenRequest(RandomTokens(9, 16 * 16), 4));
  const Outcome came_back = Ended(id);
  EXPECT_EQ(came_back.tokens, want_);
  EXPECT_LT(came_back.finish.cached_tokens, kBlocks * 16);
  Outcome outcome;
  harness_.Drain(other, outcome);
  EXPECT_TRUE(outcome.finished);
  Outcome decoded;
  harness_.Drain(decoder, decoded);
  EXPECT_TRUE(decoded.finished);
  EXPECT_EQ(harness_.BlocksUsed(), 0u);
}

EngineOptions LoadsOnItsOwnThread() {
  EngineOptions options;
  options.own_thread = true;
  return options;
}

class ThreadedLoadTest : public StepLoadTest {
 protected:
  ThreadedLoadTest() : StepLoadTest(Tiered(), LoadsOnItsOwnThread()) {}
  void SetUp() override { ASSERT_TRUE(harness_.ok()); }
};

// Sessions that push each other out, and calls of all kinds meanwhile.
TEST_F(ThreadedLoadTest, BesideCallsOfOtherThreads) {
  constexpr uint32_t kThreads = 3;
  const auto turn = [&](uint32_t seed, bool cancels) {
    const SessionId session = *runner().CreateSession();
    const auto request =
        runner().Submit(session, TokenRequest(RandomTokens(seed, 400), 4));
    EXPECT_TRUE(request.ok()) << request.status();
    Outcome outcome;
    if (cancels) {
      std::this_thread::yield();
      EXPECT_TRUE(runner().Cancel(*request).ok());
    }
    while (!outcome.finished) {
      const auto event =
          harness_.engine().events().NextOf(*request, 1000000000);
      if (event.ok()) outcome.Take(*event);
    }
    EXPECT_TRUE(runner().GetSessionInfo(session).ok());
    runner().ReleaseSession(session);
    return outcome.tokens;
  };
  std::vector<std::thread> threads;
  for (uint32_t i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      const std::vector<int32_t> first = turn(i, false);
      for (int round = 0; round < 12; ++round) {
        const auto tokens = turn(i, round % 4 == 3);
        if (round % 4 != 3) {
          EXPECT_EQ(tokens, first);
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(Loaded(), 0u);
}

}  // namespace
}  // namespace inlay
