// From a parsed tokenizer.json to the pipeline. "truncation" and "padding" say
// what a batch loader does and are not read.
#include "core/text/tokenizer_json.h"
#include "core/text/tokenizer_spec.h"
#include "core/text/unigram.h"
#include "core/text/word_level.h"
#include "core/text/wordpiece.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

// An absent section and a null one mean the same.
const Json& Section(const Json& file, std::string_view key, const Json& null) {
  const Json* section = JsonFind(file, key);
  return section == nullptr ? null : *section;
}

// Files from before models were tagged show by their members what they are.
absl::StatusOr<std::string> ModelType(const Json& model) {
  if (!model.is_object()) {
    return absl::InvalidArgumentError("\"model\" is missing or no object");
  }
  if (model.contains("type")) return SpecType(model, "model");
  if (model.contains("merges")) return std::string("BPE");
  if (model.contains("max_input_chars_per_word")) {
    return std::string("WordPiece");
  }
  const Json* vocab = JsonFind(model, "vocab");
  return std::string(vocab != nullptr && vocab->is_array() ? "Unigram"
                                                           : "WordLevel");
}

absl::Status CheckTemplate(absl::Span<const TemplateItem> items,
                           int32_t vocab_size) {
  for (const TemplateItem& item : items) {
    if (item.id >= vocab_size) {
      return absl::InvalidArgumentError(
          FormattedString("post_processor adds the id %d, allowed: 0 to %d",
                          item.id, vocab_size - 1));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<JsonTokenizer>> JsonTokenizer::Create(
    const Json& file) {
  if (!file.is_object()) {
    return absl::InvalidArgumentError("tokenizer.json is no object");
  }
  std::unique_ptr<JsonTokenizer> tokenizer(new JsonTokenizer());
  INLAY_RETURN_IF_ERROR(tokenizer->ReadModel(file));
  INLAY_RETURN_IF_ERROR(tokenizer->ReadRest(file));
  return tokenizer;
}

// The model comes with its pre-tokenizer: whether bytes are spelled out in
// between is for the two to agree on.
absl::Status JsonTokenizer::ReadModel(const Json& file) {
  const Json null;
  const Json& model = Section(file, "model", null);
  const Json& cut = Section(file, "pre_tokenizer", null);
  INLAY_ASSIGN_OR_RETURN(const std::string type, ModelType(model));
  bool raw_bytes = false;
  if (type == "BPE") {
    INLAY_ASSIGN_OR_RETURN(auto bpe,
                           BpeModel::Create(model, EndsInByteLevel(cut)));
    raw_bytes = bpe->raw_bytes();
    bpe_ = bpe.get();
    model_ = std::move(bpe);
  } else if (type == "WordLevel") {
    INLAY_ASSIGN_OR_RETURN(model_, MakeWordLevelFromJson(model));
  } else if (type == "Unigram") {
    INLAY_ASSIGN_OR_RETURN(model_, MakeUnigramFromJson(model));
  } else if (type == "WordPiece") {
    INLAY_ASSIGN_OR_RETURN(model_, MakeWordPieceFromJson(model));
  } else {
    return UnknownType(type, "model");
  }
  INLAY_ASSIGN_OR_RETURN(pre_tokenizer_, MakePreTokenizer(cut, raw_bytes));
  return absl::OkStatus();
}

absl::Status JsonTokenizer::ReadRest(const Json& file) {
  const Json null;
  INLAY_ASSIGN_OR_RETURN(normalizer_,
                         MakeNormalizer(Section(file, "normalizer", null)));
  const Json* vocab = JsonFind(Section(file, "model", null), "vocab");
  INLAY_ASSIGN_OR_RETURN(
      added_, AddedTokens::Create(JsonFind(file, "added_tokens"), *model_,
                                  vocab == nullptr ? 0 : vocab->size(),
                                  normalizer_.get()));
  cuts_at_words_ = pre_tokenizer_->word_cut() == WordCut::kCuts &&
                   (normalizer_ == nullptr || normalizer_->KeepsWords()) &&
                   added_.KeepsWords();
  INLAY_ASSIGN_OR_RETURN(
      post_, MakePostProcessor(Section(file, "post_processor", null)));
  INLAY_RETURN_IF_ERROR(CheckTemplate(post_.single, vocab_size()));
  INLAY_RETURN_IF_ERROR(CheckTemplate(post_.pair, vocab_size()));
  INLAY_ASSIGN_OR_RETURN(TextDecoder decoder,
                         TextDecoder::Create(Section(file, "decoder", null)));
  decoder_ = std::make_unique<TextDecoder>(std::move(decoder));
  return absl::OkStatus();
}

}  // namespace inlay
