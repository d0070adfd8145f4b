// Short of blocks: whose KV goes, in what order, and who must not suffer for
// nothing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "tests/sched/fake_engine.h"

namespace inlay {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(CachedKvTest, GoesWithoutBeingAsked) {
  FakeEngine engine(FakeConfig(), 8);
  for (int i = 0; i < 4; ++i) {
    engine.Submit(8, 0);
    engine.Step();
  }
  EXPECT_EQ(engine.kv.num_held(), 0);
  EXPECT_EQ(engine.kv.pool.num_free(), 0);
  engine.Submit(20, 8);
  engine.StepUntilIdle();
  EXPECT_EQ(engine.counts.preempted, 0);
  EXPECT_EQ(engine.counts.blocked, 0);
}

TEST(CachedKvTest, IsNotTouchedForARequestThatDoesNotFitAnyway) {
  FakeEngine engine(FakeConfig(), 8);
  engine.Submit(13, 12);  // runs, 4 blocks and growing
  engine.Step();
  engine.Submit(8, 0);
  engine.Step();
  EXPECT_EQ(engine.kv.pool.num_evictable(), 2);
  const RequestId big = engine.Submit(28, 1);
  const StepPlan plan = engine.Step();
  EXPECT_EQ(plan.items.size(), 1u);
  EXPECT_EQ(engine.Find(big)->state, RequestState::kWaiting);
  EXPECT_EQ(engine.kv.pool.num_evictable(), 2);
}

TEST(AdmissionTest, OneThatDoesNotFitHoldsUpThoseBehindIt) {
  FakeEngine engine(FakeConfig(), 8);
  const RequestId runs = engine.Submit(16, 8);
  engine.Step();
  engine.Submit(20, 1);
  engine.Submit(1, 1);
  EXPECT_THAT(Ids(engine.Step()), ElementsAre(runs));
  EXPECT_EQ(engine.scheduler->num_waiting(), 2u);
}

TEST(AdmissionTest, NeedsRoomForTheFirstChunkOnly) {
  SchedulerConfig config = FakeConfig(8, 16);
  config.max_prefill_chunk = 8;
  FakeEngine engine(config, 8);
  engine.Submit(16, 9);
  engine.Step();
  engine.Step();
  const RequestId b =
      engine.Submit(20, 1);  // 5 blocks, 4 are free; the first chunk takes 2
  engine.Step();
  EXPECT_EQ(engine.Find(b)->state, RequestState::kRunning);
}

TEST(PreemptionTest, TheLastInRankGoesAndKeepsItsTokens) {
  FakeEngine engine(FakeConfig(), 6);
  const RequestId a = engine.Submit(7, 9);
  const RequestId b = engine.Submit(7, 9);
  const RequestId c = engine.Submit(7, 9);
  engine.Step();  // 2 blocks each
  engine.Step();  // their eighth tokens
  const StepPlan plan = engine.Step();
  EXPECT_THAT(plan.preempted, ElementsAre(c));
  EXPECT_THAT(Ids(plan), ElementsAre(a, b));
  const SchedRequest* preempted = engine.Find(c);
  EXPECT_EQ(preempted->state, RequestState::kPreempted);
  EXPECT_EQ(preempted->num_computed, 0);
  EXPECT_EQ(preempted->num_tokens_total, 9);
  EXPECT_EQ(preempted->max_new_tokens, 7);
  EXPECT_EQ(engine.SessionWith(c).tokens.size(), 9u);
  engine.StepUntilIdle();
  for (const auto& [id, session] : engine.sessions)
    EXPECT_EQ(session.tokens.size(), 16u);
}

TEST(PreemptionTest, PriorityBeatsArrival) {
  FakeEngine engine(FakeConfig(), 4);
  const RequestId low = engine.Submit(7, 9, /*priority=*/0);
  const RequestId high = engine.Submit(7, 9, /*priority=*/1);
  engine.Step();
  engine.Step();
  const StepPlan plan = engine.Step();
  EXPECT_THAT(plan.preempted, ElementsAre(low));
  EXPECT_THAT(Ids(plan), ElementsAre(high));
}

TEST(PreemptionTest, ThePreemptedWaitsAtTheHeadUntilItFitsWhole) {
  SchedulerConfig config = FakeConfig();
  config.max_prefill_chunk = 4;
  FakeEngine engine(config, 4);
  const RequestId a = engine.Submit(4, 9);
  const RequestId b = engine.Submit(4, 9);
  engine.Submit(1, 1);
  while (engine.Find(b) != nullptr &&
         engine.Find(b)->state != RequestState::kPreempted)
    engine.Step();
  ASSERT_NE(engine.Find(b), nullptr);
  EXPECT_EQ((*engine.scheduler->queues().waiting().begin())->request.id, b);
  const int64_t whole = KvBlocksFor(engine.Find(b)->num_tokens_total, 4);
  while (engine.Find(b)->state == RequestState::kPreempted) {
    const int available =
        engine.kv.pool.num_available() + (engine.Find(a) == nullptr ? 4 : 0);
    engine.Step();
    if (engine.Find(b)->state == RequestState::kRunning) {
      EXPECT_GE(available, whole);
    }
  }
  engine.StepUntilIdle();
}

TEST(PreemptionTest, TheLastInRankSitsOutRatherThanPreemptHigherOnes) {
  FakeEngine engine(FakeConfig(), 4);
  const RequestId a = engine.Submit(6, 9);
  const RequestId b = engine.Submit(8, 5);
  engine.Step();  // 2 blocks each; b's next token needs a third, a's does not
  const StepPlan plan = engine.Step();
  EXPECT_THAT(Ids(plan), ElementsAre(a));
  EXPECT_THAT(plan.preempted, IsEmpty());
  EXPECT_EQ(plan.num_blocked, 1);
  EXPECT_EQ(engine.Find(b)->num_computed, 8)
      << "it keeps its KV as long as nobody above needs it";
}

TEST(PreemptionTest, NoNewcomersWhileBlocksAreShort) {
  FakeEngine engine(FakeConfig(), 4);
  engine.Submit(6, 9);
  engine.Submit(8, 5);
  engine.Step();
  const RequestId newcomer = engine.Submit(1, 1);
  EXPECT_EQ(engine.Step().num_blocked, 1);
  EXPECT_EQ(engine.Find(newcomer)->state, RequestState::kWaiting);
}

TEST(PrefillPressureTest, TakesWhatFitsBeforeAnybodyStops) {
  SchedulerConfig config = FakeConfig(8, 16);
  config.max_prefill_chunk = 8;
  FakeEngine engine(config, 6);
  const RequestId decodes = engine.Submit(8, 2, /*priority=*/0);
  const RequestId prefills = engine.Submit(24, 1, /*priority=*/1);
  EXPECT_EQ(engine.Step().items.size(), 2u);  // 2 blocks each
  StepPlan plan = engine.Step();  // the decode takes a third: one block is left
                                  // of the two wanted
  EXPECT_THAT(Ids(plan), ElementsAre(decodes, prefills));
  EXPECT_EQ(plan.items[1].num_tokens, 4);
  engine.StepUntilIdle();
}

TEST(PrefillPressureTest, PreemptsALowerDecodeForItsVeryFirstToken) {
  SchedulerConfig config = FakeConfig(8, 16);
  config.max_prefill_chunk = 8;
  FakeEngine engine(config, 4);
  const RequestId decodes = engine.Submit(7, 9, /*priority=*/0);
  engine.Step();
  const RequestId prefills = engine.Submit(16, 1, /*priority=*/1);
  EXPECT_THAT(
      Ids(engine.Step()),
      ElementsAre(decodes,
                  prefills));  // 2 blocks each; the decode's next needs a third
  const StepPlan plan = engine.Step();
  EXPECT_THAT(plan.preempted, ElementsAre(decodes));
  EXPECT_THAT(Ids(plan), ElementsAre(prefills));
  EXPECT_EQ(plan.items[0].num_tokens, 8);
  EXPECT_EQ(plan.decode_tokens, 0) << "its planned token is taken back";
}

// One prompt in the cache that ends inside a block, and two requests that go on
// from there: both write their next token to a copy of that block.
TEST(CopyOnWriteTest, TwoThatGoOnFromPartOfABlockBothCopy) {
  FakeEngine engine(FakeConfig(), 8);
  const std::vector<int32_t> prompt = {1, 2, 3, 4, 5, 6, 7};
  engine.SubmitTo(engine.AddSession(), prompt, 0);
  engine.Step();
  const RequestId a = engine.SubmitTo(engine.AddSession(), prompt, 2);
  const RequestId b = engine.SubmitTo(engine.AddSession(), prompt, 2);
  const StepPlan plan = engine.Step();
  EXPECT_THAT(Ids(plan), ElementsAre(a, b));
  EXPECT_EQ(plan.prefill_tokens, 2) << "6 of 7 tokens come from the cache";
  EXPECT_EQ(engine.counts.copies, 2);
  EXPECT_EQ(engine.counts.partial_hits, 2);
  engine.StepUntilIdle();
}

}  // namespace
}  // namespace inlay
