// Tokens that stand in tokenizer_config.json or added_tokens.json, beside those
// of the tokenizer's own file. Source: transformers 5, which adds them to what
// it has read (added_tokens_decoder).
#ifndef INLAY_CORE_TEXT_CONFIGURED_TOKENS_H_
#define INLAY_CORE_TEXT_CONFIGURED_TOKENS_H_

#include <vector>

#include "absl/status/statusor.h"
#include "core/json/json.h"

namespace inlay {

// In the form of tokenizer.json's "added_tokens", by id: those of
// `tokenizer_config`'s added_tokens_decoder, or where it has none those of
// `added_tokens`, an object of ids by text, of which the tokens are special
// that the other names as its own. Either may be null. INVALID_ARGUMENT for
// documents of another form.
absl::StatusOr<std::vector<Json>> ReadConfiguredTokens(
    const Json& tokenizer_config, const Json& added_tokens);

// Into tokenizer.json's: what has the text of one there takes its place.
void AddConfiguredTokens(const std::vector<Json>& tokens, Json* tokenizer_json);

}  // namespace inlay

#endif  // INLAY_CORE_TEXT_CONFIGURED_TOKENS_H_
