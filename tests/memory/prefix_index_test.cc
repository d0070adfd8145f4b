// PrefixIndex: each rule of what is shared by itself. prefix_eviction_test.cc
// has those of what goes, prefix_random_test.cc the histories.
#include "memory/kv/prefix_index.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "tests/memory/prefix_index_fixture.h"

namespace inlay::testing {
namespace {

using ::testing::ElementsAre;

TEST_F(PrefixIndexTest, SharesFullBlocksAcrossTables) {
  Make(16);
  EXPECT_EQ(Found(Count(0, 9)), 0);
  Sequence a = Running(Count(0, 9));
  EXPECT_EQ(a.cursor.num_blocks, 2);
  EXPECT_EQ(index_->num_blocks(), 2);
  const PrefixMatch match = index_->Find(0, Count(0, 12));
  EXPECT_EQ(match.num_tokens, 8) << "the ninth token is not entered yet";
  EXPECT_THAT(match.blocks,
              ElementsAre(a.table.blocks()[0], a.table.blocks()[1]));
  EXPECT_EQ(match.num_evictable, 0);
  Sequence b = Taken(Count(0, 12));
  EXPECT_EQ(b.cursor.num_blocks, 2);
  EXPECT_EQ(b.cursor.key, a.cursor.key);
  EXPECT_EQ(pool_->num_used(), 3);
  EXPECT_EQ(pool_->RefCount(match.blocks[0]), 3);
  // They go on differently.
  Append(&a, Count(9, 4));
  Append(&b, Count(50, 5));
  index_->Insert(0, a.tokens, &a.table, &a.cursor);
  index_->Insert(0, b.tokens, &b.table, &b.cursor);
  EXPECT_EQ(Found(Count(0, 20)), 12);
  EXPECT_EQ(Found(Count(0, 8) + Count(50, 20)), 12);
  EXPECT_EQ(Found(Count(0, 7) + Tokens{99}), 7) << "part of a full block";
  EXPECT_EQ(Found(Count(1, 8)), 0);
  a.table.Clear();
  b.table.Clear();
  EXPECT_EQ(pool_->num_evictable(), 4);
  EXPECT_EQ(index_->Find(0, Count(0, 9)).num_evictable, 2);
  EXPECT_EQ(pool_->num_available(), 16);
  index_->Clear();
  EXPECT_EQ(pool_->num_used(), 0);
  EXPECT_EQ(index_->num_blocks(), 0);
  EXPECT_EQ(Found(Count(0, 12)), 0);
}

TEST_F(PrefixIndexTest, NeverMatchesMoreThanGiven) {
  Make(16);
  Finish(Count(0, 11));
  for (int length = 0; length <= 13; ++length) {
    const PrefixMatch match = index_->Find(0, Count(0, length));
    // A single token of a block is not worth a copy.
    const int expected =
        std::min(length, 11) % kBlock == 1 ? length - 1 : std::min(length, 11);
    EXPECT_EQ(match.num_tokens, expected) << length;
    EXPECT_EQ(static_cast<int64_t>(match.blocks.size()),
              KvBlocksFor(match.num_tokens, kBlock));
    EXPECT_EQ(match.num_evictable, static_cast<int>(match.blocks.size()));
  }
}

TEST_F(PrefixIndexTest, PartOfABlockIsCopiedOnWrite) {
  Make(16);
  const Tokens blocks = Finish(Count(0, 12));
  Sequence b = Taken(Count(0, 10) + Count(70, 2));
  ASSERT_EQ(b.table.num_tokens(), 10);
  EXPECT_EQ(b.cursor.num_blocks, 2);
  EXPECT_EQ(Ids(b.table.blocks()), blocks);
  EXPECT_TRUE(b.table.AppendCopies());
  {
    auto reservation = KvReservation::Make(&b.table, 2);
    ASSERT_TRUE(reservation.ok());
    ASSERT_TRUE(reservation->copy().has_value());
    EXPECT_EQ(reservation->copy()->src, blocks[2]);
    reservation->Commit(2);
    b.tokens = Count(0, 10) + Count(70, 2);
  }
  EXPECT_TRUE(pool_->IsEvictable(blocks[2]));
  index_->Insert(0, b.tokens, &b.table, &b.cursor);
  EXPECT_EQ(Found(Count(0, 12)), 12);
  EXPECT_EQ(Found(b.tokens), 12);
  EXPECT_EQ(index_->num_blocks(), 4);
}

TEST_F(PrefixIndexTest, TheLongestPartWinsAndOfEqualsTheNewest) {
  Make(32);
  const Tokens root = Count(0, 4);
  Finish(root + Tokens{10, 11, 12, 13});
  const int32_t longest = Finish(root + Tokens{10, 11, 12, 20}).back();
  Finish(root + Tokens{10, 11, 21, 20});
  const int32_t newest = Finish(root + Tokens{10, 11, 22, 20}).back();
  EXPECT_EQ(index_->Find(0, root + Tokens{10, 11, 12, 99}).num_tokens, 7);
  EXPECT_EQ(index_->Find(0, root + Tokens{10, 11, 12, 99}).blocks.back(),
            longest);
  EXPECT_EQ(index_->Find(0, root + Tokens{10, 11, 99, 20}).blocks.back(),
            newest);
}

TEST_F(PrefixIndexTest, LooksAtABoundedNumberOfChildren) {
  Make(64);
  for (int i = 0; i < 17; ++i) Finish(Tokens{i, i, 0, 0});
  EXPECT_EQ(Found(Tokens{0, 0}), 0) << "the oldest of 17";
  EXPECT_EQ(Found(Tokens{1, 1}), 2);
  EXPECT_EQ(Found(Tokens{0, 0, 0, 0}), 4) << "full ones are found by key";
}

TEST_F(PrefixIndexTest, InsertTakesTheBlockThatIsThere) {
  Make(16);
  Sequence a(pool_.get()), b(pool_.get());
  Append(&a, Count(0, 11));
  Append(&b, Count(0, 11));
  EXPECT_EQ(pool_->num_used(), 6);
  index_->Insert(0, a.tokens, &a.table, &a.cursor);
  index_->Insert(0, b.tokens, &b.table, &b.cursor);
  EXPECT_EQ(pool_->num_used(), 4);
  EXPECT_EQ(Ids(a.table.blocks().first(2)), Ids(b.table.blocks().first(2)));
  EXPECT_EQ(a.cursor.key, b.cursor.key);
  index_->InsertAll(0, a.tokens, &a.table, &a.cursor);
  index_->InsertAll(0, b.tokens, &b.table, &b.cursor);
  EXPECT_EQ(pool_->num_used(), 3);
  EXPECT_EQ(Ids(a.table.blocks()), Ids(b.table.blocks()));
  EXPECT_EQ(index_->num_blocks(), 3);
  // A fork enters what is there already: the same block.
  KvBlockTable fork = a.table.Fork();
  PrefixCursor cursor;
  index_->InsertAll(0, a.tokens, &fork, &cursor);
  EXPECT_EQ(Ids(fork.blocks()), Ids(a.table.blocks()));
  EXPECT_EQ(index_->num_blocks(), 3);
}

// What has come is entered, and no block, even one that is found by then,
// stands for what has not: not in the middle, nor at the end.
TEST_F(PrefixIndexTest, BlocksThatAreToComeArePassedOver) {
  Make(16);
  Sequence a(pool_.get());
  a.table.Share({kNo, kNo, kNo}, 11);
  a.table.Put(0, pool_->Allocate(1)->front());
  const Tokens others = Finish(Count(0, 11));
  const int32_t used = pool_->num_used();
  index_->InsertAll(0, Count(0, 11), &a.table, &a.cursor);
  EXPECT_THAT(Ids(a.table.blocks()), ElementsAre(others[0], kNo, kNo));
  EXPECT_EQ(pool_->num_used(), used - 1);
  a.table.Clear();
  EXPECT_EQ(pool_->num_used(), pool_->num_evictable());
}

TEST_F(PrefixIndexTest, ACutTableStartsOver) {
  Make(16);
  Sequence a = Running(Count(0, 12));
  a.table.Truncate(6);
  a.tokens.resize(6);
  index_->Insert(0, a.tokens, &a.table, &a.cursor);
  EXPECT_EQ(a.cursor.num_blocks, 1);
  Append(&a, Count(60, 6));
  index_->Insert(0, a.tokens, &a.table, &a.cursor);
  EXPECT_EQ(Found(Count(0, 12)), 12);
  EXPECT_EQ(Found(Count(0, 6) + Count(60, 6)), 12);
}

TEST_F(PrefixIndexTest, SaltsShareNothing) {
  Make(16);
  Finish(Count(0, 10), 1);
  EXPECT_EQ(Found(Count(0, 10), 1), 10);
  EXPECT_EQ(Found(Count(0, 10), 0), 0);
  EXPECT_EQ(Found(Count(0, 3), 2), 0);
  Finish(Count(0, 10), 2);
  EXPECT_EQ(index_->num_blocks(), 6);
}

TEST_F(PrefixIndexTest, TailsThatALongerOneCoversAreDropped) {
  Make(16);
  Finish(Count(0, 6));
  EXPECT_EQ(index_->num_blocks(), 2);
  Finish(Count(0, 5));
  EXPECT_EQ(index_->num_blocks(), 2) << "one token is not worth a block";
  Finish(Count(0, 7));
  EXPECT_EQ(index_->num_blocks(), 2) << "7 covers 6";
  Finish(Count(0, 6));
  EXPECT_EQ(index_->num_blocks(), 2) << "covered by 7";
  EXPECT_EQ(Found(Count(0, 7)), 7);
  Sequence other = Taken(Count(0, 6));
  Finish(Count(0, 8));
  EXPECT_EQ(index_->num_blocks(), 3) << "a table holds the tail";
  other.table.Clear();
  Finish(Count(0, 4) + Tokens{4, 5, 99});
  EXPECT_EQ(index_->num_blocks(), 4) << "another tail";
  Finish(Count(0, 12));
  EXPECT_EQ(index_->num_blocks(), 5);
  EXPECT_EQ(Found(Count(0, 4) + Tokens{4, 5, 99, 99}), 7);
}

TEST_F(PrefixIndexTest, AWindowNeedsOnlyTheLastBlocks) {
  PrefixIndex::Options options;
  options.group.window = 6;  // the next token reads the last 5
  Make(32, std::move(options));
  Sequence a = Running(Count(0, 20));
  const Tokens ids = Ids(a.table.blocks());
  PrefixMatch match = index_->Find(0, Count(0, 20));
  EXPECT_EQ(match.num_tokens, 20);
  EXPECT_THAT(match.blocks, ElementsAre(kNo, kNo, kNo, ids[3], ids[4]));
  // The front is let go while the table runs, and evicted.
  a.table.DropBefore(20 - 6 + 1);
  EXPECT_EQ(pool_->num_evictable(), 3);
  Evict(3);
  EXPECT_EQ(index_->num_blocks(), 2);
  EXPECT_EQ(Found(Count(0, 20)), 20);
  EXPECT_EQ(Found(Count(0, 19)), 19);
  EXPECT_EQ(Found(Count(0, 17)), 0) << "reads [12, 17): 16 alone is no part";
  EXPECT_EQ(Found(Count(0, 16)), 0) << "reads [11, 16)";
  Sequence b = Taken(Count(0, 19));
  EXPECT_EQ(b.cursor.num_blocks, 4);
  EXPECT_EQ(b.cursor.key,
            ChainKey(ChainKey(ChainKey(ChainKey(RootKey(0), Count(0, 4)),
                                       Count(4, 4)),
                              Count(8, 4)),
                     Count(12, 4)));
  EXPECT_THAT(Ids(b.table.blocks()),
              ElementsAre(kNo, kNo, kNo, ids[3], ids[4]));
  // Entering passes over what was dropped.
  Append(&a, Count(20, 6));
  PrefixCursor cursor;
  index_->InsertAll(0, a.tokens, &a.table, &cursor);
  EXPECT_EQ(cursor.num_blocks, 6);
  EXPECT_EQ(Found(Count(0, 26)), 26);
  a.table.Clear();
  b.table.Clear();
  EXPECT_EQ(pool_->num_available(), 32);
  index_->Clear();
  EXPECT_EQ(pool_->num_used(), 0);
}

TEST_F(PrefixIndexTest, AWindowMayLeaveGapsBehind) {
  PrefixIndex::Options options;
  options.group.window = 4;
  Make(32, std::move(options));
  Sequence a = Running(Count(0, 16));
  Append(&a, Count(16, 2));
  index_->InsertAll(0, a.tokens, &a.table, &a.cursor);
  a.table.DropBefore(15);
  Evict(3);
  Finish(Count(0, 4) + Tokens{4, 5, 99, 99});
  // The part of a block in the gap is a match too, but a shorter one.
  const PrefixMatch match = index_->Find(0, Count(0, 18));
  EXPECT_EQ(match.num_tokens, 18);
  EXPECT_THAT(match.blocks, ElementsAre(kNo, kNo, kNo, a.table.blocks()[3],
                                        a.table.blocks()[4]));
  EXPECT_EQ(Found(Count(0, 15)), 15) << "part of the fourth block alone";
  EXPECT_EQ(Found(Count(0, 14)), 6);
}

TEST_F(PrefixIndexTest, AWindowSmallerThanABlock) {
  for (int64_t window : {1, 2, 3}) {
    PrefixIndex::Options options;
    options.group.window = window;
    index_.reset();
    Make(8, std::move(options));
    Sequence a = Running(Count(0, 4));
    Append(&a, Count(4, 3));
    index_->InsertAll(0, a.tokens, &a.table, &a.cursor);
    a.table.DropBefore(4);
    Evict(1);
    EXPECT_EQ(Found(Count(0, 4)), 0) << "its block is gone";
    const PrefixMatch match = index_->Find(0, Count(0, 7));
    EXPECT_EQ(match.num_tokens, 7);
    EXPECT_THAT(match.blocks, ElementsAre(kNo, a.table.blocks()[1]));
    Sequence b = Taken(Count(0, 7));
    EXPECT_EQ(b.cursor.key, ChainKey(RootKey(0), Count(0, 4)));
    Append(&b, Count(7, 2));
    index_->Insert(0, b.tokens, &b.table, &b.cursor);
    EXPECT_EQ(Found(Count(0, 8)), 8);
  }
}

// All keys the same; and keys that tell no tokens apart, only positions.
KvBlockKey OneKey(const KvBlockKey&, absl::Span<const int32_t>) {
  return {1, 1};
}

KvBlockKey PositionKey(const KvBlockKey& parent, absl::Span<const int32_t>) {
  return {1, parent.high == 1 ? parent.low + 1 : 0};
}

TEST_F(PrefixIndexTest, BehindACollisionThereIsNothing) {
  PrefixIndex::Options options;
  options.group.window = 4;
  Make(16, std::move(options));
  index_->SetChainForTest(&PositionKey);
  Sequence a = Running(Count(0, 12));
  EXPECT_EQ(Found(Count(0, 12)), 12);
  // The last two blocks would do, but follow others.
  EXPECT_EQ(Found(Count(50, 4) + Count(4, 8)), 0);
  EXPECT_EQ(Found(Count(0, 4) + Count(50, 4) + Count(8, 4)), 4);
}

TEST_F(PrefixIndexTest, ACollisionIsAMiss) {
  for (int64_t window : {0, 6}) {
    PrefixIndex::Options options;
    options.group.window = window;
    index_.reset();
    Make(16, std::move(options));
    index_->SetChainForTest(&OneKey);
    Sequence a = Running(Count(0, 8));
    EXPECT_EQ(a.cursor.num_blocks, 1)
        << "the second block has the key of the first";
    EXPECT_EQ(Found(Count(0, 8)), 4);
    Sequence b = Running(Count(50, 8));
    EXPECT_EQ(b.cursor.num_blocks, 0);
    EXPECT_EQ(Found(Count(50, 8)), 0);
    index_->InsertAll(0, b.tokens, &b.table, &b.cursor);
    EXPECT_EQ(index_->num_blocks(), 1);
    Sequence c = Running(Tokens{9, 9, 9, 9, 9, 9, 9, 9});
    EXPECT_EQ(c.cursor.num_blocks, 0);
    // It is entered once the other is gone.
    a.table.Clear();
    index_->Clear();
    index_->Insert(0, b.tokens, &b.table, &b.cursor);
    EXPECT_EQ(b.cursor.num_blocks, 1);
    EXPECT_EQ(Found(Count(50, 8)), 4);
    EXPECT_EQ(Found(Count(0, 8)), 0);
    b.table.Clear();
    c.table.Clear();
  }
}

}  // namespace
}  // namespace inlay::testing
