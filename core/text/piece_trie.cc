// Building and searching the byte trie (piece_trie.h).
#include "core/text/piece_trie.h"

#include <algorithm>

namespace inlay {
namespace {

// From this many children on a table of 256 is worth its memory (64 bytes a
// child at most).
constexpr uint32_t kTableChildren = 16;

// The entries below one node, all equal in their first bytes.
struct Range {
  size_t begin = 0;
  size_t end = 0;
};

}  // namespace

PieceTrie PieceTrie::Build(std::vector<Entry> entries) {
  std::stable_sort(
      entries.begin(), entries.end(),
      [](const Entry& a, const Entry& b) { return a.text < b.text; });
  PieceTrie trie;
  std::vector<Range> level = {{0, entries.size()}};
  uint32_t node = kRoot;
  for (size_t depth = 0; !level.empty(); ++depth) {
    std::vector<Range> below;
    for (Range range : level) {
      for (;
           range.begin < range.end && entries[range.begin].text.size() == depth;
           ++range.begin) {
        trie.nodes_[node].value = entries[range.begin].value;
      }
      const uint32_t first = static_cast<uint32_t>(trie.nodes_.size());
      while (range.begin < range.end) {
        const char byte = entries[range.begin].text[depth];
        const size_t begin = range.begin;
        while (range.begin < range.end &&
               entries[range.begin].text[depth] == byte) {
          ++range.begin;
        }
        below.push_back({begin, range.begin});
        trie.nodes_.emplace_back();
        trie.labels_.push_back(static_cast<unsigned char>(byte));
      }
      const uint32_t end = static_cast<uint32_t>(trie.nodes_.size());
      Node& n = trie.nodes_[node++];
      n.first_child = first;
      n.num_children = end - first;
      if (n.num_children < kTableChildren) continue;
      n.first_child = static_cast<uint32_t>(trie.tables_.size());
      n.num_children = kWide;
      trie.tables_.resize(trie.tables_.size() + 256, kNone);
      for (uint32_t c = first; c < end; ++c) {
        trie.tables_[n.first_child + trie.labels_[c]] = c;
      }
    }
    level = std::move(below);
  }
  return trie;
}

int32_t PieceTrie::Find(std::string_view text) const {
  const uint32_t node = Walk(kRoot, text);
  return node == kNone ? -1 : Value(node);
}

PieceTrie::Match PieceTrie::LongestPrefix(std::string_view text) const {
  Match best;
  uint32_t node = kRoot;
  for (size_t i = 0; i < text.size(); ++i) {
    node = Next(node, static_cast<unsigned char>(text[i]));
    if (node == kNone) break;
    if (Value(node) >= 0) best = {i + 1, Value(node)};
  }
  return best;
}

}  // namespace inlay
