// KvBlockPool, KvBlockTable, KvReservation: each rule by itself, swept over
// block sizes and lengths.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "memory/kv/block_pool.h"
#include "memory/kv/block_table.h"
#include "memory/kv/reservation.h"
#include "tests/memory/free_block.h"

namespace inlay {
namespace {

void Append(KvBlockTable* table, int64_t tokens) {
  auto reservation = KvReservation::Make(table, tokens);
  ASSERT_TRUE(reservation.ok()) << reservation.status();
  reservation->Commit(tokens);
}

std::vector<int32_t> BlockIds(const KvReservation& reservation) {
  std::vector<int32_t> ids(static_cast<size_t>(reservation.num_blocks()));
  reservation.CopyBlocksTo(absl::MakeSpan(ids));
  for (size_t i = 0; i < ids.size(); ++i)
    EXPECT_EQ(ids[i], reservation.block(static_cast<int64_t>(i)));
  return ids;
}

std::vector<int32_t> BlockIds(const KvBlockTable& table) {
  return {table.blocks().begin(), table.blocks().end()};
}

TEST(KvBlockPoolTest, AllocatesAllOrNothing) {
  KvBlockPool pool(5);
  EXPECT_EQ(pool.num_total(), 5);
  EXPECT_EQ(pool.num_free(), 5);
  auto three = pool.Allocate(3);
  ASSERT_TRUE(three.ok());
  EXPECT_EQ(three->size(), 3u);
  auto refused = pool.Allocate(3);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(refused.status().message(),
            "KV blocks: 3 wanted, 2 free and 0 evictable of 5");
  EXPECT_EQ(pool.num_free(), 2);
  EXPECT_EQ(pool.Allocate(-1).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(pool.Allocate(INT64_MAX).status().code(),
            absl::StatusCode::kResourceExhausted);
  ASSERT_TRUE(pool.Allocate(0).ok());
  ASSERT_TRUE(pool.Allocate(2).ok());
  EXPECT_EQ(pool.num_free(), 0);
  EXPECT_EQ(pool.peak_used(), 5);
}

TEST(KvBlockPoolTest, CountsReferencesAndReusesTheLastFreed) {
  KvBlockPool pool(4);
  const std::vector<int32_t> ids = *pool.Allocate(4);
  pool.Ref(ids[1]);
  EXPECT_EQ(pool.RefCount(ids[1]), 2);
  pool.Unref(ids[1]);
  EXPECT_EQ(pool.num_free(), 0);
  pool.Unref(ids[1]);
  pool.Unref(ids[3]);
  EXPECT_FALSE(pool.IsUsed(ids[1]));
  EXPECT_EQ(pool.num_used(), 2);
  EXPECT_EQ(*pool.Allocate(2), (std::vector<int32_t>{ids[3], ids[1]}));
  EXPECT_EQ(pool.peak_used(), 4);
  EXPECT_FALSE(pool.IsUsed(-1));
  EXPECT_FALSE(pool.IsUsed(4));
}

TEST(KvBlockPoolTest, EmptyPoolServesNothing) {
  KvBlockPool pool(0);
  EXPECT_TRUE(pool.Allocate(0).ok());
  EXPECT_FALSE(pool.Allocate(1).ok());
}

// Gives back what became evictable first; notes what it was told.
class Fifo : public KvBlockReclaimer {
 public:
  explicit Fifo(KvBlockPool* pool) : pool_(pool) { pool->SetReclaimer(this); }
  void Reclaim(int64_t count) override {
    for (; count > 0; --count) pool_->RemoveFromCache(evictable.front());
  }
  void OnEvictable(int32_t id) override { evictable.push_back(id); }
  void OnHeld(int32_t id) override { std::erase(evictable, id); }

  std::vector<int32_t> evictable;

 private:
  KvBlockPool* pool_;
};

TEST(KvBlockPoolTest, CachedBlocksAreAvailable) {
  KvBlockPool pool(4);
  Fifo cache(&pool);
  const std::vector<int32_t> ids = *pool.Allocate(3);
  pool.AddToCache(ids[0]);
  pool.AddToCache(ids[1]);
  EXPECT_EQ(pool.RefCount(ids[0]), 2);
  EXPECT_TRUE(pool.IsCached(ids[0]));
  EXPECT_FALSE(pool.IsEvictable(ids[0]));
  pool.Unref(ids[1]);
  pool.Unref(ids[0]);
  EXPECT_EQ(cache.evictable, (std::vector<int32_t>{ids[1], ids[0]}));
  EXPECT_EQ(pool.num_free(), 1);
  EXPECT_EQ(pool.num_evictable(), 2);
  EXPECT_EQ(pool.num_available(), 3);
  EXPECT_EQ(pool.num_used(), 3);
  // A holder takes one out of reach, and back.
  pool.Ref(ids[1]);
  EXPECT_EQ(pool.num_available(), 2);
  EXPECT_EQ(cache.evictable, (std::vector<int32_t>{ids[0]}));
  EXPECT_EQ(pool.Allocate(3).status().message(),
            "KV blocks: 3 wanted, 1 free and 1 evictable of 4");
  pool.Unref(ids[1]);
  EXPECT_EQ(pool.Allocate(2)->size(), 2u);
  EXPECT_FALSE(pool.IsCached(ids[0])) << "reclaimed, and handed out anew";
  EXPECT_EQ(cache.evictable, (std::vector<int32_t>{ids[1]}));
  EXPECT_EQ(pool.num_evictable(), 1);
  // Out of the cache while it is held: its holder keeps it.
  pool.Ref(ids[1]);
  pool.RemoveFromCache(ids[1]);
  EXPECT_EQ(pool.RefCount(ids[1]), 1);
  EXPECT_EQ(pool.num_evictable(), 0);
  pool.Unref(ids[1]);
  EXPECT_EQ(pool.num_free(), 1);
}

TEST(KvBlockPoolTest, GrowsAndShrinksByRanges) {
  KvBlockPool pool(0);
  pool.AddBlocks(4, 2);
  EXPECT_EQ(pool.num_total(), 2);
  EXPECT_EQ(pool.end_id(), 6);
  EXPECT_FALSE(pool.IsUsed(0));
  pool.AddBlocks(0, 2);  // 2 and 3 are not there
  EXPECT_EQ(pool.num_total(), 4);
  EXPECT_EQ(pool.end_id(), 6);
  EXPECT_FALSE(pool.Allocate(5).ok());
  EXPECT_EQ(*pool.Allocate(4), (std::vector<int32_t>{0, 1, 4, 5}));
  pool.Unref(0);
  pool.Unref(1);
  pool.RemoveBlocks([](int32_t id) { return id < 2; },
                    [](int32_t, int32_t) { ADD_FAILURE() << "nothing moves"; });
  EXPECT_EQ(pool.num_total(), 2);
  EXPECT_EQ(pool.num_free(), 0);
  pool.AddBlocks(2, 1);
  EXPECT_EQ(*pool.Allocate(1), (std::vector<int32_t>{2}));
}

TEST(KvBlockPoolTest, WhatIsUsedMovesOnceAndStays) {
  KvBlockPool pool(12);
  const std::vector<int32_t> ids = *pool.Allocate(12);
  // 0, 3, 6, 9 are in use, with 1, 4, 7, 10 references.
  for (const int32_t id : ids) {
    for (int32_t i = 0; i < id; ++i) pool.Ref(id);
    if (id % 3 == 0) continue;
    for (int32_t i = 0; i <= id; ++i) pool.Unref(id);
  }
  std::map<int32_t, int32_t> moves;
  pool.RemoveBlocks([](int32_t id) { return id < 4 || id >= 8; },
                    [&](int32_t from, int32_t to) {
                      EXPECT_TRUE(moves.emplace(from, to).second);
                    });
  EXPECT_EQ(moves.size(), 3u);
  for (const auto& [from, to] : moves) {
    EXPECT_TRUE(to == 4 || to == 5 || to == 7) << to;
    EXPECT_EQ(pool.RefCount(from), 0);
    EXPECT_EQ(pool.RefCount(to), from + 1);
  }
  EXPECT_EQ(pool.RefCount(6), 7);
  EXPECT_EQ(pool.num_total(), 4);
  EXPECT_EQ(pool.num_free(), 0);
  EXPECT_FALSE(pool.Allocate(1).ok());
}

TEST(KvBlockPoolTest, MoveTakesReferencesAndMark) {
  KvBlockPool pool(4);
  Fifo cache(&pool);
  const std::vector<int32_t> ids = *pool.Allocate(2);
  pool.Ref(ids[0]);
  pool.AddToCache(ids[0]);
  const int32_t to = FreeBlockFrom(pool, 0);
  pool.Move(ids[0], to);
  EXPECT_FALSE(pool.IsUsed(ids[0]));
  EXPECT_FALSE(pool.IsCached(ids[0]));
  EXPECT_EQ(pool.RefCount(to), 3);
  EXPECT_TRUE(pool.IsCached(to));
  EXPECT_EQ(pool.num_used(), 2);
  pool.Unref(to);
  pool.Unref(to);
  EXPECT_EQ(pool.num_evictable(), 1);
  pool.Move(to, ids[0]);
  EXPECT_TRUE(pool.IsEvictable(ids[0]));
  EXPECT_EQ(pool.num_evictable(), 1);
  const std::vector<int32_t> rest = *pool.Allocate(2);
  for (int32_t id : rest) EXPECT_NE(id, ids[0]);
  pool.RemoveFromCache(ids[0]);
  EXPECT_EQ(pool.num_free(), 1);
}

#ifndef NDEBUG
TEST(KvBlockPoolDeathTest, DoubleFree) {
  KvBlockPool pool(2);
  const int32_t id = pool.Allocate(1)->front();
  pool.Unref(id);
  EXPECT_DEATH(pool.Unref(id), "");
  EXPECT_DEATH(pool.Ref(id), "");
  EXPECT_DEATH(pool.Unref(7), "");
}
#endif

TEST(KvBlockTableTest, HoldsExactlyTheBlocksOfItsTokens) {
  for (int block_size : {1, 2, 3, 16}) {
    for (int first = 0; first <= 2 * block_size + 1; ++first) {
      for (int second = 0; second <= 2 * block_size + 1; ++second) {
        KvBlockPool pool(64);
        KvBlockTable table(&pool, block_size);
        Append(&table, first);
        EXPECT_EQ(pool.num_used(), KvBlocksFor(first, block_size));
        const int64_t needed = table.BlocksNeeded(second);
        const int before = pool.num_used();
        const std::vector<int32_t> old = BlockIds(table);
        Append(&table, second);
        EXPECT_EQ(pool.num_used() - before, needed);
        EXPECT_EQ(table.num_tokens(), first + second);
        EXPECT_EQ(pool.num_used(), KvBlocksFor(first + second, block_size));
        ASSERT_GE(table.blocks().size(), old.size());
        EXPECT_TRUE(std::equal(old.begin(), old.end(), table.blocks().begin()))
            << "positions keep their blocks";
        for (int keep = first + second + 1; keep >= 0; --keep) {
          table.Truncate(keep);
          EXPECT_EQ(table.num_tokens(), std::min(keep, first + second));
          EXPECT_EQ(pool.num_used(),
                    KvBlocksFor(table.num_tokens(), block_size));
        }
      }
    }
  }
}

TEST(KvBlockTableTest, SharesAndReplacesBlocks) {
  KvBlockPool pool(8);
  KvBlockTable a(&pool, 4), b(&pool, 4);
  Append(&a, 10);
  b.Share(a.blocks(), 9);
  EXPECT_EQ(b.num_tokens(), 9);
  EXPECT_EQ(BlockIds(a), BlockIds(b));
  EXPECT_EQ(pool.num_used(), 3);
  EXPECT_TRUE(b.AppendCopies());
  KvBlockTable c(&pool, 4);
  Append(&c, 4);
  const int32_t own = c.blocks()[0];
  c.Replace(0, a.blocks()[0]);
  EXPECT_FALSE(pool.IsUsed(own));
  EXPECT_EQ(pool.RefCount(a.blocks()[0]), 3);
  c.Replace(0, c.blocks()[0]);
  EXPECT_EQ(pool.RefCount(a.blocks()[0]), 3);
  a.Clear();
  b.Clear();
  EXPECT_EQ(pool.num_used(), 1);
  // The front may be missing.
  KvBlockTable d(&pool, 4);
  d.Share({KvBlockTable::kNoBlock, c.blocks()[0]}, 8);
  KvBlockTable e = d.Fork();
  EXPECT_EQ(pool.RefCount(c.blocks()[0]), 3);
  Append(&e, 1);
  EXPECT_EQ(e.blocks()[0], KvBlockTable::kNoBlock);
  d = std::move(e);
  EXPECT_EQ(pool.RefCount(c.blocks()[0]), 2);
  d.Truncate(3);
  EXPECT_EQ(pool.RefCount(c.blocks()[0]), 1);
  d.Clear();
  c.Clear();
  EXPECT_EQ(pool.num_used(), 0);
}

TEST(KvBlockTableTest, DropsItsFront) {
  for (int64_t position = -3; position <= 12; ++position) {
    KvBlockPool pool(8);
    KvBlockTable table(&pool, 4);
    Append(&table, 10);
    table.DropBefore(position);
    const auto dropped =
        static_cast<int>(std::clamp<int64_t>(position, 0, 10) / 4);
    EXPECT_EQ(pool.num_used(), 3 - dropped) << position;
    EXPECT_EQ(table.blocks().size(), 3u);
    EXPECT_EQ(std::count(table.blocks().begin(), table.blocks().end(),
                         KvBlockTable::kNoBlock),
              dropped);
    table.DropBefore(position - 4);
    EXPECT_EQ(pool.num_used(), 3 - dropped) << "not twice";
    EXPECT_EQ(table.BlocksNeeded(3), 1);
    Append(&table, 3);
    EXPECT_EQ(table.num_tokens(), 13);
    EXPECT_EQ(pool.num_used(), 4 - dropped);
    KvBlockTable fork = table.Fork();
    fork.Truncate(9);
    Append(&fork, 3);
    EXPECT_EQ(fork.blocks().size(), 3u);
    fork.Clear();
    table.Clear();
    EXPECT_EQ(pool.num_used(), 0);
    Append(&table, 4);
    table.DropBefore(4);
    EXPECT_EQ(pool.num_used(), 0) << "a cleared table starts anew";
  }
}

TEST(KvBlockTableTest, ForkSharesAndAppendCopiesThePartialBlock) {
  KvBlockPool pool(8);
  KvBlockTable a(&pool, 4);
  Append(&a, 6);
  KvBlockTable b = a.Fork();
  EXPECT_EQ(pool.num_used(), 2);
  EXPECT_EQ(BlockIds(a), BlockIds(b));
  EXPECT_TRUE(a.AppendCopies());
  EXPECT_EQ(b.BlocksNeeded(0), 0);
  EXPECT_EQ(b.BlocksNeeded(2), 1);
  EXPECT_EQ(b.BlocksNeeded(3), 2);
  {
    auto reservation = KvReservation::Make(&b, 3);
    ASSERT_TRUE(reservation.ok());
    ASSERT_TRUE(reservation->copy().has_value());
    EXPECT_EQ(reservation->copy()->src, a.blocks()[1]);
    const std::vector<int32_t> ids = BlockIds(*reservation);
    ASSERT_EQ(ids.size(), 3u);
    EXPECT_EQ(ids[0], a.blocks()[0]);
    EXPECT_EQ(ids[1], reservation->copy()->dst);
    EXPECT_EQ(BlockIds(a), BlockIds(b)) << "nothing changes before the commit";
    reservation->Commit(3);
    EXPECT_EQ(BlockIds(b), ids);
  }
  EXPECT_EQ(pool.RefCount(a.blocks()[0]), 2);
  EXPECT_EQ(pool.RefCount(a.blocks()[1]), 1);
  EXPECT_FALSE(a.AppendCopies());
  EXPECT_FALSE(b.AppendCopies());
  EXPECT_EQ(pool.num_used(), 4);
}

TEST(KvBlockTableTest, FullSharedBlockNeedsNoCopyUntilTruncated) {
  KvBlockPool pool(8);
  KvBlockTable a(&pool, 4);
  Append(&a, 8);
  KvBlockTable b = a.Fork();
  EXPECT_FALSE(b.AppendCopies());
  EXPECT_EQ(b.BlocksNeeded(1), 1);
  b.Truncate(5);
  EXPECT_TRUE(b.AppendCopies());
  EXPECT_EQ(b.BlocksNeeded(1), 1);
  b.Truncate(4);
  EXPECT_FALSE(b.AppendCopies());
  EXPECT_EQ(pool.RefCount(a.blocks()[1]), 1);
}

TEST(KvBlockTableTest, MovesTakeTheReferencesAlong) {
  KvBlockPool pool(8);
  KvBlockTable a(&pool, 2);
  Append(&a, 5);
  KvBlockTable b = std::move(a);
  EXPECT_EQ(a.num_tokens(), 0);  // NOLINT(bugprone-use-after-move): a
                                 // moved-from table is empty and usable
  EXPECT_TRUE(a.blocks().empty());
  Append(&a, 1);
  EXPECT_EQ(pool.num_used(), 4);
  a = std::move(b);
  EXPECT_EQ(a.num_tokens(), 5);
  EXPECT_EQ(pool.num_used(), 3);
  a = KvBlockTable(&pool, 2);
  EXPECT_EQ(pool.num_used(), 0);
}

TEST(KvReservationTest, UncommittedLeavesNoTrace) {
  KvBlockPool pool(8);
  KvBlockTable a(&pool, 4);
  Append(&a, 5);
  KvBlockTable b = a.Fork();
  const std::vector<int32_t> before = BlockIds(b);
  { auto dropped = KvReservation::Make(&b, 7); }
  {
    auto nothing_valid = KvReservation::Make(&b, 7);
    ASSERT_TRUE(nothing_valid.ok());
    nothing_valid->Commit(0);
  }
  EXPECT_EQ(BlockIds(b), before);
  EXPECT_EQ(b.num_tokens(), 5);
  EXPECT_EQ(pool.num_used(), 2);
  EXPECT_EQ(pool.RefCount(before[1]), 2);
}

TEST(KvReservationTest, PartialCommitReturnsSurplusBlocks) {
  for (int committed = 0; committed <= 9; ++committed) {
    KvBlockPool pool(8);
    KvBlockTable table(&pool, 2);
    Append(&table, 3);
    auto reservation = KvReservation::Make(&table, 9);
    ASSERT_TRUE(reservation.ok());
    EXPECT_EQ(reservation->first_token(), 3);
    EXPECT_EQ(pool.num_used(), 6);
    const std::vector<int32_t> ids = BlockIds(*reservation);
    reservation->Commit(committed);
    EXPECT_EQ(table.num_tokens(), 3 + committed);
    EXPECT_EQ(pool.num_used(), KvBlocksFor(3 + committed, 2));
    EXPECT_TRUE(
        std::equal(table.blocks().begin(), table.blocks().end(), ids.begin()));
  }
}

TEST(KvReservationTest, TwoSharersMayBothCopyInOneStep) {
  KvBlockPool pool(4);
  KvBlockTable a(&pool, 4);
  Append(&a, 2);
  KvBlockTable b = a.Fork();
  const int32_t shared = a.blocks()[0];
  auto ra = KvReservation::Make(&a, 1);
  auto rb = KvReservation::Make(&b, 1);
  ASSERT_TRUE(ra.ok() && rb.ok());
  EXPECT_EQ(ra->copy()->src, shared);
  EXPECT_EQ(rb->copy()->src, shared);
  ra->Commit(1);
  rb->Commit(1);
  EXPECT_FALSE(pool.IsUsed(shared));
  EXPECT_NE(a.blocks()[0], b.blocks()[0]);
  EXPECT_EQ(pool.num_used(), 2);
}

TEST(KvReservationTest, ForkWhileReservedKeepsTheCommittedTokens) {
  KvBlockPool pool(4);
  KvBlockTable a(&pool, 4);
  Append(&a, 2);
  auto reservation = KvReservation::Make(&a, 1);
  ASSERT_TRUE(reservation.ok());
  KvBlockTable fork = a.Fork();
  reservation->Commit(1);
  EXPECT_EQ(fork.num_tokens(), 2);
  EXPECT_EQ(a.num_tokens(), 3);
  EXPECT_TRUE(fork.AppendCopies());
  EXPECT_TRUE(a.AppendCopies());
}

TEST(KvReservationTest, MoveAssignmentReleasesWhatWasHeld) {
  KvBlockPool pool(8);
  KvBlockTable a(&pool, 1);
  KvBlockTable b(&pool, 1);
  auto ra = KvReservation::Make(&a, 3);
  auto rb = KvReservation::Make(&b, 2);
  ASSERT_TRUE(ra.ok() && rb.ok());
  *ra = std::move(*rb);
  EXPECT_EQ(pool.num_used(), 2);
  ra->Commit(2);
  EXPECT_EQ(b.num_tokens(), 2);
  EXPECT_EQ(a.num_tokens(), 0);
}

TEST(KvReservationTest, RefusesWhatCannotBe) {
  KvBlockPool pool(4);
  KvBlockTable table(&pool, 4);
  Append(&table, 3);
  for (int64_t tokens : {int64_t{14}, int64_t{17}, INT64_MAX}) {
    EXPECT_EQ(KvReservation::Make(&table, tokens).status().code(),
              absl::StatusCode::kResourceExhausted)
        << tokens;
  }
  EXPECT_EQ(KvReservation::Make(&table, -1).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(table.num_tokens(), 3);
  EXPECT_EQ(pool.num_used(), 1);
  EXPECT_TRUE(KvReservation::Make(&table, 13).ok());
}

TEST(KvReservationTest, InjectedFaultLeavesEverythingUnchanged) {
  KvBlockPool pool(4);
  KvBlockTable a(&pool, 4);
  Append(&a, 3);
  KvBlockTable b = a.Fork();
  pool.SetAllocationFaultForTest([] { return true; });
  EXPECT_EQ(KvReservation::Make(&b, 1).status().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(BlockIds(a), BlockIds(b));
  EXPECT_EQ(pool.num_used(), 1);
  EXPECT_TRUE(KvReservation::Make(&b, 0).ok())
      << "nothing to allocate, nothing to fail";
  pool.SetAllocationFaultForTest(nullptr);
  EXPECT_TRUE(KvReservation::Make(&b, 1).ok());
}

}  // namespace
}  // namespace inlay
