// Reads and checks the table.
#include "core/text/vocabulary.h"

#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {

absl::Status CheckTokenId(int64_t id, size_t num_entries) {
  // Holes are usual (reserved ids), a table of almost nothing else is not.
  const auto sparse_limit =
      static_cast<int64_t>(4 * num_entries + (size_t{1} << 20));
  const int64_t limit = std::min(kMaxTokenId, sparse_limit);
  if (id >= 0 && id <= limit) return absl::OkStatus();
  return absl::InvalidArgumentError(
      FormattedString("token id %d, allowed: 0 to %d (for %d entries)", id,
                      limit, num_entries));
}

absl::StatusOr<Vocabulary> Vocabulary::Create(const Json* vocab) {
  if (vocab == nullptr || !vocab->is_object()) {
    return absl::InvalidArgumentError("\"vocab\" is missing or no object");
  }
  size_t total_bytes = 0;
  int64_t max_id = -1;
  for (const auto& [token, id] : vocab->items()) {
    if (!id.is_number_integer() ||
        (id.is_number_unsigned() && id.get<uint64_t>() > uint64_t{INT64_MAX})) {
      return absl::InvalidArgumentError(FormattedString(
          "vocab: the id of \"%s\" is no integer", token.substr(0, 80)));
    }
    INLAY_RETURN_IF_ERROR(CheckTokenId(id.get<int64_t>(), vocab->size()));
    max_id = std::max(max_id, id.get<int64_t>());
    total_bytes += token.size();
  }
  Vocabulary result;
  result.bytes_.reserve(total_bytes);
  result.tokens_.resize(static_cast<size_t>(max_id + 1));
  // In its constructor, an eighth of it free: a flat_hash_map that finds no
  // memory to grow is lost.
  result.ids_ = decltype(result.ids_)(vocab->size() + vocab->size() / 7 + 1);
  std::vector<bool> taken(result.tokens_.size());
  for (const auto& [token, id_json] : vocab->items()) {
    const auto id = id_json.get<int32_t>();
    if (taken[static_cast<size_t>(id)]) {
      return absl::InvalidArgumentError(FormattedString(
          "vocab: \"%s\" has the id %d, which another token has",
          token.substr(0, 80), id));
    }
    taken[static_cast<size_t>(id)] = true;
    const size_t begin = result.bytes_.size();
    result.bytes_.insert(result.bytes_.end(), token.begin(), token.end());
    const std::string_view view(result.bytes_.data() + begin, token.size());
    result.tokens_[static_cast<size_t>(id)] = view;
    result.ids_.emplace(view, id);
  }
  return result;
}

std::optional<int32_t> Vocabulary::TokenToId(std::string_view token) const {
  const auto it = ids_.find(token);
  if (it == ids_.end()) return std::nullopt;
  return it->second;
}

}  // namespace inlay
