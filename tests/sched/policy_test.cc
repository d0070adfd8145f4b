// The rules and the counting below the scheduler: order, chunking, limits, idle
// sessions, the block ledger.
#include "sched/policy.h"

#include <gtest/gtest.h>

#include <vector>

#include "memory/kv/block_pool.h"
#include "memory/kv/block_table.h"
#include "memory/kv/reservation.h"
#include "sched/block_ledger.h"
#include "sched/config.h"
#include "sched/idle_sessions.h"

namespace inlay {
namespace {

SchedRequest Request(int64_t total, int64_t computed,
                     KvBlockTable* table = nullptr) {
  SchedRequest request;
  request.num_tokens_total = total;
  request.num_computed = computed;
  request.table = table;
  return request;
}

void Append(KvBlockTable* table, int64_t tokens) {
  auto reservation = KvReservation::Make(table, tokens);
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

TEST(PolicyTest, OnlyThePreemptedMustFitWhole) {
  SchedRequest request = Request(50, 0);
  EXPECT_EQ(AdmissionTokens(request, 8), 8);
  request.state = RequestState::kPreempted;
  EXPECT_EQ(AdmissionTokens(request, 8), 50);
}

TEST(PolicyTest, LastGeneratedTokenNeedsNoKv) {
  SchedRequest request = Request(10, 0);
  request.max_total_tokens = 15;
  EXPECT_EQ(PeakKvTokens(request), 14);
  request.max_total_tokens = 10;
  EXPECT_EQ(PeakKvTokens(request), 10)
      << "nothing is generated: the prompt alone";
}

TEST(ConfigTest, NamesWhatIsOutOfRange) {
  EXPECT_TRUE(ValidateConfig(SchedulerConfig()).ok());
  SchedulerConfig config;
  config.max_running = config.max_batch_tokens + 1;
  EXPECT_EQ(ValidateConfig(config).message(),
            "scheduler max_running: got 513, allowed 1 to 512");
  for (int32_t SchedulerConfig::*field :
       {&SchedulerConfig::block_size, &SchedulerConfig::max_batch_tokens,
        &SchedulerConfig::max_running, &SchedulerConfig::max_queue}) {
    for (int32_t value : {0, -1, INT32_MIN}) {
      config = SchedulerConfig();
      config.*field = value;
      EXPECT_EQ(ValidateConfig(config).code(),
                absl::StatusCode::kInvalidArgument);
    }
  }
  config = SchedulerConfig();
  config.max_prefill_chunk = -1;
  EXPECT_FALSE(ValidateConfig(config).ok());
}

TEST(IdleSessionsTest, KeepsTheOrderOfUse) {
  KvBlockPool pool(1);
  KvBlockTable table(&pool, 1);
  IdleSessions idle;
  for (SessionId id : {1, 2, 3}) idle.Set(id, &table);
  idle.Set(1, &table);
  idle.Remove(2);
  idle.Remove(7);
  std::vector<SessionId> order;
  for (const IdleSession& session : idle.lru()) order.push_back(session.id);
  EXPECT_EQ(order, (std::vector<SessionId>{3, 1}));
  EXPECT_TRUE(idle.contains(1));
  EXPECT_FALSE(idle.contains(2));
  EXPECT_EQ(idle.size(), 2u);
}

TEST(BlockLedgerTest, NeedAgreesWithTheTableForEveryLength) {
  for (int size : {1, 2, 3, 4}) {
    for (int held = 0; held <= 2 * size; ++held) {
      for (bool shared : {false, true}) {
        KvBlockPool pool(32);
        KvBlockTable table(&pool, size);
        Append(&table, held);
        KvBlockTable other = shared ? table.Fork() : KvBlockTable(&pool, size);
        BlockLedger ledger(&pool, size);
        const SchedRequest with = Request(100, held, &table);
        const SchedRequest without = Request(100, held);
        for (int extra = 0; extra <= 2 * size + 1; ++extra) {
          EXPECT_EQ(ledger.Need(with, extra), table.BlocksNeeded(extra));
          EXPECT_EQ(ledger.Need(without, extra),
                    KvBlocksFor(held + extra, size) - KvBlocksFor(held, size));
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
          KvBlockTable table(&pool, size);
          Append(&table, held);
          KvBlockTable other =
              shared ? table.Fork() : KvBlockTable(&pool, size);
          BlockLedger ledger(&pool, size);
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
  KvBlockTable a(&pool, 2);
  Append(&a, 5);
  KvBlockTable b = a.Fork();
  KvBlockTable c = a.Fork();
  c.Truncate(2);
  BlockLedger ledger(&pool, 2);
  EXPECT_EQ(ledger.num_free(), 5);
  ledger.Release(a);
  EXPECT_EQ(ledger.num_free(), 5);
  EXPECT_EQ(ledger.Need(Request(9, 5, &b), 1), 0)
      << "the last block is b's alone now";
  ledger.Release(b);
  EXPECT_EQ(ledger.num_free(), 7);
  ledger.UndoRelease(a);
  EXPECT_EQ(ledger.num_free(), 5);
  ledger.Release(c);
  ledger.Release(a);
  EXPECT_EQ(ledger.num_free(), 8);
  ledger.UndoRelease(c);
  ledger.UndoRelease(b);
  ledger.UndoRelease(a);
  EXPECT_EQ(ledger.num_free(), 5);
  ledger.Release(a);
  ledger.Begin();
  EXPECT_EQ(ledger.num_free(), 5);
  EXPECT_EQ(ledger.Need(Request(9, 5, &b), 1), 1)
      << "nothing is left of the last plan";
  EXPECT_EQ(pool.num_free(), 5) << "the pool itself is never touched";
}

}  // namespace
}  // namespace inlay
