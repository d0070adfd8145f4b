// FakeKv: a KV cache that stores one value a slot: a hash of all tokens up to
// it. A block that is shared wrongly, copied too late or handed out too early
// is seen as a wrong value.
#ifndef INLAY_TESTS_SCHED_FAKE_KV_H_
#define INLAY_TESTS_SCHED_FAKE_KV_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "memory/kv/block_pool.h"
#include "memory/kv/block_table.h"
#include "memory/kv/prefix_index.h"
#include "memory/kv/reservation.h"

namespace inlay {

class FakeKv {
 public:
  FakeKv(int32_t block_size, int64_t window, int32_t num_blocks)
      : pool(num_blocks),
        index(&pool, IndexOptions(block_size, window)),
        block_size_(block_size),
        window_(window) {
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

  uint64_t& Slot(int32_t block, int64_t position) {
    return slots_[static_cast<size_t>(block) *
                      static_cast<size_t>(block_size_) +
                  static_cast<size_t>(position % block_size_)];
  }
  void Poison(int32_t block) {
    for (int32_t i = 0; i < block_size_; ++i) Slot(block, i) = kPoison;
  }
  void Copy(int32_t from, int32_t to) {
    for (int32_t i = 0; i < block_size_; ++i) Slot(to, i) = Slot(from, i);
  }

  // The first position that a token at `position` reads.
  int64_t FirstRead(int64_t position) const {
    return window_ == 0 ? 0 : std::max<int64_t>(0, position - window_ + 1);
  }

  // As the engine's cache does after a step.
  void Publish(uint64_t salt, absl::Span<const int32_t> tokens,
               KvBlockTable* table, PrefixCursor* cursor) {
    const int32_t before = pool.num_used();
    index.Insert(salt, tokens, table, cursor);
    if (window_ > 0) table->DropBefore(table->num_tokens() - window_ + 1);
    num_deduped += pool.num_used() < before ? 1 : 0;
  }
  void Retire(uint64_t salt, absl::Span<const int32_t> tokens,
              KvBlockTable* table, PrefixCursor* cursor) {
    index.InsertAll(salt, tokens, table, cursor);
    table->Clear();
    *cursor = PrefixCursor();
  }

  int32_t num_held() const { return pool.num_used() - pool.num_evictable(); }

  // The pool has num_blocks blocks from now on. `held`: all tables that hold
  // any; what they hold fits.
  void Resize(int32_t num_blocks, absl::Span<KvBlockTable* const> held) {
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
  PrefixIndex index;
  int64_t num_deduped = 0;
  int64_t num_moved = 0;

 private:
  static constexpr uint64_t kPoison = 0xDEADBEEFDEADBEEFu;

  static PrefixIndex::Options IndexOptions(int32_t block_size, int64_t window) {
    PrefixIndex::Options options;
    options.block_size = block_size;
    options.window = window;
    options.cost = [](int64_t end) { return 1.0 + static_cast<double>(end); };
    return options;
  }

  void AddSlots() {
    const auto end = static_cast<size_t>(pool.end_id());
    slots_.resize(end * static_cast<size_t>(block_size_), kPoison);
    absent_.resize(end, false);
  }

  void RemoveOne(absl::Span<KvBlockTable* const> held) {
    if (pool.num_free() == 0) index.Reclaim(1);
    // Any that is there, in no order.
    int32_t id = static_cast<int32_t>((turn_ += 7919) % pool.end_id());
    while (absent_[static_cast<size_t>(id)]) id = (id + 1) % pool.end_id();
    if (pool.RefCount(id) > 0) {
      const int32_t to = pool.FreeBlockOutside(id, 1);
      Copy(id, to);
      pool.Move(id, to);
      if (pool.IsCached(to)) index.OnMoved(id, to);
      for (KvBlockTable* table : held) {
        for (size_t i = 0; i < table->blocks().size(); ++i) {
          if (table->blocks()[i] == id) table->SetMoved(i, to);
        }
      }
      ++num_moved;
    }
    Poison(id);
    pool.RemoveBlocks(id, 1);
    absent_[static_cast<size_t>(id)] = true;
  }

  const int32_t block_size_;
  const int64_t window_;
  std::vector<uint64_t> slots_;  // [block][slot]
  std::vector<bool> absent_;     // by block: taken from the pool
  uint32_t turn_ = 0;
};

}  // namespace inlay

#endif  // INLAY_TESTS_SCHED_FAKE_KV_H_
