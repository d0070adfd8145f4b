#include "core/text/t5_tokenizer.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <string>
#include <utility>

#include "core/text/sentencepiece_document.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

constexpr char kSpacePiece[] = "\xE2\x96\x81";  // U+2581
constexpr char kSentinels[] = "extra_ids";
constexpr int64_t kMaxSentinels = 1 << 16;
// Of pieces, as a SentencePiece document has them.
constexpr int kUnknownKind = 2;

Json Metaspace() {
  return Json{{"type", "Metaspace"},
              {"replacement", kSpacePiece},
              {"prepend_scheme", "always"},
              {"split", true}};
}

// The pieces by id, then the sentinels, the last one first.
Json T5Vocabulary(const Json& pieces, int64_t sentinels) {
  Json vocab = Json::array();
  for (const Json& piece : pieces) {
    vocab.push_back(Json::array({piece[0], piece[1]}));
  }
  for (int64_t i = sentinels - 1; i >= 0; --i) {
    vocab.push_back(Json::array({FormattedString("<extra_id_%d>", i), 0.0}));
  }
  return vocab;
}

std::optional<size_t> IdOf(const Json& vocab, std::string_view text) {
  const auto found =
      std::find_if(vocab.begin(), vocab.end(), [&](const Json& row) {
        return row[0].get_ref<const std::string&>() == text;
      });
  if (found == vocab.end()) return std::nullopt;
  return static_cast<size_t>(std::distance(vocab.begin(), found));
}

// A special token's text, which may stand in an object that says more of it.
absl::StatusOr<std::string> TextOf(const Json& config, const char* key,
                                   const char* fallback) {
  const Json* found = JsonFind(config, key);
  const bool is_object = found != nullptr && found->is_object();
  return is_object ? JsonString(*found, "content", fallback)
                   : JsonString(config, key, fallback);
}

Json T5AddedToken(size_t id, const Json& text) {
  return Json{{"id", id},        {"content", text}, {"single_word", false},
              {"lstrip", false}, {"rstrip", false}, {"normalized", false},
              {"special", true}};
}

// One behind each of one or two texts.
Json EndOfText(const std::string& end, size_t id) {
  const Json token = Json{{"SpecialToken", Json{{"id", end}, {"type_id", 0}}}};
  Json single = Json::array();
  Json pair = Json::array();
  for (const char* segment : {"A", "B"}) {
    pair.push_back(Json{{"Sequence", Json{{"id", segment}, {"type_id", 0}}}});
    pair.push_back(token);
    if (single.empty()) single = pair;
  }
  Json tokens = Json::object();
  tokens[end] = Json{
      {"id", end}, {"ids", Json::array({id})}, {"tokens", Json::array({end})}};
  return Json{{"type", "TemplateProcessing"},
              {"single", std::move(single)},
              {"pair", std::move(pair)},
              {"special_tokens", std::move(tokens)}};
}

}  // namespace

bool IsT5Tokenizer(const Json& tokenizer_config) {
  const Json* name = JsonFind(tokenizer_config, "tokenizer_class");
  if (name == nullptr) {
    return JsonFind(tokenizer_config, kSentinels) != nullptr;
  }
  return *name == "T5Tokenizer" || *name == "T5TokenizerFast" ||
         *name == "MT5Tokenizer" || *name == "MT5TokenizerFast";
}

absl::StatusOr<Json> T5TokenizerDocument(std::string_view model_proto_bytes,
                                         const Json& tokenizer_config) {
  INLAY_ASSIGN_OR_RETURN(const Json stored,
                         SentencePieceDocument(model_proto_bytes));
  const Json& model = stored["model"];
  if (model["model_type"] != "UNIGRAM") {
    return absl::UnimplementedError(
        FormattedString("sentencepiece: a model of T5's of type %s, allowed: "
                        "UNIGRAM",
                        model["model_type"].get<std::string>()));
  }
  INLAY_ASSIGN_OR_RETURN(
      const int64_t sentinels,
      JsonInt(tokenizer_config, kSentinels, 100, 0, kMaxSentinels));
  const Json& pieces = model["pieces"];
  Json vocab = T5Vocabulary(pieces, sentinels);
  const auto unknown =
      std::find_if(pieces.begin(), pieces.end(),
                   [](const Json& piece) { return piece[2] == kUnknownKind; });
  INLAY_ASSIGN_OR_RETURN(const std::string end,
                         TextOf(tokenizer_config, "eos_token", "</s>"));
  const auto end_id = IdOf(vocab, end);
  if (!end_id.has_value() || unknown == pieces.end()) {
    return absl::InvalidArgumentError(FormattedString(
        "sentencepiece: a model of T5's without %s",
        end_id.has_value() ? "an unknown piece" : "the piece \"" + end + "\""));
  }
  Json added = Json::array();
  for (const auto& [key, usual] :
       {std::pair{"pad_token", "<pad>"}, std::pair{"eos_token", "</s>"},
        std::pair{"unk_token", "<unk>"}}) {
    INLAY_ASSIGN_OR_RETURN(const std::string text,
                           TextOf(tokenizer_config, key, usual));
    const auto id = IdOf(vocab, text);
    if (id.has_value()) added.push_back(T5AddedToken(*id, text));
  }
  for (size_t id = pieces.size(); id < vocab.size(); ++id) {
    added.push_back(T5AddedToken(id, vocab[id][0]));
  }
  const Json& charsmap = stored["normalizer"]["precompiled_charsmap"];
  Json cuts = Json::array({Json{{"type", "WhitespaceSplit"}}, Metaspace()});
  return Json{
      {"added_tokens", std::move(added)},
      {"normalizer", charsmap == "" ? Json()
                                    : Json{{"type", "Precompiled"},
                                           {"precompiled_charsmap", charsmap}}},
      {"pre_tokenizer",
       Json{{"type", "Sequence"}, {"pretokenizers", std::move(cuts)}}},
      {"post_processor", EndOfText(end, *end_id)},
      {"decoder", Metaspace()},
      {"model", Json{{"type", "Unigram"},
                     {"unk_id", std::distance(pieces.begin(), unknown)},
                     {"byte_fallback", false},
                     {"vocab", std::move(vocab)}}}};
}

}  // namespace inlay
