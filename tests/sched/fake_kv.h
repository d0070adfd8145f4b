// FakeKv: a KV cache that stores one value a slot: a hash of all tokens up to
// it. A block that is shared wrongly, copied too late or handed out too early
// is seen as a wrong value.
#ifndef INLAY_TESTS_SCHED_FAKE_KV_H_
#define INLAY_TESTS_SCHED_FAKE_KV_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <vector>

#include "absl/types/span.h"
#include "memory/kv/block_pool.h"
#include "memory/kv/block_table.h"
#include "memory/kv/kv_group.h"
#include "memory/kv/prefix_cache.h"
#include "memory/kv/tables.h"

namespace inlay {

class FakeKv {
 public:
  FakeKv(const KvGroups& kv_groups, int32_t num_blocks)
      : pool(num_blocks),
        cache(&pool, kv_groups, IndexOptions(this)),
        groups(kv_groups) {
    for (const KvGroup& group : groups)
      most_slots_ = std::max(most_slots_, int64_t{group.block_size});
    AddSlots();
  }

  // The value of a position from that of the one before it (the salt for the
  // first).
  static uint64_t Next(uint64_t before, int32_t token) {
    uint64_t x = before * 0x9E3779B97F4A7C15u + static_cast<uint32_t>(token);
    x ^= x >> 29;
    x *= 0xBF58476D1CE4E5B9u;
    return x ^ (x >> 32);
  }

  // Each group has values of its own, so that a block of another is seen.
  static uint64_t ValueIn(size_t group, uint64_t value) {
    return value ^ (group * 0x9E3779B97F4A7C15u);
  }

  uint64_t& Slot(size_t group, int32_t block, int64_t position) {
    return At(block, position % groups[group].block_size);
  }
  void Poison(int32_t block) {
    for (int64_t i = 0; i < most_slots_; ++i) At(block, i) = kPoison;
  }
  void Copy(int32_t from, int32_t to) {
    for (int64_t i = 0; i < most_slots_; ++i) At(to, i) = At(from, i);
  }

  // As the engine's cache does after a step.
  void Publish(uint64_t salt, absl::Span<const int32_t> tokens,
               KvTables* tables, PrefixCursors* cursors) {
    const int32_t before = pool.num_used();
    cache.Insert(salt, tokens, tables, cursors);
    tables->DropPassed();
    num_deduped += pool.num_used() < before ? 1 : 0;
  }
  void Retire(uint64_t salt, absl::Span<const int32_t> tokens, KvTables* tables,
              PrefixCursors* cursors) {
    cache.InsertAll(salt, tokens, tables, cursors);
    tables->Clear();
    cursors->assign(groups.size(), PrefixCursor());
  }

  // What there is of `tokens`, in the cache or below it.
  KvMatch Look(uint64_t salt, absl::Span<const int32_t> tokens) const {
    const auto has = [this](const KvBlockKey& key) {
      return tier.contains(key);
    };
    const KvBelow below = has;
    return cache.Find(salt, tokens, &below);
  }
  // False: the tier has it no more.
  bool Load(const KvBlockKey& key, int32_t to) {
    const auto found = tier.find(key);
    if (found == tier.end()) return false;
    for (int64_t i = 0; i < most_slots_; ++i)
      At(to, i) = found->second[static_cast<size_t>(i)];
    return true;
  }

  int32_t num_held() const { return pool.num_used() - pool.num_evictable(); }

  // The pool has num_blocks blocks from now on. `held`: all tables that hold
  // any; what they hold fits.
  void Resize(int32_t num_blocks, absl::Span<KvTables* const> held) {
    ASSERT_LE(num_held(), num_blocks);
    while (pool.num_total() > num_blocks) RemoveOne(held);
    for (int32_t id = 0; pool.num_total() < num_blocks; ++id) {
      if (static_cast<size_t>(id) < absent_.size() &&
          !absent_[static_cast<size_t>(id)]) {
        continue;
      }
      pool.AddBlocks(id, 1);
      AddSlots();
      absent_[static_cast<size_t>(id)] = false;
    }
  }

  KvBlockPool pool;
  PrefixCache cache;
  const KvGroups groups;
  // Full blocks that made way; what the test takes from it is lost.
  // In an order that is always the same.
  struct ByKey {
    bool operator()(const KvBlockKey& a, const KvBlockKey& b) const {
      return a.high != b.high ? a.high < b.high : a.low < b.low;
    }
  };
  std::map<KvBlockKey, std::vector<uint64_t>, ByKey> tier;
  bool has_tier = false;
  int64_t num_deduped = 0;
  int64_t num_moved = 0;

 private:
  static constexpr uint64_t kPoison = 0xDEADBEEFDEADBEEFu;

  static PrefixIndex::Options IndexOptions(FakeKv* kv) {
    PrefixIndex::Options options;
    options.demote = [kv](const KvBlockKey& key, absl::Span<const int32_t>,
                          int32_t block) {
      if (!kv->has_tier) return;
      std::vector<uint64_t>& bytes = kv->tier[key];
      bytes.clear();
      for (int64_t i = 0; i < kv->most_slots_; ++i)
        bytes.push_back(kv->At(block, i));
    };
    options.cost = [](int64_t end) { return 1.0 + static_cast<double>(end); };
    return options;
  }

  uint64_t& At(int32_t block, int64_t slot) {
    return slots_[static_cast<size_t>(block * most_slots_ + slot)];
  }

  void AddSlots() {
    const auto end = static_cast<size_t>(pool.end_id());
    slots_.resize(end * static_cast<size_t>(most_slots_), kPoison);
    absent_.resize(end, false);
  }

  static void SetMoved(KvBlockTable& table, int32_t from, int32_t to) {
    for (size_t i = 0; i < table.blocks().size(); ++i) {
      if (table.blocks()[i] == from) table.SetMoved(i, to);
    }
  }

  void RemoveOne(absl::Span<KvTables* const> held) {
    if (pool.num_free() == 0) cache.Reclaim(1);
    // Any that is there, in no order.
    int32_t id = static_cast<int32_t>((turn_ += 7919) % pool.end_id());
    while (absent_[static_cast<size_t>(id)]) id = (id + 1) % pool.end_id();
    pool.RemoveBlocks([&](int32_t other) { return other == id; },
                      [&](int32_t from, int32_t to) {
                        Copy(from, to);
                        if (pool.IsCached(to)) cache.OnMoved(from, to);
                        for (KvTables* tables : held) {
                          for (size_t g = 0; g < groups.size(); ++g)
                            SetMoved(tables->group(g), from, to);
                        }
                        ++num_moved;
                      });
    Poison(id);
    absent_[static_cast<size_t>(id)] = true;
  }

  int64_t most_slots_ = 0;       // of a block, in any group
  std::vector<uint64_t> slots_;  // [block][slot]
  std::vector<bool> absent_;     // by block: taken from the pool
  uint32_t turn_ = 0;
};

}  // namespace inlay

#endif  // INLAY_TESTS_SCHED_FAKE_KV_H_
