// The rules and the counting below the scheduler: order, chunking, limits,
// shares, the block ledger.
#include "sched/policy.h"

#include <gtest/gtest.h>

#include <vector>

#include "memory/kv/block_pool.h"
#include "memory/kv/block_table.h"
#include "memory/kv/reservation.h"
#include "sched/block_ledger.h"
#include "sched/config.h"
#include "sched/fair_share.h"
#include "tests/sched/fake_kv.h"

namespace inlay {
namespace {

SchedRequest Request(int64_t total, int64_t computed,
                     KvTables* table = nullptr) {
  SchedRequest request;
  request.num_tokens_total = total;
  request.num_computed = computed;
  request.tables = table;
  return request;
}

void Append(KvTables* table, int64_t tokens) {
  auto reservation = KvTablesReservation::Make(table, tokens);
  ASSERT_TRUE(reservation.ok()) << reservation.status();
  reservation->Commit(tokens);
}

TEST(PolicyTest, RanksByPriorityThenArrival) {
  SchedRequest a, b;
  a.priority = 1, a.arrival = 9;
  b.priority = 0, b.arrival = 1;
  EXPECT_TRUE(RanksBefore(a, b));
  EXPECT_FALSE(RanksBefore(b, a));
  b.priority = 1;
  EXPECT_TRUE(RanksBefore(b, a));
  EXPECT_FALSE(RanksBefore(a, a));
  a.priority = INT32_MIN, b.priority = INT32_MAX;
  EXPECT_TRUE(RanksBefore(b, a));
}

TEST(PolicyTest, ChunkIsTheLeastOfPendingBudgetAndCap) {
  SchedulerConfig config;
  config.max_batch_tokens = 100;
  EXPECT_EQ(ChunkTokens(Request(50, 10), 100, config), 40);
  EXPECT_EQ(ChunkTokens(Request(50, 10), 7, config), 7);
  EXPECT_EQ(ChunkTokens(Request(50, 10), 0, config), 0);
  EXPECT_EQ(ChunkTokens(Request(5000, 10), 5000, config), 100);
  config.max_prefill_chunk = 32;
  EXPECT_EQ(ChunkTokens(Request(5000, 10), 100, config), 32);
}

TEST(PolicyTest, RanksByDeadlineThenShareThenArrival) {
  SchedRequest a, b;
  a.arrival = 2, b.arrival = 1;
  a.deadline_us = 5;
  EXPECT_TRUE(RanksBefore(a, b));
  b.deadline_us = 4;
  EXPECT_TRUE(RanksBefore(b, a));
  b.deadline_us = 5;
  b.share_tag = 7, a.share_tag = 6.5;
  EXPECT_TRUE(RanksBefore(a, b));
  b.share_tag = 6.5;
  EXPECT_TRUE(RanksBefore(b, a));
  b.priority = -1;
  EXPECT_TRUE(RanksBefore(a, b)) << "priority before all of them";
}

TEST(PolicyTest, TheStarvedGoByArrivalAlone) {
  SchedRequest a, b;
  a.starved = true, a.arrival = 9, a.priority = INT32_MIN;
  b.priority = INT32_MAX, b.deadline_us = 0, b.arrival = 3;
  EXPECT_TRUE(RanksBefore(a, b));
  EXPECT_TRUE(ClassAbove(a, b));
  EXPECT_FALSE(ClassAbove(b, a));
  b.starved = true;
  EXPECT_TRUE(RanksBefore(b, a));
  EXPECT_FALSE(ClassAbove(a, b));
  EXPECT_FALSE(ClassAbove(b, a)) << "priority counts no more";
  a.arrival = 2;
  EXPECT_TRUE(RanksBefore(a, b));
}

TEST(PolicyTest, OnlyPriorityAndStarvationMakeAClass) {
  SchedRequest a, b;
  a.deadline_us = 1, a.share_tag = -1, a.arrival = 0;
  b.arrival = 9;
  EXPECT_FALSE(ClassAbove(a, b));
  b.priority = -1;
  EXPECT_TRUE(ClassAbove(a, b));
}

TEST(PolicyTest, OnlyThePreemptedMustFitWhole) {
  SchedulerConfig config;
  SchedRequest request = Request(50, 0);
  EXPECT_EQ(AdmissionTokens(request, 8, config.groups[0]), 8);
  request.state = RequestState::kPreempted;
  EXPECT_EQ(AdmissionTokens(request, 8, config.groups[0]), 50);
  request.num_computed = 30;
  EXPECT_EQ(AdmissionTokens(request, 8, config.groups[0]), 20);
  config.groups[0].block_size = 4;
  config.groups[0].window = 6;
  request.num_computed = 0;
  EXPECT_EQ(AdmissionTokens(request, 8, config.groups[0]), 6 + 8 + 2 * 4);
}

TEST(PolicyTest, LastGeneratedTokenNeedsNoKv) {
  SchedulerConfig config;
  SchedRequest request = Request(10, 0);
  request.max_total_tokens = 15;
  EXPECT_EQ(PeakKvTokens(request, config, config.groups[0]), 14);
  request.max_total_tokens = 10;
  EXPECT_EQ(PeakKvTokens(request, config, config.groups[0]), 10)
      << "nothing is generated: the prompt alone";
}

TEST(PolicyTest, AWindowBoundsWhatIsHeld) {
  SchedulerConfig config;
  config.groups[0].block_size = 4;
  config.max_batch_tokens = 32;
  config.groups[0].window = 10;
  SchedRequest request = Request(1000, 0);
  request.max_total_tokens = 2000;
  EXPECT_EQ(PeakKvTokens(request, config, config.groups[0]), 10 + 32 + 2 * 4);
  request.num_tokens_total = 5;
  request.max_total_tokens = 9;
  EXPECT_EQ(PeakKvTokens(request, config, config.groups[0]), 8);
}

TEST(ConfigTest, NamesWhatIsOutOfRange) {
  EXPECT_TRUE(ValidateConfig(SchedulerConfig()).ok());
  SchedulerConfig config;
  config.max_running = config.max_batch_tokens + 1;
  EXPECT_EQ(ValidateConfig(config).message(),
            "scheduler max_running: got 513, allowed 1 to 512");
  for (int32_t SchedulerConfig::*field :
       {&SchedulerConfig::max_batch_tokens, &SchedulerConfig::max_running,
        &SchedulerConfig::max_queue}) {
    for (int32_t value : {0, -1, INT32_MIN}) {
      config = SchedulerConfig();
      config.*field = value;
      EXPECT_EQ(ValidateConfig(config).code(),
                absl::StatusCode::kInvalidArgument);
    }
  }
  for (const KvGroups& groups :
       {KvGroups(), KvGroups(kMaxKvGroups + 1), KvGroups{{0, 0}},
        KvGroups{{-1, 0}}, KvGroups{{16, -1}}, KvGroups{{16, INT64_MAX}},
        KvGroups{{16, 0}, {0, 4}}, KvGroups{{16, 0}, {16, INT64_MIN}}}) {
    config = SchedulerConfig();
    config.groups = groups;
    EXPECT_FALSE(ValidateConfig(config).ok());
  }
  config = SchedulerConfig();
  config.max_prefill_chunk = -1;
  EXPECT_FALSE(ValidateConfig(config).ok());
  for (int64_t SchedulerConfig::*field :
       {&SchedulerConfig::tpot_target_us, &SchedulerConfig::starvation_us}) {
    for (int64_t value : {int64_t{-1}, INT64_MIN, INT64_MAX}) {
      config = SchedulerConfig();
      config.*field = value;
      EXPECT_EQ(ValidateConfig(config).code(),
                absl::StatusCode::kInvalidArgument);
    }
  }
}

TEST(BlockLedgerTest, NeedAgreesWithTheTableForEveryLength) {
  for (int size : {1, 2, 3, 4}) {
    for (int held = 0; held <= 2 * size; ++held) {
      for (bool shared : {false, true}) {
        KvBlockPool pool(32);
        KvTables table(&pool, size);
        Append(&table, held);
        KvTables other = shared ? table.Fork() : KvTables(&pool, size);
        BlockLedger ledger(&pool, {KvGroup{size}});
        const SchedRequest with = Request(100, held, &table);
        for (int extra = 0; extra <= 2 * size + 1; ++extra) {
          EXPECT_EQ(ledger.Need(with, extra), table.BlocksNeeded(extra));
        }
      }
    }
  }
}

TEST(BlockLedgerTest, MaxFittingIsTheLastThatFits) {
  for (int size : {1, 3}) {
    for (int held = 0; held <= 4; ++held) {
      for (int free = 0; free <= 4; ++free) {
        for (bool shared : {false, true}) {
          KvBlockPool pool(static_cast<int32_t>(KvBlocksFor(held, size)) +
                           free);
          KvTables table(&pool, size);
          Append(&table, held);
          KvTables other = shared ? table.Fork() : KvTables(&pool, size);
          BlockLedger ledger(&pool, {KvGroup{size}});
          const SchedRequest request = Request(100, held, &table);
          const int64_t most = ledger.MaxFitting(request, 50);
          EXPECT_TRUE(ledger.Fits(request, most));
          EXPECT_FALSE(ledger.Fits(request, most + 1));
          for (int64_t cap = 0; cap <= most; ++cap)
            EXPECT_EQ(ledger.MaxFitting(request, cap), cap);
        }
      }
    }
  }
}

TEST(BlockLedgerTest, SharedBlocksComeFreeWithTheirLastHolder) {
  KvBlockPool pool(8);
  KvTables a(&pool, 2);
  Append(&a, 5);
  KvTables b = a.Fork();
  KvTables c = a.Fork();
  c.Truncate(2);
  BlockLedger ledger(&pool, {KvGroup{2}});
  EXPECT_EQ(ledger.num_available(), 5);
  ledger.Try(a);
  EXPECT_EQ(ledger.num_available(), 5);
  EXPECT_EQ(ledger.Need(Request(9, 5, &b), 1), 0)
      << "the last block is b's alone now";
  ledger.Try(b);
  EXPECT_EQ(ledger.num_available(), 7);
  ledger.UndoTry(a);
  EXPECT_EQ(ledger.num_available(), 5);
  ledger.Try(c);
  ledger.Try(a);
  EXPECT_EQ(ledger.num_available(), 8);
  ledger.UndoTry(c);
  ledger.UndoTry(b);
  ledger.UndoTry(a);
  EXPECT_EQ(ledger.num_available(), 5);
  ledger.Try(a);
  ledger.Try(b);
  ledger.EndTrials();
  EXPECT_EQ(ledger.num_available(), 5);
  EXPECT_EQ(ledger.Need(Request(9, 5, &b), 1), 1)
      << "nothing is left of the trials";
  ledger.Claim(3);
  EXPECT_EQ(ledger.num_available(), 2);
  ledger.Unclaim(1);
  EXPECT_EQ(ledger.num_available(), 3);
  ledger.Begin();
  EXPECT_EQ(ledger.num_available(), 5);
  EXPECT_EQ(pool.num_free(), 5) << "the pool itself is never touched";
}

TEST(BlockLedgerTest, WhatIsCachedIsAvailableOnceNobodyHoldsIt) {
  FakeKv kv({{2, 0}}, 8);
  KvTables a(&kv.pool, 2);
  PrefixCursors cursors(1);
  const std::vector<int32_t> tokens = {1, 2, 3, 4, 5, 6};
  Append(&a, 6);
  BlockLedger ledger(&kv.pool, {KvGroup{2}});
  EXPECT_EQ(ledger.num_available(), 5);
  kv.Publish(0, tokens, &a, &cursors);
  EXPECT_EQ(ledger.num_available(), 5) << "cached, but held";
  KvTables b = a.Fork();
  ledger.Try(a);
  EXPECT_EQ(ledger.num_available(), 5);
  ledger.Try(b);
  EXPECT_EQ(ledger.num_available(), 8) << "the cache is no holder";
  ledger.EndTrials();
  a.Clear();
  b.Clear();
  EXPECT_EQ(ledger.num_available(), 8);
  EXPECT_EQ(kv.pool.num_free(), 5);
}

TEST(BlockLedgerTest, SeesBlocksThatThePoolGotSince) {
  FakeKv kv({{2, 0}}, 1);
  BlockLedger ledger(&kv.pool, {KvGroup{2}});
  kv.Resize(6, {});
  ledger.Begin();
  EXPECT_EQ(ledger.num_available(), 6);
  KvTables a(&kv.pool, 2);
  Append(&a, 12);
  ledger.Try(a);
  EXPECT_EQ(ledger.num_available(), 6);
  ledger.EndTrials();
}

TEST(FairShareTest, TagsOfOneKeyLieItsTokensApart) {
  FairShare shares;
  EXPECT_EQ(shares.Tag(1, 10), 0);
  EXPECT_EQ(shares.Tag(1, 10), 10);
  EXPECT_EQ(shares.Tag(2, 3), 0) << "another key is not behind it";
  shares.Charge(1, 5);
  EXPECT_EQ(shares.Tag(1, 1), 25);
}

TEST(FairShareTest, NobodySavesUpTurnsWhileAway) {
  FairShare shares;
  EXPECT_EQ(shares.Tag(1, 10), 0);
  shares.Advance(500);
  shares.Advance(400);
  EXPECT_EQ(shares.Tag(1, 10), 500);
  EXPECT_EQ(shares.Tag(2, 10), 500) << "nor does a newcomer start behind";
}

TEST(FairShareTest, ForgettingKeysChangesNoTag) {
  FairShare shares;
  for (uint64_t key = 0; key < 100000; ++key) {
    ASSERT_EQ(shares.Tag(key, 1), static_cast<double>(key));
    shares.Advance(static_cast<double>(key) + 1);
    if (key == 50000) {
      EXPECT_EQ(shares.Tag(7777777, 1000000), 50001);
    }
  }
  EXPECT_EQ(shares.Tag(7777777, 1), 1050001) << "still ahead: remembered";
}

TEST(FairShareTest, WhoIsForgottenOrFindsNobodyThereBeginsAnew) {
  FairShare shares;
  shares.Tag(1, 10);
  shares.Tag(2, 10);
  shares.Forget(1);
  shares.Charge(1, 5);
  EXPECT_EQ(shares.Tag(1, 10), 0);
  EXPECT_EQ(shares.Tag(2, 10), 10);
  shares.Advance(10);
  shares.Idle();
  EXPECT_EQ(shares.Tag(1, 1), 10);
  EXPECT_EQ(shares.Tag(2, 1), 10);
}

}  // namespace
}  // namespace inlay
