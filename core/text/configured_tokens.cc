#include "core/text/configured_tokens.h"

#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "absl/strings/numbers.h"
#include "core/text/vocabulary.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

absl::Status BadToken(std::string_view what) {
  return absl::InvalidArgumentError(FormattedString(
      "%s, allowed: an object with a text and an id from 0 to %d each", what,
      kMaxTokenId));
}

absl::StatusOr<std::map<int64_t, Json>> ListedTokens(const Json& list) {
  std::map<int64_t, Json> tokens;
  if (!list.is_object()) return BadToken("added_tokens_decoder is no object");
  for (const auto& [key, value] : list.items()) {
    int64_t id = -1;
    const Json* content = JsonFind(value, "content");
    if (!absl::SimpleAtoi(key, &id) || id < 0 || id > kMaxTokenId ||
        content == nullptr || !content->is_string()) {
      return BadToken("added_tokens_decoder has an entry of another form");
    }
    Json& token = tokens[id] = value;
    token["id"] = id;
  }
  return tokens;
}

// The texts of the special tokens, plain or {"content": text}.
std::unordered_set<std::string> SpecialTexts(const Json& config) {
  std::unordered_set<std::string> texts;
  const auto add = [&](const Json& value) {
    const Json* text = value.is_object() ? JsonFind(value, "content") : &value;
    if (text != nullptr && text->is_string()) {
      texts.insert(text->get<std::string>());
    }
  };
  if (!config.is_object()) return texts;
  for (const auto& [key, value] : config.items()) {
    if (key.ends_with("_token")) add(value);
    if (!key.ends_with("_special_tokens") || !value.is_structured()) continue;
    for (const Json& item : value) add(item);
  }
  return texts;
}

absl::StatusOr<std::map<int64_t, Json>> NumberedTokens(const Json& config,
                                                       const Json& added) {
  std::map<int64_t, Json> tokens;
  if (!added.is_object()) return BadToken("added_tokens.json is no object");
  const std::unordered_set<std::string> special = SpecialTexts(config);
  for (const auto& [text, value] : added.items()) {
    const int64_t id = value.is_number_integer() ? value.get<int64_t>() : -1;
    if (id < 0 || id > kMaxTokenId) {
      return BadToken("added_tokens.json has an entry of another form");
    }
    tokens[id] = Json{
        {"id", id}, {"content", text}, {"special", special.contains(text)}};
  }
  return tokens;
}

}  // namespace

absl::StatusOr<std::vector<Json>> ReadConfiguredTokens(
    const Json& tokenizer_config, const Json& added_tokens) {
  const Json* list = JsonFind(tokenizer_config, "added_tokens_decoder");
  std::map<int64_t, Json> tokens;
  if (list != nullptr) {
    INLAY_ASSIGN_OR_RETURN(tokens, ListedTokens(*list));
  } else if (!added_tokens.is_null()) {
    INLAY_ASSIGN_OR_RETURN(tokens,
                           NumberedTokens(tokenizer_config, added_tokens));
  }
  std::vector<Json> sorted;
  for (auto& [id, token] : tokens) sorted.push_back(std::move(token));
  return sorted;
}

void AddConfiguredTokens(const std::vector<Json>& tokens,
                         Json* tokenizer_json) {
  if (tokens.empty() || !tokenizer_json->is_object()) return;
  Json& list = (*tokenizer_json)["added_tokens"];
  if (list.is_null()) list = Json::array();
  if (!list.is_array()) return;  // refused where it is read
  std::unordered_map<std::string, size_t> places;
  for (size_t i = 0; i < list.size(); ++i) {
    const Json* content = JsonFind(list[i], "content");
    if (content == nullptr || !content->is_string()) continue;
    places.emplace(content->get<std::string>(), i);
  }
  for (const Json& token : tokens) {
    const auto found = places.find(token["content"].get<std::string>());
    if (found == places.end()) {
      list.push_back(token);
    } else {
      list[found->second] = token;
    }
  }
}

}  // namespace inlay
