// What is found, what is entered, and what goes first when blocks are short.
#include "memory/kv/prefix_index.h"

#include <algorithm>
#include <cmath>
#include <new>
#include <utility>

namespace inlay {

PrefixIndex::PrefixIndex(KvBlockPool* pool, Options options)
    : pool_(pool),
      options_(std::move(options)),
      tree_(options_.group.block_size),
      order_(options_.order != nullptr ? options_.order : &own_order_) {
  INLAY_DCHECK(pool != nullptr && options_.group.block_size >= 1 &&
               options_.group.window >= 0);
  if (order_ == &own_order_) pool_->SetReclaimer(this);
}

PrefixIndex::~PrefixIndex() {
  ForgetAll();
  if (order_ == &own_order_) pool_->SetReclaimer(nullptr);
}

void PrefixIndex::ForgetAll() {
  for (int32_t id = 0; id < pool_->end_id(); ++id) {
    if (tree_.Contains(id)) Remove(id);
  }
}

PrefixMatch PrefixIndex::Find(uint64_t salt, absl::Span<const int32_t> tokens,
                              const KvBelow* below) const {
  const int64_t size = options_.group.block_size;
  PrefixMatch match;
  KvBlockKey key = RootKey(salt);
  PrefixTree::Child tail;
  int64_t run = 0;  // blocks [run, i) are all there
  for (int64_t i = 0;; ++i) {
    const int64_t begin = i * size;
    const absl::Span<const int32_t> next =
        tokens.subspan(static_cast<size_t>(begin), static_cast<size_t>(size));
    const auto count = static_cast<int64_t>(next.size());
    const bool full = count == size;
    const KvBlockKey next_key = full ? chain_(key, next) : key;
    const int32_t id =
        full ? tree_.Lookup(next_key, key, next) : PrefixTree::kNone;
    const bool is_below =
        full && id == kNone && below != nullptr && (*below)(next_key);
    if (id >= 0 || is_below) {
      match.blocks.push_back(is_below ? PrefixMatch::kBelow : id);
      if (is_below) match.below.push_back({i, next_key});
      if (run <= FirstNeeded(begin + count)) match.num_tokens = begin + count;
    } else {
      if (run <= FirstNeeded(begin + count)) {
        const PrefixTree::Child child = Tail(key, next);
        if (child.common >= options_.min_partial_tokens &&
            run <= FirstNeeded(begin + child.common)) {
          match.num_tokens = begin + child.common;
          tail = child;
        }
      }
      if (!full || options_.group.window == 0 || id == PrefixTree::kCollision)
        break;
      match.blocks.push_back(kNone);
      run = i + 1;
    }
    key = next_key;
  }
  const bool has_tail = match.num_tokens % size != 0;
  if (has_tail) {
    match.blocks.resize(static_cast<size_t>(match.num_tokens / size));
    match.blocks.push_back(tail.id);
  }
  Finish(&match);
  return match;
}

bool PrefixIndex::Has(int32_t id, const KvBlockKey& key,
                      absl::Span<const int32_t> tokens) const {
  return tree_.Contains(id) && tree_.key(id) == key &&
         tree_.tokens(id).size() >= tokens.size() &&
         tree_.tokens(id).first(tokens.size()) == tokens;
}

PrefixTree::Child PrefixIndex::Tail(const KvBlockKey& parent,
                                    absl::Span<const int32_t> tokens) const {
  return options_.group.is_state ? tree_.LongestWhole(parent, tokens)
                                 : tree_.BestChild(parent, tokens);
}

void PrefixIndex::Finish(PrefixMatch* match) const {
  const int64_t first = FirstNeeded(match->num_tokens);
  match->blocks.resize(static_cast<size_t>(
      KvBlocksFor(match->num_tokens, options_.group.block_size)));
  std::fill_n(match->blocks.begin(), first, kNone);
  std::erase_if(match->below, [&](const PrefixMatch::Below& below) {
    return match->blocks.size() <= static_cast<size_t>(below.index) ||
           match->blocks[static_cast<size_t>(below.index)] !=
               PrefixMatch::kBelow;
  });
  match->num_evictable = 0;
  for (int32_t id : match->blocks)
    match->num_evictable += id >= 0 && pool_->IsEvictable(id) ? 1 : 0;
}

void PrefixIndex::Shorten(PrefixMatch* match, int64_t num_tokens) const {
  INLAY_DCHECK(options_.group.window == 0 && num_tokens <= match->num_tokens);
  match->num_tokens = num_tokens;
  Finish(match);
}

void PrefixIndex::Take(const PrefixMatch& match, uint64_t salt,
                       absl::Span<const int32_t> tokens, KvBlockTable* table,
                       PrefixCursor* cursor) {
  table->Share(match.blocks, match.num_tokens);
  cursor->num_blocks = match.num_tokens / options_.group.block_size;
  const auto count = static_cast<size_t>(cursor->num_blocks);
  if (count > 0 && match.blocks[count - 1] != kNone) {
    cursor->key = tree_.key(match.blocks[count - 1]);
    return;
  }
  const auto size = static_cast<size_t>(options_.group.block_size);
  cursor->key = RootKey(salt);
  for (size_t i = 0; i < count; ++i)
    cursor->key = chain_(cursor->key, tokens.subspan(i * size, size));
}

void PrefixIndex::Insert(uint64_t salt, absl::Span<const int32_t> tokens,
                         KvBlockTable* table, PrefixCursor* cursor) {
  INLAY_DCHECK(static_cast<int64_t>(tokens.size()) >= table->num_tokens() &&
               table->block_size() == options_.group.block_size);
  const auto size = static_cast<size_t>(options_.group.block_size);
  const int64_t num_full = table->num_tokens() / options_.group.block_size;
  if (cursor->num_blocks > num_full) *cursor = PrefixCursor();  // it was cut
  while (cursor->num_blocks < num_full) {
    if (cursor->num_blocks == 0) cursor->key = RootKey(salt);
    const auto index = static_cast<size_t>(cursor->num_blocks);
    const absl::Span<const int32_t> block = tokens.subspan(index * size, size);
    const KvBlockKey key = chain_(cursor->key, block);
    if (!Enter(key, cursor->key, block, index, table)) return;
    cursor->key = key;
    ++cursor->num_blocks;
  }
}

void PrefixIndex::InsertAll(uint64_t salt, absl::Span<const int32_t> tokens,
                            KvBlockTable* table, PrefixCursor* cursor) {
  Insert(salt, tokens, table, cursor);
  const int64_t begin = cursor->num_blocks * options_.group.block_size;
  const int64_t count = table->num_tokens() - begin;
  // A collision may have stopped Insert().
  if (count < options_.min_partial_tokens ||
      count >= options_.group.block_size) {
    return;
  }
  const absl::Span<const int32_t> tail =
      tokens.subspan(static_cast<size_t>(begin), static_cast<size_t>(count));
  const KvBlockKey parent =
      cursor->num_blocks == 0 ? RootKey(salt) : cursor->key;
  const auto index = static_cast<size_t>(cursor->num_blocks);
  if (table->blocks()[index] == kNone) return;  // it was to come
  // Held once more and let go with the table, so that it counts as used now.
  const PrefixTree::Child child = Tail(parent, tail);
  if (child.common == count)
    table->Replace(index, child.id);
  else
    Enter(chain_(parent, tail), parent, tail, index, table);
}

// Whether the index has the tokens of block `index` of `table` now; not when
// their key names others.
bool PrefixIndex::Enter(const KvBlockKey& key, const KvBlockKey& parent,
                        absl::Span<const int32_t> tokens, size_t index,
                        KvBlockTable* table) {
  const int32_t id = table->blocks()[index];
  if (id == kNone) return true;
  const int32_t known = tree_.Lookup(key, parent, tokens);
  if (known == PrefixTree::kCollision) return false;
  if (known >= 0) {
    if (known != id) table->Replace(index, known);
    return true;
  }
  Grow();
  // Its only holder wrote on behind the tokens that it was entered with.
  if (tree_.Contains(id)) Remove(id);
  tree_.Link(id, key, parent, tokens,
             static_cast<int64_t>(index) * options_.group.block_size +
                 static_cast<int64_t>(tokens.size()));
  pool_->AddToCache(id);
  ++num_blocks_;
  DropSubsumed(id);
  return true;
}

// Forgets evictable blocks whose tokens `id`, just entered, begins with too.
void PrefixIndex::DropSubsumed(int32_t id) {
  if (options_.group.is_state) return;  // no state stands for another
  const absl::Span<const int32_t> tokens = tree_.tokens(id);
  int32_t other = tree_.older(id);
  for (int seen = 1; other != kNone && seen < PrefixTree::kMaxChildrenSeen;
       ++seen) {
    const int32_t next = tree_.older(other);
    const absl::Span<const int32_t> held = tree_.tokens(other);
    if (pool_->IsEvictable(other) &&
        held == tokens.first(std::min(held.size(), tokens.size())))
      Remove(other);
    other = next;
  }
}

// Room for every block of the pool; ranks_ grows last and stands for all.
void PrefixIndex::Grow() {
  const int32_t end = pool_->end_id();
  if (static_cast<size_t>(end) <= ranks_.size()) return;
  tree_.Reserve(end);
  heap_.Reserve(end);
  ranks_.resize(static_cast<size_t>(end));
}

void PrefixIndex::Detach(int32_t id) {
  OnHeld(id);
  --num_blocks_;
  const int32_t parent = tree_.Unlink(id);
  if (parent == kNone || !pool_->IsEvictable(parent) || heap_.Contains(parent))
    return;
  const Rank& rank = ranks_[static_cast<size_t>(parent)];
  heap_.Push(parent, rank.priority, rank.order);
}

void PrefixIndex::Remove(int32_t id) {
  Detach(id);
  pool_->RemoveFromCache(id);
}

void PrefixIndex::OnEvictable(int32_t id) {
  const double cost =
      options_.cost ? options_.cost(tree_.end_position(id)) : 1.0;
  // Only what can be compared and added up.
  const double added = std::isfinite(cost) && cost > 0 ? cost : 0;
  Rank& rank = ranks_[static_cast<size_t>(id)];
  rank = {order_->inflation + added, ++order_->last};
  // By its cost in as many uses as there are blocks: of what costs about the
  // same, what was used longer ago goes first, before anything ever went, too.
  order_->inflation += added / std::max(1, pool_->num_total());
  if (options_.group.window > 0 || !tree_.HasChildren(id))
    heap_.Push(id, rank.priority, rank.order);
}

void PrefixIndex::OnHeld(int32_t id) {
  // It may not be there: it has children, or OnMoved() had no room for it.
  if (static_cast<size_t>(id) < ranks_.size() && heap_.Contains(id))
    heap_.Erase(id);
}

// The next to be reclaimed, or kNone.
int32_t PrefixIndex::Victim() const {
  if (!heap_.empty()) return heap_.top();
  // Only where a table holds a block without the blocks before it: none of
  // ours does (window 0), but what counts as available must be.
  if (pool_->num_evictable() == 0) return kNone;
  for (int32_t id = 0; id < pool_->end_id(); ++id) {
    if (tree_.Contains(id) && pool_->IsEvictable(id)) return id;
  }
  return kNone;
}

bool PrefixIndex::NextRank(Rank* rank) const {
  const int32_t id = Victim();
  if (id == kNone) return false;
  *rank = ranks_[static_cast<size_t>(id)];
  return true;
}

void PrefixIndex::Reclaim(int64_t count) {
  for (; count > 0; --count) {
    const int32_t id = Victim();
    const absl::Span<const int32_t> tokens = tree_.tokens(id);
    order_->inflation =
        std::max(order_->inflation, ranks_[static_cast<size_t>(id)].priority);
    if (options_.demote &&
        tokens.size() == static_cast<size_t>(options_.group.block_size))
      options_.demote(tree_.key(id), tokens, id);
    ++num_reclaimed_;
    Remove(id);
  }
}

void PrefixIndex::Clear() {
  for (int32_t id = Victim(); id != kNone; id = Victim()) Remove(id);
  // With nothing to compare to, priorities begin anew: what then goes when
  // depends on nothing before.
  if (num_blocks_ == 0) own_order_.inflation = 0;
}

void PrefixIndex::OnMoved(int32_t from, int32_t to) {
  if (!tree_.Contains(from)) return;
  try {
    Grow();
  } catch (const std::bad_alloc&) {
    if (static_cast<size_t>(to) >= ranks_.size()) {
      Detach(from);
      pool_->RemoveFromCache(to);
      return;
    }
  }
  const auto old_id = static_cast<size_t>(from);
  ranks_[static_cast<size_t>(to)] = ranks_[old_id];
  tree_.Rename(from, to);
  heap_.Rename(from, to);
}

}  // namespace inlay
