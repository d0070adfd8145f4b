// A prefix index over blocks of four tokens, and sequences in it.
#ifndef INLAY_TESTS_MEMORY_PREFIX_INDEX_FIXTURE_H_
#define INLAY_TESTS_MEMORY_PREFIX_INDEX_FIXTURE_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "memory/kv/block_pool.h"
#include "memory/kv/block_table.h"
#include "memory/kv/prefix_index.h"
#include "memory/kv/reservation.h"

namespace inlay::testing {

using Tokens = std::vector<int32_t>;
inline constexpr int kBlock = 4;  // tokens a block in these tests
inline constexpr int32_t kNo = KvBlockTable::kNoBlock;

// begin, begin + 1, ..
inline Tokens Count(int32_t begin, int count) {
  Tokens tokens(static_cast<size_t>(count));
  std::iota(tokens.begin(), tokens.end(), begin);
  return tokens;
}

inline Tokens operator+(Tokens a, const Tokens& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

inline Tokens Ids(absl::Span<const int32_t> span) {
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

}  // namespace inlay::testing

#endif  // INLAY_TESTS_MEMORY_PREFIX_INDEX_FIXTURE_H_
