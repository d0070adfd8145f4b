// Normalizers: rewrite a text before it is cut and looked up. Know nothing of
// vocabularies. Source: Hugging Face tokenizers 0.2x.
#ifndef INLAY_CORE_TEXT_NORMALIZER_H_
#define INLAY_CORE_TEXT_NORMALIZER_H_

#include <cstddef>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/json/json.h"

namespace inlay {

// Normalised text is at most this many times as long, plus the base.
inline constexpr size_t kNormalizedGrowth = 32;
inline constexpr size_t kNormalizedBase = 1 << 20;

// Immutable: any number of threads may use it at once.
class Normalizer {
 public:
  virtual ~Normalizer() = default;
  // Rewrites `text` (valid UTF-8, and so is the result). RESOURCE_EXHAUSTED
  // when the result would be out of proportion.
  virtual absl::Status Apply(std::string* text) const = 0;
  // Whether the parts of a text that is cut by NextWordCut() become what the
  // whole becomes, with the same white space around the cut.
  virtual bool KeepsWords() const { return false; }
};

// nullptr for a null `spec`. INVALID_ARGUMENT, or UNIMPLEMENTED naming the
// type.
absl::StatusOr<std::unique_ptr<Normalizer>> MakeNormalizer(const Json& spec);

}  // namespace inlay

#endif  // INLAY_CORE_TEXT_NORMALIZER_H_
