// Who is served when not all can be: classes, starvation, shares.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <vector>

#include "tests/sched/fake_engine.h"

namespace inlay {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(ClassTest, ANewcomerOfAHigherOneGetsAPlace) {
  FakeEngine engine(FakeConfig(2), 64);
  const RequestId a = engine.Submit(4, 9);
  const RequestId b = engine.Submit(4, 9);
  engine.Step();
  const RequestId high = engine.Submit(4, 2, /*priority=*/1);
  StepPlan plan = engine.Step();
  EXPECT_THAT(plan.preempted, ElementsAre(b));
  EXPECT_THAT(Ids(plan), ElementsAre(a, high));
  engine.Step();
  plan = engine.Step();
  EXPECT_THAT(Ids(plan), ElementsAre(a, b)) << "as soon as there is a place";
  EXPECT_EQ(plan.decode_tokens, 2) << "and its KV is still there";
}

TEST(ClassTest, ANewcomerOfAHigherOneGetsBlocks) {
  FakeEngine engine(FakeConfig(8), 8);
  const RequestId a = engine.Submit(12, 5);
  const RequestId b = engine.Submit(16, 1, -1);
  EXPECT_THAT(Ids(engine.Step()), ElementsAre(a, b));
  EXPECT_EQ(engine.Find(b), nullptr);
  const RequestId c = engine.Submit(13, 4, -1);
  engine.Step();
  const RequestId high = engine.Submit(8, 2, 1);
  const StepPlan plan = engine.Step();
  EXPECT_THAT(plan.preempted, ElementsAre(c)) << "the last in rank is enough";
  EXPECT_THAT(Ids(plan), ElementsAre(a, high));
  engine.StepUntilIdle();
}

TEST(ClassTest, NobodyStopsForOneOfItsOwn) {
  FakeEngine engine(FakeConfig(1), 64);
  const RequestId runs = engine.Submit(4, 9, 1);
  engine.Step();
  engine.Submit(4, 9, FakeOptions{1, 100000});
  engine.Submit(4, 9, 0);
  const StepPlan plan = engine.Step();
  EXPECT_THAT(plan.preempted, IsEmpty());
  EXPECT_THAT(Ids(plan), ElementsAre(runs));
}

// The lower one's place would be enough, its blocks are not.
TEST(ClassTest, NobodyStopsForOneThatDoesNotFitAnyway) {
  FakeEngine engine(FakeConfig(2), 8);
  const RequestId same = engine.Submit(20, 8, 1);
  const RequestId low = engine.Submit(4, 8, 0);
  engine.Step();
  engine.Submit(20, 1, 1);
  const StepPlan plan = engine.Step();
  EXPECT_THAT(plan.preempted, IsEmpty());
  EXPECT_THAT(Ids(plan), ElementsAre(same, low));
  engine.StepUntilIdle();
}

TEST(ClassTest, ThePlaceGoesToOneThatFindsItsBlocksInUse) {
  FakeEngine engine(FakeConfig(2), 9);
  const SessionId session = engine.AddSession();
  const RequestId same =
      engine.SubmitTo(session, engine.NewTokens(20), 8, FakeOptions{1});
  const RequestId low = engine.Submit(4, 8, 0);
  engine.Step();
  const SessionId fork = engine.Fork(session);
  const RequestId high = engine.SubmitTo(fork, {}, 4, FakeOptions{1});
  const StepPlan plan = engine.Step();
  EXPECT_THAT(plan.preempted, ElementsAre(low));
  EXPECT_THAT(Ids(plan), ElementsAre(same, high));
  engine.StepUntilIdle();
}

TEST(ClassTest, PrefillOfAHigherOneGoesBeforeThoseThatRun) {
  FakeEngine engine(FakeConfig(8, 16), 64);
  const RequestId long_one = engine.Submit(100, 1, 0);
  engine.Step();
  const RequestId high = engine.Submit(20, 1, 1);
  StepPlan plan = engine.Step();
  EXPECT_THAT(Ids(plan), ElementsAre(high));
  plan = engine.Step();
  EXPECT_THAT(Ids(plan), ElementsAre(high, long_one));
  EXPECT_EQ(plan.items[0].num_tokens, 4);
  EXPECT_EQ(plan.items[1].num_tokens, 12);
  engine.StepUntilIdle();
}

TEST(ClassTest, PrefillOfTheSameOneWaitsBehindThoseThatRun) {
  FakeEngine engine(FakeConfig(8, 16), 64);
  const RequestId long_one = engine.Submit(40, 1, 0);
  engine.Step();
  const RequestId next = engine.Submit(20, 1, FakeOptions{0, 1000000});
  EXPECT_THAT(Ids(engine.Step()), ElementsAre(long_one));
  EXPECT_THAT(Ids(engine.Step()), ElementsAre(next, long_one))
      << "8 tokens each; the deadline ranks it first";
}

// No place, not no room: it must not count as refused for want of blocks.
TEST(ClassTest, WhoWaitsForAPlaceHasItAtOnce) {
  FakeEngine engine(FakeConfig(2), 64);
  engine.Submit(1, 40);
  const RequestId ends = engine.Submit(1, 3);
  const RequestId waits = engine.Submit(1, 2);
  for (int i = 0; i < 3; ++i) engine.Step();
  ASSERT_EQ(engine.Find(ends), nullptr);
  // What came free is gone again.
  engine.SetHold(engine.AddSession(), 4 * (engine.kv.pool.num_available() - 4));
  EXPECT_EQ(engine.Step().items.size(), 2u);
  EXPECT_EQ(engine.Find(waits)->state, RequestState::kRunning);
}

// Steps take 1000 us; there is one place.
class StarvationTest : public ::testing::Test {
 protected:
  static SchedulerConfig WithBound(int64_t bound_us) {
    SchedulerConfig config = FakeConfig(1);
    config.starvation_us = bound_us;
    return config;
  }

  // Steps of a stream of urgent requests, two of which always wait, until `id`
  // has run; the time it ran first, or -1.
  static int64_t FirstRun(FakeEngine* engine, RequestId id, int most_steps) {
    for (int step = 0; step < most_steps; ++step) {
      while (engine->scheduler->num_waiting() < 3) engine->Submit(4, 5, 1);
      const int64_t now = engine->now_us;
      const StepPlan plan = engine->Step();
      const bool runs =
          std::any_of(plan.items.begin(), plan.items.end(),
                      [&](const StepItem& item) { return item.id == id; });
      if (runs) return now;
    }
    return -1;
  }
};

TEST_F(StarvationTest, WithoutABoundPriorityIsAll) {
  FakeEngine engine(WithBound(0), 64);
  const RequestId low = engine.Submit(4, 5, 0);
  EXPECT_EQ(FirstRun(&engine, low, 2000), -1);
}

TEST_F(StarvationTest, AfterTheBoundItGoesBeforeAnybody) {
  FakeEngine engine(WithBound(50000), 64);
  const RequestId low = engine.Submit(4, 5, 0);
  const int64_t first = FirstRun(&engine, low, 2000);
  EXPECT_GT(first, 50000);
  EXPECT_LE(first, 52000);
}

TEST_F(StarvationTest, ItStopsWhoRunsAndIsNotStoppedAgain) {
  FakeEngine engine(WithBound(10000), 64);
  const RequestId high = engine.Submit(4, 40, 2);
  engine.Step();
  const RequestId low = engine.Submit(4, 8, 0);
  while (engine.Find(low)->state != RequestState::kRunning) engine.Step();
  EXPECT_EQ(engine.Find(high)->state, RequestState::kPreempted);
  for (int i = 0; i < 6; ++i) {
    engine.Submit(4, 1, 9);
    EXPECT_THAT(Ids(engine.Step()), ElementsAre(low));
  }
  engine.StepUntilIdle();
}

// More urgent work than can be done: it starves itself, and then only time
// counts.
TEST_F(StarvationTest, TheStarvedGoStrictlyByArrival) {
  FakeEngine engine(WithBound(20000), 256);
  std::vector<RequestId> order;
  std::map<RequestId, int64_t> arrived;
  engine.on_end = [&](RequestId id) { order.push_back(id); };
  for (int step = 0; step < 60; ++step) {
    const RequestId id = engine.Submit(4, 5, step % 7 == 3 ? 0 : 1 + step % 2);
    arrived[id] = engine.now_us;
    engine.Step();
  }
  engine.StepUntilIdle();
  ASSERT_EQ(order.size(), 60u);
  // From the time when everything that waits has waited too long.
  const auto late = std::find_if(order.begin(), order.end(), [&](RequestId id) {
    return arrived[id] >= 40000;
  });
  ASSERT_GT(order.end() - late, 10);
  EXPECT_TRUE(std::is_sorted(late, order.end()));
}

TEST_F(StarvationTest, WaitsNoLongerThanTheBoundAndThoseStarvedBefore) {
  FakeEngine engine(WithBound(20000), 256);
  for (int step = 0; step < 15; ++step) {
    engine.Submit(4, 5, 1);
    engine.Step();
  }
  const int64_t arrived = engine.now_us;
  const RequestId low = engine.Submit(4, 5, 0);
  // All before it, 5 steps each, may be starved when it is.
  const auto ahead = static_cast<int64_t>(engine.scheduler->num_waiting() - 1 +
                                          engine.scheduler->num_running());
  int64_t first = -1;
  for (int step = 0; first < 0 && step < 1000; ++step) {
    engine.Submit(4, 5, 1);
    const int64_t now = engine.now_us;
    if (Ids(engine.Step()) == std::vector<RequestId>{low}) first = now;
  }
  EXPECT_GT(first, 0);
  EXPECT_LE(first - arrived, 20000 + (ahead + 1) * 5000);
}

// Tokens computed and generated, by share key.
class ShareTest : public ::testing::Test {
 protected:
  static constexpr uint64_t kFlood = 1, kOther = 2;

  void Submit(uint64_t key, int prompt, int max_new, int count = 1) {
    for (int i = 0; i < count; ++i) {
      FakeOptions options;
      options.share_key = key;
      keys_[engine_.Submit(prompt, max_new, options)] = key;
    }
  }
  // Until `key` has nothing left that waits, or a number of steps.
  void Run(uint64_t key, int most_steps, const std::function<void()>& refill) {
    for (int step = 0; step < most_steps; ++step) {
      refill();
      const Queues& queues = engine_.scheduler->queues();
      const bool waits = std::any_of(
          queues.waiting().begin(), queues.waiting().end(),
          [&](const SchedEntry* e) { return e->request.share_key == key; });
      if (!waits) return;
      for (const StepItem& item : engine_.Step().items)
        served_[keys_.at(item.id)] += item.num_tokens;
    }
  }
  // Shares are apart by what four slots hold, up to 72 tokens each: below are
  // some thousands, so a tenth of them at most (of 150 steps a little more).
  double Ratio() {
    return static_cast<double>(served_[kFlood]) /
           static_cast<double>(served_[kOther]);
  }

  FakeEngine engine_{FakeConfig(4), 1024};
  std::map<RequestId, uint64_t> keys_;
  std::map<uint64_t, int64_t> served_;
};

TEST_F(ShareTest, AFloodDoesNotKeepOthersWaiting) {
  Submit(kFlood, 16, 8, 400);
  for (int i = 0; i < 50; ++i) engine_.Step();
  Submit(kOther, 16, 8, 200);
  Run(kOther, 100000, [] {});
  EXPECT_GT(served_[kOther], 4000);
  EXPECT_NEAR(Ratio(), 1.0, 0.1);
}

TEST_F(ShareTest, TokensCountNotRequests) {
  Submit(kFlood, 64, 1, 200);
  Submit(kOther, 8, 1, 1600);
  Run(kFlood, 100000, [] {});
  EXPECT_GT(served_[kFlood], 4000);
  EXPECT_NEAR(Ratio(), 1.0, 0.1);
}

TEST_F(ShareTest, WhatIsGeneratedCounts) {
  std::map<uint64_t, int> waiting;
  const auto refill = [&] {
    waiting.clear();
    for (const SchedEntry* e : engine_.scheduler->queues().waiting())
      ++waiting[e->request.share_key];
    while (waiting[kFlood]++ < 4) Submit(kFlood, 8, 64);
    while (waiting[kOther]++ < 4) Submit(kOther, 8, 8);
  };
  Run(0, 0, refill);
  Run(kFlood, 8000, refill);
  EXPECT_NEAR(Ratio(), 1.0, 0.1);
}

// A long conversation whose turns are short: what of it is cached is no work.
// That is known only when a request is let in, when those behind it have their
// tags: less than even, but far from the 11 times that whole prompts would make
// of it.
TEST_F(ShareTest, WhatIsCachedIsGivenBack) {
  const std::vector<int32_t> log = engine_.NewTokens(200);
  engine_.SubmitTo(engine_.AddSession(), log, 0);
  engine_.StepUntilIdle();
  std::map<uint64_t, int> waiting;
  const auto refill = [&] {
    waiting.clear();
    for (const SchedEntry* e : engine_.scheduler->queues().waiting())
      ++waiting[e->request.share_key];
    while (waiting[kFlood]++ < 4) Submit(kFlood, 16, 4);
    while (waiting[kOther]++ < 4) {
      const SessionId session = engine_.AddSession();
      engine_.Append(session, log);
      FakeOptions options;
      options.share_key = kOther;
      keys_[engine_.SubmitTo(session, engine_.NewTokens(16), 4, options)] =
          kOther;
    }
  };
  Run(kFlood, 4000, refill);
  EXPECT_LT(Ratio(), 2.0);
}

TEST_F(ShareTest, ANewcomerIsNextAndIsNotBehindForever) {
  Submit(kFlood, 16, 8, 400);
  for (int i = 0; i < 200; ++i) engine_.Step();
  Submit(kOther, 16, 8);
  EXPECT_EQ((*engine_.scheduler->queues().waiting().begin())->request.share_key,
            kOther);
}

TEST_F(ShareTest, WhoWasAwayHasSavedNothing) {
  Submit(kOther, 16, 8);
  engine_.StepUntilIdle();
  Submit(kFlood, 16, 8, 400);
  for (int i = 0; i < 500; ++i) engine_.Step();
  // Had it saved its turns, the next 100 would all be its own.
  Submit(kOther, 16, 8, 100);
  Run(kOther, 150, [] {});
  EXPECT_NEAR(Ratio(), 1.0, 0.15);
}

TEST_F(ShareTest, PriorityComesFirst) {
  FakeOptions options;
  options.priority = 1;
  options.share_key = kFlood;
  const RequestId high = engine_.Submit(400, 1, options);
  const RequestId high_too = engine_.Submit(400, 1, options);
  Submit(kOther, 8, 1);
  EXPECT_THAT(Ids(engine_.Step()), ElementsAre(high));
  while (engine_.Find(high) != nullptr) engine_.Step();
  EXPECT_GT(engine_.Find(high_too)->num_computed, 0);
}

}  // namespace
}  // namespace inlay
