// EvictionHeap and KeyTable against the standard library's containers.
#include "memory/kv/eviction_heap.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>
#include <tuple>
#include <utility>

#include "memory/kv/block_key.h"
#include "memory/kv/key_table.h"

namespace inlay {
namespace {

TEST(EvictionHeapTest, MatchesASortedSet) {
  for (uint32_t seed = 1; seed <= 200 && !HasFailure(); ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    std::mt19937 rng(seed);
    EvictionHeap heap;
    std::set<std::tuple<double, uint64_t, int32_t>> model;
    std::map<int32_t, std::pair<double, uint64_t>> content;
    int32_t end = 0;
    const auto erase = [&](int32_t id) {
      const auto [priority, order] = content.at(id);
      model.erase({priority, order, id});
      content.erase(id);
    };
    for (uint64_t step = 0; step < 300; ++step) {
      if (step % 100 == 0) heap.Reserve(end += 20);
      const auto id = static_cast<int32_t>(rng() % static_cast<uint32_t>(end));
      const auto to = static_cast<int32_t>(rng() % static_cast<uint32_t>(end));
      ASSERT_EQ(heap.Contains(id), content.count(id) > 0);
      if (!heap.Contains(id)) {
        const double priority = rng() % 10;
        heap.Push(id, priority, step);
        model.insert({priority, step, id});
        content[id] = {priority, step};
      } else if (rng() % 3 == 0) {
        heap.Erase(id);
        erase(id);
      } else if (!heap.Contains(to)) {
        const auto [priority, order] = content.at(id);
        heap.Rename(id, to);
        erase(id);
        model.insert({priority, order, to});
        content[to] = {priority, order};
      }
      ASSERT_EQ(heap.empty(), model.empty());
      if (!heap.empty()) {
        ASSERT_EQ(heap.top(), std::get<2>(*model.begin()));
      }
    }
    while (!model.empty()) {
      ASSERT_EQ(heap.top(), std::get<2>(*model.begin()));
      erase(heap.top());
      heap.Erase(heap.top());
    }
    EXPECT_TRUE(heap.empty());
  }
}

TEST(KeyTableTest, MatchesAMap) {
  for (uint32_t seed = 1; seed <= 200 && !HasFailure(); ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    std::mt19937 rng(seed);
    KeyTable table;
    std::map<uint64_t, int32_t> model;
    EXPECT_EQ(table.Find({}), nullptr);
    const size_t room = 1 + rng() % 40;
    table.Reserve(room / 2 + 1);
    table.Reserve(room);
    for (int step = 0; step < 500; ++step) {
      if (step == 250) table.Reserve(2 * room);
      const uint64_t low = rng() % 64;
      const KvBlockKey key = {7, low};
      KeyTable::Entry* entry = table.Find(key);
      ASSERT_EQ(entry != nullptr, model.count(low) > 0);
      if (entry != nullptr) {
        ASSERT_EQ(entry->id, model[low]);
        entry->id = KeyTable::kNone;
        table.Erase(entry);
        model.erase(low);
      } else if (model.size() < room) {
        KeyTable::Entry& added = table.FindOrAdd(key);
        ASSERT_TRUE(added.empty());
        added.id = model[low] = step;
      }
      for (uint64_t other = 0; other < 64; ++other) {
        const KeyTable::Entry* found = table.Find({7, other});
        ASSERT_EQ(found != nullptr, model.count(other) > 0);
        if (found != nullptr) {
          ASSERT_EQ(found->id, model[other]);
        }
      }
    }
  }
}

}  // namespace
}  // namespace inlay
