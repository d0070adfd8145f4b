// Unigram and SentencePiece's own models as token lists ("t5", "llama"):
// scores and types as stored, the rules for spaces and characters as keys
// (gguf_token_lists.h).
#include <algorithm>
#include <cfloat>
#include <cmath>
#include <string>
#include <string_view>

#include "absl/strings/escaping.h"
#include "core/formats/describe.h"
#include "core/formats/gguf_token_lists.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

constexpr char kSpacePiece[] = "\xE2\x96\x81";  // U+2581
// As llama.cpp's converter gives tokens that no text is made of.
constexpr float kUnusedScore = -10000.0f;

// What GGUF's keys say of the way from a text to its pieces.
struct SpaceRules {
  std::string charsmap;
  bool adds_space = false;
  bool removes_extra = false;
};

absl::Status NoUnigramKey(std::string_view section, const Json& step) {
  return absl::UnimplementedError(FormattedString(
      "tokenizer.json: GGUF has no key for the %s %s of Unigram, allowed: "
      "Precompiled, Strip, runs of spaces made one, spaces as U+2581 "
      "(Prepend, Replace, WhitespaceSplit, Metaspace)",
      section, Quoted(ShownJson(step))));
}

bool IsReplace(const Json& step, const char* kind, std::string_view pattern,
               std::string_view content) {
  const Json* found = JsonFind(step, "pattern");
  const Json* text = found == nullptr ? nullptr : JsonFind(*found, kind);
  const Json* with = JsonFind(step, "content");
  return text != nullptr && *text == pattern && with != nullptr &&
         *with == content;
}

absl::Status AddNormalizer(const Json& step, SpaceRules* rules) {
  INLAY_ASSIGN_OR_RETURN(const std::string type, JsonString(step, "type", ""));
  if (type == "Sequence") {
    const Json* steps = JsonFind(step, "normalizers");
    if (steps == nullptr || !steps->is_array()) {
      return NoUnigramKey("normalizer", step);
    }
    for (const Json& part : *steps) {
      INLAY_RETURN_IF_ERROR(AddNormalizer(part, rules));
    }
    return absl::OkStatus();
  }
  if (type == "Precompiled") {
    INLAY_ASSIGN_OR_RETURN(const std::string base64,
                           JsonString(step, "precompiled_charsmap", ""));
    if (!rules->charsmap.empty())
      return NoUnigramKey("second normalizer", Json(type));
    if (absl::Base64Unescape(base64, &rules->charsmap)) return absl::OkStatus();
    return absl::InvalidArgumentError(FormattedString(
        "tokenizer.json: \"precompiled_charsmap\" (%d characters) is not "
        "base64",
        base64.size()));
  }
  if (type == "Strip" || type == "Prepend") return absl::OkStatus();
  if (type == "Replace") {
    for (const char* content : {" ", kSpacePiece}) {
      if (IsReplace(step, "Regex", " {2,}", content)) {
        rules->removes_extra = true;
        return absl::OkStatus();
      }
    }
    if (IsReplace(step, "String", " ", kSpacePiece)) return absl::OkStatus();
  }
  return NoUnigramKey("normalizer", step);
}

absl::Status AddPreTokenizer(const Json& step, SpaceRules* rules) {
  INLAY_ASSIGN_OR_RETURN(const std::string type, JsonString(step, "type", ""));
  if (type == "Sequence") {
    const Json* steps = JsonFind(step, "pretokenizers");
    if (steps == nullptr || !steps->is_array()) {
      return NoUnigramKey("pre_tokenizer", step);
    }
    for (const Json& part : *steps) {
      INLAY_RETURN_IF_ERROR(AddPreTokenizer(part, rules));
    }
    return absl::OkStatus();
  }
  if (type == "WhitespaceSplit") rules->removes_extra = true;
  if (type == "WhitespaceSplit" || type == "Metaspace") return absl::OkStatus();
  return NoUnigramKey("pre_tokenizer", step);
}

absl::StatusOr<SpaceRules> ReadSpaceRules(const Json& file) {
  SpaceRules rules;
  if (const Json* section = JsonFind(file, "normalizer")) {
    INLAY_RETURN_IF_ERROR(AddNormalizer(*section, &rules));
    rules.adds_space = AddsSpaceInFront(*section);
  }
  if (const Json* section = JsonFind(file, "pre_tokenizer")) {
    INLAY_RETURN_IF_ERROR(AddPreTokenizer(*section, &rules));
    rules.adds_space = rules.adds_space || AddsSpaceInFront(*section);
  }
  return rules;
}

absl::Status SetSpaceRules(const SpaceRules& rules, const char* model,
                           GgufWriter* writer) {
  INLAY_RETURN_IF_ERROR(writer->SetString("tokenizer.ggml.model", model));
  INLAY_RETURN_IF_ERROR(writer->SetString("tokenizer.ggml.pre", "default"));
  INLAY_RETURN_IF_ERROR(
      writer->SetBool("tokenizer.ggml.add_space_prefix", rules.adds_space));
  INLAY_RETURN_IF_ERROR(writer->SetBool(
      "tokenizer.ggml.remove_extra_whitespaces", rules.removes_extra));
  if (rules.charsmap.empty()) return absl::OkStatus();
  return writer->SetBytes("tokenizer.ggml.precompiled_charsmap",
                          rules.charsmap);
}

absl::Status SetUnknown(int32_t id, GgufTokenLists* lists, GgufWriter* writer) {
  lists->SetType(id, GgufTokenType::kUnknown);
  return writer->SetU32("tokenizer.ggml.unknown_token_id",
                        static_cast<uint32_t>(id));
}

// [text, score, ...] of the next id.
absl::Status AddPiece(const Json& row, size_t id, GgufTokenType type,
                      GgufTokenLists* lists) {
  if (!row.is_array() || row.size() < 2 || !row[0].is_string() ||
      !row[1].is_number() || !(std::abs(row[1].get<double>()) <= FLT_MAX)) {
    return absl::InvalidArgumentError(FormattedString(
        "tokenizer.json: piece %d is no text with a score", id));
  }
  INLAY_RETURN_IF_ERROR(lists->Add(row[0].get<std::string>(), id, type));
  lists->scores[id] = static_cast<float>(row[1].get<double>());
  return absl::OkStatus();
}

absl::Status CheckDocument(const Json& model, const Json& normalizer,
                           const Json* denormalizer) {
  const char* fault = nullptr;
  INLAY_ASSIGN_OR_RETURN(const bool escapes,
                         JsonBool(normalizer, "escape_whitespaces", true));
  INLAY_ASSIGN_OR_RETURN(const bool suffix,
                         JsonBool(model, "treat_whitespace_as_suffix", false));
  INLAY_ASSIGN_OR_RETURN(const std::string unknown,
                         JsonString(model, "unk_surface", kGgufUnknownSurface));
  if (!escapes) fault = "escape_whitespaces false";
  if (suffix) fault = "treat_whitespace_as_suffix";
  if (denormalizer != nullptr) fault = "a denormalizer";
  if (unknown != kGgufUnknownSurface) fault = "an unk_surface of its own";
  if (fault == nullptr) return absl::OkStatus();
  return absl::UnimplementedError(
      FormattedString("tokenizer.model: GGUF has no key for %s", fault));
}

}  // namespace

absl::Status SetGgufUnigram(const Json& file, const Json& model,
                            GgufTokenLists* lists, GgufWriter* writer) {
  const Json* vocab = JsonFind(model, "vocab");
  if (vocab == nullptr || !vocab->is_array() || vocab->empty()) {
    return absl::InvalidArgumentError("tokenizer.json: no vocab");
  }
  INLAY_ASSIGN_OR_RETURN(const SpaceRules rules, ReadSpaceRules(file));
  INLAY_ASSIGN_OR_RETURN(const bool bytes,
                         JsonBool(model, "byte_fallback", false));
  const auto last = static_cast<int64_t>(vocab->size()) - 1;
  INLAY_ASSIGN_OR_RETURN(const int64_t unknown,
                         JsonInt(model, "unk_id", -1, 0, last));
  lists->scores.assign(lists->tokens.size(), kUnusedScore);
  for (size_t id = 0; id < vocab->size(); ++id) {
    const Json& row = (*vocab)[id];
    const bool is_byte = bytes && row.is_array() && !row.empty() &&
                         row[0].is_string() &&
                         IsByteToken(row[0].get_ref<const std::string&>());
    INLAY_RETURN_IF_ERROR(AddPiece(
        row, id, is_byte ? GgufTokenType::kByte : GgufTokenType::kNormal,
        lists));
  }
  INLAY_RETURN_IF_ERROR(lists->AddAdded(file));
  if (unknown >= 0) {
    INLAY_RETURN_IF_ERROR(
        SetUnknown(static_cast<int32_t>(unknown), lists, writer));
  }
  return SetSpaceRules(rules, "t5", writer);
}

absl::Status SetGgufSentencePiece(const Json& document, const Json& model,
                                  GgufTokenLists* lists, GgufWriter* writer) {
  const Json* pieces = JsonFind(model, "pieces");
  if (pieces == nullptr || !pieces->is_array()) {
    return absl::InvalidArgumentError("tokenizer.model: no pieces");
  }
  const Json none = Json::object();
  const Json* section = JsonFind(document, "normalizer");
  const Json& normalizer = section == nullptr ? none : *section;
  INLAY_RETURN_IF_ERROR(
      CheckDocument(model, normalizer, JsonFind(document, "denormalizer")));
  lists->scores.assign(lists->tokens.size(), kUnusedScore);
  for (size_t id = 0; id < pieces->size(); ++id) {
    const Json& row = (*pieces)[id];
    // SentencePiece's kinds have GGUF's numbers.
    if (!row.is_array() || row.size() != 3 || !row[2].is_number_integer() ||
        row[2].get<int64_t>() < static_cast<int64_t>(GgufTokenType::kNormal) ||
        row[2].get<int64_t>() > static_cast<int64_t>(GgufTokenType::kByte)) {
      return absl::InvalidArgumentError(FormattedString(
          "tokenizer.model: piece %d has no kind from 1 to 6", id));
    }
    const auto type = static_cast<GgufTokenType>(row[2].get<int>());
    INLAY_RETURN_IF_ERROR(AddPiece(row, id, type, lists));
    if (type != GgufTokenType::kUnknown) continue;
    INLAY_RETURN_IF_ERROR(SetUnknown(static_cast<int32_t>(id), lists, writer));
  }
  for (const auto& [key, token] : {std::pair("bos_piece", &lists->front),
                                   std::pair("eos_piece", &lists->back)}) {
    INLAY_ASSIGN_OR_RETURN(const std::string text, JsonString(model, key, ""));
    const auto id = lists->Find(text);
    if (id.has_value() && lists->IsOf(*id, GgufTokenType::kControl)) {
      *token = id;
    }
  }
  SpaceRules rules;
  INLAY_ASSIGN_OR_RETURN(const std::string base64,
                         JsonString(normalizer, "precompiled_charsmap", ""));
  if (!absl::Base64Unescape(base64, &rules.charsmap)) {
    return absl::InvalidArgumentError(
        "tokenizer.model: precompiled_charsmap is not base64");
  }
  INLAY_ASSIGN_OR_RETURN(rules.adds_space,
                         JsonBool(normalizer, "add_dummy_prefix", true));
  INLAY_ASSIGN_OR_RETURN(
      rules.removes_extra,
      JsonBool(normalizer, "remove_extra_whitespaces", true));
  INLAY_ASSIGN_OR_RETURN(const std::string type,
                         JsonString(model, "model_type", ""));
  return SetSpaceRules(rules, type == "BPE" ? "llama" : "t5", writer);
}

}  // namespace inlay
