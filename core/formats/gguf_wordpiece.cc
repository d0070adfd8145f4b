// WordPiece in GGUF ("bert"), in both directions. The lists mark the tokens
// that start a word by U+2581 and those that go on by nothing; tokenizer.json
// marks the latter by "##" (gguf_token_lists.h, gguf_tokenizer_parts.h).
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/formats/describe.h"
#include "core/formats/gguf_token_lists.h"
#include "core/formats/gguf_tokenizer_parts.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

constexpr std::string_view kWordStart = "\xE2\x96\x81";  // U+2581
constexpr std::string_view kWordGoesOn = "##";

absl::Status NoWordPieceKey(std::string_view what) {
  return absl::UnimplementedError(FormattedString(
      "tokenizer.json: GGUF has no key for %s of WordPiece, allowed: "
      "BertNormalizer that cleans and parts Chinese characters, "
      "BertPreTokenizer, \"##\", words of 100 characters",
      what));
}

struct BertRules {
  bool lowercase = false;
  bool strip_accents = false;
};

absl::StatusOr<BertRules> ReadBertRules(const Json& file, const Json& model) {
  const auto type_of = [&](const char* section) {
    const Json* found = JsonFind(file, section);
    const Json* type = found == nullptr ? nullptr : JsonFind(*found, "type");
    return type == nullptr ? Json() : *type;
  };
  if (type_of("normalizer") != "BertNormalizer") {
    return NoWordPieceKey(absl::StrCat(
        "the normalizer ", Quoted(ShownJson(type_of("normalizer")))));
  }
  if (type_of("pre_tokenizer") != "BertPreTokenizer") {
    return NoWordPieceKey(absl::StrCat(
        "the pre_tokenizer ", Quoted(ShownJson(type_of("pre_tokenizer")))));
  }
  const Json& normalizer = file["normalizer"];
  INLAY_ASSIGN_OR_RETURN(const bool cleans,
                         JsonBool(normalizer, "clean_text", true));
  INLAY_ASSIGN_OR_RETURN(const bool chinese,
                         JsonBool(normalizer, "handle_chinese_chars", true));
  if (!cleans || !chinese) {
    return NoWordPieceKey("clean_text or handle_chinese_chars false");
  }
  INLAY_ASSIGN_OR_RETURN(
      const std::string prefix,
      JsonString(model, "continuing_subword_prefix", kWordGoesOn));
  INLAY_ASSIGN_OR_RETURN(
      const int64_t longest,
      JsonInt(model, "max_input_chars_per_word", 100, 0, INT64_MAX));
  if (prefix != kWordGoesOn)
    return NoWordPieceKey("another continuing_subword_prefix");
  if (longest != 100) return NoWordPieceKey("another max_input_chars_per_word");
  BertRules rules;
  INLAY_ASSIGN_OR_RETURN(rules.lowercase,
                         JsonBool(normalizer, "lowercase", true));
  INLAY_ASSIGN_OR_RETURN(
      rules.strip_accents,
      JsonBool(normalizer, "strip_accents", rules.lowercase));
  return rules;
}

std::string ListText(const std::string& text) {
  if (!text.starts_with(kWordGoesOn)) return std::string(kWordStart) + text;
  return text.substr(kWordGoesOn.size());
}

}  // namespace

absl::Status SetGgufWordPiece(const Json& file, const Json& model,
                              GgufTokenLists* lists, GgufWriter* writer) {
  const Json* vocab = JsonFind(model, "vocab");
  if (vocab == nullptr || !vocab->is_object() || vocab->empty()) {
    return absl::InvalidArgumentError("tokenizer.json: no vocab");
  }
  INLAY_ASSIGN_OR_RETURN(const BertRules rules, ReadBertRules(file, model));
  for (const auto& [text, id] : vocab->items()) {
    INLAY_RETURN_IF_ERROR(lists->Add(text, id, GgufTokenType::kNormal));
  }
  INLAY_RETURN_IF_ERROR(lists->AddAdded(file));
  INLAY_ASSIGN_OR_RETURN(const std::string unknown,
                         JsonString(model, "unk_token", "[UNK]"));
  const struct {
    const char* key;
    std::string token;
  } special[] = {{"tokenizer.ggml.unknown_token_id", unknown},
                 {"tokenizer.ggml.cls_token_id", "[CLS]"},
                 {"tokenizer.ggml.seperator_token_id", "[SEP]"},  // sic
                 {"tokenizer.ggml.mask_token_id", "[MASK]"}};
  for (const auto& [key, token] : special) {
    const auto id = lists->Find(token);
    if (!id.has_value()) continue;
    // llama.cpp's converter gives all of them this type.
    lists->SetType(*id, GgufTokenType::kControl);
    INLAY_RETURN_IF_ERROR(writer->SetU32(key, static_cast<uint32_t>(*id)));
  }
  for (size_t id = 0; id < lists->tokens.size(); ++id) {
    if (!lists->IsOf(static_cast<int32_t>(id), GgufTokenType::kNormal)) {
      continue;
    }
    lists->tokens[id] = ListText(lists->tokens[id]);
    // "##" alone goes on with nothing.
    if (!lists->tokens[id].empty()) continue;
    lists->SetType(static_cast<int32_t>(id), GgufTokenType::kUnused);
  }
  INLAY_RETURN_IF_ERROR(writer->SetString("tokenizer.ggml.model", "bert"));
  INLAY_RETURN_IF_ERROR(writer->SetString("tokenizer.ggml.pre", "default"));
  INLAY_RETURN_IF_ERROR(
      writer->SetBool("tokenizer.ggml.normalizer.lowercase", rules.lowercase));
  return writer->SetBool("tokenizer.ggml.normalizer.strip_accents",
                         rules.strip_accents);
}

absl::StatusOr<Json> GgufWordPieceJson(const GgufVocab& vocab) {
  std::vector<std::string> texts;
  texts.reserve(vocab.tokens.size());
  for (size_t id = 0; id < vocab.tokens.size(); ++id) {
    const std::string_view text = vocab.tokens[id];
    const GgufTokenType type = vocab.types[id];
    if (type != GgufTokenType::kNormal && type != GgufTokenType::kUndefined) {
      texts.emplace_back(text);
    } else if (text.starts_with(kWordStart)) {
      texts.emplace_back(text.substr(kWordStart.size()));
    } else {
      texts.push_back(std::string(kWordGoesOn).append(text));
    }
  }
  GgufVocab around = vocab;
  if (!around.bos_id.has_value()) around.bos_id = vocab.cls_id;
  if (vocab.sep_id.has_value()) around.eos_id = vocab.sep_id;
  around.add_eos = vocab.add_eos.value_or(around.eos_id.has_value());
  around.add_sep = false;  // the EOS is it
  INLAY_ASSIGN_OR_RETURN(Json post, GgufPostProcessorJson(around, true));
  INLAY_ASSIGN_OR_RETURN(Json vocabulary, GgufVocabularyJson(texts));
  const bool lowercase = vocab.lowercase.value_or(true);
  return Json{
      {"added_tokens", GgufAddedTokensJson(vocab, texts)},
      {"normalizer",
       Json{{"type", "BertNormalizer"},
            {"clean_text", true},
            {"handle_chinese_chars", true},
            {"strip_accents", vocab.strip_accents.value_or(lowercase)},
            {"lowercase", lowercase}}},
      {"pre_tokenizer", Json{{"type", "BertPreTokenizer"}}},
      {"post_processor", std::move(post)},
      {"decoder",
       Json{{"type", "WordPiece"}, {"prefix", kWordGoesOn}, {"cleanup", true}}},
      {"model",
       Json{{"type", "WordPiece"},
            {"unk_token", vocab.unk_id.has_value()
                              ? texts[static_cast<size_t>(*vocab.unk_id)]
                              : "[UNK]"},
            {"continuing_subword_prefix", kWordGoesOn},
            {"max_input_chars_per_word", 100},
            {"vocab", std::move(vocabulary)}}}};
}

}  // namespace inlay
