// Vocabulary: the two-way table of tokens and ids that the file's "vocab"
// object gives. Knows no algorithm.
#ifndef INLAY_CORE_TEXT_VOCABULARY_H_
#define INLAY_CORE_TEXT_VOCABULARY_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/json/json.h"

namespace inlay {

inline constexpr int64_t kMaxTokenId = (16 << 20) - 1;

// OK when `id` may index a table: not negative, at most kMaxTokenId, and not
// so far above the number of entries that a few of them demand gigabytes.
absl::Status CheckTokenId(int64_t id, size_t num_entries);

// Immutable after Create. Moving keeps views into it valid.
class Vocabulary {
 public:
  // `vocab`: an object of token: id. INVALID_ARGUMENT for ids that are no
  // integers, repeat, or fail CheckTokenId.
  static absl::StatusOr<Vocabulary> Create(const Json* vocab);

  std::string_view IdToToken(int32_t id) const {
    return id >= 0 && id < size() ? tokens_[static_cast<size_t>(id)]
                                  : std::string_view();
  }
  std::optional<int32_t> TokenToId(std::string_view token) const;
  // One above the largest id.
  int32_t size() const { return static_cast<int32_t>(tokens_.size()); }

 private:
  std::vector<char> bytes_;               // the tokens, one after another
  std::vector<std::string_view> tokens_;  // by id; empty where there is none
  absl::flat_hash_map<std::string_view, int32_t> ids_;
};

}  // namespace inlay

#endif  // INLAY_CORE_TEXT_VOCABULARY_H_
