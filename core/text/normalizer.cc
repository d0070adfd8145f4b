// The table of types: from JSON to normalizers.
#include "core/text/normalizer.h"

#include <functional>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/escaping.h"
#include "core/text/byte_alphabet.h"
#include "core/text/normalizer_unicode.h"
#include "core/text/pre_tokenizer_split.h"
#include "core/text/precompiled_charsmap.h"
#include "core/text/tokenizer_spec.h"
#include "core/text/unicode_class.h"
#include "core/text/utf8.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

using MaybeNormalizer = absl::StatusOr<std::unique_ptr<Normalizer>>;

// Sane rules stay far below; a hostile replacement, or a row of them, does not.
constexpr size_t kMaxReplaceGrowth = 8;

// A rule that cannot fail, with all it needs bound into it.
class Rule final : public Normalizer {
 public:
  explicit Rule(std::function<void(std::string*)> rule, bool keeps_words)
      : rule_(std::move(rule)), keeps_words_(keeps_words) {}
  absl::Status Apply(std::string* text) const override {
    rule_(text);
    return absl::OkStatus();
  }
  bool KeepsWords() const override { return keeps_words_; }

 private:
  const std::function<void(std::string*)> rule_;
  const bool keeps_words_;
};

MaybeNormalizer MakeRule(std::function<void(std::string*)> rule,
                         bool keeps_words = false) {
  return std::make_unique<Rule>(std::move(rule), keeps_words);
}

class Sequence final : public Normalizer {
 public:
  explicit Sequence(std::vector<std::unique_ptr<Normalizer>> steps)
      : steps_(std::move(steps)) {}
  absl::Status Apply(std::string* text) const override {
    const size_t limit = text->size() * kNormalizedGrowth + kNormalizedBase;
    for (const auto& step : steps_) {
      INLAY_RETURN_IF_ERROR(step->Apply(text));
      if (text->size() > limit) {
        return absl::ResourceExhaustedError(FormattedString(
            "normalizer: the text grew to %d bytes, at most %d allowed",
            text->size(), limit));
      }
    }
    return absl::OkStatus();
  }
  bool KeepsWords() const override {
    return absl::c_all_of(steps_,
                          [](const auto& step) { return step->KeepsWords(); });
  }

 private:
  const std::vector<std::unique_ptr<Normalizer>> steps_;
};

class Form final : public Normalizer {
 public:
  explicit Form(NormalForm form) : form_(form) {}
  absl::Status Apply(std::string* text) const override {
    return ToNormalForm(form_, text);
  }
  bool KeepsWords() const override { return true; }

 private:
  const NormalForm form_;
};

class Replace final : public Normalizer {
 public:
  Replace(std::unique_ptr<Matcher> matcher, std::string content)
      : matcher_(std::move(matcher)), content_(std::move(content)) {}

  absl::Status Apply(std::string* text) const override {
    std::vector<Match> matches;
    INLAY_RETURN_IF_ERROR(matcher_->Find(*text, &matches));
    if (matches.empty()) return absl::OkStatus();
    const size_t limit = text->size() * kMaxReplaceGrowth + kNormalizedBase;
    if (content_.size() != 0 && matches.size() > limit / content_.size()) {
      return absl::ResourceExhaustedError(FormattedString(
          "normalizer Replace: %d matches of %d bytes each in a text of %d "
          "bytes, at most %d bytes allowed",
          matches.size(), content_.size(), text->size(), limit));
    }
    std::string out;
    out.reserve(text->size() + matches.size() * content_.size());
    size_t end = 0;
    for (const Match& match : matches) {
      out.append(*text, end, match.begin - end).append(content_);
      end = match.end;
    }
    out.append(*text, end);
    text->swap(out);
    return absl::OkStatus();
  }

 private:
  const std::unique_ptr<Matcher> matcher_;
  const std::string content_;
};

struct BertOptions {
  bool clean_text = true;
  bool handle_chinese_chars = true;
  bool strip_accents = true;
  bool lowercase = true;
};

class Bert final : public Normalizer {
 public:
  explicit Bert(const BertOptions& options) : options_(options) {}
  absl::Status Apply(std::string* text) const override {
    if (options_.clean_text) CleanText(text);
    if (options_.handle_chinese_chars) SpaceIdeographs(text);
    if (options_.strip_accents) {
      INLAY_RETURN_IF_ERROR(ToNormalForm(NormalForm::kNfd, text));
      DropClass(kNonspacing, text);
    }
    if (options_.lowercase) ToLower(text);
    return absl::OkStatus();
  }
  // Cleaned, a newline is a space, and ideographs get spaces beside them.
  bool KeepsWords() const override {
    return !options_.clean_text && !options_.handle_chinese_chars;
  }

 private:
  const BertOptions options_;
};

using Steps = std::vector<std::unique_ptr<Normalizer>>;

// Nested sequences become one, so that its limit bounds all of them.
absl::Status AppendSteps(const Json& spec, Steps* steps) {
  if (spec.is_null()) return absl::OkStatus();
  INLAY_ASSIGN_OR_RETURN(const std::string type, SpecType(spec, "normalizer"));
  if (type == "Sequence") {
    INLAY_ASSIGN_OR_RETURN(const Json* list, SpecArray(spec, "normalizers"));
    for (const Json& item : *list) {
      INLAY_RETURN_IF_ERROR(AppendSteps(item, steps));
    }
    return absl::OkStatus();
  }
  INLAY_ASSIGN_OR_RETURN(auto step, MakeNormalizer(spec));
  steps->push_back(std::move(step));
  return absl::OkStatus();
}

MaybeNormalizer ParseSequence(const Json& spec) {
  Steps steps;
  INLAY_RETURN_IF_ERROR(AppendSteps(spec, &steps));
  return std::make_unique<Sequence>(std::move(steps));
}

MaybeNormalizer ParseReplace(const Json& spec) {
  INLAY_ASSIGN_OR_RETURN(const PatternSpec pattern, ParsePattern(spec));
  INLAY_ASSIGN_OR_RETURN(std::string content, JsonString(spec, "content", ""));
  if (!pattern.is_regex) {
    return std::make_unique<Replace>(MakeLiteralMatcher(pattern.text),
                                     std::move(content));
  }
  INLAY_ASSIGN_OR_RETURN(auto matcher, MakeRegexMatcher(pattern.text));
  return std::make_unique<Replace>(std::move(matcher), std::move(content));
}

MaybeNormalizer ParseBert(const Json& spec) {
  BertOptions options;
  INLAY_ASSIGN_OR_RETURN(options.clean_text,
                         JsonBool(spec, "clean_text", true));
  INLAY_ASSIGN_OR_RETURN(options.handle_chinese_chars,
                         JsonBool(spec, "handle_chinese_chars", true));
  INLAY_ASSIGN_OR_RETURN(options.lowercase, JsonBool(spec, "lowercase", true));
  INLAY_ASSIGN_OR_RETURN(options.strip_accents,
                         JsonBool(spec, "strip_accents", options.lowercase));
  return std::make_unique<Bert>(options);
}

MaybeNormalizer ParseStrip(const Json& spec) {
  INLAY_ASSIGN_OR_RETURN(const bool left, JsonBool(spec, "strip_left", true));
  INLAY_ASSIGN_OR_RETURN(const bool right, JsonBool(spec, "strip_right", true));
  return MakeRule(
      [left, right](std::string* text) { StripSpace(left, right, text); });
}

MaybeNormalizer ParsePrepend(const Json& spec) {
  INLAY_ASSIGN_OR_RETURN(std::string prepend, JsonString(spec, "prepend", ""));
  return MakeRule([prepend = std::move(prepend)](std::string* text) {
    if (!text->empty()) text->insert(0, prepend);
  });
}

MaybeNormalizer ParsePrecompiled(const Json& spec) {
  INLAY_ASSIGN_OR_RETURN(const std::string base64,
                         JsonString(spec, "precompiled_charsmap", ""));
  std::string bytes;
  if (!absl::Base64Unescape(base64, &bytes)) {
    return absl::InvalidArgumentError(FormattedString(
        "normalizer Precompiled: \"precompiled_charsmap\" (%d characters) is "
        "not base64",
        base64.size()));
  }
  INLAY_ASSIGN_OR_RETURN(auto map, PrecompiledCharsMap::Create(bytes));
  auto shared = std::make_shared<const PrecompiledCharsMap>(std::move(map));
  return MakeRule([shared](std::string* text) {
    std::string out;
    shared->Normalize(*text, &out);
    text->clear();
    // The map's replacements are bytes out of a file.
    AppendValidUtf8(out, text);
  });
}

void SpellBytes(std::string* text) {
  std::string out;
  AppendByteAlphabet(*text, &out);
  text->swap(out);
}

}  // namespace

MaybeNormalizer MakeNormalizer(const Json& spec) {
  if (spec.is_null()) return std::unique_ptr<Normalizer>();
  INLAY_ASSIGN_OR_RETURN(const std::string type, SpecType(spec, "normalizer"));
  if (type == "Sequence") return ParseSequence(spec);
  if (type == "NFC") return std::make_unique<Form>(NormalForm::kNfc);
  if (type == "NFD") return std::make_unique<Form>(NormalForm::kNfd);
  if (type == "NFKC") return std::make_unique<Form>(NormalForm::kNfkc);
  if (type == "NFKD") return std::make_unique<Form>(NormalForm::kNfkd);
  if (type == "Lowercase") return MakeRule(ToLower, /*keeps_words=*/true);
  if (type == "Strip") return ParseStrip(spec);
  if (type == "StripAccents") {
    return MakeRule([](std::string* text) { DropClass(kMark, text); },
                    /*keeps_words=*/true);
  }
  if (type == "Prepend") return ParsePrepend(spec);
  if (type == "Replace") return ParseReplace(spec);
  if (type == "BertNormalizer") return ParseBert(spec);
  if (type == "Precompiled") return ParsePrecompiled(spec);
  if (type == "Nmt") return MakeRule(NmtRules);
  if (type == "ByteLevel") return MakeRule(SpellBytes);
  return UnknownType(type, "normalizer");
}

}  // namespace inlay
