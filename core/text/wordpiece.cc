// WordPiece from tokenizer.json: vocabulary checks, then greedy longest match
// over two tries (wordpiece.h).
#include "core/text/wordpiece.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "core/text/piece_trie.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

constexpr int64_t kMaxVocab = int64_t{16} << 20;
constexpr int32_t kMissing = -1;

struct Token {
  int32_t id = 0;
  std::string text;
};

size_t CountChars(std::string_view utf8) {
  return static_cast<size_t>(std::count_if(
      utf8.begin(), utf8.end(),
      [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

class WordPiece : public TokenModel {
 public:
  // Sorted by id. Not an array by id: ids may have holes, and a tiny file could
  // otherwise ask for an array of any size.
  std::vector<Token> tokens;
  PieceTrie first;         // whole tokens: what a word may start with
  PieceTrie continuation;  // what follows the prefix in tokens that have it
  int32_t unk_id = kMissing;
  size_t max_chars = 0;

  absl::Status Encode(std::string_view word,
                      std::vector<int32_t>* ids) const override {
    const size_t before = ids->size();
    bool spelled = CountChars(word) <= max_chars;
    for (size_t at = 0; spelled && at < word.size();) {
      const PieceTrie& trie = at == 0 ? first : continuation;
      const PieceTrie::Match match = trie.LongestPrefix(word.substr(at));
      spelled = match.length > 0;
      at += match.length;
      ids->push_back(match.value);
    }
    if (spelled) return absl::OkStatus();
    ids->resize(before);
    if (unk_id == kMissing) {
      return absl::InvalidArgumentError(
          "wordpiece: a word that no tokens spell, and unk_token is not in the "
          "vocab");
    }
    ids->push_back(unk_id);
    return absl::OkStatus();
  }

  std::string_view IdToToken(int32_t id) const override {
    const auto it = std::lower_bound(
        tokens.begin(), tokens.end(), id,
        [](const Token& token, int32_t wanted) { return token.id < wanted; });
    if (it == tokens.end() || it->id != id) return {};
    return it->text;
  }

  std::optional<int32_t> TokenToId(std::string_view token) const override {
    const int32_t id = first.Find(token);
    if (id < 0) return std::nullopt;
    return id;
  }

  int32_t vocab_size() const override { return tokens.back().id + 1; }
};

absl::StatusOr<std::vector<Token>> ReadVocab(const Json& model) {
  const Json* vocab = JsonFind(model, "vocab");
  if (vocab == nullptr || !vocab->is_object() || vocab->empty()) {
    return absl::InvalidArgumentError(
        "wordpiece: vocab is missing or empty, an object {token: id} expected");
  }
  std::vector<Token> tokens;
  for (const auto& [text, value] : vocab->items()) {
    if (!value.is_number_integer() || value.get<double>() < 0 ||
        value.get<double>() >= static_cast<double>(kMaxVocab)) {
      return absl::InvalidArgumentError(FormattedString(
          "wordpiece: the id of token %d is not an integer in [0, %d)",
          tokens.size(), kMaxVocab));
    }
    if (text.size() > PieceTrie::kMaxPieceBytes) {
      return absl::InvalidArgumentError(
          FormattedString("wordpiece: a token of %d bytes, at most %d allowed",
                          text.size(), PieceTrie::kMaxPieceBytes));
    }
    tokens.push_back({value.get<int32_t>(), text});
  }
  std::sort(tokens.begin(), tokens.end(),
            [](const Token& a, const Token& b) { return a.id < b.id; });
  for (size_t i = 1; i < tokens.size(); ++i) {
    if (tokens[i].id == tokens[i - 1].id) {
      return absl::InvalidArgumentError(FormattedString(
          "wordpiece: two tokens have the id %d", tokens[i].id));
    }
  }
  return tokens;
}

}  // namespace

absl::StatusOr<std::unique_ptr<TokenModel>> MakeWordPieceFromJson(
    const Json& model) {
  auto wordpiece = std::make_unique<WordPiece>();
  INLAY_ASSIGN_OR_RETURN(wordpiece->tokens, ReadVocab(model));
  INLAY_ASSIGN_OR_RETURN(const std::string prefix,
                         JsonString(model, "continuing_subword_prefix", "##"));
  INLAY_ASSIGN_OR_RETURN(const std::string unk_token,
                         JsonString(model, "unk_token", "[UNK]"));
  INLAY_ASSIGN_OR_RETURN(const int64_t max_chars,
                         JsonInt(model, "max_input_chars_per_word", 100, 0,
                                 std::numeric_limits<int64_t>::max()));
  wordpiece->max_chars = static_cast<size_t>(max_chars);

  std::vector<PieceTrie::Entry> first;
  std::vector<PieceTrie::Entry> continuation;
  for (const Token& token : wordpiece->tokens) {
    const std::string_view text = token.text;
    if (!text.empty()) first.push_back({text, token.id});
    if (text.size() > prefix.size() && text.starts_with(prefix)) {
      continuation.push_back({text.substr(prefix.size()), token.id});
    }
  }
  wordpiece->first = PieceTrie::Build(std::move(first));
  wordpiece->continuation = PieceTrie::Build(std::move(continuation));
  wordpiece->unk_id = wordpiece->first.Find(unk_token);
  return wordpiece;
}

}  // namespace inlay
