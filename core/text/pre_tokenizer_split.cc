// The behaviours, applied in one pass over the matches and the gaps.
#include "core/text/pre_tokenizer_split.h"

#include <algorithm>

#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

using Span = Pieces::Span;

// A stretch of the piece: a match, or what lies before, between, after them.
struct Part {
  Span span;
  bool is_match;
};

// Appends the pieces that `parts` become. Merging keeps the library's rule: of
// several matches in a row only the first joins its neighbour.
void AppendBehaved(const std::vector<Part>& parts, SplitBehavior behavior,
                   std::vector<Span>* out) {
  const size_t first = out->size();
  bool previous = false;
  switch (behavior) {
    case SplitBehavior::kRemoved:
      for (const Part& part : parts) {
        if (!part.is_match) out->push_back(part.span);
      }
      return;
    case SplitBehavior::kIsolated:
      for (const Part& part : parts) out->push_back(part.span);
      return;
    case SplitBehavior::kContiguous:
      for (const Part& part : parts) {
        if (part.is_match == previous && out->size() > first) {
          out->back().end = part.span.end;
        } else {
          out->push_back(part.span);
        }
        previous = part.is_match;
      }
      return;
    case SplitBehavior::kMergedWithPrevious:
      for (const Part& part : parts) {
        if (part.is_match && !previous && out->size() > first) {
          out->back().end = part.span.end;
        } else {
          out->push_back(part.span);
        }
        previous = part.is_match;
      }
      return;
    case SplitBehavior::kMergedWithNext:
      for (auto part = parts.rbegin(); part != parts.rend(); ++part) {
        if (part->is_match && !previous && out->size() > first) {
          out->back().begin = part->span.begin;
        } else {
          out->push_back(part->span);
        }
        previous = part->is_match;
      }
      std::reverse(out->begin() + static_cast<ptrdiff_t>(first), out->end());
      return;
  }
}

class Split final : public PreTokenizer {
 public:
  Split(std::unique_ptr<Matcher> matcher, SplitBehavior behavior, bool invert)
      : matcher_(std::move(matcher)), behavior_(behavior), invert_(invert) {}

  absl::Status Apply(Pieces* pieces) const override {
    std::vector<Match> matches;
    std::vector<Part> parts;
    std::vector<Span> spans;
    for (size_t i = 0; i < pieces->size(); ++i) {
      const Span span = pieces->span(i);
      matches.clear();
      INLAY_RETURN_IF_ERROR(matcher_->Find((*pieces)[i], &matches));
      if (behavior_ == SplitBehavior::kIsolated) {
        AppendIsolated(span, matches, &spans);
        continue;
      }
      MakeParts(span, matches, &parts);
      AppendBehaved(parts, behavior_, &spans);
    }
    pieces->Recut(&spans);
    return absl::OkStatus();
  }
  WordCut word_cut() const override {
    const bool merges = behavior_ != SplitBehavior::kIsolated &&
                        behavior_ != SplitBehavior::kRemoved;
    return merges ? WordCut::kNone : matcher_->word_cut();
  }

 private:
  // The commonest behaviour, for which matches and gaps are alike.
  static void AppendIsolated(const Span& span,
                             const std::vector<Match>& matches,
                             std::vector<Span>* out) {
    uint32_t end = span.begin;
    for (const Match& match : matches) {
      const auto begin = span.begin + static_cast<uint32_t>(match.begin);
      if (begin != end) out->push_back({end, begin});
      end = span.begin + static_cast<uint32_t>(match.end);
      if (begin != end) out->push_back({begin, end});
    }
    if (end != span.end) out->push_back({end, span.end});
  }

  void MakeParts(const Span& span, const std::vector<Match>& matches,
                 std::vector<Part>* parts) const {
    parts->clear();
    uint32_t end = span.begin;
    for (const Match& match : matches) {
      const auto begin = span.begin + static_cast<uint32_t>(match.begin);
      if (begin != end) parts->push_back({{end, begin}, invert_});
      end = span.begin + static_cast<uint32_t>(match.end);
      parts->push_back({{begin, end}, !invert_});
    }
    if (end != span.end) parts->push_back({{end, span.end}, invert_});
  }

  const std::unique_ptr<Matcher> matcher_;
  const SplitBehavior behavior_;
  const bool invert_;
};

}  // namespace

std::unique_ptr<PreTokenizer> MakeSplit(std::unique_ptr<Matcher> matcher,
                                        SplitBehavior behavior, bool invert) {
  return std::make_unique<Split>(std::move(matcher), behavior, invert);
}

absl::StatusOr<SplitBehavior> ParseSplitBehavior(std::string_view name) {
  // serde accepts the variants' names, files hold either spelling.
  if (name == "Removed" || name == "removed") return SplitBehavior::kRemoved;
  if (name == "Isolated" || name == "isolated") return SplitBehavior::kIsolated;
  if (name == "MergedWithPrevious" || name == "merged_with_previous") {
    return SplitBehavior::kMergedWithPrevious;
  }
  if (name == "MergedWithNext" || name == "merged_with_next") {
    return SplitBehavior::kMergedWithNext;
  }
  if (name == "Contiguous" || name == "contiguous") {
    return SplitBehavior::kContiguous;
  }
  return absl::InvalidArgumentError(FormattedString(
      "\"behavior\" is \"%s\", allowed: Removed, Isolated, MergedWithPrevious, "
      "MergedWithNext, Contiguous",
      name.substr(0, 80)));
}

}  // namespace inlay
