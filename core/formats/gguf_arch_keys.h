// The keys of one architecture: "block_count" for "llama.block_count". Knows
// nothing of what they mean.
#ifndef INLAY_CORE_FORMATS_GGUF_ARCH_KEYS_H_
#define INLAY_CORE_FORMATS_GGUF_ARCH_KEYS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/formats/gguf.h"
#include "core/json/json.h"

namespace inlay {

// Lookups as gguf_metadata.h has them. Keeps references: header and name must
// outlive it.
class GgufArchKeys {
 public:
  GgufArchKeys(const GgufHeader& header, std::string_view arch)
      : header_(header), arch_(arch) {}

  std::string_view arch() const { return arch_; }
  std::string Name(std::string_view key) const;
  const GgufValue* Find(std::string_view key) const;
  absl::StatusOr<std::optional<int64_t>> Int(std::string_view key, int64_t min,
                                             int64_t max) const;
  absl::StatusOr<std::optional<int64_t>> LayerInt(std::string_view key,
                                                  int64_t layers, int64_t min,
                                                  int64_t max) const;
  absl::StatusOr<std::optional<std::vector<int64_t>>> Ints(
      std::string_view key) const;
  // One for each layer, or one for all; each as `min` and `max` allow.
  // INVALID_ARGUMENT where the key is missing.
  absl::StatusOr<std::vector<int64_t>> LayerInts(std::string_view key,
                                                 int64_t layers, int64_t min,
                                                 int64_t max) const;
  absl::StatusOr<std::optional<double>> Number(std::string_view key) const;
  absl::StatusOr<std::optional<bool>> Bool(std::string_view key) const;
  absl::StatusOr<std::optional<std::string>> String(std::string_view key) const;

  // The value of one that must be there: INVALID_ARGUMENT where it is not.
  absl::StatusOr<int64_t> Required(
      std::string_view key, absl::StatusOr<std::optional<int64_t>> found) const;
  // Copies a number, where it is there, to `to` of `object`.
  absl::Status CopyNumber(std::string_view key, const char* to,
                          Json* object) const;

 private:
  const GgufHeader& header_;
  std::string_view arch_;
};

}  // namespace inlay

#endif  // INLAY_CORE_FORMATS_GGUF_ARCH_KEYS_H_
