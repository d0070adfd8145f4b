// The keys of one architecture on their way into a file: "block_count" for
// "llama.block_count", mostly from a config.json. What gguf_arch_keys.h is to
// reading. Knows nothing of what they mean.
#ifndef INLAY_CORE_FORMATS_GGUF_KEY_WRITER_H_
#define INLAY_CORE_FORMATS_GGUF_KEY_WRITER_H_

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/formats/gguf_arch.h"
#include "core/formats/gguf_writer.h"
#include "core/json/json.h"

namespace inlay {

// A size of config.json. INVALID_ARGUMENT naming the key that is missing or out
// of range.
absl::StatusOr<int64_t> NeededGgufSize(const Json& config, const char* key);

// Keeps references: all must outlive it.
class GgufKeyWriter {
 public:
  GgufKeyWriter(const Json& config, const GgufArch& arch, GgufWriter* writer)
      : config_(config), arch_(arch), writer_(*writer) {}

  const Json& config() const { return config_; }
  std::string_view arch() const { return arch_.name; }
  std::string_view model_type() const { return arch_.model_type; }
  GgufWriter& writer() { return writer_; }
  std::string Name(std::string_view key) const;

  // Not null.
  bool Has(const char* key) const { return JsonFind(config_, key) != nullptr; }
  bool IsNull(const char* key) const;
  // The first that config.json has; otherwise the first.
  const char* AnyOf(std::initializer_list<const char*> keys) const;
  // Kimi's own name where its config.json has that; it means nothing elsewhere.
  const char* Named(const char* key, const char* kimis) const;

  absl::Status SetU32(std::string_view key, int64_t value);
  absl::Status SetF32(std::string_view key, double value);
  absl::Status SetBool(std::string_view key, bool value);
  absl::Status SetU32s(std::string_view key, absl::Span<const uint32_t> values);
  absl::Status SetBools(std::string_view key, const std::vector<bool>& values);

  // A size that config.json must have, unless there is a fallback.
  // INVALID_ARGUMENT naming it.
  absl::StatusOr<int64_t> Size(const char* from, int64_t fallback = 0) const;
  absl::StatusOr<int64_t> CopySize(const char* from, std::string_view to,
                                   int64_t fallback = 0);
  // The same of a count that may be 0; absent: nothing is written.
  absl::Status CopyCount(const char* from, std::string_view to);
  absl::Status CopyNumber(const char* from, std::string_view to,
                          double fallback);

  // UNIMPLEMENTED where config.json says what files of the architecture do not:
  // an activation other than those, and a value other than `said`, which is
  // also what config.json means by saying nothing.
  absl::Status CheckActivation(
      const char* key, std::initializer_list<const char*> allowed) const;
  absl::Status Expect(const char* key, const Json& said) const;
  absl::Status NotSaid(const char* key, const Json& value) const;

 private:
  const Json& config_;
  const GgufArch& arch_;
  GgufWriter& writer_;
};

}  // namespace inlay

#endif  // INLAY_CORE_FORMATS_GGUF_KEY_WRITER_H_
