// What requests find in the cache when they are let in: how much of it they
// take, what it costs in blocks, and that computing goes on behind it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "tests/sched/fake_engine.h"

namespace inlay {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

using Tokens = std::vector<int32_t>;

Tokens Count(int32_t from, int count) {
  Tokens tokens;
  for (int i = 0; i < count; ++i) tokens.push_back(from + i);
  return tokens;
}

Tokens Joined(Tokens a, const Tokens& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// Leaves the KV of `tokens` in the cache, held by nobody.
void Cache(FakeEngine* engine, const Tokens& tokens) {
  engine->SubmitTo(engine->AddSession(), tokens, 0);
  engine->StepUntilIdle();
}

RequestId Submit(FakeEngine* engine, const Tokens& tokens, int max_new = 1) {
  return engine->SubmitTo(engine->AddSession(), tokens, max_new);
}

TEST(PrefixHitTest, NextTurnComputesOnlyWhatIsNew) {
  FakeEngine engine(FakeConfig(), 8);
  const SessionId session = engine.AddSession();
  engine.SubmitTo(session, Count(0, 6), 1);
  engine.Step();
  engine.SubmitTo(session, Count(50, 3), 1);
  const StepPlan plan = engine.Step();
  EXPECT_EQ(plan.items[0].first_token, 6);
  EXPECT_EQ(plan.items[0].num_tokens, 4)
      << "the generated token and the new three";
}

TEST(PrefixHitTest, TheLastTokenIsAlwaysComputed) {
  for (int count = 1; count <= 13; ++count) {
    FakeEngine engine(FakeConfig(), 32);
    const Tokens prompt = Count(0, count);
    Cache(&engine, prompt);
    Submit(&engine, prompt);
    const StepPlan plan = engine.Step();
    ASSERT_EQ(plan.items.size(), 1u);
    // Of the last block, one token alone is not worth a copy.
    const int tail = (count - 1) % 4;
    const int hit =
        tail >= PrefixIndex::kMinPartialTokens ? count - 1 : count - 1 - tail;
    EXPECT_EQ(plan.items[0].first_token, hit) << count;
    EXPECT_EQ(engine.counts.copies, hit % 4 != 0 ? 1 : 0) << count;
    EXPECT_EQ(plan.prefill_tokens, count - hit) << count;
    EXPECT_EQ(plan.decode_tokens, 0) << count;
  }
}

TEST(PrefixHitTest, BlocksInUseCostNothing) {
  FakeEngine engine(FakeConfig(), 6);
  const Tokens common = Count(0, 16);
  const RequestId a = Submit(&engine, Joined(common, {100}), 8);
  engine.Step();  // 5 blocks, the sixth is free
  const RequestId b = Submit(&engine, Joined(common, {200, 201, 202}), 2);
  const StepPlan plan = engine.Step();
  ASSERT_EQ(plan.items.size(), 2u);
  EXPECT_EQ(plan.items[0].id, a);
  EXPECT_EQ(plan.items[1].id, b);
  EXPECT_EQ(plan.items[1].first_token, 16);
  EXPECT_EQ(engine.kv.num_held(), 6);
  engine.StepUntilIdle();
  EXPECT_EQ(engine.counts.preempted, 0);
}

// 7 tokens are cached: a full block and 3 of the next. 6 are of use to the same
// prompt again, and the 2 of the second block cost a copy.
TEST(PrefixHitTest, PartOfABlockStaysWhereItsCopyDoesNotFit) {
  for (int blocks : {2, 3}) {
    FakeEngine engine(FakeConfig(), blocks);
    Cache(&engine, Count(0, 7));
    Submit(&engine, Count(0, 7));
    const StepPlan plan = engine.Step();
    ASSERT_EQ(plan.items.size(), 1u);
    EXPECT_EQ(plan.items[0].first_token, blocks == 2 ? 4 : 6);
    engine.StepUntilIdle();
  }
}

// Of the second block of 2, one token is of use, as the other layers have 3.
// Who looks for these 3 only does not find it (it is not worth a copy), who
// looks further does: what was found is what is taken.
TEST(PrefixHitTest, TakesAsMuchAsItWasToldOfGroups) {
  SchedulerConfig config = FakeConfig();
  config.groups = {{2, 0}, {3, 3}};
  FakeEngine engine(config, 16);
  Cache(&engine, Count(0, 4));
  ASSERT_EQ(engine.kv.cache.Find(0, Count(0, 3)).num_tokens, 2);
  Submit(&engine, Count(0, 6));
  const StepPlan plan = engine.Step();
  ASSERT_EQ(plan.items.size(), 1u);
  EXPECT_EQ(plan.items[0].first_token, 3);
  engine.StepUntilIdle();
}

TEST(PrefixHitTest, TakesWhatFitsOfALongPrompt) {
  SchedulerConfig config = FakeConfig(8, 8);
  FakeEngine engine(config, 20);
  Cache(&engine, Count(0, 64));  // 16 blocks
  const RequestId other = engine.Submit(28, 4);
  while (engine.Find(other)->num_computed < 28) engine.Step();  // 7 blocks
  ASSERT_EQ(engine.kv.pool.num_available(), 13);
  const KvMatch left = engine.kv.cache.Find(0, Count(0, 64));
  ASSERT_EQ(left.num_tokens, 52) << "the rest made way";
  engine.counts = FakeCounts();
  const RequestId again = Submit(&engine, Count(0, 68));
  engine.Step();
  // Of 13 blocks the other takes one, and two are for the first chunk.
  EXPECT_EQ(engine.counts.hit_tokens, 40);
  EXPECT_EQ(engine.Find(again)->num_computed, 40 + 7);
  engine.StepUntilIdle();
}

TEST(PrefixHitTest, PreemptedRequestsFindTheirOwnKv) {
  SchedulerConfig config = FakeConfig();
  config.max_running = 1;
  FakeEngine engine(config, 16);
  const RequestId low = engine.Submit(10, 8);
  engine.Step();
  engine.Step();
  engine.Submit(4, 2, /*priority=*/1);
  EXPECT_THAT(engine.Step().preempted, ElementsAre(low));
  engine.Step();
  const StepPlan plan = engine.Step();
  ASSERT_EQ(plan.items.size(), 1u);
  EXPECT_EQ(plan.items[0].id, low);
  EXPECT_EQ(plan.items[0].first_token, 11) << "all that was computed";
  EXPECT_EQ(plan.decode_tokens, 1);
  engine.StepUntilIdle();
}

TEST(PrefixHitTest, TheSameTokensAtTheSameTimeEndInTheSameBlocks) {
  FakeEngine engine(FakeConfig(), 32);
  for (int i = 0; i < 4; ++i) Submit(&engine, Count(0, 16), 4);
  engine.Step();
  EXPECT_EQ(engine.counts.hits, 0) << "nothing is published yet";
  EXPECT_EQ(engine.kv.num_held(), 4) << "12 of 16 blocks were given back";
  engine.StepUntilIdle();
}

TEST(PrefixHitTest, SaltsShareNothing) {
  FakeEngine engine(FakeConfig(), 32);
  Cache(&engine, Count(0, 16));
  engine.SubmitTo(engine.AddSession(/*salt=*/7), Count(0, 16), 1);
  EXPECT_EQ(engine.Step().items[0].first_token, 0);
}

TEST(PrefixHitTest, ForksAndRewoundSessionsFindTheirBeginning) {
  FakeEngine engine(FakeConfig(), 32);
  const SessionId session = engine.AddSession();
  engine.SubmitTo(session, Count(0, 13), 2);
  engine.StepUntilIdle();
  const SessionId fork = engine.Fork(session);
  engine.SubmitTo(fork, Count(90, 2), 1);
  EXPECT_EQ(engine.Step().items[0].first_token, 14);
  engine.Rewind(session, 9);
  engine.SubmitTo(session, Count(80, 2), 1);
  EXPECT_EQ(engine.Step().items[0].first_token, 8);
}

TEST(PrefixHitTest, WhoIsRefusedIsNotLookedUpEveryStep) {
  FakeEngine engine(FakeConfig(), 8);
  engine.Submit(20, 12);
  engine.Step();
  engine.Submit(20, 1);
  engine.counts = FakeCounts();
  for (int i = 0; i < 8; ++i) engine.Step();
  EXPECT_EQ(engine.counts.peeks, 1);
  engine.StepUntilIdle();
}

TEST(PrefixHitTest, BlocksSetAsideCountForTheirRequest) {
  FakeEngine engine(FakeConfig(), 8);
  const SessionId session = engine.AddSession();
  engine.SetHold(session, 24);
  const RequestId other = engine.Submit(12, 1);
  EXPECT_THAT(engine.Step().items, IsEmpty()) << "2 blocks are left for 3";
  EXPECT_FALSE(engine.scheduler->HasWork());
  engine.Cancel(engine.SessionOf(other));
  const RequestId request = engine.SubmitTo(session, Count(0, 29), 1);
  const StepPlan plan = engine.Step();
  ASSERT_EQ(plan.items.size(), 1u);
  EXPECT_EQ(plan.items[0].id, request);
}

}  // namespace
}  // namespace inlay
