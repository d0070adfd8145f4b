// Deadlines: who is urgent goes first within a priority; who is late ends.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "tests/sched/fake_engine.h"

namespace inlay {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// A step takes 1000 us.
TEST(DeadlineTest, EarliestFirstWithinAPriority) {
  FakeEngine engine(FakeConfig(1), 64);
  const RequestId never = engine.Submit(4, 1);
  const RequestId late = engine.Submit(4, 1, FakeOptions{0, 90000});
  const RequestId soon = engine.Submit(4, 1, FakeOptions{0, 80000});
  const RequestId soon_too = engine.Submit(4, 1, FakeOptions{0, 80000});
  const RequestId above = engine.Submit(4, 1, FakeOptions{1, 95000});
  for (RequestId id : {above, soon, soon_too, late, never})
    EXPECT_THAT(Ids(engine.Step()), ElementsAre(id));
}

TEST(DeadlineTest, AnUrgentNewcomerStopsNobodyOfItsPriority) {
  FakeEngine engine(FakeConfig(1), 64);
  const RequestId runs = engine.Submit(4, 5);
  engine.Step();
  engine.Submit(4, 1, FakeOptions{0, 80000});
  EXPECT_THAT(Ids(engine.Step()), ElementsAre(runs));
}

TEST(DeadlineTest, WhoWaitsTooLongExpires) {
  FakeEngine engine(FakeConfig(1), 64);
  const RequestId runs = engine.Submit(4, 9);
  const RequestId waits = engine.Submit(4, 1, FakeOptions{-1, 3000});
  for (int64_t now : {0, 1000, 2000, 3000}) {
    ASSERT_EQ(engine.now_us, now);
    EXPECT_THAT(engine.Step().expired, IsEmpty()) << now;
  }
  const StepPlan plan = engine.Step();  // at 4000
  EXPECT_THAT(plan.expired, ElementsAre(waits));
  EXPECT_THAT(Ids(plan), ElementsAre(runs));
  EXPECT_EQ(engine.Find(waits), nullptr);
}

TEST(DeadlineTest, WhoRunsTooLongExpiresAndOthersHaveItsBlocksAtOnce) {
  FakeEngine engine(FakeConfig(1), 4);
  const RequestId runs = engine.Submit(13, 4, FakeOptions{0, 1500});
  const RequestId waits = engine.Submit(13, 1);
  EXPECT_THAT(Ids(engine.Step()), ElementsAre(runs));
  EXPECT_THAT(Ids(engine.Step()), ElementsAre(runs));
  const StepPlan plan = engine.Step();  // at 2000
  EXPECT_THAT(plan.expired, ElementsAre(runs));
  EXPECT_THAT(Ids(plan), ElementsAre(waits));
}

TEST(DeadlineTest, AStepInFlightIsStillTaken) {
  FakeEngine engine(FakeConfig(2), 64);
  const RequestId last = engine.Submit(4, 1, FakeOptions{0, 500});
  const RequestId more = engine.Submit(4, 2, FakeOptions{0, 500});
  const SessionId session = engine.SessionOf(last);
  EXPECT_THAT(engine.Step().expired, IsEmpty());  // ends at 1000
  EXPECT_EQ(engine.sessions.at(session).tokens.size(), 5u);
  EXPECT_EQ(engine.counts.finished, 1);
  EXPECT_THAT(engine.Step().expired, ElementsAre(more));
  EXPECT_FALSE(engine.scheduler->HasWork());
}

TEST(DeadlineTest, APlanThatOnlyExpiresIsNoStall) {
  FakeEngine engine(FakeConfig(2), 64);
  const RequestId a = engine.Submit(4, 1, FakeOptions{0, 500});
  const RequestId b = engine.Submit(4, 1, FakeOptions{1, 400});
  engine.now_us = 1000;
  const StepPlan plan = engine.Step();
  EXPECT_THAT(plan.expired, ElementsAre(b, a));
  EXPECT_THAT(plan.items, IsEmpty());
  EXPECT_TRUE(engine.scheduler->empty());
}

TEST(DeadlineTest, OneThatWasPreemptedExpiresToo) {
  FakeEngine engine(FakeConfig(1), 64);
  const RequestId low = engine.Submit(4, 9, FakeOptions{0, 2500});
  engine.Step();
  engine.Submit(4, 9, FakeOptions{1});
  EXPECT_THAT(engine.Step().preempted, ElementsAre(low));
  engine.Step();
  EXPECT_THAT(engine.Step().expired, ElementsAre(low));
}

TEST(DeadlineTest, CancelledRequestsDoNotExpire) {
  FakeEngine engine(FakeConfig(1), 64);
  const RequestId runs = engine.Submit(4, 9, FakeOptions{0, 500});
  const RequestId waits = engine.Submit(4, 9, FakeOptions{0, 500});
  engine.after_reserve = [&] {
    engine.Cancel(engine.SessionOf(runs));
    engine.Cancel(engine.SessionOf(waits));
  };
  engine.Step();
  engine.after_reserve = [] {};
  EXPECT_THAT(engine.Step().expired, IsEmpty());
  EXPECT_TRUE(engine.scheduler->empty());
}

}  // namespace
}  // namespace inlay
