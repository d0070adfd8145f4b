// T5's and mT5's tokenizer where a folder has its spiece.model alone, as
// tokenizer.json: transformers makes one of that, which adds what the model
// itself has not, sentinels and </s> behind a text. Knows nothing of files.
// Source: transformers 5.24 (T5Tokenizer, T5Converter).
#ifndef INLAY_CORE_TEXT_T5_TOKENIZER_H_
#define INLAY_CORE_TEXT_T5_TOKENIZER_H_

#include <string_view>

#include "absl/status/statusor.h"
#include "core/json/json.h"

namespace inlay {

// Whether tokenizer_config.json is of the class, by its name or by sentinels.
bool IsT5Tokenizer(const Json& tokenizer_config);

// UNIMPLEMENTED for a model other than Unigram, INVALID_ARGUMENT for bytes that
// are no model and for one without </s> or an unknown piece.
absl::StatusOr<Json> T5TokenizerDocument(std::string_view model_proto_bytes,
                                         const Json& tokenizer_config);

}  // namespace inlay

#endif  // INLAY_CORE_TEXT_T5_TOKENIZER_H_
