#include "core/formats/gguf_tokenizer.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "absl/strings/str_replace.h"
#include "core/formats/describe.h"
#include "core/formats/gguf_pre_tokenizer.h"
#include "core/formats/gguf_tokenizer_parts.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

constexpr char kSpace[] = "\xE2\x96\x81";  // U+2581

bool IsAdded(GgufTokenType type) {
  return type == GgufTokenType::kControl || type == GgufTokenType::kUnknown ||
         type == GgufTokenType::kUserDefined;
}

Json SpecialItem(std::string_view token) {
  return Json{{"SpecialToken", Json{{"id", token}, {"type_id", 0}}}};
}

void AddSegment(const Json& front, const char* segment, const Json& back,
                Json* items) {
  if (!front.is_null()) items->push_back(front);
  items->push_back(Json{{"Sequence", Json{{"id", segment}, {"type_id", 0}}}});
  if (!back.is_null()) items->push_back(back);
}

}  // namespace

// All ids are the vocabulary's, special tokens' too.
absl::StatusOr<Json> GgufVocabularyJson(const std::vector<std::string>& texts) {
  Json vocabulary = Json::object();
  for (size_t id = 0; id < texts.size(); ++id) {
    const auto [at, is_new] = vocabulary.emplace(texts[id], id);
    if (is_new) continue;
    return absl::InvalidArgumentError(FormattedString(
        "key \"tokenizer.ggml.tokens\": tokens %d and %d are both %s",
        at->get<int64_t>(), id, Quoted(texts[id])));
  }
  return vocabulary;
}

Json GgufAddedTokensJson(const GgufVocab& vocab,
                         const std::vector<std::string>& texts) {
  Json added = Json::array();
  for (size_t id = 0; id < texts.size(); ++id) {
    const GgufTokenType type = vocab.types[id];
    if (!IsAdded(type) || texts[id].empty()) continue;
    added.push_back(Json{{"id", id},
                         {"content", texts[id]},
                         {"single_word", false},
                         {"lstrip", false},
                         {"rstrip", false},
                         {"normalized", false},
                         {"special", type != GgufTokenType::kUserDefined}});
  }
  return added;
}

absl::StatusOr<Json> GgufPostProcessorJson(const GgufVocab& vocab,
                                           bool adds_bos_by_default) {
  const bool adds_bos =
      vocab.add_bos.value_or(adds_bos_by_default && vocab.bos_id.has_value());
  const bool adds_eos = vocab.add_eos.value_or(false);
  if ((adds_bos && !vocab.bos_id) || (adds_eos && !vocab.eos_id)) {
    return absl::InvalidArgumentError(FormattedString(
        "key \"tokenizer.ggml.add_%s_token\" is true without an id for it",
        adds_bos && !vocab.bos_id ? "bos" : "eos"));
  }
  if (!adds_bos && !adds_eos) return Json();
  Json tokens = Json::object();
  const auto special = [&](bool adds, std::optional<int32_t> id) {
    if (!adds) return Json();
    const std::string text(vocab.token(*id));
    tokens[text] =
        Json{{"id", text}, {"ids", Json{*id}}, {"tokens", Json{text}}};
    return SpecialItem(text);
  };
  const Json bos = special(adds_bos, vocab.bos_id);
  const Json eos = special(adds_eos, vocab.eos_id);
  Json single = Json::array();
  AddSegment(bos, "A", eos, &single);
  // As llama.cpp's server has pairs: one BOS, and a separator besides the EOS
  // in the middle. Without an EOS nothing but a BOS parts them.
  const std::optional<int32_t> separator =
      adds_eos ? vocab.separator() : std::nullopt;
  const Json sep = special(separator.has_value(), separator);
  Json pair = single;
  AddSegment(adds_eos ? sep : bos, "B", eos, &pair);
  return Json{{"type", "TemplateProcessing"},
              {"single", std::move(single)},
              {"pair", std::move(pair)},
              {"special_tokens", std::move(tokens)}};
}

namespace {

absl::StatusOr<Json> BytePairJson(const GgufVocab& vocab) {
  INLAY_ASSIGN_OR_RETURN(GgufPreTokenizer pre, FindGgufPreTokenizer(vocab.pre));
  const std::vector<std::string> texts(vocab.tokens.begin(),
                                       vocab.tokens.end());
  INLAY_ASSIGN_OR_RETURN(Json vocabulary, GgufVocabularyJson(texts));
  Json merges = Json::array();
  for (const std::string_view merge : vocab.merges) merges.push_back(merge);
  INLAY_ASSIGN_OR_RETURN(Json post, GgufPostProcessorJson(vocab, pre.adds_bos));
  return Json{{"added_tokens", GgufAddedTokensJson(vocab, texts)},
              {"normalizer", std::move(pre.normalizer)},
              {"pre_tokenizer", std::move(pre.pre_tokenizer)},
              {"post_processor", std::move(post)},
              {"decoder", Json{{"type", "ByteLevel"}}},
              {"model", Json{{"type", "BPE"},
                             {"vocab", std::move(vocabulary)},
                             {"merges", std::move(merges)},
                             {"ignore_merges", pre.ignore_merges}}}};
}

// Spaces become U+2581; a text may get one in front.
Json SpaceNormalizer(bool prefix) {
  Json replace = Json{{"type", "Replace"},
                      {"pattern", Json{{"String", " "}}},
                      {"content", kSpace}};
  if (!prefix) return replace;
  Json steps = Json::array();
  steps.push_back(Json{{"type", "Prepend"}, {"prepend", kSpace}});
  steps.push_back(std::move(replace));
  return Json{{"type", "Sequence"}, {"normalizers", std::move(steps)}};
}

Json SpaceDecoder(bool prefix) {
  Json steps = Json::array();
  steps.push_back(Json{{"type", "Replace"},
                       {"pattern", Json{{"String", kSpace}}},
                       {"content", " "}});
  steps.push_back(Json{{"type", "ByteFallback"}});
  steps.push_back(Json{{"type", "Fuse"}});
  if (prefix) {
    steps.push_back(
        Json{{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  }
  return Json{{"type", "Sequence"}, {"decoders", std::move(steps)}};
}

std::optional<std::string> UnknownToken(const GgufVocab& vocab) {
  if (vocab.unk_id.has_value()) return std::string(vocab.token(*vocab.unk_id));
  const auto found = std::find(vocab.types.begin(), vocab.types.end(),
                               GgufTokenType::kUnknown);
  if (found == vocab.types.end()) return std::nullopt;
  return std::string(vocab.tokens[found - vocab.types.begin()]);
}

// Sarvam's files say gpt2 and have SentencePiece's spaces, bytes and merges.
bool IsSarvams(const GgufVocab& vocab) {
  return vocab.model == "gpt2" && vocab.pre == "sarvam-moe";
}

// Their converter gives bytes no type of their own.
bool HasBytes(const GgufVocab& vocab) {
  return std::find(vocab.types.begin(), vocab.types.end(),
                   GgufTokenType::kByte) != vocab.types.end() ||
         (IsSarvams(vocab) &&
          std::find(vocab.tokens.begin(), vocab.tokens.end(), "<0x00>") !=
              vocab.tokens.end());
}

// `has_merges`: the file says them (gemma4, sarvam-moe); elsewhere scores do.
absl::StatusOr<Json> SentencePieceJson(const GgufVocab& vocab,
                                       bool has_merges) {
  if (vocab.scores.empty() && !has_merges) {
    return absl::InvalidArgumentError(
        "key \"tokenizer.ggml.scores\" is missing: a tokenizer of model "
        "\"llama\" needs a score for each token");
  }
  std::vector<std::string> texts(vocab.tokens.begin(), vocab.tokens.end());
  for (size_t id = 0; id < texts.size(); ++id) {
    // Converters spell these as they look in text.
    if (vocab.types[id] != GgufTokenType::kUserDefined) continue;
    texts[id] = absl::StrReplaceAll(texts[id], {{" ", kSpace}});
  }
  INLAY_ASSIGN_OR_RETURN(Json vocabulary, GgufVocabularyJson(texts));
  Json merges = Json::array();
  if (has_merges) {
    for (const std::string_view merge : vocab.merges) merges.push_back(merge);
  } else {
    INLAY_ASSIGN_OR_RETURN(merges, GgufScoreMerges(vocab, texts));
  }
  INLAY_ASSIGN_OR_RETURN(Json post,
                         GgufPostProcessorJson(vocab, !IsSarvams(vocab)));
  const std::optional<std::string> unknown = UnknownToken(vocab);
  const bool prefix = vocab.add_space_prefix.value_or(!has_merges);
  return Json{{"added_tokens", GgufAddedTokensJson(vocab, texts)},
              {"normalizer", SpaceNormalizer(prefix)},
              {"pre_tokenizer", Json()},
              {"post_processor", std::move(post)},
              {"decoder", SpaceDecoder(prefix)},
              {"model", Json{{"type", "BPE"},
                             {"unk_token",
                              unknown.has_value() ? Json(*unknown) : Json()},
                             {"fuse_unk", true},
                             {"byte_fallback", HasBytes(vocab)},
                             {"vocab", std::move(vocabulary)},
                             {"merges", std::move(merges)}}}};
}

}  // namespace

absl::StatusOr<Json> GgufTokenizerJson(const GgufVocab& vocab) {
  if (IsSarvams(vocab)) return SentencePieceJson(vocab, true);
  if (vocab.model == "gpt2") return BytePairJson(vocab);
  if (vocab.model == "llama") {
    // Converters of llama.cpp give these keys to "t5" only: with them a file
    // says that it means SentencePiece itself, not tokenizers' rendering of it.
    const bool is_original =
        vocab.remove_extra_spaces.has_value() || !vocab.charsmap.empty();
    return is_original ? GgufSentencePieceDocument(vocab)
                       : SentencePieceJson(vocab, false);
  }
  if (vocab.model == "gemma4") return SentencePieceJson(vocab, true);
  if (vocab.model == "t5") return GgufSentencePieceDocument(vocab);
  if (vocab.model == "bert") return GgufWordPieceJson(vocab);
  if (vocab.model == "rwkv") return GgufLongestMatchJson(vocab);
  return absl::UnimplementedError(FormattedString(
      "key \"tokenizer.ggml.model\": %s, allowed: \"gpt2\" (byte-level BPE), "
      "\"llama\" (SentencePiece BPE), \"gemma4\" (the same, with merges), "
      "\"t5\" (Unigram), \"bert\" (WordPiece), \"rwkv\" (the longest of bytes)",
      Quoted(vocab.model)));
}

}  // namespace inlay
