// Random histories of forked, truncated and extended tables against a model
// that knows only token lists. The fake device stores one number a slot, so a
// wrong share, a missed copy or an early reuse shows up as a wrong token.
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <utility>
#include <vector>

#include "memory/kv/block_pool.h"
#include "memory/kv/block_table.h"
#include "memory/kv/reservation.h"

namespace inlay {
namespace {

class TableHistory {
 public:
  explicit TableHistory(uint32_t seed)
      : rng_(seed),
        block_size_(Draw(1, 5)),
        pool_(Draw(1, 24)),
        slots_(static_cast<size_t>(pool_.num_total() * block_size_)) {
    pool_.SetAllocationFaultForTest([this] { return Draw(0, 9) == 0; });
  }

  void Run() {
    for (int step = 0; step < 120 && !::testing::Test::HasFailure(); ++step) {
      Operate();
      Check();
    }
    sequences_.clear();
    EXPECT_EQ(pool_.num_used(), 0);
    EXPECT_EQ(pool_.num_free(), pool_.num_total());
  }

 private:
  struct Sequence {
    KvBlockTable table;
    std::vector<int> tokens;  // the model
  };

  int Draw(int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(rng_);
  }
  Sequence& Any() {
    return sequences_[static_cast<size_t>(
        Draw(0, static_cast<int>(sequences_.size()) - 1))];
  }
  int& Slot(int32_t block, size_t position) {
    return slots_[static_cast<size_t>(block * block_size_) +
                  position % static_cast<size_t>(block_size_)];
  }

  void Operate() {
    const int op = Draw(0, 11);
    if (sequences_.empty() || (op == 0 && sequences_.size() < 8)) {
      sequences_.push_back({KvBlockTable(&pool_, block_size_), {}});
    } else if (op == 1 && sequences_.size() < 8) {
      Sequence fork = {Any().table.Fork(), {}};
      for (Sequence& s : sequences_) {
        if (s.table.blocks() == fork.table.blocks() &&
            s.table.num_tokens() == fork.table.num_tokens())
          fork.tokens = s.tokens;
      }
      sequences_.push_back(std::move(fork));
    } else if (op == 2) {
      Sequence& s = Any();
      const int keep = Draw(0, static_cast<int>(s.tokens.size()) + 2);
      s.table.Truncate(keep);
      s.tokens.resize(std::min(s.tokens.size(), static_cast<size_t>(keep)));
    } else if (op == 3) {
      const int i = Draw(0, static_cast<int>(sequences_.size()) - 1);
      sequences_.erase(sequences_.begin() + i);
    } else if (op == 4) {
      Sequence& s = Any();
      s.table.Clear();
      s.tokens.clear();
    } else {
      Step();
    }
  }

  // What an engine's step does with some of the sequences: all reservations,
  // all copies, all writes, all commits.
  void Step() {
    struct Item {
      Sequence* sequence;
      KvReservation reservation;
      std::vector<int> fresh;
    };
    std::vector<Item> items;
    for (Sequence& s : sequences_) {
      if (Draw(0, 1) == 0) continue;
      const int count = Draw(0, 2 * block_size_ + 1);
      const int64_t needed = s.table.BlocksNeeded(count);
      const int free = pool_.num_free();
      auto reservation = KvReservation::Make(&s.table, count);
      if (!reservation.ok()) {
        EXPECT_EQ(pool_.num_free(), free);
        continue;
      }
      EXPECT_EQ(free - pool_.num_free(), needed);
      Item item = {&s, *std::move(reservation), {}};
      for (int i = 0; i < count; ++i) item.fresh.push_back(++next_token_);
      items.push_back(std::move(item));
    }
    for (const Item& item : items) {
      if (!item.reservation.copy().has_value()) continue;
      const KvBlockCopy copy = *item.reservation.copy();
      for (int i = 0; i < block_size_; ++i)
        Slot(copy.dst, static_cast<size_t>(i)) =
            Slot(copy.src, static_cast<size_t>(i));
    }
    for (Item& item : items) {
      for (size_t i = 0; i < item.fresh.size(); ++i) {
        const size_t position =
            static_cast<size_t>(item.reservation.first_token()) + i;
        const int32_t block = item.reservation.block(
            static_cast<int64_t>(position) / block_size_);
        EXPECT_EQ(pool_.RefCount(block), 1)
            << "a shared block is never written";
        Slot(block, position) = item.fresh[i];
      }
    }
    for (Item& item : items) {
      const int valid = Draw(0, 2) == 0
                            ? Draw(0, static_cast<int>(item.fresh.size()))
                            : static_cast<int>(item.fresh.size());
      if (valid == 0 && Draw(0, 1) == 0)
        continue;  // rolled back by the destructor instead
      item.reservation.Commit(valid);
      item.sequence->tokens.insert(item.sequence->tokens.end(),
                                   item.fresh.begin(),
                                   item.fresh.begin() + valid);
    }
  }

  void Check() {
    std::map<int32_t, int> holders;
    for (Sequence& s : sequences_) {
      ASSERT_EQ(static_cast<size_t>(s.table.num_tokens()), s.tokens.size());
      ASSERT_EQ(static_cast<int64_t>(s.table.blocks().size()),
                KvBlocksFor(s.table.num_tokens(), block_size_));
      for (int32_t id : s.table.blocks()) ++holders[id];
      for (size_t p = 0; p < s.tokens.size(); ++p) {
        ASSERT_EQ(
            Slot(s.table.blocks()[p / static_cast<size_t>(block_size_)], p),
            s.tokens[p])
            << "position " << p;
      }
    }
    ASSERT_EQ(pool_.num_used(), static_cast<int>(holders.size()));
    for (auto [id, count] : holders)
      ASSERT_EQ(pool_.RefCount(id), count) << "block " << id;
    ASSERT_EQ(pool_.num_used() + pool_.num_free(), pool_.num_total());
    ASSERT_GE(pool_.peak_used(), pool_.num_used());
  }

  std::mt19937 rng_;
  int block_size_;
  KvBlockPool pool_;
  std::vector<int> slots_;  // the fake device: [block][slot]
  std::vector<Sequence> sequences_;
  int next_token_ = 0;
};

TEST(KvRandomTest, HistoriesMatchTheModel) {
  for (uint32_t seed = 1; seed <= 1500 && !HasFailure(); ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    TableHistory(seed).Run();
  }
}

}  // namespace
}  // namespace inlay
