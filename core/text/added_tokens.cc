// Reading, and the search in the text.
#include "core/text/added_tokens.h"

#include <algorithm>

#include "core/text/unicode_class.h"
#include "core/text/utf8.h"
#include "core/text/vocabulary.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

// Bounds the search at each position.
constexpr size_t kMaxContentBytes = 1024;

bool WordBefore(std::string_view text, size_t pos) {
  return pos > 0 && (RuneClass(RuneBefore(text, pos).code) & kWord) != 0;
}

bool WordAt(std::string_view text, size_t pos) {
  return pos < text.size() && (RuneClass(RuneAt(text, pos).code) & kWord) != 0;
}

size_t SkipSpaceBack(std::string_view text, size_t pos, size_t limit) {
  while (pos > limit) {
    const Rune rune = RuneBefore(text, pos);
    if ((RuneClass(rune.code) & kSpace) == 0) break;
    pos -= rune.bytes;
  }
  return pos;
}

size_t SkipSpace(std::string_view text, size_t pos) {
  while (pos < text.size()) {
    const Rune rune = RuneAt(text, pos);
    if ((RuneClass(rune.code) & kSpace) == 0) break;
    pos += rune.bytes;
  }
  return pos;
}

absl::StatusOr<AddedToken> Parse(const Json& item) {
  AddedToken token;
  INLAY_ASSIGN_OR_RETURN(const int64_t id,
                         JsonInt(item, "id", -1, 0, kMaxTokenId));
  token.id = static_cast<int32_t>(id);
  INLAY_ASSIGN_OR_RETURN(token.content, JsonString(item, "content", ""));
  INLAY_ASSIGN_OR_RETURN(token.special, JsonBool(item, "special", false));
  INLAY_ASSIGN_OR_RETURN(token.single_word,
                         JsonBool(item, "single_word", false));
  INLAY_ASSIGN_OR_RETURN(token.lstrip, JsonBool(item, "lstrip", false));
  INLAY_ASSIGN_OR_RETURN(token.rstrip, JsonBool(item, "rstrip", false));
  INLAY_ASSIGN_OR_RETURN(token.normalized,
                         JsonBool(item, "normalized", !token.special));
  return token;
}

}  // namespace

void AddedTokens::Trie::Add(std::string_view key, int32_t token) {
  if (key.empty()) return;
  if (token_at.empty()) token_at.push_back(-1);
  first_byte[static_cast<uint8_t>(key[0])] = true;
  uint32_t node = 0;
  for (const char c : key) {
    const uint64_t edge = uint64_t{node} << 8 | static_cast<uint8_t>(c);
    const auto fresh = static_cast<uint32_t>(token_at.size());
    const auto [it, inserted] = edges.try_emplace(edge, fresh);
    if (inserted) token_at.push_back(-1);
    node = it->second;
  }
  // Two tokens may normalise to the same text; the first keeps it.
  if (token_at[node] < 0) token_at[node] = token;
}

int32_t AddedTokens::Trie::Longest(std::string_view text, size_t pos,
                                   size_t* bytes) const {
  int32_t found = -1;
  uint32_t node = 0;
  for (size_t i = pos; i < text.size(); ++i) {
    const auto it =
        edges.find(uint64_t{node} << 8 | static_cast<uint8_t>(text[i]));
    if (it == edges.end()) break;
    node = it->second;
    if (token_at[node] >= 0) {
      found = token_at[node];
      *bytes = i + 1 - pos;
    }
  }
  return found;
}

absl::StatusOr<AddedTokens> AddedTokens::Create(const Json* list,
                                                const TokenModel& model,
                                                size_t num_model_tokens,
                                                const Normalizer* normalizer) {
  AddedTokens result;
  if (list == nullptr) return result;
  if (!list->is_array()) {
    return absl::InvalidArgumentError("\"added_tokens\" is no array");
  }
  for (const Json& item : *list) {
    INLAY_ASSIGN_OR_RETURN(AddedToken token, Parse(item));
    if (token.content.empty() || result.TokenToId(token.content)) continue;
    token.id = result.NextId(model, num_model_tokens, token.content);
    INLAY_RETURN_IF_ERROR(
        CheckTokenId(token.id, list->size() + num_model_tokens));
    INLAY_RETURN_IF_ERROR(result.Add(std::move(token), normalizer));
  }
  return result;
}

int32_t AddedTokens::NextId(const TokenModel& model, size_t num_model_tokens,
                            std::string_view content) const {
  if (const auto id = model.TokenToId(content)) return *id;
  return std::max(id_limit_, static_cast<int32_t>(num_model_tokens));
}

absl::Status AddedTokens::Add(AddedToken token, const Normalizer* normalizer) {
  if (token.content.size() > kMaxContentBytes) {
    return absl::InvalidArgumentError(
        FormattedString("added token %d has %d bytes, at most %d allowed",
                        token.id, token.content.size(), kMaxContentBytes));
  }
  const auto index = static_cast<int32_t>(tokens_.size());
  std::string key = token.content;
  if (token.normalized && normalizer != nullptr) {
    INLAY_RETURN_IF_ERROR(normalizer->Apply(&key));
  }
  tries_[token.normalized ? 1 : 0].Add(key, index);
  // Those that reach over a cut, or look at what is behind one.
  if (token.normalized && (token.single_word || token.lstrip || token.rstrip ||
                           key.find_first_of(" \n") != std::string::npos)) {
    keeps_words_ = false;
  }
  by_id_.emplace(token.id, index);
  by_content_.emplace(token.content, index);
  id_limit_ = std::max(id_limit_, token.id + 1);
  tokens_.push_back(std::move(token));
  return absl::OkStatus();
}

void AddedTokens::Split(std::string_view text, bool normalized,
                        std::vector<TextSegment>* segments) const {
  const Trie& trie = tries_[normalized ? 1 : 0];
  size_t done = 0;
  size_t pos = empty(normalized) ? text.size() : 0;
  while (pos < text.size()) {
    size_t bytes = 0;
    if (!trie.first_byte[static_cast<uint8_t>(text[pos])]) {
      ++pos;
      continue;
    }
    const int32_t index = trie.Longest(text, pos, &bytes);
    if (index < 0) {
      ++pos;
      continue;
    }
    const AddedToken& token = tokens_[static_cast<size_t>(index)];
    size_t begin = pos;
    size_t end = pos + bytes;
    pos = end;
    // An earlier token's rstrip may have taken this one along.
    if (begin < done) continue;
    if (token.single_word && (WordBefore(text, begin) || WordAt(text, end))) {
      continue;
    }
    if (token.lstrip) begin = SkipSpaceBack(text, begin, done);
    if (token.rstrip) end = SkipSpace(text, end);
    if (done < begin) segments->push_back({text.substr(done, begin - done)});
    segments->push_back({text.substr(begin, end - begin), token.id});
    done = end;
  }
  if (done < text.size()) segments->push_back({text.substr(done)});
}

const AddedToken* AddedTokens::Find(int32_t id) const {
  const auto it = by_id_.find(id);
  return it == by_id_.end() ? nullptr
                            : &tokens_[static_cast<size_t>(it->second)];
}

std::optional<int32_t> AddedTokens::TokenToId(std::string_view content) const {
  const auto it = by_content_.find(std::string(content));
  if (it == by_content_.end()) return std::nullopt;
  return tokens_[static_cast<size_t>(it->second)].id;
}

}  // namespace inlay
