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
using ::testing::UnorderedElementsAre;

SchedulerConfig Config(int32_t batch = 64) {
  SchedulerConfig config;
  config.block_size = 4;
  config.max_batch_tokens = batch;
  config.max_running = 8;
  return config;
}

std::vector<RequestId> Ids(const StepPlan& plan) {
  std::vector<RequestId> ids;
  for (const StepItem& item : plan.items) ids.push_back(item.id);
  return ids;
}

// A session that holds the KV of `tokens` tokens and is idle.
SessionId IdleSessionOf(FakeEngine* engine, int tokens) {
  const SessionId id = engine->AddSession();
  engine->SubmitTo(id, tokens, 0);
  engine->Step();
  return id;
}

TEST(EvictionTest, LeastRecentlyUsedFirstAndNoMoreThanNeeded) {
  FakeEngine engine(Config(), 8);
  const SessionId a = IdleSessionOf(&engine, 8), b = IdleSessionOf(&engine, 8),
                  c = IdleSessionOf(&engine, 8);
  engine.scheduler->SetIdle(
      a, &engine.sessions.at(a).table);  // used again: b is the oldest now
  engine.Submit(8, 1);
  EXPECT_THAT(engine.Step().evicted_sessions, IsEmpty());
  engine.Submit(4, 1);
  EXPECT_THAT(engine.Step().evicted_sessions, ElementsAre(b));
  EXPECT_EQ(engine.sessions.at(b).table.num_tokens(), 0);
  engine.Submit(16, 1);
  EXPECT_THAT(engine.Step().evicted_sessions, ElementsAre(c, a));
}

TEST(EvictionTest, SparesSessionsThatGiveNothingBack) {
  FakeEngine engine(Config(), 8);
  const SessionId old = IdleSessionOf(&engine, 12);
  const SessionId fork = engine.Fork(old);
  engine.Rewind(old, 8);  // its blocks are all the fork's as well
  const SessionId other = IdleSessionOf(&engine, 16);
  EXPECT_EQ(engine.pool.num_free(), 1);
  engine.Submit(20, 1);
  const StepPlan plan = engine.Step();
  EXPECT_THAT(plan.evicted_sessions, UnorderedElementsAre(other))
      << "4 blocks alone; old and fork would be 3 together";
  EXPECT_EQ(engine.sessions.at(fork).table.num_tokens(), 12);
}

TEST(EvictionTest, ForksThatShareEverythingGoTogether) {
  FakeEngine engine(Config(), 4);
  const SessionId a = IdleSessionOf(&engine, 16);
  const SessionId b = engine.Fork(a);
  engine.Submit(4, 1);
  EXPECT_THAT(engine.Step().evicted_sessions, ElementsAre(a, b));
}

TEST(EvictionTest, NobodyLosesKvForARequestThatDoesNotFitAnyway) {
  FakeEngine engine(Config(), 8);
  engine.Submit(13, 12);  // runs, 4 blocks and growing
  engine.Step();
  const SessionId idle = IdleSessionOf(&engine, 8);
  const RequestId big = engine.Submit(28, 1);
  const StepPlan plan = engine.Step();
  EXPECT_THAT(plan.evicted_sessions, IsEmpty());
  EXPECT_EQ(plan.items.size(), 1u);
  EXPECT_EQ(engine.scheduler->Find(big)->state, RequestState::kWaiting);
  EXPECT_EQ(engine.sessions.at(idle).table.num_tokens(), 8);
}

TEST(AdmissionTest, OneThatDoesNotFitHoldsUpThoseBehindIt) {
  FakeEngine engine(Config(), 8);
  const RequestId runs = engine.Submit(16, 8);
  engine.Step();
  engine.Submit(20, 1);
  engine.Submit(1, 1);
  EXPECT_THAT(Ids(engine.Step()), ElementsAre(runs));
  EXPECT_EQ(engine.scheduler->num_waiting(), 2u);
}

TEST(AdmissionTest, NeedsRoomForTheFirstChunkOnly) {
  SchedulerConfig config = Config(16);
  config.max_prefill_chunk = 8;
  FakeEngine engine(config, 8);
  engine.Submit(16, 9);
  engine.Step();
  engine.Step();
  const RequestId b =
      engine.Submit(20, 1);  // 5 blocks, 4 are free; the first chunk takes 2
  engine.Step();
  EXPECT_EQ(engine.scheduler->Find(b)->state, RequestState::kRunning);
}

TEST(WaitingKvTest, GoesWhenARunningRequestNeedsIt) {
  SchedulerConfig config = Config();
  config.max_running = 1;
  FakeEngine engine(config, 4);
  const SessionId session = IdleSessionOf(&engine, 8);
  engine.Submit(7, 8);
  engine.Step();
  const RequestId waits =
      engine.SubmitTo(session, 1, 1);  // holds 2 blocks, cannot run
  engine.Step();                       // token 8 fits
  const StepPlan plan = engine.Step();
  EXPECT_THAT(plan.preempted, ElementsAre(waits));
  EXPECT_EQ(engine.scheduler->Find(waits)->state, RequestState::kWaiting);
  EXPECT_EQ(engine.scheduler->Find(waits)->num_computed, 0);
  EXPECT_EQ(engine.sessions.at(session).tokens.size(), 9u)
      << "its tokens are kept";
  while (engine.scheduler->HasWork()) engine.Step();
}

TEST(WaitingKvTest, GoesForAHigherNewcomer) {
  FakeEngine engine(Config(), 4);
  const SessionId low = IdleSessionOf(&engine, 12);
  engine.SubmitTo(low, 1, 1, /*priority=*/0);  // holds 3 blocks, wants a fourth
  const RequestId high =
      engine.Submit(8, 1, /*priority=*/1);  // 2 blocks: 1 is free
  StepPlan plan = engine.Step();
  EXPECT_THAT(plan.preempted, ElementsAre(engine.sessions.at(low).request));
  EXPECT_THAT(Ids(plan), ElementsAre(high));
  plan = engine.Step();
  EXPECT_EQ(plan.items[0].first_token, 0);
  EXPECT_EQ(plan.items[0].num_tokens, 13);
}

TEST(WaitingKvTest, MayGoAndBeginAgainInOneStep) {
  SchedulerConfig config = Config();
  config.max_prefill_chunk = 8;
  FakeEngine engine(config, 6);
  const SessionId session = IdleSessionOf(&engine, 8);
  engine.SubmitTo(session, 8, 0);
  engine.Step();  // 4 blocks
  const RequestId prefills = engine.Submit(12, 1);
  engine.Step();  // the other 2
  const RequestId waits = engine.SubmitTo(session, 1, 1);
  const StepPlan plan = engine.Step();
  EXPECT_THAT(plan.preempted, ElementsAre(waits));
  ASSERT_THAT(Ids(plan), ElementsAre(prefills, waits));
  EXPECT_EQ(plan.items[1].first_token, 0);
  EXPECT_EQ(plan.items[1].num_tokens, 8);
  while (engine.scheduler->HasWork()) engine.Step();
}

TEST(PreemptionTest, TheLastInRankGoesAndKeepsItsTokens) {
  FakeEngine engine(Config(), 6);
  const RequestId a = engine.Submit(7, 9);
  const RequestId b = engine.Submit(7, 9);
  const RequestId c = engine.Submit(7, 9);
  engine.Step();  // 2 blocks each
  engine.Step();  // their eighth tokens
  const StepPlan plan = engine.Step();
  EXPECT_THAT(plan.preempted, ElementsAre(c));
  EXPECT_THAT(Ids(plan), ElementsAre(a, b));
  const SchedRequest* preempted = engine.scheduler->Find(c);
  EXPECT_EQ(preempted->state, RequestState::kPreempted);
  EXPECT_EQ(preempted->num_computed, 0);
  EXPECT_EQ(preempted->num_tokens_total, 9);
  EXPECT_EQ(preempted->max_new_tokens, 7);
  EXPECT_EQ(engine.sessions.at(engine.SessionOf(c)).tokens.size(), 9u);
  while (engine.scheduler->HasWork()) engine.Step();
  for (const auto& [id, session] : engine.sessions)
    EXPECT_EQ(session.tokens.size(), 16u);
}

TEST(PreemptionTest, PriorityBeatsArrival) {
  FakeEngine engine(Config(), 4);
  const RequestId low = engine.Submit(7, 9, /*priority=*/0);
  const RequestId high = engine.Submit(7, 9, /*priority=*/1);
  engine.Step();
  engine.Step();
  const StepPlan plan = engine.Step();
  EXPECT_THAT(plan.preempted, ElementsAre(low));
  EXPECT_THAT(Ids(plan), ElementsAre(high));
}

TEST(PreemptionTest, ThePreemptedWaitsAtTheHeadUntilItFitsWhole) {
  SchedulerConfig config = Config();
  config.max_prefill_chunk = 4;
  FakeEngine engine(config, 4);
  const RequestId a = engine.Submit(4, 9);
  const RequestId b = engine.Submit(4, 9);
  engine.Submit(1, 1);
  while (engine.scheduler->Find(b) != nullptr &&
         engine.scheduler->Find(b)->state != RequestState::kPreempted)
    engine.Step();
  ASSERT_NE(engine.scheduler->Find(b), nullptr);
  EXPECT_EQ((*engine.scheduler->queues().waiting().begin())->request.id, b);
  const int64_t whole =
      KvBlocksFor(engine.scheduler->Find(b)->num_tokens_total, 4);
  while (engine.scheduler->Find(b)->state == RequestState::kPreempted) {
    const int free =
        engine.pool.num_free() + (engine.scheduler->Find(a) == nullptr ? 4 : 0);
    engine.Step();
    if (engine.scheduler->Find(b)->state == RequestState::kRunning) {
      EXPECT_GE(free, whole);
    }
  }
  while (engine.scheduler->HasWork()) engine.Step();
}

TEST(PreemptionTest, TheLastInRankSitsOutRatherThanPreemptHigherOnes) {
  FakeEngine engine(Config(), 4);
  const RequestId a = engine.Submit(6, 9);
  const RequestId b = engine.Submit(8, 5);
  engine.Step();  // 2 blocks each; b's next token needs a third, a's does not
  const StepPlan plan = engine.Step();
  EXPECT_THAT(Ids(plan), ElementsAre(a));
  EXPECT_THAT(plan.preempted, IsEmpty());
  EXPECT_EQ(plan.num_blocked, 1);
  EXPECT_EQ(engine.scheduler->Find(b)->num_computed, 8)
      << "it keeps its KV as long as nobody above needs it";
}

TEST(PreemptionTest, NoNewcomersWhileBlocksAreShort) {
  FakeEngine engine(Config(), 4);
  engine.Submit(6, 9);
  engine.Submit(8, 5);
  engine.Step();
  const RequestId newcomer = engine.Submit(1, 1);
  EXPECT_EQ(engine.Step().num_blocked, 1);
  EXPECT_EQ(engine.scheduler->Find(newcomer)->state, RequestState::kWaiting);
}

TEST(PrefillPressureTest, TakesWhatFitsBeforeAnybodyStops) {
  SchedulerConfig config = Config(16);
  config.max_prefill_chunk = 8;
  FakeEngine engine(config, 6);
  const RequestId decodes = engine.Submit(8, 2, /*priority=*/0);
  const RequestId prefills = engine.Submit(24, 1, /*priority=*/1);
  EXPECT_EQ(engine.Step().items.size(), 2u);  // 2 blocks each
  StepPlan plan = engine.Step();  // the decode takes a third: one block is left
                                  // of the two wanted
  EXPECT_THAT(Ids(plan), ElementsAre(decodes, prefills));
  EXPECT_EQ(plan.items[1].num_tokens, 4);
  while (engine.scheduler->HasWork()) engine.Step();
}

TEST(PrefillPressureTest, PreemptsALowerDecodeForItsVeryFirstToken) {
  SchedulerConfig config = Config(16);
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

TEST(CopyOnWriteTest, ForkOfARunningRequestIsCountedAndEvicted) {
  FakeEngine engine(Config(), 2);
  const SessionId session = engine.AddSession();
  engine.SubmitTo(session, 5, 3);
  engine.Step();  // 5 of 8 slots
  const SessionId fork = engine.Fork(session);
  const StepPlan plan =
      engine.Step();  // appending would copy: no block is free, but without the
                      // fork nothing is shared
  EXPECT_THAT(plan.evicted_sessions, ElementsAre(fork));
  EXPECT_EQ(plan.items.size(), 1u);
  EXPECT_EQ(engine.counts.copies, 0);
  EXPECT_EQ(engine.pool.num_used(), 2);
}

TEST(CopyOnWriteTest, TwoForksThatGoOnBothCopy) {
  FakeEngine engine(Config(), 8);
  const SessionId a = IdleSessionOf(&engine, 6);
  const SessionId b = engine.Fork(a);
  engine.SubmitTo(a, 1, 2);
  engine.SubmitTo(b, 1, 2);
  engine.Step();
  EXPECT_EQ(engine.counts.copies, 2);
  while (engine.scheduler->HasWork()) engine.Step();
}

}  // namespace
}  // namespace inlay
