// PostProcessor: puts special tokens around encoded segments. Knows only ids.
// Source: Hugging Face tokenizers 0.2x.
#ifndef INLAY_CORE_TEXT_POST_PROCESSOR_H_
#define INLAY_CORE_TEXT_POST_PROCESSOR_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/json/json.h"

namespace inlay {

// What a template says, in order: a literal id, or one of the two segments.
struct TemplateItem {
  enum class Kind { kId, kFirst, kSecond };
  Kind kind = Kind::kId;
  int32_t id = 0;
  int32_t type = 0;  // of the token, or of the segment's: BERT's token type
};

// Every processor comes down to two templates; those that only move offsets
// (ByteLevel) to the plain ones.
struct PostProcessor {
  std::vector<TemplateItem> single = {{TemplateItem::Kind::kFirst}};
  std::vector<TemplateItem> pair = {{TemplateItem::Kind::kFirst},
                                    {TemplateItem::Kind::kSecond, 0, 1}};
};

// A null `spec` gives the plain one. INVALID_ARGUMENT, or UNIMPLEMENTED naming
// the type (or a Sequence of several that add tokens).
absl::StatusOr<PostProcessor> MakePostProcessor(const Json& spec);

// Appends `items` with the segments filled in, and a type for each id to
// `types`, which may be null. Without `add_special` literal ids are left out.
void ApplyTemplate(absl::Span<const TemplateItem> items, bool add_special,
                   absl::Span<const int32_t> first,
                   absl::Span<const int32_t> second, std::vector<int32_t>* ids,
                   std::vector<int32_t>* types = nullptr);

}  // namespace inlay

#endif  // INLAY_CORE_TEXT_POST_PROCESSOR_H_
