// The matchers of pre_tokenizer_split.h.
#include "core/text/pre_tokenizer_split.h"
#include "core/text/split_patterns.h"
#include "core/text/split_scan.h"
#include "memory/status.h"

namespace inlay {
namespace {

using split_scan::Peek;
using split_scan::SkipRun;
using split_scan::SkipRunNot;

class RegexMatcher final : public Matcher {
 public:
  explicit RegexMatcher(Regex regex) : regex_(std::move(regex)) {}
  absl::Status Find(std::string_view text,
                    std::vector<Match>* matches) const override {
    return regex_.FindAll(text, matches);
  }

 private:
  const Regex regex_;
};

class PatternMatcher final : public Matcher {
 public:
  explicit PatternMatcher(SplitPattern pattern) : pattern_(pattern) {}
  absl::Status Find(std::string_view text,
                    std::vector<Match>* matches) const override {
    FindSplits(pattern_, text, matches);
    return absl::OkStatus();
  }
  WordCut word_cut() const override {
    const bool is_part = pattern_ == SplitPattern::kDeepSeekNumbers ||
                         pattern_ == SplitPattern::kDeepSeekCjk;
    return is_part ? WordCut::kKeeps : WordCut::kCuts;
  }

 private:
  const SplitPattern pattern_;
};

class LiteralMatcher final : public Matcher {
 public:
  explicit LiteralMatcher(std::string needle) : needle_(std::move(needle)) {}
  absl::Status Find(std::string_view text,
                    std::vector<Match>* matches) const override {
    if (needle_.empty()) return absl::OkStatus();
    for (size_t pos = text.find(needle_); pos != std::string_view::npos;
         pos = text.find(needle_, pos + needle_.size())) {
      matches->push_back({pos, pos + needle_.size()});
    }
    return absl::OkStatus();
  }

 private:
  const std::string needle_;
};

class ClassMatcher final : public Matcher {
 public:
  ClassMatcher(uint16_t mask, bool runs) : mask_(mask), runs_(runs) {}
  absl::Status Find(std::string_view text,
                    std::vector<Match>* matches) const override {
    for (size_t pos = SkipRunNot(text, 0, mask_); pos < text.size();) {
      const size_t end =
          runs_ ? SkipRun(text, pos, mask_) : pos + RuneAt(text, pos).bytes;
      matches->push_back({pos, end});
      pos = SkipRunNot(text, end, mask_);
    }
    return absl::OkStatus();
  }
  WordCut word_cut() const override {
    if ((mask_ & kSpace) == 0) return WordCut::kKeeps;
    return runs_ ? WordCut::kNone : WordCut::kCuts;
  }

 private:
  const uint16_t mask_;
  const bool runs_;
};

class WordMatcher final : public Matcher {
 public:
  absl::Status Find(std::string_view text,
                    std::vector<Match>* matches) const override {
    for (size_t pos = 0; pos < text.size();) {
      const size_t begin = SkipRun(text, pos, kSpace);
      if (begin == text.size()) break;
      pos = Peek(text, begin).Is(kWord)
                ? SkipRun(text, begin, kWord)
                : SkipRunNot(text, begin, kWord | kSpace);
      matches->push_back({begin, pos});
    }
    return absl::OkStatus();
  }
  WordCut word_cut() const override { return WordCut::kCuts; }
};

class LengthMatcher final : public Matcher {
 public:
  explicit LengthMatcher(size_t length) : length_(length) {}
  absl::Status Find(std::string_view text,
                    std::vector<Match>* matches) const override {
    for (size_t pos = 0; pos < text.size();) {
      const size_t begin = pos;
      for (size_t i = 0; i < length_ && pos < text.size(); ++i) {
        pos += RuneAt(text, pos).bytes;
      }
      matches->push_back({begin, pos});
    }
    return absl::OkStatus();
  }

 private:
  const size_t length_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Matcher>> MakeRegexMatcher(
    std::string_view pattern) {
  if (const auto known = RecogniseSplitPattern(pattern)) {
    return std::make_unique<PatternMatcher>(*known);
  }
  INLAY_ASSIGN_OR_RETURN(Regex regex, Regex::Create(pattern));
  return std::make_unique<RegexMatcher>(std::move(regex));
}

std::unique_ptr<Matcher> MakeLiteralMatcher(std::string needle) {
  return std::make_unique<LiteralMatcher>(std::move(needle));
}

std::unique_ptr<Matcher> MakeClassMatcher(uint16_t mask, bool runs) {
  return std::make_unique<ClassMatcher>(mask, runs);
}

std::unique_ptr<Matcher> MakeWordMatcher() {
  return std::make_unique<WordMatcher>();
}

std::unique_ptr<Matcher> MakeLengthMatcher(size_t length) {
  return std::make_unique<LengthMatcher>(length);
}

}  // namespace inlay
