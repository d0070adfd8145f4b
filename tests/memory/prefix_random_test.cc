// Random histories of sequences that share prefixes, against PrefixModel. The
// fake device stores a number a slot that depends on all tokens before it, as
// KV does: a wrong share, a missed copy or an early reuse shows.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <new>
#include <random>
#include <utility>
#include <vector>

#include "memory/kv/block_pool.h"
#include "memory/kv/block_table.h"
#include "memory/kv/prefix_index.h"
#include "memory/kv/reservation.h"
#include "tests/memory/failing_new.h"
#include "tests/memory/free_block.h"
#include "tests/memory/prefix_model.h"
#include "tests/support/sanitized.h"

namespace inlay {
namespace {

using Tokens = std::vector<int32_t>;

// Keys that collide all the time.
KvBlockKey WeakKey(const KvBlockKey& parent, absl::Span<const int32_t> tokens) {
  uint64_t sum = parent.low * 5 + tokens.size();
  for (int32_t token : tokens) sum = sum * 3 + static_cast<uint64_t>(token);
  return {0, sum % 11};
}

double Dear(int64_t end) { return static_cast<double>(1 + end * end % 7); }

class IndexHistory {
 public:
  // `weak`: keys collide; what is found cannot be foretold then, but must be
  // right.
  IndexHistory(uint32_t seed, bool weak)
      : rng_(seed),
        weak_(weak),
        block_size_(Draw(1, 5)),
        window_(weak || Draw(0, 1) == 0 ? 0 : Draw(1, 14)),
        costs_(Draw(0, 1) == 1),
        pool_(Draw(2, 30)),
        index_(&pool_, MakeOptions()),
        model_(
            static_cast<size_t>(block_size_),
            static_cast<size_t>(window_ == 1 ? 2 : window_),
            costs_ ? Dear : [](int64_t) { return 1.0; }),
        slots_(static_cast<size_t>(64 * block_size_)) {
    if (weak) index_.SetChainForTest(&WeakKey);
    corpus_.push_back({});
  }

  void Run() {
    for (int step = 0; step < 60 && !::testing::Test::HasFailure(); ++step) {
      Operate();
      Check();
    }
    if (::testing::Test::HasFailure()) return;
    while (!sequences_.empty()) Finish(0);
    EXPECT_EQ(pool_.num_evictable(), index_.num_blocks());
    EXPECT_EQ(pool_.num_available(), pool_.num_total());
    index_.Clear();
    EXPECT_EQ(index_.num_blocks(), 0);
    EXPECT_EQ(pool_.num_used(), 0);
  }

 private:
  struct Sequence {
    KvBlockTable table;
    PrefixCursor cursor;
    uint64_t salt = 0;
    Tokens tokens;   // of the table
    Tokens pending;  // to be appended
  };

  PrefixIndex::Options MakeOptions() {
    PrefixIndex::Options options;
    options.group.block_size = block_size_;
    options.group.window = window_;
    if (costs_) options.cost = Dear;
    options.demote = [this](const KvBlockKey&, absl::Span<const int32_t> tokens,
                            int32_t block) {
      EXPECT_TRUE(pool_.IsEvictable(block));
      EXPECT_EQ(static_cast<int32_t>(tokens.size()), block_size_);
    };
    return options;
  }
  int Draw(int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(rng_);
  }
  size_t AnyIndex() {
    return static_cast<size_t>(
        Draw(0, static_cast<int>(sequences_.size()) - 1));
  }
  uint64_t& Slot(int32_t block, size_t position) {
    return slots_[static_cast<size_t>(block * block_size_) +
                  position % static_cast<size_t>(block_size_)];
  }
  // The KV of each position.
  static std::vector<uint64_t> Values(uint64_t salt, const Tokens& tokens) {
    std::vector<uint64_t> values;
    uint64_t value = salt + 1;
    for (int32_t token : tokens) {
      value = (value + static_cast<uint64_t>(token) + 1) * 0x9E3779B97F4A7C15;
      values.push_back(value);
    }
    return values;
  }
  Tokens RandomTokens(int count) {
    Tokens tokens(static_cast<size_t>(count));
    for (int32_t& token : tokens) token = Draw(0, 2);
    return tokens;
  }

  void Operate() {
    const int op = Draw(0, 15);
    if (sequences_.empty() || (op <= 2 && sequences_.size() < 7)) {
      Begin();
    } else if (op == 3 && sequences_.size() < 7) {
      Sequence& s = sequences_[AnyIndex()];
      sequences_.push_back(
          {s.table.Fork(), s.cursor, s.salt, s.tokens, RandomTokens(3)});
    } else if (op == 4) {
      Truncate(&sequences_[AnyIndex()]);
    } else if (op <= 6) {
      Finish(AnyIndex());
    } else if (op == 7 && Draw(0, 4) == 0) {
      index_.Clear();
      std::erase_if(model_.nodes, [](auto& n) { return n.second.evictable; });
    } else if (op == 8 && pool_.end_id() < 60) {
      pool_.AddBlocks(pool_.end_id(), Draw(1, 3));
    } else if (op == 9) {
      Move();
    } else {
      Step();
    }
  }

  void Begin() {
    Tokens tokens = corpus_[static_cast<size_t>(
        Draw(0, static_cast<int>(corpus_.size()) - 1))];
    tokens.resize(
        static_cast<size_t>(Draw(0, static_cast<int>(tokens.size()))));
    const Tokens more = RandomTokens(Draw(0, 2 * block_size_));
    tokens.insert(tokens.end(), more.begin(), more.end());
    const auto salt = static_cast<uint64_t>(Draw(0, 3) == 0);
    const PrefixMatch match = index_.Find(salt, tokens);
    if (!weak_) {
      const auto [length, blocks] = model_.Find(salt, tokens);
      ASSERT_EQ(match.num_tokens, static_cast<int64_t>(length));
      ASSERT_EQ(match.blocks, blocks);
    }
    ASSERT_LE(match.num_tokens, static_cast<int64_t>(tokens.size()));
    int evictable = 0;
    for (int32_t id : match.blocks)
      evictable += id != KvBlockTable::kNoBlock && pool_.IsEvictable(id);
    ASSERT_EQ(match.num_evictable, evictable);
    Sequence s = {KvBlockTable(&pool_, block_size_), {}, salt, {}, {}};
    const int available = pool_.num_available();
    index_.Take(match, salt, tokens, &s.table, &s.cursor);
    ASSERT_EQ(pool_.num_available(), available - evictable);
    s.tokens.assign(tokens.begin(), tokens.begin() + match.num_tokens);
    s.pending.assign(tokens.begin() + match.num_tokens, tokens.end());
    sequences_.push_back(std::move(s));
    Settle(true);
  }

  void Truncate(Sequence* s) {
    int64_t keep = Draw(0, static_cast<int>(s->tokens.size()));
    const auto blocks = s->table.blocks();
    const auto dropped =
        std::count(blocks.begin(), blocks.end(), KvBlockTable::kNoBlock);
    // What the next token reads must be there.
    if (dropped > 0 && keep - window_ + 1 < dropped * block_size_) keep = 0;
    s->table.Truncate(keep);
    s->tokens.resize(static_cast<size_t>(keep));
    if (s->cursor.num_blocks * block_size_ > keep) s->cursor = PrefixCursor();
    Settle(true);
  }

  void Finish(size_t i) {
    if (Draw(0, 9) != 0) Insert(&sequences_[i], true);
    if (corpus_.size() > 20) corpus_.erase(corpus_.begin() + 1);
    corpus_.push_back(sequences_[i].tokens);
    sequences_[i].table.Clear();
    sequences_[i].tokens.clear();
    Settle(true);
    sequences_.erase(sequences_.begin() + static_cast<ptrdiff_t>(i));
  }

  void Insert(Sequence* s, bool all) {
    const PrefixCursor before = s->cursor;
    const Tokens ids(s->table.blocks().begin(), s->table.blocks().end());
    bool threw = false;
    try {
      FailingNew fail(Draw(0, 2) == 0 ? Draw(0, 3) : 1000);
      if (all)
        index_.InsertAll(s->salt, s->tokens, &s->table, &s->cursor);
      else
        index_.Insert(s->salt, s->tokens, &s->table, &s->cursor);
    } catch (const std::bad_alloc&) {
      threw = true;
    }
    if (weak_) return;
    const auto size = static_cast<size_t>(block_size_);
    const size_t end = all && !threw && s->tokens.size() % size >= 2
                           ? s->tokens.size()
                           : static_cast<size_t>(s->cursor.num_blocks) * size;
    if (!threw) {
      ASSERT_EQ(s->cursor.num_blocks, s->table.num_tokens() / block_size_);
    }
    for (auto i = static_cast<size_t>(before.num_blocks); i * size < end; ++i) {
      if (ids[i] == KvBlockTable::kNoBlock) continue;
      const Tokens prefix(s->tokens.begin(),
                          s->tokens.begin() + static_cast<ptrdiff_t>(std::min(
                                                  end, (i + 1) * size)));
      ASSERT_EQ(s->table.blocks()[i],
                model_.Enter(s->salt, prefix, i * size, ids[i]));
    }
    Settle(true);
  }

  void Move() {
    const int32_t from = Draw(0, pool_.end_id() - 1);
    const int32_t to = FreeBlockFrom(pool_, Draw(0, pool_.end_id()));
    if (!pool_.IsUsed(from) || to < 0) return;
    const bool cached = pool_.IsCached(from);
    pool_.Move(from, to);
    for (int i = 0; i < block_size_; ++i)
      Slot(to, static_cast<size_t>(i)) = Slot(from, static_cast<size_t>(i));
    for (Sequence& s : sequences_) {
      for (size_t i = 0; i < s.table.blocks().size(); ++i) {
        if (s.table.blocks()[i] == from) s.table.SetMoved(i, to);
      }
    }
    const bool fails = !weak_ && Draw(0, 3) == 0;
    {
      FailingNew fail(fails ? Draw(0, 3) : 1000);
      index_.OnMoved(from, to);
    }
    ASSERT_TRUE(fails || pool_.IsCached(to) == cached);
    auto node = model_.nodes.extract(from);
    if (node.empty() || !pool_.IsCached(to)) return;
    node.key() = to;
    model_.nodes.insert(std::move(node));
  }

  // An engine's step with some of the sequences.
  void Step() {
    struct Item {
      Sequence* sequence;
      KvReservation reservation;
      Tokens fresh;
    };
    std::vector<Item> items;
    for (Sequence& s : sequences_) {
      if (Draw(0, 1) == 0 ||
          s.tokens.size() > static_cast<size_t>(8 * block_size_))
        continue;
      Tokens fresh = s.pending;
      if (fresh.empty()) fresh = RandomTokens(Draw(1, block_size_ + 1));
      fresh.resize(
          static_cast<size_t>(Draw(0, static_cast<int>(fresh.size()))));
      const auto count = static_cast<int64_t>(fresh.size());
      const int64_t needed = s.table.BlocksNeeded(count);
      const int free = pool_.num_free();
      const bool fits = needed <= pool_.num_available();
      auto reservation = KvReservation::Make(&s.table, count);
      ASSERT_EQ(reservation.ok(), fits) << reservation.status();
      if (!fits) continue;
      for (int64_t i = free; !weak_ && i < needed; ++i) model_.Evict();
      CheckKnown();
      items.push_back({&s, *std::move(reservation), std::move(fresh)});
    }
    for (const Item& item : items) {
      if (!item.reservation.copy().has_value()) continue;
      for (size_t i = 0; i < static_cast<size_t>(block_size_); ++i)
        Slot(item.reservation.copy()->dst, i) =
            Slot(item.reservation.copy()->src, i);
    }
    for (Item& item : items) {
      Sequence* s = item.sequence;
      Tokens tokens = s->tokens;
      tokens.insert(tokens.end(), item.fresh.begin(), item.fresh.end());
      const std::vector<uint64_t> values = Values(s->salt, tokens);
      for (size_t p = s->tokens.size(); p < tokens.size(); ++p) {
        const int32_t block =
            item.reservation.block(static_cast<int64_t>(p) / block_size_);
        EXPECT_EQ(pool_.RefCount(block), 1) << "a shared block is written";
        Slot(block, p) = values[p];
      }
    }
    for (Item& item : items) {
      Sequence* s = item.sequence;
      const int valid = Draw(0, static_cast<int>(item.fresh.size()));
      item.reservation.Commit(valid);
      s->tokens.insert(s->tokens.end(), item.fresh.begin(),
                       item.fresh.begin() + valid);
      s->pending.erase(s->pending.begin(),
                       s->pending.begin() +
                           std::min<ptrdiff_t>(valid, static_cast<ptrdiff_t>(
                                                          s->pending.size())));
      Settle(true);
      if (Draw(0, 3) != 0) Insert(s, false);
      if (window_ > 0 && Draw(0, 1) == 0) {
        s->table.DropBefore(static_cast<int64_t>(s->tokens.size()) - window_ +
                            1);
        Settle(false);
      }
    }
  }

  // Tells the model what has become evictable by the last operation on one
  // table, which lets go from its back or from its front.
  void Settle(bool from_back) {
    if (weak_) return;
    std::map<int32_t, int> holders = Holders();
    std::vector<std::pair<int64_t, int32_t>> released;
    for (auto& [id, node] : model_.nodes) {
      const bool evictable = holders.count(id) == 0;
      if (evictable && !node.evictable) {
        const auto end = static_cast<int64_t>(node.prefix.size());
        released.emplace_back(from_back ? -end : end, id);
      }
      node.evictable = evictable;
    }
    std::sort(released.begin(), released.end());
    for (auto [end, id] : released) model_.Release(id, pool_.num_total());
  }

  std::map<int32_t, int> Holders() const {
    std::map<int32_t, int> holders;
    for (const Sequence& s : sequences_) {
      for (int32_t id : s.table.blocks()) {
        if (id != KvBlockTable::kNoBlock) ++holders[id];
      }
    }
    return holders;
  }

  void CheckKnown() {
    for (int32_t id = 0; !weak_ && id < pool_.end_id(); ++id) {
      ASSERT_EQ(pool_.IsCached(id), model_.nodes.count(id) > 0)
          << "block " << id;
    }
  }

  void Check() {
    CheckKnown();
    const std::map<int32_t, int> holders = Holders();
    int cached = 0, evictable = 0, used = 0;
    for (int32_t id = 0; id < pool_.end_id(); ++id) {
      const auto held = holders.find(id);
      const int tables = held == holders.end() ? 0 : held->second;
      ASSERT_EQ(pool_.RefCount(id), tables + pool_.IsCached(id));
      cached += pool_.IsCached(id);
      evictable += pool_.IsCached(id) && tables == 0;
      used += pool_.IsCached(id) || tables > 0;
    }
    ASSERT_EQ(index_.num_blocks(), cached);
    ASSERT_EQ(pool_.num_evictable(), evictable);
    ASSERT_EQ(pool_.num_used(), used);
    for (Sequence& s : sequences_) {
      ASSERT_EQ(static_cast<size_t>(s.table.num_tokens()), s.tokens.size());
      CheckSlots(s.salt, s.tokens, 0, [&](size_t p) {
        return s.table.blocks()[p / static_cast<size_t>(block_size_)];
      });
    }
    for (auto& [id, node] : model_.nodes) {
      CheckSlots(node.salt, node.prefix, node.begin,
                 [id = id](size_t) { return id; });
    }
  }
  template <typename BlockOf>
  void CheckSlots(uint64_t salt, const Tokens& tokens, size_t begin,
                  BlockOf block_of) {
    const std::vector<uint64_t> values = Values(salt, tokens);
    for (size_t p = begin; p < tokens.size(); ++p) {
      const int32_t block = block_of(p);
      if (block != KvBlockTable::kNoBlock) {
        ASSERT_EQ(Slot(block, p), values[p]) << "position " << p;
      }
    }
  }

  std::mt19937 rng_;
  bool weak_;
  int block_size_;
  int64_t window_;
  bool costs_;
  KvBlockPool pool_;
  PrefixIndex index_;
  PrefixModel model_;
  std::vector<uint64_t> slots_;  // the fake device: [block][slot]
  std::vector<Sequence> sequences_;
  std::vector<Tokens> corpus_;
};

TEST(PrefixRandomTest, HistoriesMatchTheModel) {
  const int seeds = ::inlay::testing::FewerWhenSanitized(2500);
  for (int seed = 1; seed <= seeds && !HasFailure(); ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    IndexHistory(static_cast<uint32_t>(seed), false).Run();
  }
}

TEST(PrefixRandomTest, CollidingKeysNeverGiveWrongTokens) {
  for (uint32_t seed = 1; seed <= 500 && !HasFailure(); ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    IndexHistory(seed, true).Run();
  }
}

}  // namespace
}  // namespace inlay
