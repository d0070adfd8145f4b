// Token lists as the SentencePiece model they were made from
// (gguf_tokenizer_parts.h).
#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/escaping.h"
#include "core/formats/describe.h"
#include "core/formats/gguf_token_lists.h"
#include "core/formats/gguf_tokenizer_parts.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

// The rows behind the last piece, which converters fill up.
size_t CountPieces(const GgufVocab& vocab) {
  size_t count = vocab.tokens.size();
  while (count > 0 && vocab.types[count - 1] == GgufTokenType::kUnused &&
         vocab.tokens[count - 1] == GgufUnusedToken(count - 1)) {
    --count;
  }
  return count;
}

bool IsText(GgufTokenType type) {
  return type == GgufTokenType::kNormal || type == GgufTokenType::kUndefined;
}

// SentencePiece adds control pieces only.
absl::StatusOr<std::string> AddedPiece(const GgufVocab& vocab, const char* name,
                                       bool adds, std::optional<int32_t> id,
                                       size_t count, Json* pieces) {
  if (!adds) return std::string();
  if (!id.has_value() || static_cast<size_t>(*id) >= count) {
    return absl::InvalidArgumentError(FormattedString(
        "key \"tokenizer.ggml.add_%s_token\" is true without an id for it",
        name));
  }
  if (IsText(vocab.type(*id))) {
    (*pieces)[static_cast<size_t>(*id)][2] =
        static_cast<int>(GgufTokenType::kControl);
  }
  return std::string(vocab.token(*id));
}

}  // namespace

absl::StatusOr<Json> GgufSentencePieceDocument(const GgufVocab& vocab) {
  const size_t count = CountPieces(vocab);
  if (vocab.scores.empty() || count == 0) {
    return absl::InvalidArgumentError(FormattedString(
        "key \"tokenizer.ggml.scores\" is missing: a tokenizer of model %s "
        "needs a score for each token",
        Quoted(vocab.model)));
  }
  const auto has = [&](GgufTokenType type) {
    return std::find(vocab.types.begin(), vocab.types.end(), type) !=
           vocab.types.end();
  };
  const bool is_unigram = vocab.model == "t5";
  Json pieces = Json::array();
  for (size_t id = 0; id < count; ++id) {
    const GgufTokenType type = vocab.types[id];
    pieces.push_back(Json::array(
        {vocab.tokens[id], vocab.scores[id],
         static_cast<int>(IsText(type) ? GgufTokenType::kNormal : type)}));
  }
  if (!has(GgufTokenType::kUnknown) && vocab.unk_id.has_value() &&
      static_cast<size_t>(*vocab.unk_id) < count) {
    pieces[static_cast<size_t>(*vocab.unk_id)][2] =
        static_cast<int>(GgufTokenType::kUnknown);
  }
  INLAY_ASSIGN_OR_RETURN(
      std::string bos, AddedPiece(vocab, "bos",
                                  vocab.add_bos.value_or(
                                      !is_unigram && vocab.bos_id.has_value()),
                                  vocab.bos_id, count, &pieces));
  INLAY_ASSIGN_OR_RETURN(
      std::string eos,
      AddedPiece(vocab, "eos",
                 vocab.add_eos.value_or(is_unigram && vocab.eos_id.has_value()),
                 vocab.eos_id, count, &pieces));
  Json between = Json::array();
  if (!eos.empty()) {
    between.push_back(eos);
    INLAY_ASSIGN_OR_RETURN(
        std::string sep, AddedPiece(vocab, "sep", vocab.separator().has_value(),
                                    vocab.separator(), count, &pieces));
    if (!sep.empty()) between.push_back(std::move(sep));
  }
  return Json{
      {"model", Json{{"type", "SentencePiece"},
                     {"model_type", is_unigram ? "UNIGRAM" : "BPE"},
                     {"pieces", std::move(pieces)},
                     {"byte_fallback", has(GgufTokenType::kByte)},
                     {"bos_piece", std::move(bos)},
                     {"eos_piece", std::move(eos)},
                     {"between", std::move(between)}}},
      {"normalizer",
       Json{{"precompiled_charsmap", absl::Base64Escape(vocab.charsmap)},
            {"add_dummy_prefix", vocab.add_space_prefix.value_or(!is_unigram)},
            {"remove_extra_whitespaces",
             vocab.remove_extra_spaces.value_or(false)}}}};
}

}  // namespace inlay
