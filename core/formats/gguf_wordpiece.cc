// WordPiece in GGUF ("bert"), in both directions. The lists mark the tokens
// that start a word by U+2581 and those that go on by nothing; tokenizer.json
// marks the latter by "##" (gguf_token_lists.h, gguf_tokenizer_parts.h).
// And RWKV's ("rwkv"), which takes the longest token at each place of a text's
// bytes: WordPiece over one word without a mark, the text in the byte-level
// alphabet. The lists have tokens as Python writes bytes (llama.cpp's
// conversion/base.py, llama_unescape_rwkv_token).
#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
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

constexpr int64_t kWholeText = int64_t{1} << 60;  // characters of a word

// GPT-2's alphabet of bytes (encoder.py): a byte that can be seen stands for
// itself, the others for what comes from U+0100 on.
class ByteAlphabet {
 public:
  ByteAlphabet() {
    int next = 0x100;
    for (int byte = 0; byte < 256; ++byte) {
      const bool is_seen =
          (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD);
      const int code = is_seen ? byte : next++;
      std::string character(1, static_cast<char>(code));
      if (code >= 0x80) {
        character = {static_cast<char>(0xC0 | code >> 6),
                     static_cast<char>(0x80 | (code & 0x3F))};
      }
      bytes_[character] = static_cast<char>(byte);
      characters_.push_back(std::move(character));
    }
  }

  const std::vector<std::string>& characters() const { return characters_; }

  std::string Spell(std::string_view bytes) const {
    std::string text;
    for (const char byte : bytes) {
      text += characters_[static_cast<uint8_t>(byte)];
    }
    return text;
  }

  // Nullopt where a character stands for no byte.
  std::optional<std::string> Bytes(std::string_view text) const {
    std::string bytes;
    while (!text.empty()) {
      const size_t size = static_cast<uint8_t>(text.front()) < 0x80 ? 1 : 2;
      const auto found = bytes_.find(std::string(text.substr(0, size)));
      if (found == bytes_.end()) return std::nullopt;
      bytes += found->second;
      text.remove_prefix(std::min(size, text.size()));
    }
    return bytes;
  }

 private:
  std::vector<std::string> characters_;
  std::map<std::string, char> bytes_;
};

// -1: no digit.
int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

// The byte behind a backslash, of which `code` begins with what follows;
// nullopt: Python writes no such thing. Takes it off `code`.
std::optional<char> TakeEscape(std::string_view* code) {
  if (code->empty()) return std::nullopt;
  const char kind = code->front();
  code->remove_prefix(1);
  switch (kind) {
    case 't':
      return '\t';
    case 'n':
      return '\n';
    case 'r':
      return '\r';
    case '\\':
    case '\'':
    case '"':
      return kind;
    case 'x':
      break;
    default:
      return std::nullopt;
  }
  if (code->size() < 2) return std::nullopt;
  const int high = HexDigit((*code)[0]), low = HexDigit((*code)[1]);
  if (high < 0 || low < 0) return std::nullopt;
  code->remove_prefix(2);
  return static_cast<char>(high << 4 | low);
}

absl::StatusOr<std::string> UnescapedBytes(std::string_view token) {
  std::string bytes;
  for (std::string_view rest = token; !rest.empty();) {
    const char c = rest.front();
    rest.remove_prefix(1);
    const std::optional<char> byte =
        c == '\\' ? TakeEscape(&rest) : std::optional<char>(c);
    if (!byte.has_value()) {
      return absl::InvalidArgumentError(FormattedString(
          "key \"tokenizer.ggml.tokens\": %s, allowed: bytes as Python writes "
          "them",
          Quoted(token)));
    }
    bytes += *byte;
  }
  return bytes;
}

std::string EscapedBytes(std::string_view bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  // Python takes the other quotes where that saves escapes.
  const bool escapes_quotes = bytes.find('"') != bytes.npos;
  std::string text;
  for (const char byte : bytes) {
    const auto code = static_cast<uint8_t>(byte);
    if (byte == '\t' || byte == '\n' || byte == '\r') {
      text += byte == '\t' ? "\\t" : byte == '\n' ? "\\n" : "\\r";
    } else if (byte == '\\' || (byte == '\'' && escapes_quotes)) {
      text += '\\';
      text += byte;
    } else if (code < 0x20 || code > 0x7E) {
      text += "\\x";
      text += kDigits[code >> 4];
      text += kDigits[code & 0xF];
    } else {
      text += byte;
    }
  }
  return text;
}

// Whether it takes the longest token of a whole text's bytes at each place.
bool TakesLongest(const Json& file, const Json& model) {
  const Json* words = JsonFind(file, "pre_tokenizer");
  const Json* type = words == nullptr ? nullptr : JsonFind(*words, "type");
  const Json* prefix = JsonFind(model, "continuing_subword_prefix");
  return type != nullptr && *type == "ByteLevel" && prefix != nullptr &&
         *prefix == "";
}

absl::Status SetLongest(const Json& file, const Json& model, const Json& vocab,
                        GgufTokenLists* lists, GgufWriter* writer) {
  const Json& words = file["pre_tokenizer"];
  INLAY_ASSIGN_OR_RETURN(const bool adds,
                         JsonBool(words, "add_prefix_space", true));
  INLAY_ASSIGN_OR_RETURN(const bool cuts, JsonBool(words, "use_regex", true));
  INLAY_ASSIGN_OR_RETURN(
      const int64_t longest,
      JsonInt(model, "max_input_chars_per_word", 100, 0, INT64_MAX));
  if (adds || cuts || longest < kWholeText ||
      JsonFind(file, "normalizer") != nullptr) {
    return absl::UnimplementedError(
        "tokenizer.json: GGUF has no key for words of WordPiece over bytes, "
        "allowed: add_prefix_space and use_regex false, no normalizer, words "
        "of any length");
  }
  const ByteAlphabet alphabet;
  for (const auto& [text, id] : vocab.items()) {
    const std::optional<std::string> bytes = alphabet.Bytes(text);
    if (!bytes.has_value()) {
      return absl::InvalidArgumentError(
          FormattedString("tokenizer.json: %s spells no bytes", Quoted(text)));
    }
    INLAY_RETURN_IF_ERROR(
        lists->Add(EscapedBytes(*bytes), id, GgufTokenType::kNormal));
  }
  INLAY_RETURN_IF_ERROR(lists->AddAdded(file));
  return writer->SetString("tokenizer.ggml.model", "rwkv");
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
  if (TakesLongest(file, model)) {
    return SetLongest(file, model, *vocab, lists, writer);
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

absl::StatusOr<Json> GgufLongestMatchJson(const GgufVocab& vocab) {
  std::vector<std::string> texts;
  texts.reserve(vocab.tokens.size());
  const ByteAlphabet alphabet;
  for (size_t id = 0; id < vocab.tokens.size(); ++id) {
    // A token without bytes is taken nowhere.
    INLAY_ASSIGN_OR_RETURN(const std::string bytes,
                           UnescapedBytes(vocab.tokens[id]));
    texts.push_back(vocab.types[id] == GgufTokenType::kControl
                        ? std::string(vocab.tokens[id])
                        : alphabet.Spell(bytes));
  }
  INLAY_ASSIGN_OR_RETURN(Json vocabulary, GgufVocabularyJson(texts));
  for (const std::string& byte : alphabet.characters()) {
    if (vocabulary.contains(byte)) continue;
    return absl::InvalidArgumentError(FormattedString(
        "key \"tokenizer.ggml.tokens\": no token of the byte that %s stands "
        "for, which a text may have",
        Quoted(byte)));
  }
  INLAY_ASSIGN_OR_RETURN(Json post, GgufPostProcessorJson(vocab, false));
  return Json{{"added_tokens", GgufAddedTokensJson(vocab, texts)},
              {"normalizer", Json()},
              {"pre_tokenizer", Json{{"type", "ByteLevel"},
                                     {"add_prefix_space", false},
                                     {"trim_offsets", false},
                                     {"use_regex", false}}},
              {"post_processor", std::move(post)},
              {"decoder", Json{{"type", "ByteLevel"}}},
              {"model", Json{{"type", "WordPiece"},
                             {"unk_token", ""},
                             {"continuing_subword_prefix", ""},
                             {"max_input_chars_per_word", kWholeText},
                             {"vocab", std::move(vocabulary)}}}};
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
