// Pieces, and the table of types: from JSON to steps.
#include "core/text/pre_tokenizer.h"

#include "core/text/pre_tokenizer_rewrite.h"
#include "core/text/pre_tokenizer_split.h"
#include "core/text/tokenizer_spec.h"
#include "core/text/unicode_class.h"
#include "core/text/utf8.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {

void Pieces::Reset(std::string_view text, bool at_start) {
  text_ = text;
  at_start_ = at_start;
  spans_.assign(text.empty() ? 0 : 1, {0, static_cast<uint32_t>(text.size())});
}

void Pieces::Recut(std::vector<Span>* spans) {
  std::erase_if(*spans, [](const Span& s) { return s.begin >= s.end; });
  spans_.swap(*spans);
}

void Pieces::Rewrite(std::string text, std::vector<Span>* spans) {
  at_start_ = at_start_ && !spans_.empty() && spans_[0].begin == 0;
  storage_ = std::move(text);
  text_ = storage_;
  Recut(spans);
}

namespace {

class Sequence final : public PreTokenizer {
 public:
  explicit Sequence(std::vector<std::unique_ptr<PreTokenizer>> steps)
      : steps_(std::move(steps)) {}
  absl::Status Apply(Pieces* pieces) const override {
    for (const auto& step : steps_) INLAY_RETURN_IF_ERROR(step->Apply(pieces));
    return absl::OkStatus();
  }
  // Behind the first step that cuts there, the pieces are the same.
  WordCut word_cut() const override {
    for (const auto& step : steps_) {
      if (step->word_cut() != WordCut::kKeeps) return step->word_cut();
    }
    return WordCut::kKeeps;
  }

 private:
  const std::vector<std::unique_ptr<PreTokenizer>> steps_;
};

using MaybePreTokenizer = absl::StatusOr<std::unique_ptr<PreTokenizer>>;

MaybePreTokenizer ParseMetaspace(const Json& spec) {
  INLAY_ASSIGN_OR_RETURN(std::string replacement,
                         JsonString(spec, "replacement", "\u2581"));
  if (replacement.empty() ||
      RuneAt(replacement, 0).bytes != replacement.size()) {
    return absl::InvalidArgumentError(FormattedString(
        "Metaspace: \"replacement\" has %d bytes, allowed: one character",
        replacement.size()));
  }
  // Files from before prepend_scheme say it by add_prefix_space.
  INLAY_ASSIGN_OR_RETURN(const bool add_prefix,
                         JsonBool(spec, "add_prefix_space", true));
  INLAY_ASSIGN_OR_RETURN(
      const std::string scheme,
      JsonString(spec, "prepend_scheme", add_prefix ? "always" : "never"));
  INLAY_ASSIGN_OR_RETURN(const bool split, JsonBool(spec, "split", true));
  PrependScheme parsed = PrependScheme::kAlways;
  if (scheme == "first") {
    parsed = PrependScheme::kFirst;
  } else if (scheme == "never") {
    parsed = PrependScheme::kNever;
  } else if (scheme != "always") {
    return absl::InvalidArgumentError(
        FormattedString("Metaspace: \"prepend_scheme\" is \"%s\", allowed: "
                        "always, first, never",
                        scheme.substr(0, 80)));
  }
  return MakeMetaspace(std::move(replacement), parsed, split);
}

MaybePreTokenizer ParseSplit(const Json& spec) {
  INLAY_ASSIGN_OR_RETURN(const PatternSpec pattern, ParsePattern(spec));
  INLAY_ASSIGN_OR_RETURN(const std::string name,
                         JsonString(spec, "behavior", ""));
  INLAY_ASSIGN_OR_RETURN(const SplitBehavior behavior,
                         ParseSplitBehavior(name));
  INLAY_ASSIGN_OR_RETURN(const bool invert, JsonBool(spec, "invert", false));
  if (!pattern.is_regex) {
    return MakeSplit(MakeLiteralMatcher(pattern.text), behavior, invert);
  }
  INLAY_ASSIGN_OR_RETURN(auto matcher, MakeRegexMatcher(pattern.text));
  return MakeSplit(std::move(matcher), behavior, invert);
}

MaybePreTokenizer ParseSequence(const Json& spec, bool raw_bytes) {
  INLAY_ASSIGN_OR_RETURN(const Json* list, SpecArray(spec, "pretokenizers"));
  std::vector<std::unique_ptr<PreTokenizer>> steps;
  for (size_t i = 0; i < list->size(); ++i) {
    INLAY_ASSIGN_OR_RETURN(
        auto step,
        MakePreTokenizer((*list)[i], raw_bytes && i + 1 == list->size()));
    steps.push_back(std::move(step));
  }
  return std::make_unique<Sequence>(std::move(steps));
}

MaybePreTokenizer ParseByteLevel(const Json& spec, bool raw_bytes) {
  INLAY_ASSIGN_OR_RETURN(const bool prefix,
                         JsonBool(spec, "add_prefix_space", true));
  INLAY_ASSIGN_OR_RETURN(const bool regex, JsonBool(spec, "use_regex", true));
  return MakeByteLevel(prefix, regex, raw_bytes);
}

MaybePreTokenizer ParsePunctuation(const Json& spec) {
  INLAY_ASSIGN_OR_RETURN(const std::string name,
                         JsonString(spec, "behavior", "Isolated"));
  INLAY_ASSIGN_OR_RETURN(const SplitBehavior behavior,
                         ParseSplitBehavior(name));
  return MakeSplit(MakeClassMatcher(kPunct | kAsciiPunct, /*runs=*/false),
                   behavior, /*invert=*/false);
}

MaybePreTokenizer ParseDigits(const Json& spec) {
  INLAY_ASSIGN_OR_RETURN(const bool individual,
                         JsonBool(spec, "individual_digits", false));
  return MakeSplit(MakeClassMatcher(kNumber, /*runs=*/!individual),
                   SplitBehavior::kIsolated, /*invert=*/false);
}

MaybePreTokenizer MakeBert() {
  std::vector<std::unique_ptr<PreTokenizer>> steps;
  steps.push_back(MakeSplit(MakeClassMatcher(kSpace, /*runs=*/false),
                            SplitBehavior::kRemoved, /*invert=*/false));
  steps.push_back(
      MakeSplit(MakeClassMatcher(kPunct | kAsciiPunct, /*runs=*/false),
                SplitBehavior::kIsolated, /*invert=*/false));
  return std::make_unique<Sequence>(std::move(steps));
}

MaybePreTokenizer ParseCharDelimiter(const Json& spec) {
  INLAY_ASSIGN_OR_RETURN(std::string delimiter,
                         JsonString(spec, "delimiter", ""));
  return MakeSplit(MakeLiteralMatcher(std::move(delimiter)),
                   SplitBehavior::kRemoved, /*invert=*/false);
}

MaybePreTokenizer ParseFixedLength(const Json& spec) {
  INLAY_ASSIGN_OR_RETURN(const int64_t length,
                         JsonInt(spec, "length", 5, 1, 1 << 20));
  return MakeSplit(MakeLengthMatcher(static_cast<size_t>(length)),
                   SplitBehavior::kIsolated, /*invert=*/false);
}

}  // namespace

MaybePreTokenizer MakePreTokenizer(const Json& spec, bool raw_bytes) {
  if (spec.is_null()) {
    return std::make_unique<Sequence>(
        std::vector<std::unique_ptr<PreTokenizer>>());
  }
  INLAY_ASSIGN_OR_RETURN(const std::string type,
                         SpecType(spec, "pre_tokenizer"));
  if (type == "Sequence") return ParseSequence(spec, raw_bytes);
  if (type == "ByteLevel") return ParseByteLevel(spec, raw_bytes);
  if (type == "Split") return ParseSplit(spec);
  if (type == "Metaspace") return ParseMetaspace(spec);
  if (type == "Whitespace") {
    return MakeSplit(MakeWordMatcher(), SplitBehavior::kRemoved,
                     /*invert=*/true);
  }
  if (type == "WhitespaceSplit") {
    return MakeSplit(MakeClassMatcher(kSpace, /*runs=*/false),
                     SplitBehavior::kRemoved, /*invert=*/false);
  }
  if (type == "Punctuation") return ParsePunctuation(spec);
  if (type == "Digits") return ParseDigits(spec);
  if (type == "BertPreTokenizer") return MakeBert();
  if (type == "CharDelimiterSplit") return ParseCharDelimiter(spec);
  if (type == "FixedLength") return ParseFixedLength(spec);
  return UnknownType(type, "pre_tokenizer");
}

bool EndsInByteLevel(const Json& spec) {
  const Json* type = JsonFind(spec, "type");
  if (type == nullptr) return false;
  if (*type == "ByteLevel") return true;
  const Json* list = JsonFind(spec, "pretokenizers");
  return *type == "Sequence" && list != nullptr && list->is_array() &&
         !list->empty() && EndsInByteLevel(list->back());
}

}  // namespace inlay
