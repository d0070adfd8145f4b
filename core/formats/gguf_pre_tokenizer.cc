// Sources: the tokenizer.json of the models named; llama.cpp's converter for
// which model goes by which name.
#include "core/formats/gguf_pre_tokenizer.h"

#include <string>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/types/span.h"
#include "core/formats/describe.h"

namespace inlay {
namespace {

constexpr const char* kGpt2Split[] = {
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)"};
constexpr const char* kDigits[] = {R"(\p{N})", kGpt2Split[0]};
constexpr const char* kLlama3[] = {
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"};
constexpr const char* kQwen2[] = {
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"};
constexpr const char* kO200k[] = {
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)"};
constexpr const char* kTekken[] = {
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)"};
constexpr const char* kDeepSeek3[] = {
    R"(\p{N}{1,3})", "[一-龥぀-ゟ゠-ヿ]+",
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"};
constexpr const char* kDeepSeekCoder[] = {
    R"([\r\n])", R"(\s?\p{L}+)", R"(\s?\p{P}+)", "[一-龥ࠀ-一가-퟿]+",
    R"(\p{N})"};
// What llama.cpp does for files that name nothing.
constexpr const char* kDefault[] = {R"([\p{P}\$\+<=>\^~\|]+)", kGpt2Split[0],
                                    R"(\p{N}+)", "[0-9][0-9][0-9]"};

struct Row {
  std::string_view name;
  absl::Span<const char* const> patterns;  // one after another, each isolates
  bool ignore_merges = false;
  bool adds_bos = false;
  bool composes = false;  // Unicode's form C first
};

constexpr Row kRows[] = {
    {"default", kDefault},
    {"gpt-2", kGpt2Split},
    {"gpt2", kGpt2Split},
    {"phi-2", kGpt2Split},
    {"mpt", kGpt2Split},
    {"olmo", kGpt2Split},
    {"exaone4", kGpt2Split},
    {"starcoder", kDigits},
    {"refact", kDigits},
    {"command-r", kDigits},
    {"smollm", kDigits},
    {"codeshell", kDigits},
    {"llama-bpe", kLlama3, true, true},
    {"llama3", kLlama3, true, true},
    {"llama-v3", kLlama3, true, true},
    {"falcon3", kLlama3, true, true},
    {"dbrx", kLlama3},
    {"smaug-bpe", kLlama3},
    {"qwen2", kQwen2, false, false, true},
    {"deepseek-r1-qwen", kQwen2, false, false, true},
    {"gpt-4o", kO200k},
    {"tekken", kTekken, true, true},
    {"deepseek-v3", kDeepSeek3},
    {"deepseek-coder", kDeepSeekCoder},
};

Json ByteLevel(bool use_regex) {
  return Json{{"type", "ByteLevel"},
              {"add_prefix_space", false},
              {"trim_offsets", true},
              {"use_regex", use_regex}};
}

Json PreTokenizerOf(const Row& row) {
  // The one pattern that ByteLevel has of its own.
  if (row.patterns.data() == kGpt2Split) return ByteLevel(true);
  Json steps = Json::array();
  for (const char* pattern : row.patterns) {
    steps.push_back(Json{{"type", "Split"},
                         {"pattern", Json{{"Regex", pattern}}},
                         {"behavior", "Isolated"},
                         {"invert", false}});
  }
  steps.push_back(ByteLevel(false));
  return Json{{"type", "Sequence"}, {"pretokenizers", std::move(steps)}};
}

}  // namespace

absl::StatusOr<GgufPreTokenizer> FindGgufPreTokenizer(std::string_view name) {
  std::string known;
  for (const Row& row : kRows) {
    if (row.name != name) {
      if (!known.empty()) known += ", ";
      known += row.name;
      continue;
    }
    GgufPreTokenizer found;
    found.pre_tokenizer = PreTokenizerOf(row);
    if (row.composes) found.normalizer = Json{{"type", "NFC"}};
    found.ignore_merges = row.ignore_merges;
    found.adds_bos = row.adds_bos;
    return found;
  }
  return absl::UnimplementedError(absl::StrFormat(
      "key \"tokenizer.ggml.pre\": %s, allowed: %s", Quoted(name), known));
}

}  // namespace inlay
