// Looking blocks up by key, and the lists of siblings.
#include "memory/kv/prefix_tree.h"

#include <algorithm>

#include "memory/status.h"

namespace inlay {

void PrefixTree::Reserve(int32_t end) {
  const auto size = static_cast<size_t>(end);
  if (size <= nodes_.size()) return;
  keys_.Reserve(2 * size);  // each block's own, and its parent's
  tokens_.resize(size * static_cast<size_t>(block_size_));
  nodes_.resize(size);
}

absl::Span<const int32_t> PrefixTree::tokens(int32_t id) const {
  return absl::MakeConstSpan(tokens_).subspan(
      static_cast<size_t>(id) * static_cast<size_t>(block_size_),
      static_cast<size_t>(At(id).num_tokens));
}

bool PrefixTree::HasChildren(int32_t id) const {
  return keys_.Find(At(id).key)->first_child != kNone;
}

int32_t PrefixTree::Lookup(const KvBlockKey& key, const KvBlockKey& parent,
                           absl::Span<const int32_t> tokens) const {
  const KeyTable::Entry* entry = keys_.Find(key);
  if (entry == nullptr || entry->id == kNone) return kNone;
  const int32_t id = entry->id;
  const bool same = At(id).parent == parent && this->tokens(id) == tokens;
  return same ? id : kCollision;
}

PrefixTree::Child PrefixTree::BestChild(
    const KvBlockKey& parent, absl::Span<const int32_t> tokens) const {
  Child best;
  const KeyTable::Entry* entry = keys_.Find(parent);
  if (tokens.empty() || entry == nullptr) return best;
  int32_t id = entry->first_child;
  for (int seen = 0; id != kNone && seen < kMaxChildrenSeen; ++seen) {
    const absl::Span<const int32_t> held = this->tokens(id);
    const auto end =
        std::mismatch(tokens.begin(), tokens.end(), held.begin(), held.end());
    const int64_t common = end.first - tokens.begin();
    if (common > best.common) best = {id, common};
    id = At(id).older;
  }
  return best;
}

PrefixTree::Child PrefixTree::LongestWhole(
    const KvBlockKey& parent, absl::Span<const int32_t> tokens) const {
  Child best;
  const KeyTable::Entry* entry = keys_.Find(parent);
  int32_t id = entry == nullptr ? kNone : entry->first_child;
  for (int seen = 0; id != kNone && seen < kMaxChildrenSeen; ++seen) {
    const absl::Span<const int32_t> held = this->tokens(id);
    const auto size = static_cast<int64_t>(held.size());
    if (size > best.common &&
        tokens.first(std::min(held.size(), tokens.size())) == held) {
      best = {id, size};
    }
    id = At(id).older;
  }
  return best;
}

void PrefixTree::Link(int32_t id, const KvBlockKey& key,
                      const KvBlockKey& parent,
                      absl::Span<const int32_t> tokens, int64_t end_position) {
  INLAY_DCHECK(!Contains(id) && !tokens.empty() &&
               static_cast<int64_t>(tokens.size()) <= block_size_);
  KeyTable::Entry& above = keys_.FindOrAdd(parent);
  Node& node = At(id);
  node = {key,
          parent,
          end_position,
          static_cast<int32_t>(tokens.size()),
          above.first_child,
          kNone};
  if (above.first_child != kNone) At(above.first_child).newer = id;
  above.first_child = id;
  keys_.FindOrAdd(key).id = id;
  std::copy(tokens.begin(), tokens.end(), TokensOf(id));
}

int32_t PrefixTree::Unlink(int32_t id) {
  Node& node = At(id);
  KeyTable::Entry* above = keys_.Find(node.parent);
  if (node.older != kNone) At(node.older).newer = node.newer;
  if (node.newer != kNone)
    At(node.newer).older = node.older;
  else
    above->first_child = node.older;
  const int32_t bare = above->first_child == kNone ? above->id : kNone;
  if (above->empty()) keys_.Erase(above);
  KeyTable::Entry* own = keys_.Find(node.key);
  own->id = kNone;
  if (own->empty()) keys_.Erase(own);
  node.num_tokens = 0;
  return bare;
}

void PrefixTree::Rename(int32_t from, int32_t to) {
  INLAY_DCHECK(Contains(from) && !Contains(to));
  Node& node = At(to);
  node = At(from);
  At(from).num_tokens = 0;
  keys_.Find(node.key)->id = to;
  if (node.older != kNone) At(node.older).newer = to;
  if (node.newer != kNone)
    At(node.newer).older = to;
  else
    keys_.Find(node.parent)->first_child = to;
  std::copy_n(TokensOf(from), block_size_, TokensOf(to));
}

}  // namespace inlay
