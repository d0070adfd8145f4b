// The life of requests: submission, order, budgets, results, cancels.
#include "sched/scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "tests/sched/fake_engine.h"

namespace inlay {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<int> TokenCounts(const StepPlan& plan) {
  std::vector<int> tokens;
  for (const StepItem& item : plan.items) tokens.push_back(item.num_tokens);
  return tokens;
}

SchedRequest Plain(RequestId id, int64_t total, int64_t max_new,
                   KvTables* table) {
  SchedRequest request;
  request.id = id;
  request.session_id = id;
  request.num_tokens_total = total;
  request.max_new_tokens = max_new;
  request.tables = table;
  return request;
}

TEST(SchedulerTest, CreateRefusesBadLimits) {
  KvBlockPool pool(4);
  NoPrefixes owner;
  EXPECT_EQ(Scheduler::Create(FakeConfig(5, 4), &pool, &owner).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(SchedulerTest, NothingToDo) {
  FakeEngine engine(FakeConfig(4, 16), 8);
  EXPECT_FALSE(engine.scheduler->HasWork());
  EXPECT_TRUE(engine.Step().empty());
  EXPECT_EQ(engine.scheduler->plan_in_flight(), nullptr);
}

TEST(SubmitTest, RefusesWhatCouldNeverFit) {
  FakeEngine engine(FakeConfig(4, 16), 5);
  KvTables a(&engine.kv.pool, 4), b(&engine.kv.pool, 4);
  const auto submit = [&](const SchedRequest& request) {
    return engine.scheduler->Submit(request);
  };
  // 20 slots: 10 + 11 tokens, the last of which needs no KV, is the most.
  const absl::Status status = submit(Plain(7, 10, 12, &a));
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(status.message(),
            "request 7: KV of up to 21 tokens needs 6 blocks of 4 tokens, "
            "there are 5");
  EXPECT_EQ(submit(Plain(7, 21, 0, &a)).code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(submit(Plain(7, 1, int64_t{1} << 40, &a)).code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_FALSE(engine.scheduler->HasWork());
  EXPECT_TRUE(submit(Plain(7, 10, 11, &a)).ok());
  EXPECT_TRUE(submit(Plain(8, 20, 0, &b)).ok());
  EXPECT_TRUE(engine.scheduler->Cancel(7).ok());
  EXPECT_TRUE(engine.scheduler->Cancel(8).ok());
}

TEST(SubmitTest, RefusesCountsOutOfRange) {
  FakeEngine engine(FakeConfig(4, 16), 8);
  KvTables table(&engine.kv.pool, 4);
  KvTables other_size(&engine.kv.pool, 8);
  KvTables not_empty(&engine.kv.pool, 4);
  auto reservation = KvTablesReservation::Make(&not_empty, 2);
  ASSERT_TRUE(reservation.ok());
  reservation->Commit(2);
  for (const SchedRequest& r :
       {Plain(1, 0, 1, &table), Plain(1, 1, -1, &table),
        Plain(1, INT64_MAX, INT64_MAX, &table), Plain(1, 5, 1, &other_size),
        Plain(1, 5, 1, &not_empty)}) {
    const absl::Status status = engine.scheduler->Submit(r);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("allowed"));
  }
  ASSERT_TRUE(engine.scheduler->Submit(Plain(1, 5, 1, &table)).ok());
  EXPECT_EQ(engine.scheduler->Submit(Plain(1, 5, 1, &table)).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(engine.scheduler->Cancel(1).ok());
}

TEST(SubmitTest, QueueHasACap) {
  SchedulerConfig config = FakeConfig(4, 16);
  config.max_queue = 2;
  FakeEngine engine(config, 8);
  engine.Submit(1, 1);
  engine.Submit(1, 1);
  const absl::Status status = engine.TrySubmit(engine.AddSession(), {1}, 1);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("2 requests wait, 2 may"));
  engine.Step();
  EXPECT_TRUE(engine.TrySubmit(engine.AddSession(), {1}, 1).ok());
}

TEST(PlanTest, OneRequestFromPromptToEnd) {
  FakeEngine engine(FakeConfig(4, 16), 8);
  const RequestId id = engine.Submit(20, 3);
  StepPlan plan = engine.Step();
  EXPECT_THAT(TokenCounts(plan), ElementsAre(16));
  EXPECT_FALSE(plan.items[0].samples);
  EXPECT_EQ(plan.prefill_tokens, 16);
  plan = engine.Step();
  EXPECT_EQ(plan.items[0].first_token, 16);
  EXPECT_EQ(plan.items[0].num_tokens, 4);
  EXPECT_TRUE(plan.items[0].samples);
  for (int64_t first : {20, 21}) {
    plan = engine.Step();
    EXPECT_EQ(plan.items[0].first_token, first);
    EXPECT_EQ(plan.decode_tokens, 1);
    EXPECT_TRUE(plan.items[0].samples);
  }
  EXPECT_FALSE(engine.scheduler->HasWork());
  EXPECT_EQ(engine.Find(id), nullptr);
  EXPECT_EQ(engine.sessions.begin()->second.tokens.size(), 23u);
  EXPECT_EQ(engine.sessions.begin()->second.tables.num_tokens(), 0);
  EXPECT_EQ(engine.kv.num_held(), 0);
  EXPECT_EQ(engine.kv.pool.num_evictable(), 6) << "22 tokens are cached";
}

TEST(PlanTest, PromptAloneEndsWithoutAToken) {
  FakeEngine engine(FakeConfig(4, 16), 8);
  engine.Submit(5, 0);
  EXPECT_TRUE(engine.Step().items[0].samples);
  EXPECT_FALSE(engine.scheduler->HasWork());
}

TEST(PlanTest, DecodesFirstThenRunningPrefillsThenNewcomers) {
  FakeEngine engine(FakeConfig(4, 16), 64);
  const RequestId a = engine.Submit(4, 9);
  const RequestId b = engine.Submit(30, 9);
  const RequestId c = engine.Submit(30, 9);
  EXPECT_THAT(TokenCounts(engine.Step()), ElementsAre(4, 12));
  StepPlan plan = engine.Step();
  EXPECT_THAT(Ids(plan), ElementsAre(a, b));
  EXPECT_THAT(TokenCounts(plan), ElementsAre(1, 15));
  plan = engine.Step();
  EXPECT_THAT(Ids(plan), ElementsAre(a, b, c));
  EXPECT_THAT(TokenCounts(plan), ElementsAre(1, 3, 12));
  EXPECT_EQ(plan.decode_tokens, 1);
  EXPECT_EQ(plan.prefill_tokens, 15);
  EXPECT_THAT(TokenCounts(engine.Step()), ElementsAre(1, 1, 14));
}

// A step that has begun before it was planned: nobody comes in, and nobody
// takes that for an end of all work.
TEST(PlanTest, DecodesOnly) {
  FakeEngine engine(FakeConfig(4, 16), 64);
  const RequestId a = engine.Submit(4, 3);
  engine.Step();
  const RequestId b = engine.Submit(30, 2);
  engine.decodes_only = true;
  EXPECT_THAT(Ids(engine.Step()), ElementsAre(a));
  engine.decodes_only = false;
  EXPECT_THAT(TokenCounts(engine.Step()), ElementsAre(1, 15));
  // Neither one that waits nor a prefill that has begun is a decode.
  engine.decodes_only = true;
  EXPECT_THAT(Ids(engine.Step()), IsEmpty());
  EXPECT_TRUE(engine.scheduler->HasWork());
  engine.decodes_only = false;
  EXPECT_THAT(Ids(engine.Step()), ElementsAre(b));
  engine.StepUntilIdle();
}

TEST(PlanTest, ChunkCapLeavesRoomForOthers) {
  SchedulerConfig config = FakeConfig(4, 16);
  config.max_prefill_chunk = 6;
  FakeEngine engine(config, 64);
  for (int i = 0; i < 3; ++i) engine.Submit(30, 1);
  EXPECT_THAT(TokenCounts(engine.Step()), ElementsAre(6, 6, 4));
}

TEST(PlanTest, HigherPriorityIsAdmittedFirstAndFifoInside) {
  FakeEngine engine(FakeConfig(4, 16), 64);
  const RequestId low = engine.Submit(4, 2, 0);
  const RequestId mid1 = engine.Submit(4, 2, 1);
  const RequestId mid2 = engine.Submit(4, 2, 1);
  const RequestId high = engine.Submit(4, 2, 5);
  EXPECT_THAT(Ids(engine.Step()), ElementsAre(high, mid1, mid2, low));
}

TEST(PlanTest, AtMostMaxRunning) {
  FakeEngine engine(FakeConfig(2, 16), 64);
  for (int i = 0; i < 3; ++i) engine.Submit(2, 2);
  EXPECT_EQ(engine.Step().items.size(), 2u);
  EXPECT_EQ(engine.Step().items.size(), 2u);
  EXPECT_EQ(engine.Step().items.size(), 1u);
}

TEST(PlanTest, ItIsTheSameUntilCommitted) {
  FakeEngine engine(FakeConfig(4, 16), 8);
  const RequestId a = engine.Submit(4, 2);
  const StepPlan first = engine.scheduler->Plan({});
  engine.Submit(4, 2);
  const StepPlan& again = engine.scheduler->Plan({});
  EXPECT_EQ(again.step, first.step);
  EXPECT_THAT(Ids(again), ElementsAre(a));
  EXPECT_EQ(engine.scheduler->plan_in_flight(), &again);
}

TEST(CommitTest, RefusesWhatContradictsThePlan) {
  FakeEngine engine(FakeConfig(4, 4), 16);
  engine.Submit(3, 2);
  engine.Submit(3, 2);
  const StepPlan& plan =
      engine.scheduler->Plan({});  // 3 tokens and a sample; 1 token of 3
  ASSERT_THAT(TokenCounts(plan), ElementsAre(3, 1));
  const StepResult sampled = {1, false, true}, nothing = {0, false, true},
                   failed = {0, false, false}, ended = {0, true, true};
  const StepResult failed_and_sampled = {1, false, false},
                   two = {2, false, true}, minus = {-1, true, true};
  using Results = std::vector<StepResult>;
  const auto code = [&](const Results& results) {
    return engine.scheduler->Commit(plan, results).code();
  };
  for (const Results& results :
       {Results{}, Results{sampled}, Results{nothing, nothing},
        Results{two, nothing}, Results{sampled, sampled},
        Results{failed_and_sampled, nothing}, Results{minus, nothing}}) {
    EXPECT_EQ(code(results), absl::StatusCode::kInvalidArgument);
  }
  StepPlan old = plan;
  --old.step;
  EXPECT_EQ(engine.scheduler->Commit(old, {sampled, nothing}).code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(engine.Find(1)->num_computed, 0)
      << "refused results change nothing";
  EXPECT_EQ(code({failed, ended}), absl::StatusCode::kOk);
  EXPECT_EQ(code({failed, ended}), absl::StatusCode::kFailedPrecondition)
      << "committed already";
  EXPECT_EQ(engine.Find(1)->num_computed, 0);
  EXPECT_EQ(engine.Find(2), nullptr);
}

TEST(CommitTest, FailedItemsArePlannedAgain) {
  FakeEngine engine(FakeConfig(4, 16), 8);
  engine.Submit(6, 2);
  engine.fails = [] { return true; };
  const StepPlan first = engine.Step();
  engine.fails = [] { return false; };
  const StepPlan second = engine.Step();
  EXPECT_EQ(second.items[0].first_token, first.items[0].first_token);
  EXPECT_EQ(second.items[0].num_tokens, first.items[0].num_tokens);
  engine.Step();
  EXPECT_FALSE(engine.scheduler->HasWork());
}

TEST(CommitTest, SpentRequestsEndByThemselves) {
  KvBlockPool pool(4);
  NoPrefixes owner;
  auto scheduler = *Scheduler::Create(FakeConfig(4, 16), &pool, &owner);
  KvTables table(&pool, 4);
  ASSERT_TRUE(scheduler->Submit(Plain(1, 2, 1, &table)).ok());
  ASSERT_TRUE(scheduler->Commit(scheduler->Plan({}), {{1, false, true}}).ok());
  EXPECT_FALSE(scheduler->HasWork());
}

TEST(CancelTest, InEveryState) {
  FakeEngine engine(FakeConfig(2, 16), 64);
  EXPECT_EQ(engine.scheduler->Cancel(99).code(), absl::StatusCode::kNotFound);
  const RequestId runs = engine.Submit(4, 9);
  const RequestId flies = engine.Submit(4, 9);
  const RequestId waits = engine.Submit(4, 9);
  const SessionId in_flight = engine.SessionOf(flies);
  engine.Step();
  engine.Cancel(engine.SessionOf(waits));
  EXPECT_EQ(engine.Find(waits), nullptr);
  engine.Cancel(engine.SessionOf(runs));
  EXPECT_EQ(engine.scheduler->num_running(), 1u);
  engine.after_reserve = [&] {
    engine.Cancel(in_flight);
    EXPECT_EQ(engine.Find(flies)->state, RequestState::kFinished)
        << "it stays until the commit";
    EXPECT_TRUE(engine.scheduler->Cancel(flies).ok()) << "twice is no error";
  };
  engine.Step();
  EXPECT_EQ(engine.scheduler->Cancel(flies).code(),
            absl::StatusCode::kNotFound);
  EXPECT_FALSE(engine.scheduler->HasWork());
  EXPECT_EQ(engine.sessions.at(in_flight).tokens.size(), 5u)
      << "the cancelled step's token is not there";
  EXPECT_EQ(engine.kv.num_held(), 0);
}

TEST(CancelTest, InFlightLeavesItsTableAlone) {
  FakeEngine engine(FakeConfig(4, 16), 8);
  const SessionId session = engine.AddSession();
  engine.SubmitTo(session, {1, 2, 3, 4}, 9);
  const StepPlan& plan = engine.scheduler->Plan({});
  EXPECT_TRUE(engine.scheduler->Cancel(plan.items[0].id).ok());
  engine.sessions.erase(session);  // the table is gone before the commit
  EXPECT_EQ(CheckInvariants(*engine.scheduler, engine.kv.pool),
            absl::OkStatus());
  EXPECT_TRUE(engine.scheduler->Commit(plan, {{0, false, false}}).ok());
  EXPECT_FALSE(engine.scheduler->HasWork());
}

std::string Violation(const FakeEngine& engine) {
  return std::string(
      CheckInvariants(*engine.scheduler, engine.kv.pool).message());
}

TEST(InvariantsTest, SeeATableThatChangedBehindTheScheduler) {
  FakeEngine engine(FakeConfig(4, 16), 16);
  const RequestId a = engine.Submit(4, 9);
  engine.Step();
  EXPECT_EQ(Violation(engine), "");
  engine.SessionWith(a).tables.Truncate(3);
  EXPECT_THAT(Violation(engine),
              HasSubstr("3 tokens in its table 0, 4 computed"));
}

TEST(InvariantsTest, SeeATableWithTwoOwners) {
  FakeEngine engine(FakeConfig(4, 16), 16);
  KvTables table(&engine.kv.pool, 4);
  ASSERT_TRUE(engine.scheduler->Submit(Plain(1, 4, 1, &table)).ok());
  ASSERT_TRUE(engine.scheduler->Submit(Plain(2, 4, 1, &table)).ok());
  EXPECT_THAT(Violation(engine), HasSubstr("two owners"));
}

// One that is computed whole never has a part of itself in a step; others fill
// what it leaves.
TEST(WholeTest, AllOrNothing) {
  FakeEngine engine(FakeConfig(8, 16), 64);
  FakeOptions whole;
  whole.whole = true;
  const RequestId a = engine.Submit(10, 0, whole);
  const RequestId b = engine.Submit(10, 0, whole);
  const RequestId c = engine.Submit(3, 2);
  StepPlan plan = engine.Step();
  EXPECT_THAT(Ids(plan), ElementsAre(a));
  EXPECT_THAT(TokenCounts(plan), ElementsAre(10));
  plan = engine.Step();
  EXPECT_THAT(Ids(plan), ElementsAre(b, c));
  EXPECT_THAT(TokenCounts(plan), ElementsAre(10, 3));
  engine.StepUntilIdle();
  EXPECT_EQ(engine.counts.finished, 3);
}

TEST(WholeTest, ALimitOfChunksIsNotForIt) {
  SchedulerConfig config = FakeConfig(8, 16);
  config.max_prefill_chunk = 4;
  FakeEngine engine(config, 64);
  FakeOptions whole;
  whole.whole = true;
  engine.Submit(16, 0, whole);
  EXPECT_THAT(TokenCounts(engine.Step()), ElementsAre(16));
}

// Blocks for 24 tokens: the second waits for the first, and neither is
// preempted half done.
TEST(WholeTest, WaitsForAllOfItsRoom) {
  FakeEngine engine(FakeConfig(8, 64), 6);
  FakeOptions whole;
  whole.whole = true;
  for (int i = 0; i < 5; ++i) engine.Submit(15, 0, whole);
  for (int i = 0; i < 5; ++i)
    EXPECT_THAT(TokenCounts(engine.Step()), ElementsAre(15)) << i;
  EXPECT_FALSE(engine.scheduler->HasWork());
  EXPECT_EQ(engine.counts.preempted, 0);
}

// It failed once, and KV has come to another meanwhile: two that decode leave
// it too few tokens, the first in rank though it is. Nobody else gets any until
// one of them has ended.
TEST(WholeTest, ItsTurnComesWhenDecodesEnd) {
  FakeEngine engine(FakeConfig(8, 16), 8);
  engine.kv.has_tier = true;
  engine.loads = [] { return 0; };
  const std::vector<int32_t> prompt = engine.NewTokens(5);
  engine.SubmitTo(engine.AddSession(), prompt, 0);
  engine.Submit(32, 0);  // in the place of that
  engine.StepUntilIdle();
  const RequestId a = engine.SubmitTo(engine.AddSession(), prompt, 4);
  const RequestId b = engine.Submit(2, 4);
  EXPECT_THAT(Ids(engine.Step()), ElementsAre(b));
  FakeOptions options{/*priority=*/1};
  options.whole = true;
  const RequestId whole = engine.Submit(15, 0, options);
  engine.loads = [] { return 1; };
  engine.faults = true;
  int item = 0;
  engine.fails = [&] { return ++item == 2; };
  EXPECT_THAT(Ids(engine.Step()), ElementsAre(b, whole));
  const RequestId last = engine.Submit(1, 0);
  for (int i = 0; i < 2; ++i)
    EXPECT_THAT(Ids(engine.Step()), ElementsAre(a, b)) << i;
  EXPECT_THAT(Ids(engine.Step()), ElementsAre(a, whole));
  EXPECT_THAT(Ids(engine.Step()), ElementsAre(a, last));
  EXPECT_FALSE(engine.scheduler->HasWork());
  EXPECT_EQ(engine.counts.loaded, 1);
}

}  // namespace
}  // namespace inlay
