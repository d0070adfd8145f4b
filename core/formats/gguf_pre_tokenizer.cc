// Sources: the tokenizer.json of the models named; llama.cpp's converter for
// which model goes by which name.
#include "core/formats/gguf_pre_tokenizer.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_replace.h"
#include "absl/types/span.h"
#include "core/formats/describe.h"
#include "memory/formatted_string.h"

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
constexpr const char* kDeepSeek[] = {
    R"([\r\n])",
    R"(\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-ώᾀ-ᾴᾶ-ᾼιῂ-ῄῆ-ῌῐ-ΐῖ-Ίῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤΩℨK-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+)",
    R"(\s?[!-/:-~！-／：-～‘-‟　-。]+)",
    R"(\s+$)",
    R"([一-龥ࠀ-一가-퟿]+)",
    R"(\p{N}+)",
};
constexpr const char* kQwen35[] = {
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"};
// Kimi K2's, whose letters in words are those that are not Chinese characters
// ("&&[^\p{Han}]" in the published pattern).
constexpr const char* kKimi[] = {
    R"(\p{Han}+|[^\r\n\p{L}\p{N}]?(?:(?!\p{Han})[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])*(?:(?!\p{Han})[\p{Ll}\p{Lm}\p{Lo}\p{M}])+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?(?:(?!\p{Han})[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])+(?:(?!\p{Han})[\p{Ll}\p{Lm}\p{Lo}\p{M}])*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"};
// Ling's and Ring's.
constexpr const char* kBailing[] = {
    R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+)"};
// A run of line ends begins a piece, as Laguna's tokenizer.json has it, of
// which llama.cpp's pattern takes line feeds apart.
constexpr std::string_view kLineEnds = R"((?:\r?\n)+(?!\r?\n))";
constexpr const char* kLaguna[] = {kLineEnds.data(), kQwen2[0]};
// Trinity's: numbers in threes from their ends on, in steps that look at each
// digit a few times however long the number is; runs of one script, which
// llama.cpp's pattern takes together.
constexpr const char* kAfmoe[] = {
    R"(\p{Nd}+)", R"(\A\p{Nd}{1,2}(?=(?:\p{Nd}{3})++\z))", R"(\p{Nd}{3})",
    R"((?:[\x{4E00}-\x{9FFF}\x{3040}-\x{309F}\x{30A0}-\x{30FF}\x{3400}-\x{4DBF}\x{F900}-\x{FAFF}\x{FF65}-\x{FF9F}\x{2F00}-\x{2FDF}]+|[\x{0E00}-\x{0E7F}]+|[\x{0E80}-\x{0EFF}]+|[\x{1780}-\x{17FF}]+|[\x{1000}-\x{109F}\x{AA60}-\x{AA7F}\x{A9E0}-\x{A9FF}]+|[\x{AC00}-\x{D7AF}\x{1100}-\x{11FF}]+))",
    kDeepSeek3[2]};
// What llama.cpp does for files that name nothing.
constexpr const char* kDefault[] = {R"([\p{P}\$\+<=>\^~\|]+)", kGpt2Split[0],
                                    R"(\p{N}+)", "[0-9][0-9][0-9]"};

struct Row {
  std::string_view name;
  absl::Span<const char* const> patterns;  // one after another, by BehaviorOf()
  bool ignore_merges = false;
  bool adds_bos = false;
  bool composes = false;  // Unicode's form C first
};

constexpr Row kRows[] = {
    {"default", kDefault},
    {"gpt-2", kGpt2Split},
    {"gpt2", kGpt2Split},
    {"roberta-bpe", kGpt2Split},
    {"jina-v1-en", kGpt2Split},
    {"jina-v2-code", kGpt2Split},
    {"modern-bert", kGpt2Split, false, false, true},
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
    {"deepseek-llm", kDeepSeek},
    {"qwen35", kQwen35, false, false, true},
    {"llama4", kO200k},
    {"minimax-m2", kO200k},
    {"glm4", kLlama3, true},
    {"chatglm-bpe", kLlama3},
    {"lfm2", kLlama3, true, true},
    {"pixtral", kLlama3, true, true},
    {"falcon-h1", kLlama3, true, true},
    {"midm-2.0", kLlama3, true, true},
    {"glm5", kLlama3, true},
    {"exaone", kDigits},
    {"minerva-7b", kDigits},
    {"trillion", kGpt2Split},
    {"granite-docling", kGpt2Split},
    {"gigachat", kGpt2Split},
    {"a.x-4.0", kGpt2Split},
    {"mellum", kGpt2Split},
    {"joyai-llm", kDeepSeek3},
    {"kanana2", kO200k},
    {"kimi-k2", kKimi},
    {"hunyuan", kQwen2, false, false, true},
    {"hunyuan-dense", kDeepSeek3},
    {"solar-open", kQwen2},
    {"mellum2", kDigits},
    {"bailingmoe", kBailing},
    {"bailingmoe2", kBailing},
    {"laguna", kLaguna},
    {"afmoe", kAfmoe},
};

const char* BehaviorOf(std::string_view pattern) {
  return pattern == kLineEnds ? "MergedWithNext" : "Isolated";
}

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
                         {"behavior", BehaviorOf(pattern)},
                         {"invert", false}});
  }
  steps.push_back(ByteLevel(false));
  return Json{{"type", "Sequence"}, {"pretokenizers", std::move(steps)}};
}

// The patterns that one step cuts by, behind those of `patterns`. False for a
// step that no row has.
bool AddPatterns(const Json& step, std::vector<std::string>* patterns) {
  const Json* type = JsonFind(step, "type");
  if (type == nullptr) return false;
  if (*type == "Sequence") {
    const Json* steps = JsonFind(step, "pretokenizers");
    return steps != nullptr && steps->is_array() &&
           std::all_of(steps->begin(), steps->end(), [&](const Json& inner) {
             return AddPatterns(inner, patterns);
           });
  }
  if (*type == "ByteLevel") {
    const Json* prefix = JsonFind(step, "add_prefix_space");
    const Json* regex = JsonFind(step, "use_regex");
    if (regex == nullptr || *regex == true)
      patterns->emplace_back(kGpt2Split[0]);
    return prefix != nullptr && *prefix == false;
  }
  if (*type == "Digits") {
    const Json* each = JsonFind(step, "individual_digits");
    patterns->emplace_back(kDigits[0]);
    return each != nullptr && *each == true;
  }
  const Json* pattern = JsonFind(step, "pattern");
  const Json* behavior = JsonFind(step, "behavior");
  if (*type != "Split" || pattern == nullptr || behavior == nullptr)
    return false;
  const Json* regex = JsonFind(*pattern, "Regex");
  if (regex == nullptr || !regex->is_string()) return false;
  if (*behavior != BehaviorOf(regex->get_ref<const std::string&>()))
    return false;
  // Some files escape what needs none.
  patterns->push_back(
      absl::StrReplaceAll(regex->get<std::string>(), {{"\\\"", "\""}}));
  return true;
}

// Nothing, or only Unicode's form C; nullopt for others.
std::optional<bool> Composes(const Json& normalizer) {
  if (normalizer.is_null()) return false;
  const Json* type = JsonFind(normalizer, "type");
  if (type == nullptr) return std::nullopt;
  if (*type == "NFC") return true;
  const Json* steps = JsonFind(normalizer, "normalizers");
  const bool is_empty = *type == "Sequence" && steps != nullptr &&
                        steps->is_array() && steps->empty();
  return is_empty ? std::optional<bool>(false) : std::nullopt;
}

}  // namespace

absl::StatusOr<std::string_view> NameGgufPreTokenizer(const Json& pre_tokenizer,
                                                      const Json& normalizer,
                                                      bool ignore_merges) {
  std::vector<std::string> patterns;
  const std::optional<bool> composes = Composes(normalizer);
  if (AddPatterns(pre_tokenizer, &patterns) && composes.has_value()) {
    for (const Row& row : kRows) {
      if (row.ignore_merges == ignore_merges && row.composes == *composes &&
          std::equal(row.patterns.begin(), row.patterns.end(), patterns.begin(),
                     patterns.end())) {
        return row.name;
      }
    }
  }
  return absl::UnimplementedError(FormattedString(
      "tokenizer.json: no name in GGUF (tokenizer.ggml.pre) stands for its "
      "pre_tokenizer %s with normalizer %s",
      Quoted(ShownJson(pre_tokenizer)), Quoted(ShownJson(normalizer))));
}

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
  return absl::UnimplementedError(FormattedString(
      "key \"tokenizer.ggml.pre\": %s, allowed: %s", Quoted(name), known));
}

}  // namespace inlay
