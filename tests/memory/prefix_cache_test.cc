// KvTables, KvTablesReservation and PrefixCache: groups of layers that keep
// different parts of the same sequences. Random histories on a fake device that
// stores a number a slot, and what is found against what each group could give.
#include "memory/kv/prefix_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <new>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "memory/kv/tables.h"
#include "tests/memory/failing_new.h"
#include "tests/memory/free_block.h"
#include "tests/support/sanitized.h"

namespace inlay {
namespace {

using Tokens = std::vector<int32_t>;

Tokens CountFrom(int first, int count) {
  Tokens tokens(static_cast<size_t>(count));
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

absl::Span<const int32_t> Beginning(const Tokens& tokens, int64_t count) {
  return absl::MakeConstSpan(tokens).first(static_cast<size_t>(count));
}

TEST(KvTablesTest, ReservesInAllGroupsOrInNone) {
  const KvGroups groups = {{8, 0}, {2, 5}, {3, 2}};
  for (int32_t blocks = 0; blocks <= 12; ++blocks) {
    KvBlockPool pool(blocks);
    KvTables tables(&pool, groups);
    EXPECT_TRUE(tables.HasGroups(groups));
    EXPECT_FALSE(tables.HasGroups({KvGroup{8, 0}}));
    EXPECT_EQ(tables.BlocksNeeded(9), 2 + 5 + 3);
    auto reservation = KvTablesReservation::Make(&tables, 9);
    ASSERT_EQ(reservation.ok(), blocks >= 10);
    EXPECT_EQ(tables.num_tokens(), 0);
    if (!reservation.ok()) {
      EXPECT_EQ(pool.num_used(), 0);
      continue;
    }
    EXPECT_EQ(pool.num_used(), 10);
    reservation->Commit(7);
    EXPECT_EQ(pool.num_used(), KvBlocksFor(7, groups));
    // Position 7 reads (2, 7] in the second group, (5, 7] in the third.
    tables.DropPassed();
    EXPECT_EQ(tables.num_blocks_held(), 1 + 3 + 1);
    EXPECT_EQ(KvHeldBlocks(7, groups), 5);
    KvTables fork = tables.Fork();
    EXPECT_EQ(fork.num_tokens(), 7);
    // Each group's last block has room and is shared.
    EXPECT_EQ(tables.BlocksNeeded(1), 3);
    tables = std::move(fork);
    EXPECT_EQ(pool.num_used(), 5);
    tables.Clear();
    EXPECT_EQ(pool.num_used(), 0);
  }
}

// A cache with one sequence at a time.
struct SequenceCache {
  SequenceCache(int32_t blocks, const KvGroups& of_groups)
      : groups(of_groups), pool(blocks), cache(&pool, groups, {}) {}

  // Computes what is not cached, `chunk` tokens a step: how much was.
  int64_t Run(const Tokens& tokens, int64_t chunk) {
    KvTables tables(&pool, groups);
    PrefixCursors cursors(groups.size());
    const KvMatch match = cache.Find(0, tokens);
    cache.Take(match, 0, tokens, &tables, &cursors);
    while (tables.num_tokens() < static_cast<int64_t>(tokens.size())) {
      const int64_t count = std::min(
          chunk, static_cast<int64_t>(tokens.size()) - tables.num_tokens());
      auto reservation = KvTablesReservation::Make(&tables, count);
      EXPECT_TRUE(reservation.ok()) << reservation.status();
      if (!reservation.ok()) return -1;
      reservation->Commit(count);
      cache.Insert(0, tokens, &tables, &cursors);
      tables.DropPassed();
    }
    cache.InsertAll(0, tokens, &tables, &cursors);
    return match.num_tokens;
  }
  int64_t Found(const Tokens& tokens) const {
    return cache.Find(0, tokens).num_tokens;
  }

  KvGroups groups;
  KvBlockPool pool;
  PrefixCache cache;
};

TEST(PrefixCacheTest, FindsWhatAllGroupsHave) {
  SequenceCache c(64, {{12, 0}, {4, 6}});
  const Tokens tokens = CountFrom(0, 50);
  EXPECT_EQ(c.Run(tokens, 5), 0);
  for (int count = 0; count <= 50; ++count)
    EXPECT_EQ(c.Found(CountFrom(0, count)),
              count == 1 ? 0 : count - (count % 4 == 1 ? 1 : 0))
        << count;
  EXPECT_EQ(c.Found(CountFrom(1, 50)), 0);
  // One that branches off in the middle of blocks of both.
  Tokens other = tokens;
  other[31] = 99;
  EXPECT_EQ(c.Run(other, 50), 31);
  EXPECT_EQ(c.Found(tokens), 50);
}

TEST(PrefixCacheTest, OfAWindowTheEndIsEnough) {
  // 4 blocks for 46 tokens; 2 for the window of 6, one in flight, one more.
  SequenceCache c(4 + 4, {{12, 0}, {4, 6}});
  const Tokens tokens = CountFrom(0, 46);
  EXPECT_EQ(c.Run(tokens, 2), 0);
  EXPECT_EQ(c.Found(tokens), 46);
  EXPECT_EQ(c.Run(CountFrom(0, 48), 2), 46);
  // In the middle there is no window left to go on from.
  EXPECT_LT(c.Found(CountFrom(0, 20)), 20);
}

TEST(PrefixCacheTest, WhatIsEvictedIsEvictedOverAllGroups) {
  // The blocks of the one used longest ago go, of whichever group.
  SequenceCache c(12, {{4, 0}, {4, 100}});
  c.Run(CountFrom(0, 12), 12);
  c.Run(CountFrom(100, 12), 12);
  c.Run(CountFrom(0, 12), 12);  // used again
  EXPECT_EQ(c.pool.num_free(), 0);
  c.Run(CountFrom(200, 12), 12);
  EXPECT_EQ(c.Found(CountFrom(0, 12)), 12);
  EXPECT_EQ(c.Found(CountFrom(100, 12)), 0);
  EXPECT_EQ(c.cache.num_reclaimed(), 6u);
  c.cache.Clear();
  EXPECT_EQ(c.pool.num_used(), 0);
}

class CacheHistory {
 public:
  explicit CacheHistory(uint32_t seed)
      : rng_(seed),
        groups_(RandomGroups()),
        pool_(Draw(6, 50)),
        cache_(&pool_, groups_, {}),
        slots_(64 * 6) {
    corpus_.push_back({});
  }

  void Run() {
    for (int step = 0; step < 60 && !::testing::Test::HasFailure(); ++step) {
      Operate();
      Check();
    }
    if (::testing::Test::HasFailure()) return;
    while (!sequences_.empty()) Finish(0);
    EXPECT_EQ(pool_.num_evictable(), cache_.num_blocks());
    EXPECT_EQ(pool_.num_available(), pool_.num_total());
    cache_.Clear();
    EXPECT_EQ(pool_.num_used(), 0);
  }
  int64_t num_shortened() const { return num_shortened_; }

 private:
  struct Sequence {
    KvTables tables;
    PrefixCursors cursors;
    uint64_t salt;
    Tokens tokens;   // of the tables
    Tokens pending;  // to be appended
  };

  int Draw(int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(rng_);
  }
  KvGroups RandomGroups() {
    KvGroups groups = {{Draw(1, 6), Draw(0, 3) == 0 ? Draw(8, 20) : 0}};
    for (int more = Draw(1, 3); more > 0; --more)
      groups.push_back({Draw(1, 6), Draw(1, 10)});
    return groups;
  }
  Tokens RandomTokens(int count) {
    Tokens tokens(static_cast<size_t>(count));
    for (int32_t& token : tokens) token = Draw(0, 2);
    return tokens;
  }
  uint64_t& Slot(size_t group, int32_t block, int64_t position) {
    return slots_[static_cast<size_t>(block * 6 +
                                      position % groups_[group].block_size)];
  }
  // The KV of each position in the group.
  static std::vector<uint64_t> Values(size_t group, uint64_t salt,
                                      const Tokens& tokens) {
    std::vector<uint64_t> values;
    uint64_t value = 10 * group + salt + 1;
    for (int32_t token : tokens) {
      value = (value + static_cast<uint64_t>(token) + 1) * 0x9E3779B97F4A7C15;
      values.push_back(value);
    }
    return values;
  }

  void Operate() {
    const int op = Draw(0, 12);
    const auto any = static_cast<size_t>(
        Draw(0, std::max(0, static_cast<int>(sequences_.size()) - 1)));
    if (sequences_.empty() || (op <= 2 && sequences_.size() < 5)) {
      Begin();
    } else if (op == 3 && sequences_.size() < 5) {
      Sequence& s = sequences_[any];
      Sequence fork = {s.tables.Fork(), s.cursors, s.salt, s.tokens,
                       RandomTokens(3)};
      sequences_.push_back(std::move(fork));
    } else if (op <= 5) {
      Finish(any);
    } else if (op == 6 && Draw(0, 4) == 0) {
      cache_.Clear();
    } else if (op == 7 && pool_.end_id() < 60) {
      pool_.AddBlocks(pool_.end_id(), Draw(1, 3));
    } else if (op == 8) {
      Move();
    } else {
      Step(&sequences_[any]);
    }
  }

  // The longest that each group by itself can give.
  int64_t Longest(uint64_t salt, const Tokens& tokens) const {
    for (auto n = static_cast<int64_t>(tokens.size()); n > 0; --n) {
      bool all = true;
      for (size_t g = 0; g < groups_.size() && all; ++g) {
        const uint64_t own = PrefixCache::SaltIn(g, salt);
        const PrefixIndex& index = cache_.group(g);
        all = groups_[g].window == 0
                  ? index.Find(own, tokens).num_tokens >= n
                  : index.Find(own, Beginning(tokens, n)).num_tokens == n;
      }
      if (all) return n;
    }
    return 0;
  }

  void Begin() {
    Tokens tokens = corpus_[static_cast<size_t>(
        Draw(0, static_cast<int>(corpus_.size()) - 1))];
    tokens.resize(
        static_cast<size_t>(Draw(0, static_cast<int>(tokens.size()))));
    const Tokens more = RandomTokens(Draw(0, 8));
    tokens.insert(tokens.end(), more.begin(), more.end());
    const auto salt = static_cast<uint64_t>(Draw(0, 3) == 0);
    const KvMatch match = cache_.Find(salt, tokens);
    ASSERT_EQ(match.num_tokens, Longest(salt, tokens));
    num_shortened_ +=
        match.num_tokens < cache_.group(0).Find(salt, tokens).num_tokens;
    for (const PrefixMatch& part : match.groups)
      ASSERT_EQ(part.num_tokens, match.num_tokens);
    Sequence s = {
        KvTables(&pool_, groups_), PrefixCursors(groups_.size()), salt, {}, {}};
    const int available = pool_.num_available();
    try {
      FailingNew fail(Draw(0, 2) == 0 ? Draw(0, 4) : 1000);
      cache_.Take(match, salt, tokens, &s.tables, &s.cursors);
    } catch (const std::bad_alloc&) {
      ASSERT_EQ(pool_.num_available(), available);
      ASSERT_EQ(s.tables.num_blocks_held(), 0);
      return;
    }
    ASSERT_EQ(pool_.num_available(), available - match.num_evictable());
    s.tokens.assign(tokens.begin(), tokens.begin() + match.num_tokens);
    s.pending.assign(tokens.begin() + match.num_tokens, tokens.end());
    sequences_.push_back(std::move(s));
  }

  void Finish(size_t i) {
    Sequence& s = sequences_[i];
    try {
      FailingNew fail(Draw(0, 3) == 0 ? Draw(0, 4) : 1000);
      cache_.InsertAll(s.salt, s.tokens, &s.tables, &s.cursors);
    } catch (const std::bad_alloc&) {
    }
    if (corpus_.size() > 20) corpus_.erase(corpus_.begin() + 1);
    corpus_.push_back(s.tokens);
    sequences_.erase(sequences_.begin() + static_cast<ptrdiff_t>(i));
  }

  void Move() {
    const int32_t from = Draw(0, pool_.end_id() - 1);
    const int32_t to = FreeBlockFrom(pool_, Draw(0, pool_.end_id()));
    if (!pool_.IsUsed(from) || to < 0) return;
    pool_.Move(from, to);
    std::copy_n(slots_.begin() + from * 6, 6, slots_.begin() + to * 6);
    for (Sequence& s : sequences_) {
      for (size_t g = 0; g < groups_.size(); ++g) {
        KvBlockTable& table = s.tables.group(g);
        for (size_t i = 0; i < table.blocks().size(); ++i) {
          if (table.blocks()[i] == from) table.SetMoved(i, to);
        }
      }
    }
    if (pool_.IsCached(to)) cache_.OnMoved(from, to);
  }

  void Step(Sequence* s) {
    Tokens fresh = s->pending;
    if (fresh.empty()) fresh = RandomTokens(Draw(1, 7));
    fresh.resize(static_cast<size_t>(Draw(0, static_cast<int>(fresh.size()))));
    const auto count = static_cast<int64_t>(fresh.size());
    const bool fits = s->tables.BlocksNeeded(count) <= pool_.num_available();
    auto reservation = KvTablesReservation::Make(&s->tables, count);
    ASSERT_EQ(reservation.ok(), fits) << reservation.status();
    if (!fits || s->tokens.size() > 40) return;
    Tokens tokens = s->tokens;
    tokens.insert(tokens.end(), fresh.begin(), fresh.end());
    for (size_t g = 0; g < groups_.size(); ++g) {
      const KvReservation& part = reservation->group(g);
      if (part.copy().has_value())
        std::copy_n(slots_.begin() + part.copy()->src * 6, 6,
                    slots_.begin() + part.copy()->dst * 6);
      const std::vector<uint64_t> values = Values(g, s->salt, tokens);
      for (size_t p = s->tokens.size(); p < tokens.size(); ++p) {
        const auto at = static_cast<int64_t>(p);
        const int32_t block = part.block(at / groups_[g].block_size);
        EXPECT_EQ(pool_.RefCount(block), 1) << "a shared block is written";
        Slot(g, block, at) = values[p];
      }
    }
    const int valid = Draw(0, static_cast<int>(fresh.size()));
    reservation->Commit(valid);
    s->tokens.insert(s->tokens.end(), fresh.begin(), fresh.begin() + valid);
    s->pending.erase(s->pending.begin(),
                     s->pending.begin() +
                         std::min<ptrdiff_t>(
                             valid, static_cast<ptrdiff_t>(s->pending.size())));
    try {
      FailingNew fail(Draw(0, 3) == 0 ? Draw(0, 4) : 1000);
      if (Draw(0, 3) != 0)
        cache_.Insert(s->salt, s->tokens, &s->tables, &s->cursors);
    } catch (const std::bad_alloc&) {
    }
    s->tables.DropPassed();
  }

  // References are those of tables and of the cache; what a next token reads is
  // there, and is what was computed.
  void Check() {
    std::vector<int> holders(static_cast<size_t>(pool_.end_id()), 0);
    for (Sequence& s : sequences_) {
      for (size_t g = 0; g < groups_.size(); ++g) {
        const KvBlockTable& table = s.tables.group(g);
        ASSERT_EQ(static_cast<size_t>(table.num_tokens()), s.tokens.size());
        const std::vector<uint64_t> values = Values(g, s.salt, s.tokens);
        for (int32_t id : table.blocks()) {
          if (id != KvBlockTable::kNoBlock) ++holders[static_cast<size_t>(id)];
        }
        for (int64_t p = KvFirstRead(table.num_tokens(), groups_[g].window);
             p < table.num_tokens(); ++p) {
          const int32_t block =
              table.blocks()[static_cast<size_t>(p / groups_[g].block_size)];
          ASSERT_NE(block, KvBlockTable::kNoBlock);
          ASSERT_EQ(Slot(g, block, p), values[static_cast<size_t>(p)]);
        }
      }
    }
    for (int32_t id = 0; id < pool_.end_id(); ++id) {
      ASSERT_EQ(pool_.RefCount(id), holders[static_cast<size_t>(id)] +
                                        (pool_.IsCached(id) ? 1 : 0));
    }
  }

  std::mt19937 rng_;
  KvGroups groups_;
  KvBlockPool pool_;
  PrefixCache cache_;
  std::vector<uint64_t> slots_;  // the fake device: [block][6]
  std::vector<Sequence> sequences_;
  std::vector<Tokens> corpus_;
  int64_t num_shortened_ = 0;
};

TEST(PrefixCacheTest, RandomHistories) {
  int64_t shortened = 0;
  const int seeds = ::inlay::testing::FewerWhenSanitized(2000);
  for (int seed = 1; seed <= seeds && !HasFailure(); ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    CacheHistory history(static_cast<uint32_t>(seed));
    history.Run();
    shortened += history.num_shortened();
  }
  EXPECT_GT(shortened, seeds / 10) << "groups hardly ever disagree";
}

}  // namespace
}  // namespace inlay
