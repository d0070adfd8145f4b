#include "core/text/rwkv_vocab.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string>
#include <system_error>
#include <unordered_set>
#include <utility>

#include "core/text/byte_alphabet.h"
#include "core/text/utf8.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

constexpr std::string_view kEndOfText = "<|rwkv_tokenizer_end_of_text|>";
constexpr int64_t kWholeText = int64_t{1} << 60;  // characters of a word

// The number that all of `digits` write; from_chars() takes no sign of it.
template <typename T>
std::optional<T> NumberOf(std::string_view digits, int base = 10) {
  T value = 0;
  const char* const end = digits.data() + digits.size();
  const auto [stop, error] = std::from_chars(digits.data(), end, value, base);
  if (error != std::errc() || stop != end) return std::nullopt;
  return value;
}

// Of `count` hexadecimal digits at the head of `code`, which are taken off it.
std::optional<uint32_t> TakeHex(size_t count, std::string_view* code) {
  if (code->size() < count) return std::nullopt;
  const auto value = NumberOf<uint32_t>(code->substr(0, count), 16);
  code->remove_prefix(count);
  return value;
}

// Appends what stands behind a backslash, of which `code` begins with what
// follows; false: repr() writes no such thing.
bool TakeEscape(bool is_bytes, std::string_view* code, std::string* bytes) {
  if (code->empty()) return false;
  const char kind = code->front();
  code->remove_prefix(1);
  switch (kind) {
    case 't':
      bytes->push_back('\t');
      return true;
    case 'n':
      bytes->push_back('\n');
      return true;
    case 'r':
      bytes->push_back('\r');
      return true;
    case '\\':
    case '\'':
    case '"':
      bytes->push_back(kind);
      return true;
    case 'x':
    case 'u':
    case 'U':
      break;
    default:
      return false;
  }
  if (is_bytes && kind != 'x') return false;
  const auto value = TakeHex(kind == 'x' ? 2 : kind == 'u' ? 4 : 8, code);
  if (!value.has_value()) return false;
  if (is_bytes) {
    bytes->push_back(static_cast<char>(*value));
    return true;
  }
  const bool is_surrogate = *value >= 0xD800 && *value < 0xE000;
  if (*value > 0x10FFFF || is_surrogate) return false;
  AppendRune(*value, bytes);
  return true;
}

// The bytes of 'text' or b'text', in either kind of quotes.
std::optional<std::string> TokenOf(std::string_view literal) {
  const bool is_bytes = literal.starts_with('b');
  if (is_bytes) literal.remove_prefix(1);
  if (literal.size() < 2 || literal.front() != literal.back()) {
    return std::nullopt;
  }
  const char quote = literal.front();
  if (quote != '\'' && quote != '"') return std::nullopt;
  std::string_view code = literal.substr(1, literal.size() - 2);
  std::string bytes;
  while (!code.empty()) {
    const char c = code.front();
    code.remove_prefix(1);
    if (c == '\\') {
      if (!TakeEscape(is_bytes, &code, &bytes)) return std::nullopt;
      continue;
    }
    // A quote would end it, and bytes are written in ASCII.
    if (c == quote || (is_bytes && static_cast<unsigned char>(c) > 0x7E)) {
      return std::nullopt;
    }
    bytes.push_back(c);
  }
  return bytes;
}

struct RwkvToken {
  int32_t id = 0;
  std::string bytes;
};

std::optional<RwkvToken> ParseLine(std::string_view line) {
  const size_t first = line.find(' ');
  const size_t last = line.rfind(' ');
  if (first == line.npos || last == first) return std::nullopt;
  const auto id = NumberOf<uint32_t>(line.substr(0, first));
  const auto size = NumberOf<uint64_t>(line.substr(last + 1));
  auto literal = TokenOf(line.substr(first + 1, last - first - 1));
  if (!id.has_value() || *id < 1 || *id > static_cast<uint32_t>(kMaxRwkvId) ||
      !literal.has_value() || literal->empty() || size != literal->size()) {
    return std::nullopt;
  }
  return RwkvToken{static_cast<int32_t>(*id), *std::move(literal)};
}

absl::Status BadLine(size_t number, std::string_view what) {
  return absl::InvalidArgumentError(
      FormattedString("line %d %s", number, what));
}

// By the byte-level alphabet's spelling.
absl::StatusOr<Json> ReadRwkvList(std::string_view list) {
  Json vocab = Json::object();
  vocab[std::string(kEndOfText)] = 0;
  std::unordered_set<int32_t> ids;
  for (size_t number = 1; !list.empty(); ++number) {
    std::string_view line = list.substr(0, list.find('\n'));
    list.remove_prefix(std::min(list.size(), line.size() + 1));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty()) continue;
    const auto token = ParseLine(line);
    if (!token.has_value()) {
      return BadLine(
          number,
          FormattedString("is of another form, allowed: an id from 1 to %d, a "
                          "string or bytes as Python writes them, of how many "
                          "bytes it is",
                          kMaxRwkvId));
    }
    if (!ids.insert(token->id).second) {
      return BadLine(
          number,
          FormattedString("has an id, %d, that is there before", token->id));
    }
    std::string text;
    AppendByteAlphabet(token->bytes, &text);
    if (!vocab.emplace(std::move(text), token->id).second) {
      return BadLine(number, "has a token that is there before");
    }
  }
  for (int byte = 0; byte < 256; ++byte) {
    std::string text;
    AppendByteAlphabet(std::string(1, static_cast<char>(byte)), &text);
    if (vocab.contains(text)) continue;
    return absl::InvalidArgumentError(FormattedString(
        "no token is the byte %d alone, which a text may have", byte));
  }
  return vocab;
}

}  // namespace

absl::StatusOr<Json> RwkvVocabDocument(std::string_view list) {
  if (list.size() > kMaxRwkvVocabBytes) {
    return absl::ResourceExhaustedError(
        FormattedString("the list of tokens has %d bytes, allowed: %d",
                        list.size(), kMaxRwkvVocabBytes));
  }
  INLAY_ASSIGN_OR_RETURN(Json vocab, ReadRwkvList(list));
  Json end = Json{{"id", 0},
                  {"content", std::string(kEndOfText)},
                  {"special", true},
                  {"single_word", false},
                  {"lstrip", false},
                  {"rstrip", false},
                  {"normalized", false}};
  return Json{{"added_tokens", Json::array({std::move(end)})},
              {"normalizer", Json()},
              {"pre_tokenizer", Json{{"type", "ByteLevel"},
                                     {"add_prefix_space", false},
                                     {"trim_offsets", false},
                                     {"use_regex", false}}},
              {"post_processor", Json()},
              {"decoder", Json{{"type", "ByteLevel"}}},
              {"model", Json{{"type", "WordPiece"},
                             {"unk_token", ""},
                             {"continuing_subword_prefix", ""},
                             {"max_input_chars_per_word", kWholeText},
                             {"vocab", std::move(vocab)}}}};
}

}  // namespace inlay
