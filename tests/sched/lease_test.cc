// Memory that comes and goes between steps, and blocks that others hold: what
// stops, what goes on, and when there is nothing to do.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "tests/sched/fake_engine.h"

namespace inlay {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(LeaseTest, WhatIsOnlyCachedGoesFirst) {
  FakeEngine engine(FakeConfig(), 16);
  engine.Submit(24, 0);
  engine.Step();
  engine.Submit(8, 4);
  engine.Step();
  EXPECT_EQ(engine.kv.pool.num_evictable(), 6);
  EXPECT_EQ(engine.Resize(3), 0);
  EXPECT_EQ(engine.kv.pool.num_total(), 3);
  engine.StepUntilIdle();
  EXPECT_EQ(engine.counts.finished, 2);
}

TEST(LeaseTest, TheLastInRankStopTheOthersGoOnInPlace) {
  FakeEngine engine(FakeConfig(), 16);
  const RequestId a = engine.Submit(7, 9);
  const RequestId b = engine.Submit(7, 9);
  const RequestId c = engine.Submit(7, 9, /*priority=*/1);
  engine.Step();
  EXPECT_EQ(engine.Resize(5), 1);
  EXPECT_EQ(engine.Find(b)->state, RequestState::kPreempted);
  EXPECT_EQ(engine.Find(a)->num_computed, 7);
  EXPECT_EQ(engine.Find(c)->num_computed, 7);
  engine.Step();
  engine.Resize(16);
  engine.StepUntilIdle();
  EXPECT_EQ(engine.counts.finished, 3);
}

TEST(LeaseTest, BlocksMoveWithTheirContent) {
  FakeEngine engine(FakeConfig(), 64);
  for (int i = 0; i < 4; ++i) engine.Submit(17, 30);
  engine.Step();
  // Down to what is held and up again, every step: FakeEngine reads it all
  // back.
  for (int step = 0; engine.scheduler->HasWork(); ++step) {
    engine.Resize(step % 2 ? 64 : engine.kv.num_held());
    engine.Step();
    ASSERT_LT(step, 500);
  }
  EXPECT_GT(engine.kv.num_moved, 50);
  EXPECT_EQ(engine.counts.finished, 4);
}

TEST(LeaseTest, ALastBlockThatIsSharedNeedsRoomForItsCopy) {
  FakeEngine engine(FakeConfig(), 16);
  const SessionId first = engine.AddSession();
  engine.SubmitTo(first, engine.NewTokens(7), 0);
  engine.StepUntilIdle();
  const RequestId second =
      engine.SubmitTo(engine.Fork(first), engine.NewTokens(1), 1);
  // Let in by a step that fails: the copy was not made.
  engine.step_fails = [] { return true; };
  engine.Step();
  engine.step_fails = [] { return false; };
  ASSERT_EQ(engine.SessionWith(second).tables.num_tokens(), 7);
  ASSERT_TRUE(engine.SessionWith(second).tables.AppendCopies());
  EXPECT_EQ(engine.Resize(2), 1);
  engine.StepUntilIdle();
  EXPECT_EQ(engine.counts.finished, 2);
}

// Blocks that are pinned or set aside may stay so for ever: only those wait
// that need them. In steps that take the prompt whole, and in some that find
// out later; also where it runs already.
TEST(LeaseTest, WhoWaitsForWhatOthersHoldHoldsUpNobody) {
  for (const int32_t batch : {8, 512}) {
    for (const bool runs : {false, true}) {
      SCOPED_TRACE(::testing::Message() << batch << " tokens, runs " << runs);
      SchedulerConfig config = FakeConfig();
      config.max_batch_tokens = batch;
      FakeEngine engine(config, 32);
      const SessionId holder = engine.AddSession();
      if (!runs) engine.SetHold(holder, 72);
      const RequestId large = engine.Submit(44, 60);
      for (int i = 0; i < (runs ? 4 : 0); ++i) engine.Step();
      if (runs) engine.SetHold(holder, 72);
      std::vector<RequestId> small;
      for (int i = 0; i < 3; ++i) small.push_back(engine.Submit(9, 4));
      engine.StepUntilIdle();
      EXPECT_EQ(engine.counts.finished, 3);
      ASSERT_NE(engine.Find(large), nullptr);
      // Another comes, and ends.
      engine.Submit(12, 3);
      engine.StepUntilIdle();
      EXPECT_EQ(engine.counts.finished, 4);
      engine.SetHold(holder, 0);
      engine.StepUntilIdle();
      EXPECT_EQ(engine.counts.finished, 5);
    }
  }
}

TEST(LeaseTest, WithoutAnyMemoryNothingRunsAndNothingIsLost) {
  FakeEngine engine(FakeConfig(), 16);
  std::vector<SessionId> sessions;
  for (int i = 0; i < 3; ++i)
    sessions.push_back(engine.SessionOf(engine.Submit(7, 9)));
  engine.Step();
  EXPECT_EQ(engine.Resize(0), 3);
  EXPECT_TRUE(engine.scheduler->HasWork()) << "not tried yet";
  EXPECT_THAT(engine.Step().items, IsEmpty());
  EXPECT_FALSE(engine.scheduler->HasWork()) << "or the thread would spin";
  // It would fit the cache as it was: it waits like the others.
  EXPECT_EQ(engine.TrySubmit(engine.AddSession(), {1}, 1), absl::OkStatus());
  engine.Resize(16);
  EXPECT_TRUE(engine.scheduler->HasWork());
  engine.StepUntilIdle();
  for (SessionId id : sessions)
    EXPECT_EQ(engine.sessions.at(id).tokens.size(), 16u);
}

TEST(LeaseTest, ARequestTooLargeForTheLeaseWaitsAndHoldsNobodysTurn) {
  FakeEngine engine(FakeConfig(), 16);
  const RequestId large = engine.Submit(40, 8);
  engine.Step();
  engine.Resize(8);
  EXPECT_THAT(engine.Step().items, IsEmpty());
  EXPECT_FALSE(engine.scheduler->HasWork());
  // Those that fit get in, whether above it or behind.
  const RequestId above = engine.Submit(4, 1, /*priority=*/1);
  const RequestId behind = engine.Submit(4, 1);
  const StepPlan plan = engine.Step();
  ASSERT_EQ(plan.items.size(), 2u);
  EXPECT_EQ(plan.items[0].id, above);
  EXPECT_EQ(plan.items[1].id, behind);
  engine.Step();
  EXPECT_FALSE(engine.scheduler->HasWork());
  EXPECT_NE(engine.scheduler->Find(large), nullptr);
  engine.Resize(16);
  EXPECT_TRUE(engine.scheduler->HasWork());
  engine.StepUntilIdle();
  EXPECT_TRUE(engine.scheduler->empty());
}

class StalledTest : public ::testing::Test {
 protected:
  void SetUp() override {
    holder_ = engine_.AddSession();
    engine_.SetHold(holder_, 24);  // 6 of 8 blocks
    request_ = engine_.Submit(12, 4);
    EXPECT_TRUE(engine_.scheduler->HasWork());
    EXPECT_THAT(engine_.Step().items, IsEmpty());
    EXPECT_FALSE(engine_.scheduler->HasWork());
  }

  FakeEngine engine_{FakeConfig(), 8};
  SessionId holder_ = 0;
  RequestId request_ = 0;
};

TEST_F(StalledTest, AnEmptyPlanNeedsNoCommitAndMayBeAskedForAgain) {
  EXPECT_TRUE(engine_.scheduler->Plan({}).empty());
  EXPECT_EQ(engine_.scheduler->plan_in_flight(), nullptr);
  EXPECT_FALSE(engine_.scheduler->HasWork());
  EXPECT_FALSE(engine_.scheduler->empty());
}

TEST_F(StalledTest, GoesOnAfterRetry) {
  engine_.sessions.at(holder_).hold.Clear();
  EXPECT_FALSE(engine_.scheduler->HasWork()) << "nobody has told";
  engine_.scheduler->Retry();
  EXPECT_TRUE(engine_.scheduler->HasWork());
  engine_.StepUntilIdle();
  EXPECT_EQ(engine_.counts.finished, 1);
}

TEST_F(StalledTest, GoesOnWhenSomebodyComesOrGoes) {
  engine_.Submit(12, 1);
  EXPECT_TRUE(engine_.scheduler->HasWork());
  EXPECT_THAT(engine_.Step().items, IsEmpty());
  EXPECT_FALSE(engine_.scheduler->HasWork());
  engine_.Cancel(engine_.SessionOf(request_));
  EXPECT_TRUE(engine_.scheduler->HasWork());
}

TEST_F(StalledTest, DeadlinesStillPass) {
  engine_.Cancel(engine_.SessionOf(request_));
  const RequestId late = engine_.Submit(12, 1, FakeOptions{0, 5000});
  engine_.Step();
  EXPECT_FALSE(engine_.scheduler->HasWork());
  engine_.now_us = 6000;
  EXPECT_THAT(engine_.Step().expired, ElementsAre(late));
}

TEST_F(StalledTest, ARunningRequestThatFindsNoBlockStallsToo) {
  engine_.sessions.at(holder_).hold.Clear();
  engine_.scheduler->Retry();
  engine_.Step();                // 3 blocks, all full
  engine_.SetHold(holder_, 20);  // the other 5
  EXPECT_EQ(engine_.Step().num_blocked, 1);
  EXPECT_FALSE(engine_.scheduler->HasWork());
  EXPECT_EQ(engine_.Find(request_)->num_computed, 12) << "it keeps its KV";
  engine_.SetHold(holder_, 0);
  engine_.StepUntilIdle();
  EXPECT_EQ(engine_.counts.finished, 1);
}

}  // namespace
}  // namespace inlay
