#include "core/formats/gguf_vocab.h"

#include <utility>

#include "core/formats/gguf_metadata.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

constexpr size_t kMaxGgufTokens = size_t{1} << 24;
constexpr int64_t kMaxType = static_cast<int64_t>(GgufTokenType::kByte);

absl::Status WrongLength(std::string_view key, size_t got, size_t tokens) {
  return absl::InvalidArgumentError(
      FormattedString("key \"%s\": %d values, allowed: %d, one for each token",
                      key, got, tokens));
}

absl::Status ReadTokens(const GgufHeader& header, GgufVocab* vocab) {
  constexpr std::string_view kKey = "tokenizer.ggml.tokens";
  INLAY_ASSIGN_OR_RETURN(auto tokens, GgufStrings(header, kKey));
  if (!tokens.has_value() || tokens->empty() ||
      tokens->size() > kMaxGgufTokens) {
    return absl::InvalidArgumentError(FormattedString(
        "key \"%s\": %d tokens, allowed: 1 to %d", kKey,
        tokens.has_value() ? tokens->size() : 0, kMaxGgufTokens));
  }
  vocab->tokens = *std::move(tokens);
  return absl::OkStatus();
}

absl::Status ReadTypes(const GgufHeader& header, GgufVocab* vocab) {
  constexpr std::string_view kKey = "tokenizer.ggml.token_type";
  const size_t count = vocab->tokens.size();
  INLAY_ASSIGN_OR_RETURN(const auto types, GgufInts(header, kKey));
  if (!types.has_value()) {
    vocab->types.assign(count, GgufTokenType::kNormal);
    return absl::OkStatus();
  }
  if (types->size() != count) return WrongLength(kKey, types->size(), count);
  vocab->types.reserve(count);
  for (const int64_t type : *types) {
    if (type < 0 || type > kMaxType) {
      return absl::InvalidArgumentError(
          FormattedString("key \"%s\": the type %d of token %d, allowed: 0 to "
                          "%d",
                          kKey, type, vocab->types.size(), kMaxType));
    }
    vocab->types.push_back(static_cast<GgufTokenType>(type));
  }
  return absl::OkStatus();
}

absl::Status ReadLists(const GgufHeader& header, GgufVocab* vocab) {
  INLAY_RETURN_IF_ERROR(ReadTokens(header, vocab));
  INLAY_RETURN_IF_ERROR(ReadTypes(header, vocab));
  constexpr std::string_view kScores = "tokenizer.ggml.scores";
  INLAY_ASSIGN_OR_RETURN(auto scores, GgufNumbers(header, kScores));
  if (scores.has_value()) {
    if (scores->size() != vocab->tokens.size()) {
      return WrongLength(kScores, scores->size(), vocab->tokens.size());
    }
    vocab->scores = *std::move(scores);
  }
  INLAY_ASSIGN_OR_RETURN(auto merges,
                         GgufStrings(header, "tokenizer.ggml.merges"));
  if (merges.has_value()) vocab->merges = *std::move(merges);
  return absl::OkStatus();
}

absl::Status ReadIds(const GgufHeader& header, GgufVocab* vocab) {
  const struct {
    std::string_view key;
    std::optional<int32_t>* id;
  } ids[] = {
      {"tokenizer.ggml.bos_token_id", &vocab->bos_id},
      {"tokenizer.ggml.eos_token_id", &vocab->eos_id},
      {"tokenizer.ggml.eot_token_id", &vocab->eot_id},
      {"tokenizer.ggml.eom_token_id", &vocab->eom_id},
      {"tokenizer.ggml.unknown_token_id", &vocab->unk_id},
      {"tokenizer.ggml.seperator_token_id", &vocab->sep_id},  // sic
      {"tokenizer.ggml.cls_token_id", &vocab->cls_id},
      {"tokenizer.ggml.mask_token_id", &vocab->mask_id},
      {"tokenizer.ggml.padding_token_id", &vocab->pad_id},
  };
  const auto last = static_cast<int64_t>(vocab->tokens.size()) - 1;
  for (const auto& [key, id] : ids) {
    INLAY_ASSIGN_OR_RETURN(const auto number, GgufInt(header, key, 0, last));
    if (number.has_value()) *id = static_cast<int32_t>(*number);
  }
  return absl::OkStatus();
}

absl::Status ReadRules(const GgufHeader& header, GgufVocab* vocab) {
  const struct {
    std::string_view key;
    std::optional<bool>* rule;
  } rules[] = {
      {"tokenizer.ggml.add_bos_token", &vocab->add_bos},
      {"tokenizer.ggml.add_eos_token", &vocab->add_eos},
      {"tokenizer.ggml.add_sep_token", &vocab->add_sep},
      {"tokenizer.ggml.add_space_prefix", &vocab->add_space_prefix},
      {"tokenizer.ggml.remove_extra_whitespaces", &vocab->remove_extra_spaces},
      {"tokenizer.ggml.normalizer.lowercase", &vocab->lowercase},
      {"tokenizer.ggml.normalizer.strip_accents", &vocab->strip_accents},
  };
  for (const auto& [key, rule] : rules) {
    INLAY_ASSIGN_OR_RETURN(*rule, GgufBool(header, key));
  }
  constexpr std::string_view kMap = "tokenizer.ggml.precompiled_charsmap";
  const GgufValue* map = header.Find(kMap);
  if (map == nullptr) return absl::OkStatus();
  if (!map->is_array ||
      (map->type != GgufType::kU8 && map->type != GgufType::kI8)) {
    return absl::InvalidArgumentError(FormattedString(
        "key \"%s\" is no array of bytes, allowed: u8 or i8", kMap));
  }
  vocab->charsmap.assign(reinterpret_cast<const char*>(map->data.data()),
                         map->data.size());
  return absl::OkStatus();
}

}  // namespace

// WordPiece's own is its EOS. Where no key says it, by name, as llama.cpp.
std::optional<int32_t> GgufVocab::separator() const {
  const bool is_roberta =
      pre == "roberta-bpe" || pre == "jina-v1-en" || pre == "jina-v2-code";
  if (!add_sep.value_or(model == "gpt2" && is_roberta)) return std::nullopt;
  return sep_id.has_value() ? sep_id : eos_id;
}

absl::StatusOr<std::optional<GgufVocab>> ReadGgufVocab(
    const GgufHeader& header) {
  INLAY_ASSIGN_OR_RETURN(auto model,
                         GgufString(header, "tokenizer.ggml.model"));
  if (!model.has_value() || *model == "none" || *model == "no_vocab") {
    return std::nullopt;
  }
  GgufVocab vocab;
  vocab.model = *std::move(model);
  INLAY_ASSIGN_OR_RETURN(const auto pre,
                         GgufString(header, "tokenizer.ggml.pre"));
  vocab.pre = pre.value_or("default");
  INLAY_RETURN_IF_ERROR(ReadLists(header, &vocab));
  INLAY_RETURN_IF_ERROR(ReadIds(header, &vocab));
  INLAY_RETURN_IF_ERROR(ReadRules(header, &vocab));
  return std::optional(std::move(vocab));
}

}  // namespace inlay
