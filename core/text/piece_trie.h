// PieceTrie: pieces of a vocabulary as a byte trie. Shared by Unigram,
// WordPiece and SentencePiece's user-defined symbols; knows nothing of scores
// or text encodings.
#ifndef INLAY_CORE_TEXT_PIECE_TRIE_H_
#define INLAY_CORE_TEXT_PIECE_TRIE_H_

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace inlay {

// Nodes lie in breadth-first order, so that the children of one are neighbours:
// most nodes have a single child and cost one comparison a byte; wide ones have
// a table. Immutable after Build: any number of threads may search at once.
class PieceTrie {
 public:
  struct Entry {
    std::string_view text;  // not empty; needed only during Build
    int32_t value = 0;      // not negative
  };
  struct Match {
    size_t length = 0;  // bytes; 0 when nothing matches
    int32_t value = -1;
  };
  static constexpr uint32_t kRoot = 0;
  static constexpr uint32_t kNone = UINT32_MAX;
  // Searches cost O(length of a piece) at every position of a text;
  // vocabularies refuse longer pieces so that hostile ones cannot make that
  // quadratic.
  static constexpr size_t kMaxPieceBytes = 1024;

  PieceTrie() : nodes_(1), labels_(1) {}

  // Of entries with equal text the last one wins. Time O(total bytes * log n),
  // memory O(total bytes).
  static PieceTrie Build(std::vector<Entry> entries);

  // The child of `node` along `byte`, or kNone.
  uint32_t Next(uint32_t node, unsigned char byte) const {
    const Node& n = nodes_[node];
    if (n.num_children == kWide) return tables_[n.first_child + byte];
    for (uint32_t c = n.first_child; c < n.first_child + n.num_children; ++c) {
      if (labels_[c] == byte) return c;
    }
    return kNone;
  }

  // Where `text` leads from `node`, or kNone.
  uint32_t Walk(uint32_t node, std::string_view text) const {
    for (const char c : text) {
      if (node == kNone) break;
      node = Next(node, static_cast<unsigned char>(c));
    }
    return node;
  }

  // The value of the piece that ends in `node`, or -1.
  int32_t Value(uint32_t node) const { return nodes_[node].value; }

  // The value of the piece equal to `text`, or -1.
  int32_t Find(std::string_view text) const;

  // The longest piece that starts `text`.
  Match LongestPrefix(std::string_view text) const;

  bool empty() const { return nodes_.size() == 1; }

 private:
  struct Node {
    uint32_t first_child =
        0;  // a node, or where the table of a wide node starts
    int32_t value = -1;
    uint32_t num_children = 0;
  };
  static constexpr uint32_t kWide = UINT32_MAX;

  std::vector<Node> nodes_;
  std::vector<unsigned char> labels_;  // [node]: the byte that leads to it
  std::vector<uint32_t> tables_;       // 256 nodes (or kNone) a wide node
};

}  // namespace inlay

#endif  // INLAY_CORE_TEXT_PIECE_TRIE_H_
