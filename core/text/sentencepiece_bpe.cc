// SentencePiece's BPE (sentencepiece_bpe.h).
#include "core/text/sentencepiece_bpe.h"

#include <algorithm>
#include <queue>
#include <unordered_map>
#include <utility>

namespace inlay {
namespace {

constexpr int32_t kEnd = -1;

// A run of text that is one piece, a frozen user-defined piece or a character.
struct Symbol {
  int32_t prev = kEnd;
  int32_t next = kEnd;
  uint32_t begin = 0;
  uint32_t length = 0;  // 0 after it was merged into its left neighbour
  // The trie's node at its end; kNone when no piece begins like that or when
  // frozen. A pair is looked up by walking on from the left one's node.
  uint32_t node = PieceTrie::kNone;
  int32_t id = -1;      // of the piece, -1 if unknown
  bool frozen = false;  // user-defined: never merges
};

struct Candidate {
  float score = 0;
  int32_t left = 0;
  int32_t right = 0;
  uint32_t length = 0;  // of both: tells whether one has changed since
  uint32_t node = 0;

  bool operator<(const Candidate& other) const {
    if (score != other.score) return score < other.score;
    return left > other.left;
  }
};

// The merging of one stretch of text. Reused from word to word for its memory.
class Merger {
 public:
  Merger(const SentencePieceVocab& vocab, bool has_unused,
         std::string_view text, std::vector<TextSpan>* path)
      : vocab_(vocab), has_unused_(has_unused), text_(text), path_(path) {}

  void Add(Symbol symbol) {
    const auto index = static_cast<int32_t>(symbols_.size());
    symbol.prev = index - 1;
    if (index > 0) symbols_.back().next = index;
    symbols_.push_back(symbol);
  }

  bool empty() const { return symbols_.empty(); }

  // Merges what was added, appends the result to the path and starts anew.
  void Flush() {
    for (size_t i = 1; i < symbols_.size(); ++i) {
      Consider(static_cast<int32_t>(i) - 1, static_cast<int32_t>(i));
    }
    while (!candidates_.empty()) {
      const Candidate best = candidates_.top();
      candidates_.pop();
      Merge(best);
    }
    for (int32_t i = symbols_.empty() ? kEnd : 0; i != kEnd; i = At(i).next) {
      Emit(At(i));
    }
    symbols_.clear();
    splits_.clear();
  }

 private:
  Symbol& At(int32_t index) { return symbols_[static_cast<size_t>(index)]; }

  void Consider(int32_t left, int32_t right) {
    if (left == kEnd || right == kEnd) return;
    const Symbol& a = At(left);
    const Symbol& b = At(right);
    if (b.frozen) return;
    const uint32_t node =
        vocab_.in_text.Walk(a.node, text_.substr(b.begin, b.length));
    if (node == PieceTrie::kNone) return;
    const int32_t id = vocab_.in_text.Value(node);
    if (id < 0) return;
    candidates_.push(
        {vocab_.at(id).score, left, right, a.length + b.length, node});
    if (has_unused_ && IsUnused(id)) splits_[id] = a.length;
  }

  void Merge(const Candidate& pair) {
    Symbol& a = At(pair.left);
    Symbol& b = At(pair.right);
    if (a.length == 0 || b.length == 0 || a.length + b.length != pair.length) {
      return;
    }
    a.length = pair.length;
    a.node = pair.node;
    a.id = vocab_.in_text.Value(pair.node);
    a.next = b.next;
    if (b.next != kEnd) At(b.next).prev = pair.left;
    b.length = 0;
    Consider(a.prev, pair.left);
    Consider(pair.left, a.next);
  }

  // Unused pieces exist to be merged on. One that remains is taken apart as it
  // was put together last; a single character is unknown.
  void Emit(const Symbol& symbol) {
    const TextSpan whole = {symbol.begin, size_t{symbol.begin} + symbol.length,
                            symbol.id < 0 ? vocab_.unk_id : symbol.id};
    if (!has_unused_) {
      path_->push_back(whole);
      return;
    }
    std::vector<TextSpan> parts = {whole};
    while (!parts.empty()) {
      TextSpan part = parts.back();
      parts.pop_back();
      const auto split = splits_.find(part.id);
      if (split != splits_.end()) {
        const size_t middle = part.begin + split->second;
        parts.push_back({middle, part.end, FindText(middle, part.end)});
        parts.push_back({part.begin, middle, FindText(part.begin, middle)});
        continue;
      }
      if (IsUnused(part.id)) part.id = vocab_.unk_id;
      path_->push_back(part);
    }
  }

  int32_t FindText(size_t begin, size_t end) const {
    const int32_t id = vocab_.in_text.Find(text_.substr(begin, end - begin));
    return id < 0 ? vocab_.unk_id : id;
  }

  bool IsUnused(int32_t id) const {
    return vocab_.at(id).kind == SentencePieceVocab::Kind::kUnused;
  }

  const SentencePieceVocab& vocab_;
  const bool has_unused_;
  const std::string_view text_;
  std::vector<TextSpan>* path_;
  std::vector<Symbol> symbols_;
  std::priority_queue<Candidate> candidates_;
  std::unordered_map<int32_t, uint32_t> splits_;  // unused id: left bytes
};

}  // namespace

SentencePieceBpe::SentencePieceBpe(const SentencePieceVocab* vocab)
    : vocab_(vocab) {
  for (const SentencePieceVocab::Piece& piece : vocab->pieces) {
    has_unused_ |= piece.kind == SentencePieceVocab::Kind::kUnused;
    const std::string_view text = piece.text;
    for (size_t at = text.find(kSpaceSymbol, 1); at != text.npos;
         at = text.find(kSpaceSymbol, at + 1)) {
      words_are_separate_ &= text.substr(0, at).ends_with(kSpaceSymbol);
    }
  }
  // How an unused piece is taken apart depends on the whole text.
  words_are_separate_ &= !has_unused_;
}

size_t SentencePieceBpe::Encode(std::string_view text, size_t begin,
                                std::vector<TextSpan>* path) const {
  // Much of what a call works on stays in the second-level cache.
  constexpr size_t kPartBytes = size_t{32} << 10;
  Merger merger(*vocab_, has_unused_, text, path);
  bool after_space = false;
  for (size_t at = begin; at < text.size();) {
    Symbol symbol;
    symbol.begin = static_cast<uint32_t>(at);
    const PieceTrie::Match fixed =
        vocab_->user_defined.LongestPrefix(text.substr(at));
    const size_t length =
        fixed.length > 0
            ? fixed.length
            : std::min(Utf8LengthFromLead(text[at]), text.size() - at);
    symbol.length = static_cast<uint32_t>(length);
    const std::string_view spelled = text.substr(at, length);
    if (fixed.length > 0) {
      symbol.frozen = true;
      symbol.id = fixed.value;
    } else {
      symbol.node = vocab_->in_text.Walk(PieceTrie::kRoot, spelled);
      if (symbol.node != PieceTrie::kNone) {
        symbol.id = vocab_->in_text.Value(symbol.node);
      }
    }
    if (words_are_separate_ && !after_space && !merger.empty() &&
        spelled.starts_with(kSpaceSymbol)) {
      merger.Flush();
      if (at - begin >= kPartBytes) return at;
    }
    merger.Add(symbol);
    after_space = spelled.ends_with(kSpaceSymbol);
    at += length;
  }
  merger.Flush();
  return text.size();
}

}  // namespace inlay
