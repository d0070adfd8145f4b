// WordLevel: a piece is a token or the unknown token.
#ifndef INLAY_CORE_TEXT_WORD_LEVEL_H_
#define INLAY_CORE_TEXT_WORD_LEVEL_H_

#include <memory>

#include "absl/status/statusor.h"
#include "core/json/json.h"
#include "core/text/token_model.h"

namespace inlay {

// `model`: the "model" object of a tokenizer.json.
absl::StatusOr<std::unique_ptr<TokenModel>> MakeWordLevelFromJson(
    const Json& model);

}  // namespace inlay

#endif  // INLAY_CORE_TEXT_WORD_LEVEL_H_
