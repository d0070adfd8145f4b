// What PrefixIndex should know and do, said with lists of tokens and no thought
// of speed.
#ifndef INLAY_TESTS_MEMORY_PREFIX_MODEL_H_
#define INLAY_TESTS_MEMORY_PREFIX_MODEL_H_

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <utility>
#include <vector>

namespace inlay {

class PrefixModel {
 public:
  using Tokens = std::vector<int32_t>;
  struct Node {
    uint64_t salt = 0;
    Tokens prefix;     // all tokens up to the block's end
    size_t begin = 0;  // of them, those before the block
    uint64_t entered = 0;
    bool evictable = false;
    double priority = 0;
    uint64_t released = 0;
  };

  PrefixModel(size_t block_size, size_t window,
              std::function<double(int64_t)> cost)
      : block_size_(block_size), window_(window), cost_(std::move(cost)) {}

  // The blocks of the longest match, and its length.
  std::pair<size_t, Tokens> Find(uint64_t salt, const Tokens& tokens) const {
    for (size_t n = tokens.size(); n > 0; --n) {
      const size_t full = n / block_size_, part = n % block_size_;
      if (part == 1) continue;
      Tokens blocks(full, -1);
      const size_t first =
          window_ > 0 && n + 1 > window_ ? (n + 1 - window_) / block_size_ : 0;
      bool all = true;
      for (size_t i = window_ > 0 ? first : 0; i < full && all; ++i) {
        blocks[i] =
            Same(salt, First(tokens, (i + 1) * block_size_), i * block_size_);
        all = blocks[i] >= 0;
      }
      if (part > 0) {
        const Tokens parent = First(tokens, full * block_size_);
        for (int32_t id : Children(salt, parent)) {
          const Tokens& prefix = nodes.at(id).prefix;
          if (prefix.size() >= n &&
              std::equal(tokens.begin(), tokens.begin() + ptrdiff_t(n),
                         prefix.begin()) &&
              blocks.size() == full)
            blocks.push_back(id);
        }
        all = all && blocks.size() > full;
      }
      if (all) return {n, blocks};
    }
    return {0, {}};
  }

  // Enters block `id` of `prefix`, which begins at `begin`; the block that the
  // table holds then.
  int32_t Enter(uint64_t salt, const Tokens& prefix, size_t begin, int32_t id) {
    if (prefix.size() - begin < block_size_) {
      for (int32_t child : Children(salt, First(prefix, begin))) {
        if (IsPrefix(prefix, nodes.at(child).prefix)) return child;
      }
    }
    const int32_t same = Same(salt, prefix, begin);
    if (same >= 0) return same;
    nodes[id] = {salt, prefix, begin, ++clock_, false, 0, 0};
    for (int32_t child : Children(salt, First(prefix, begin))) {
      const Node& node = nodes.at(child);
      if (child != id && node.evictable && IsPrefix(node.prefix, prefix))
        nodes.erase(child);
    }
    return id;
  }

  void Release(int32_t id, int32_t num_total) {
    Node& node = nodes.at(id);
    node.evictable = true;
    const double cost = cost_(static_cast<int64_t>(node.prefix.size()));
    node.priority = inflation_ + cost;
    inflation_ += cost / num_total;
    node.released = ++clock_;
  }

  void Evict() {
    const auto order = [&](int32_t id) {
      const Node& node = nodes.at(id);
      return std::pair(node.priority, node.released);
    };
    int32_t victim = -1, fallback = -1;
    for (const auto& [id, node] : nodes) {
      if (!node.evictable) continue;
      if (fallback < 0) fallback = id;
      if (window_ == 0 && !Children(node.salt, node.prefix).empty()) continue;
      if (victim < 0 || order(id) < order(victim)) victim = id;
    }
    if (victim < 0) victim = fallback;
    inflation_ = std::max(inflation_, nodes.at(victim).priority);
    nodes.erase(victim);
  }

  std::map<int32_t, Node> nodes;  // by block id

 private:
  static Tokens First(const Tokens& tokens, size_t count) {
    return {tokens.begin(), tokens.begin() + static_cast<ptrdiff_t>(count)};
  }
  static bool IsPrefix(const Tokens& a, const Tokens& b) {
    return a.size() <= b.size() && std::equal(a.begin(), a.end(), b.begin());
  }
  int32_t Same(uint64_t salt, const Tokens& prefix, size_t begin) const {
    for (const auto& [id, node] : nodes) {
      if (node.salt == salt && node.begin == begin && node.prefix == prefix)
        return id;
    }
    return -1;
  }
  // The 16 entered last, the newest first. A partial block has none: nothing
  // begins where it ends, unless a table's block does not end there.
  Tokens Children(uint64_t salt, const Tokens& parent) const {
    Tokens ids;
    if (parent.size() % block_size_ != 0) return ids;
    for (const auto& [id, node] : nodes) {
      if (node.salt == salt && node.begin == parent.size() &&
          IsPrefix(parent, node.prefix))
        ids.push_back(id);
    }
    std::sort(ids.begin(), ids.end(), [&](int32_t a, int32_t b) {
      return nodes.at(a).entered > nodes.at(b).entered;
    });
    if (ids.size() > 16) ids.resize(16);
    return ids;
  }

  size_t block_size_, window_;
  std::function<double(int64_t)> cost_;
  uint64_t clock_ = 0;
  double inflation_ = 0;
};

}  // namespace inlay

#endif  // INLAY_TESTS_MEMORY_PREFIX_MODEL_H_
