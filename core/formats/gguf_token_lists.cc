#include "core/formats/gguf_token_lists.h"

#include <algorithm>
#include <string_view>

#include "core/formats/describe.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {

GgufTokenLists::GgufTokenLists(int64_t size)
    : tokens(static_cast<size_t>(size)),
      types(static_cast<size_t>(size),
            static_cast<int32_t>(GgufTokenType::kUnused)) {}

std::optional<int32_t> GgufTokenLists::Find(const std::string& token) const {
  const auto found = ids.find(token);
  if (found == ids.end()) return std::nullopt;
  return found->second;
}

bool GgufTokenLists::IsOf(int32_t id, GgufTokenType type) const {
  return types[static_cast<size_t>(id)] == static_cast<int32_t>(type);
}

void GgufTokenLists::SetType(int32_t id, GgufTokenType type) {
  types[static_cast<size_t>(id)] = static_cast<int32_t>(type);
}

absl::Status GgufTokenLists::Add(const std::string& text, const Json& id,
                                 GgufTokenType type) {
  const auto size = static_cast<int64_t>(tokens.size());
  if (!id.is_number_integer() || id.get<int64_t>() < 0 ||
      id.get<int64_t>() >= size) {
    return absl::InvalidArgumentError(FormattedString(
        "tokenizer.json: token %s has the id %s, allowed: 0 to %d",
        Quoted(text), ShownJson(id), size - 1));
  }
  const auto at = id.get<size_t>();
  tokens[at] = text;
  types[at] = static_cast<int32_t>(type);
  ids[text] = static_cast<int32_t>(at);
  return absl::OkStatus();
}

absl::Status GgufTokenLists::AddAdded(const Json& file) {
  const Json* added = JsonFind(file, "added_tokens");
  if (added == nullptr || !added->is_array()) return absl::OkStatus();
  for (const Json& token : *added) {
    const Json* id = JsonFind(token, "id");
    if (id == nullptr) {
      return absl::InvalidArgumentError(
          "tokenizer.json: an added token has no id");
    }
    INLAY_ASSIGN_OR_RETURN(const std::string text,
                           JsonString(token, "content", ""));
    INLAY_ASSIGN_OR_RETURN(const bool special,
                           JsonBool(token, "special", false));
    INLAY_RETURN_IF_ERROR(
        Add(text, *id,
            special ? GgufTokenType::kControl : GgufTokenType::kUserDefined));
  }
  return absl::OkStatus();
}

void GgufTokenLists::NameUnused() {
  for (size_t id = 0; id < tokens.size(); ++id) {
    if (tokens[id].empty()) tokens[id] = GgufUnusedToken(id);
  }
}

std::string GgufUnusedToken(size_t id) {
  return FormattedString("[PAD%d]", id);
}

bool IsByteToken(std::string_view token) {
  return token.size() == 6 && token.starts_with("<0x") && token.ends_with(">");
}

bool AddsSpaceInFront(const Json& section) {
  const Json* type = JsonFind(section, "type");
  if (type == nullptr) return false;
  if (*type == "Prepend") return true;
  if (*type == "Metaspace") {
    const Json* scheme = JsonFind(section, "prepend_scheme");
    if (scheme != nullptr) return *scheme != "never";
    const Json* older = JsonFind(section, "add_prefix_space");
    return older == nullptr || *older != false;
  }
  for (const char* list : {"normalizers", "pretokenizers"}) {
    const Json* steps = JsonFind(section, list);
    if (steps == nullptr || !steps->is_array()) continue;
    if (std::any_of(steps->begin(), steps->end(), AddsSpaceInFront)) {
      return true;
    }
  }
  return false;
}

}  // namespace inlay
