// Unigram as tokenizer.json writes it ("type": "Unigram"): the segmentation of
// a pre-token with the highest sum of piece scores (Viterbi). Knows nothing of
// normalisation or splitting. Source: Kudo 2018, "Subword Regularization"
// (arXiv 1804.10959), section 3.2; the unknown piece's penalty and the merging
// of unknown runs as the Hugging Face tokenizers library documents them.
#ifndef INLAY_CORE_TEXT_UNIGRAM_H_
#define INLAY_CORE_TEXT_UNIGRAM_H_

#include <memory>

#include "absl/status/statusor.h"
#include "core/json/json.h"
#include "core/text/token_model.h"

namespace inlay {

// `model` is the "model" object: unk_id (or null), vocab [[piece, score]...],
// byte_fallback. INVALID_ARGUMENT for an empty vocabulary, an unk_id outside
// it, scores that are not finite.
absl::StatusOr<std::unique_ptr<TokenModel>> MakeUnigramFromJson(
    const Json& model);

}  // namespace inlay

#endif  // INLAY_CORE_TEXT_UNIGRAM_H_
