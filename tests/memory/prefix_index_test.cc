// PrefixIndex: each rule by itself. prefix_random_test.cc has the histories.
#include "memory/kv/prefix_index.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <limits>
#include <memory>
#include <new>
#include <numeric>
#include <set>
#include <utility>
#include <vector>

#include "memory/kv/block_pool.h"
#include "memory/kv/block_table.h"
#include "memory/kv/reservation.h"
#include "tests/memory/failing_new.h"

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

namespace inlay {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Tokens = std::vector<int32_t>;

constexpr int kBlock = 4;  // tokens a block in these tests
constexpr int32_t kNo = KvBlockTable::kNoBlock;

// begin, begin + 1, ..
Tokens Count(int32_t begin, int count) {
  Tokens tokens(static_cast<size_t>(count));
  std::iota(tokens.begin(), tokens.end(), begin);
  return tokens;
}

Tokens operator+(Tokens a, const Tokens& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

Tokens Ids(absl::Span<const int32_t> span) {
  return {span.begin(), span.end()};
}

// What a session has.
struct Sequence {
  explicit Sequence(KvBlockPool* pool) : table(pool, kBlock) {}
  KvBlockTable table;
  PrefixCursor cursor;
  Tokens tokens;
};

class PrefixIndexTest : public ::testing::Test {
 protected:
  void Make(int32_t num_blocks, PrefixIndex::Options options = {}) {
    pool_ = std::make_unique<KvBlockPool>(num_blocks);
    options.group.block_size = kBlock;
    index_ = std::make_unique<PrefixIndex>(pool_.get(), std::move(options));
  }
  void Append(Sequence* s, const Tokens& tokens) {
    const auto count = static_cast<int64_t>(tokens.size());
    auto reservation = KvReservation::Make(&s->table, count);
    ASSERT_TRUE(reservation.ok()) << reservation.status();
    reservation->Commit(count);
    s->tokens = s->tokens + tokens;
  }
  Sequence Running(const Tokens& tokens, uint64_t salt = 0) {
    Sequence s(pool_.get());
    Append(&s, tokens);
    index_->Insert(salt, s.tokens, &s.table, &s.cursor);
    return s;
  }
  // Computes, enters and clears a sequence; the ids of its blocks.
  Tokens Finish(const Tokens& tokens, uint64_t salt = 0) {
    Sequence s(pool_.get());
    Append(&s, tokens);
    index_->InsertAll(salt, tokens, &s.table, &s.cursor);
    return Ids(s.table.blocks());
  }
  Sequence Taken(const Tokens& tokens, uint64_t salt = 0) {
    Sequence s(pool_.get());
    const PrefixMatch match = index_->Find(salt, tokens);
    index_->Take(match, salt, tokens, &s.table, &s.cursor);
    s.tokens.assign(tokens.begin(), tokens.begin() + match.num_tokens);
    return s;
  }
  int64_t Found(const Tokens& tokens, uint64_t salt = 0) {
    return index_->Find(salt, tokens).num_tokens;
  }
  // Has `count` blocks reclaimed.
  void Evict(int count) {
    const int total = pool_->num_free() + count;
    const std::vector<int32_t> ids = *pool_->Allocate(total);
    for (int32_t id : ids) pool_->Unref(id);
  }

  std::unique_ptr<KvBlockPool> pool_;
  std::unique_ptr<PrefixIndex> index_;
};

TEST(KvBlockKeyTest, IsTheSameEverywhere) {
  // Names blocks on disk: a change of these is a change of format.
  EXPECT_EQ(RootKey(0), (KvBlockKey{0x2C83966B02714AC9, 0xAF23B11BDE4E1E03}));
  EXPECT_EQ(ChainKey(RootKey(0), Tokens{1, 2, 3}),
            (KvBlockKey{0x20FB8842E6AE30B6, 0x9C8DF7A07A525BD9}));
}

TEST(KvBlockKeyTest, TellsApart) {
  std::set<std::pair<uint64_t, uint64_t>> keys;
  int count = 0;
  const auto add = [&](const KvBlockKey& key) {
    keys.insert({key.high, key.low});
    ++count;
  };
  add(KvBlockKey{});
  for (uint64_t salt : {0u, 1u, 2u}) {
    const KvBlockKey root = RootKey(salt);
    add(root);
    for (int length = 0; length <= 5; ++length)
      add(ChainKey(root, Tokens(length)));
    add(ChainKey(root, Tokens{1}));
    add(ChainKey(root, Tokens{0, 1}));
    add(ChainKey(root, Tokens{1, 0}));
    add(ChainKey(root, Tokens{-1, 0}));
    add(ChainKey(root, Tokens{-1}));
    add(ChainKey(ChainKey(root, Tokens{1}), Tokens{0}));
  }
  EXPECT_EQ(keys.size(), static_cast<size_t>(count));
  // Every bit of the output depends on every token.
  const KvBlockKey base = ChainKey(RootKey(0), Tokens(16));
  for (int i = 0; i < 16; ++i) {
    for (int bit = 0; bit < 32; ++bit) {
      Tokens tokens(16);
      tokens[static_cast<size_t>(i)] = static_cast<int32_t>(1u << bit);
      const KvBlockKey key = ChainKey(RootKey(0), tokens);
      const int changed = __builtin_popcountll(key.high ^ base.high) +
                          __builtin_popcountll(key.low ^ base.low);
      EXPECT_GT(changed, 32) << i << " " << bit;
      EXPECT_LT(changed, 96) << i << " " << bit;
    }
  }
}

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
    const int32_t to = pool_->FreeBlockOutside(0, 8);
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
  pool_->RemoveBlocks(0, 8);
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
  const int32_t to = pool_->FreeBlockOutside(0, 0);
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
    const int32_t to = pool_->FreeBlockOutside(0, 4);
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
}  // namespace inlay
