// Groups of states: a block is never written again, what is found ends where a
// state is, and a step that is not committed leaves everything as it was.
#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "memory/kv/kv_layout.h"
#include "memory/kv/prefix_cache.h"
#include "memory/kv/tables.h"

namespace inlay {
namespace {

constexpr KvGroup kState{8, 1, true};

std::vector<int32_t> Counted(int64_t count, int32_t first = 0) {
  std::vector<int32_t> tokens(static_cast<size_t>(count));
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

void Extend(KvTables& tables, int64_t count) {
  auto reservation = KvTablesReservation::Make(&tables, count);
  ASSERT_TRUE(reservation.ok()) << reservation.status();
  reservation->Commit(count);
}

TEST(KvStateTest, AStepWritesToABlockOfItsOwn) {
  KvBlockPool pool(16);
  KvTables tables(&pool, {kState});
  Extend(tables, 5);
  const KvBlockTable& table = tables.group(0);
  const int32_t before = table.blocks()[0];
  {
    auto step = KvTablesReservation::Make(&tables, 1);
    ASSERT_TRUE(step.ok());
    const KvReservation& part = step->group(0);
    EXPECT_TRUE(part.is_state());
    EXPECT_EQ(part.source(), before);
    EXPECT_NE(part.block(0), before);
    // The kernel reads one and writes the other: nothing is copied.
    EXPECT_FALSE(part.copy().has_value());
    EXPECT_EQ(pool.num_used(), 2);
  }
  // The step failed.
  EXPECT_EQ(pool.num_used(), 1);
  EXPECT_EQ(table.num_tokens(), 5);
  EXPECT_EQ(table.blocks()[0], before);
  Extend(tables, 1);
  EXPECT_NE(table.blocks()[0], before);
  EXPECT_EQ(pool.num_used(), 1);
  // From a full block on there is nothing to replace.
  Extend(tables, 2);
  const int32_t full = table.blocks()[0];
  auto step = KvTablesReservation::Make(&tables, 9);
  ASSERT_TRUE(step.ok());
  EXPECT_EQ(step->group(0).source(), full);
  EXPECT_EQ(step->group(0).block(0), full);
  EXPECT_EQ(step->group(0).num_blocks(), 3);
  step->Commit(9);
  tables.DropPassed();
  EXPECT_EQ(table.blocks()[0], KvBlockTable::kNoBlock);
  EXPECT_EQ(table.blocks()[1], KvBlockTable::kNoBlock);
  EXPECT_EQ(pool.num_used(), 1);
  tables.Clear();
  EXPECT_EQ(pool.num_used(), 0);
}

// A cache with KV in blocks of 4 and states in blocks of 8.
struct StateCache {
  explicit StateCache(std::vector<KvGroup> of) : groups(of.begin(), of.end()) {}

  // Runs `tokens` in steps of `step`, as an engine does.
  void Run(const std::vector<int32_t>& tokens, int64_t step) {
    KvTables tables(&pool, groups);
    PrefixCursors cursors(groups.size());
    const auto match = cache.Find(0, tokens);
    cache.Take(match, 0, tokens, &tables, &cursors);
    while (tables.num_tokens() < static_cast<int64_t>(tokens.size())) {
      Extend(tables, std::min(step, static_cast<int64_t>(tokens.size()) -
                                        tables.num_tokens()));
      cache.Insert(0, tokens, &tables, &cursors);
      tables.DropPassed();
    }
    cache.InsertAll(0, tokens, &tables, &cursors);
    tables.Clear();
  }
  int64_t Found(const std::vector<int32_t>& tokens) {
    return cache.Find(0, tokens).num_tokens;
  }

  KvGroups groups;
  KvBlockPool pool{256};
  PrefixCache cache{&pool, groups, {}};
};

TEST(KvStateTest, IsFoundWhereAStateIs) {
  for (const bool alone : {false, true}) {
    StateCache cache(alone ? std::vector<KvGroup>{kState}
                           : std::vector<KvGroup>{{4, 0}, kState});
    cache.Run(Counted(29), 11);
    // All of it, to the token; of less, to the end of a state's block.
    EXPECT_EQ(cache.Found(Counted(29)), 29);
    EXPECT_EQ(cache.Found(Counted(40)), 29);
    EXPECT_EQ(cache.Found(Counted(28)), 24);
    EXPECT_EQ(cache.Found(Counted(23)), 16);
    EXPECT_EQ(cache.Found(Counted(7)), 0);
    auto other = Counted(29);
    other[20] = 99;
    EXPECT_EQ(cache.Found(other), 16);
    // It goes on from there, and from the token where each ended.
    cache.Run(Counted(33), 50);
    EXPECT_EQ(cache.Found(Counted(29)), 29);
    EXPECT_EQ(cache.Found(Counted(33)), 33);
    EXPECT_EQ(cache.Found(Counted(32)), 32);
    // A single token beyond a block is kept too: its state could not be used
    // otherwise.
    cache.Run(Counted(17, 1000), 17);
    EXPECT_EQ(cache.Found(Counted(17, 1000)), 17);
    // Nothing is held by anybody; all of it can go.
    EXPECT_EQ(cache.pool.num_available(), cache.pool.num_total());
    cache.cache.Clear();
    EXPECT_EQ(cache.pool.num_used(), 0);
    EXPECT_EQ(cache.Found(Counted(29)), 0);
  }
}

TEST(KvStateTest, WithoutItsKvAStateIsNoUse) {
  StateCache cache({{4, 0}, kState});
  cache.Run(Counted(24), 24);
  // Evicted one by one, whatever goes first: what is found is always there.
  int64_t last = 24;
  while (cache.pool.num_evictable() > 0) {
    cache.cache.Reclaim(1);
    const KvMatch match = cache.cache.Find(0, Counted(24));
    EXPECT_LE(match.num_tokens, last);
    last = match.num_tokens;
    EXPECT_EQ(last % 8, 0);
    for (const PrefixMatch& group : match.groups) {
      EXPECT_EQ(group.num_tokens, last);
    }
  }
  EXPECT_EQ(last, 0);
}

TEST(KvStateTest, BlocksAreLargeEnoughForAState) {
  const std::vector<KvLayerShape> layers = {{2, 32, 0}, {2, 32, 0}};
  const KvLayout plain(layers, DType::kF32, 16);
  EXPECT_FALSE(plain.has_states());
  // Small states: blocks as ever, padded in the states' group.
  const KvLayout small(layers, DType::kF32, 16, {100, 200});
  EXPECT_EQ(small.block_bytes(), plain.block_bytes());
  ASSERT_EQ(small.groups(), (KvGroups{{16, 0}, {64, 1, true}}));
  EXPECT_EQ(small.StateView(0, nullptr).offset_bytes, 0);
  EXPECT_EQ(small.StateView(1, nullptr).offset_bytes, 128);
  EXPECT_EQ(small.used_bytes(1), 128u + 256u);
  EXPECT_EQ(small.bytes_per_token(), plain.bytes_per_token());
  // Large ones: as many tokens as their bytes hold, and a state seldom.
  const KvLayout large(layers, DType::kF32, 16, {1 << 20});
  EXPECT_EQ(large.groups()[0].block_size, 1024);
  EXPECT_EQ(large.groups()[1], (KvGroup{1024, 1, true}));
  EXPECT_EQ(large.block_bytes(), size_t{1} << 20);
  // States alone.
  const KvLayout alone({}, DType::kF32, 16, {1000});
  ASSERT_EQ(alone.groups(), (KvGroups{{64, 1, true}}));
  EXPECT_EQ(alone.block_bytes(), 1024u);
  EXPECT_EQ(alone.bytes_per_token(), 0u);
}

}  // namespace
}  // namespace inlay
