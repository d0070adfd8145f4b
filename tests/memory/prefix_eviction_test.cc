// PrefixIndex: what goes first, and what it holds when blocks move or memory
// runs out.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <limits>
#include <new>
#include <utility>
#include <vector>

#include "tests/memory/failing_new.h"
#include "tests/memory/free_block.h"
#include "tests/memory/prefix_index_fixture.h"

// Not inlined, or g++ would see a pointer of malloc() in a delete expression.
[[gnu::noinline]] void* operator new(size_t size,
                                     const std::nothrow_t&) noexcept {
  return inlay::FailingNew::Fails() ? nullptr : std::malloc(size);
}
[[gnu::noinline]] void* operator new(size_t size) {
  void* memory = operator new(size, std::nothrow);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept {
  std::free(memory);
}

namespace inlay::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST_F(PrefixIndexTest, TheLeafUsedLeastRecentlyGoesFirst) {
  Make(16);
  const Tokens a = Finish(Count(0, 8) + Count(10, 4));
  const Tokens b = Finish(Count(0, 8) + Count(20, 4));
  const Tokens c = Finish(Count(30, 8));
  EXPECT_EQ(pool_->num_evictable(), 6);
  EXPECT_EQ(pool_->num_free(), 10);
  { Sequence used = Taken(Count(0, 8) + Count(10, 4)); }
  // b's leaf, then c's and its parent, then a's from its end.
  for (int32_t id : {b[2], c[1], c[0], a[2], a[1], a[0]}) {
    EXPECT_TRUE(pool_->IsCached(id));
    Evict(1);
    EXPECT_FALSE(pool_->IsCached(id));
  }
  EXPECT_EQ(index_->num_reclaimed(), 6u);
  EXPECT_EQ(index_->num_blocks(), 0);
  EXPECT_EQ(pool_->num_free(), 16);
}

TEST_F(PrefixIndexTest, WhatATableHoldsStays) {
  Make(8);
  Finish(Count(0, 16));
  Sequence a = Taken(Count(0, 8));
  EXPECT_EQ(pool_->num_available(), 6);
  EXPECT_FALSE(pool_->Allocate(7).ok());
  Evict(2);
  EXPECT_EQ(Found(Count(0, 16)), 8);
  EXPECT_EQ(pool_->num_evictable(), 0);
}

TEST_F(PrefixIndexTest, WhatCostsMoreIsKeptLonger) {
  PrefixIndex::Options options;
  options.cost = [](int64_t end) { return end > 4 ? 10.0 : 1.0; };
  Make(8, std::move(options));
  const Tokens dear = Finish(Count(0, 8));
  int rounds = 0;
  for (; pool_->IsCached(dear[1]); ++rounds) {
    ASSERT_LT(rounds, 100);
    Finish(Count(100 + 10 * rounds, 4));
    Evict(1);
  }
  // Cheap ones go first until the inflation, which each of them raises by its
  // cost when it goes and by an eighth when it comes, has come up to its cost.
  EXPECT_GE(rounds, 8);
  EXPECT_LE(rounds, 12);
}

// Conversations that pause must not lose their ends to what was over before,
// even where that reached further and so cost more.
TEST_F(PrefixIndexTest, WhatWasUsedLongAgoGoesBeforeWhatCostsALittleLess) {
  PrefixIndex::Options options;
  options.cost = [](int64_t end) {
    return 1 + static_cast<double>(end) / 4096;
  };
  Make(16, std::move(options));
  const Tokens before = Finish(Count(0, 24));  // 6 blocks
  const Tokens now = Finish(Count(1000, 20));  // 5 blocks
  Evict(5);
  EXPECT_TRUE(pool_->IsCached(before[0]));
  EXPECT_FALSE(pool_->IsCached(before[1]));
  for (const int32_t id : now) EXPECT_TRUE(pool_->IsCached(id));
}

TEST_F(PrefixIndexTest, CostsThatAreNoNumbersDoNoHarm) {
  PrefixIndex::Options options;
  options.cost = [](int64_t end) {
    const double costs[] = {std::numeric_limits<double>::quiet_NaN(),
                            std::numeric_limits<double>::infinity(), -5.0,
                            std::numeric_limits<double>::max()};
    return costs[end / kBlock % 4];
  };
  Make(16, std::move(options));
  for (int round = 0; round < 50; ++round) {
    Finish(Count(1000 * round, 20));
    Finish(Count(1000 * round, 8) + Count(500, 12));
  }
  EXPECT_EQ(pool_->num_available(), 16);
  Evict(pool_->num_evictable());
  EXPECT_EQ(index_->num_blocks(), 0);
}

TEST_F(PrefixIndexTest, OffersFullBlocksBeforeTheyGo) {
  std::vector<std::pair<Tokens, int32_t>> offered;
  std::vector<KvBlockKey> keys;
  PrefixIndex::Options options;
  options.demote = [&](const KvBlockKey& key, absl::Span<const int32_t> tokens,
                       int32_t block) {
    offered.emplace_back(Ids(tokens), block);
    keys.push_back(key);
    EXPECT_TRUE(pool_->IsEvictable(block));
  };
  Make(8, std::move(options));
  const Tokens blocks = Finish(Count(0, 10), 7);
  Evict(3);
  const KvBlockKey first = ChainKey(RootKey(7), Count(0, 4));
  EXPECT_THAT(offered, ElementsAre(std::pair(Count(4, 4), blocks[1]),
                                   std::pair(Count(0, 4), blocks[0])));
  EXPECT_THAT(keys, ElementsAre(ChainKey(first, Count(4, 4)), first));
  offered.clear();
  Finish(Count(0, 10));
  index_->Clear();
  EXPECT_THAT(offered, IsEmpty()) << "Clear() is no demotion";
}

TEST_F(PrefixIndexTest, BlocksMove) {
  Make(8);
  Sequence a = Running(Count(0, 8));
  Finish(Count(0, 4) + Count(20, 4));
  Finish(Count(0, 4) + Count(30, 3));
  Finish(Count(40, 7));
  std::vector<Tokens> all = {Count(0, 8), Count(0, 4) + Count(20, 4),
                             Count(0, 4) + Count(30, 3), Count(40, 7)};
  pool_->AddBlocks(20, 8);  // ids that the index has no room for yet
  for (int32_t id = 0; id < 8; ++id) {
    if (!pool_->IsUsed(id)) continue;
    const int32_t to = FreeBlockFrom(*pool_, 8);
    ASSERT_GE(to, 20);
    pool_->Move(id, to);
    for (size_t i = 0; i < a.table.blocks().size(); ++i) {
      if (a.table.blocks()[i] == id) a.table.SetMoved(i, to);
    }
    index_->OnMoved(id, to);
    for (const Tokens& tokens : all) {
      const PrefixMatch match = index_->Find(0, tokens);
      EXPECT_EQ(match.num_tokens, static_cast<int64_t>(tokens.size()));
      for (int32_t block : match.blocks) {
        EXPECT_NE(block, id);
        EXPECT_TRUE(pool_->IsCached(block));
      }
    }
  }
  pool_->RemoveBlocks([](int32_t id) { return id < 8; },
                      [](int32_t, int32_t) { ADD_FAILURE(); });
  EXPECT_EQ(pool_->num_evictable(), 4);
  Evict(4);
  EXPECT_EQ(Found(Count(0, 8)), 8);
  EXPECT_EQ(index_->num_blocks(), 2);
  EXPECT_EQ(Ids(a.table.blocks()), index_->Find(0, Count(0, 8)).blocks);
  a.table.Clear();
  Evict(2);
  EXPECT_EQ(pool_->num_used(), 0);
}

TEST_F(PrefixIndexTest, AMovedBlockKeepsItsPlaceInTheOrder) {
  Make(8);
  Finish(Count(0, 8));
  Sequence holder = Taken(Count(0, 4));
  const int32_t other = Finish(Count(50, 4)).front();
  holder.table.Clear();
  // Leaf, other, and the moved one at last.
  const int32_t from = index_->Find(0, Count(0, 4)).blocks.front();
  const int32_t to = FreeBlockFrom(*pool_, 0);
  pool_->Move(from, to);
  index_->OnMoved(from, to);
  Evict(2);
  EXPECT_FALSE(pool_->IsCached(other));
  EXPECT_TRUE(pool_->IsCached(to));
}

TEST_F(PrefixIndexTest, AMovedBlockIsForgottenWithoutMemory) {
  Make(4);
  Finish(Count(0, 8));
  Sequence a = Taken(Count(0, 4));
  const PrefixMatch match = index_->Find(0, Count(0, 8));
  pool_->AddBlocks(100, 2);
  for (int i : {1, 0}) {
    const int32_t from = match.blocks[static_cast<size_t>(i)];
    const int32_t to = FreeBlockFrom(*pool_, 4);
    pool_->Move(from, to);
    if (i == 0) a.table.SetMoved(0, to);
    FailingNew fail(0);
    index_->OnMoved(from, to);
  }
  EXPECT_EQ(index_->num_blocks(), 0);
  EXPECT_EQ(pool_->num_used(), 1);
  EXPECT_EQ(pool_->num_evictable(), 0);
  EXPECT_EQ(Found(Count(0, 8)), 0);
  index_->InsertAll(0, a.tokens, &a.table, &a.cursor);
  PrefixCursor fresh;
  index_->InsertAll(0, a.tokens, &a.table, &fresh);
  EXPECT_EQ(Found(Count(0, 8)), 4);
}

TEST_F(PrefixIndexTest, WithoutMemoryTheCursorSaysHowFar) {
  int failures = 0;
  for (int succeed = 0; succeed < 40; ++succeed) {
    index_.reset();
    Make(64);
    Sequence a(pool_.get());
    Append(&a, Count(0, 200) + Tokens{7, 8, 9});
    bool threw = false;
    try {
      FailingNew fail(succeed);
      index_->InsertAll(0, a.tokens, &a.table, &a.cursor);
    } catch (const std::bad_alloc&) {
      threw = true;
    }
    failures += threw;
    const int64_t entered = a.cursor.num_blocks;
    if (threw) {
      EXPECT_EQ(index_->num_blocks(), entered);
      EXPECT_EQ(Found(a.tokens), entered * kBlock);
    }
    pool_->AddBlocks(64, 64);  // and again with room to make
    Append(&a, Count(1000, 30));
    try {
      FailingNew fail(succeed / 2);
      index_->InsertAll(0, a.tokens, &a.table, &a.cursor);
    } catch (const std::bad_alloc&) {
      EXPECT_EQ(Found(a.tokens), threw ? entered * kBlock : 203);
    }
    index_->InsertAll(0, a.tokens, &a.table, &a.cursor);
    EXPECT_EQ(Found(a.tokens), 232) << "one token of the last block";
    a.table.Clear();
    EXPECT_EQ(pool_->num_available(), 128);
    index_->Clear();
    EXPECT_EQ(pool_->num_used(), 0);
  }
  EXPECT_GE(failures, 3);
}

TEST_F(PrefixIndexTest, ABlockThatWasWrittenOnIsEnteredAnew) {
  Make(8);
  Sequence a(pool_.get());
  Append(&a, Count(0, 2));
  auto reservation = KvReservation::Make(&a.table, 2);
  ASSERT_TRUE(reservation.ok());
  index_->InsertAll(0, a.tokens, &a.table, &a.cursor);
  EXPECT_EQ(Found(Count(0, 4)), 2);
  reservation->Commit(2);
  a.tokens = Count(0, 4);
  index_->Insert(0, a.tokens, &a.table, &a.cursor);
  EXPECT_EQ(Found(Count(0, 4)), 4);
  EXPECT_EQ(index_->num_blocks(), 1);
}

TEST_F(PrefixIndexTest, WhatIsAvailableCanAlwaysBeHad) {
  Make(8);
  Sequence a = Running(Count(0, 16));
  a.table.DropBefore(12);  // no table of a model without windows does this
  EXPECT_EQ(pool_->num_evictable(), 3);
  Evict(2);
  EXPECT_EQ(pool_->num_evictable(), 1);
  index_->Clear();
  EXPECT_EQ(pool_->num_used(), 1);
  a.table.Clear();
  EXPECT_EQ(pool_->num_available(), 8);
  index_->Clear();
  EXPECT_EQ(pool_->num_used(), 0);
}

TEST_F(PrefixIndexTest, GivesUpItsReferencesWhenItGoes) {
  Make(8);
  Sequence a = Running(Count(0, 8));
  Finish(Count(0, 15));
  EXPECT_EQ(pool_->num_used(), 4);
  index_.reset();
  EXPECT_EQ(pool_->num_used(), 2);
  EXPECT_EQ(pool_->num_evictable(), 0);
  EXPECT_EQ(pool_->RefCount(a.table.blocks()[0]), 1);
  EXPECT_FALSE(pool_->Allocate(7).ok());
}

}  // namespace
}  // namespace inlay::testing
