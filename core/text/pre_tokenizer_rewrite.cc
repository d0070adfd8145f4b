// Pre-tokenizers that rewrite the text on their way: Metaspace, ByteLevel.
#include "core/text/pre_tokenizer_rewrite.h"

#include "core/text/byte_alphabet.h"
#include "core/text/pre_tokenizer_split.h"
#include "core/text/split_patterns.h"
#include "core/text/utf8.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

using Span = Pieces::Span;

constexpr size_t kMaxTextBytes = size_t{2} << 30;

absl::Status CheckTextBytes(size_t bytes) {
  if (bytes <= kMaxTextBytes) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      FormattedString("pre-tokenizer: a text of %d bytes, at most %d allowed",
                      bytes, kMaxTextBytes));
}

// Rewrites each piece by `append(i, piece, &text)`.
template <typename Append>
absl::Status RewriteEach(Pieces* pieces, const Append& append) {
  std::string text;
  std::vector<Span> spans;
  spans.reserve(pieces->size());
  for (size_t i = 0; i < pieces->size(); ++i) {
    const auto begin = static_cast<uint32_t>(text.size());
    append(i, (*pieces)[i], &text);
    INLAY_RETURN_IF_ERROR(CheckTextBytes(text.size()));
    spans.push_back({begin, static_cast<uint32_t>(text.size())});
  }
  pieces->Rewrite(std::move(text), &spans);
  return absl::OkStatus();
}

class Metaspace final : public PreTokenizer {
 public:
  Metaspace(std::string replacement, PrependScheme scheme, bool split)
      : replacement_(std::move(replacement)), scheme_(scheme) {
    if (split) {
      split_ = MakeSplit(MakeLiteralMatcher(replacement_),
                         SplitBehavior::kMergedWithNext, /*invert=*/false);
    }
  }

  absl::Status Apply(Pieces* pieces) const override {
    INLAY_RETURN_IF_ERROR(RewriteEach(
        pieces, [&](size_t i, std::string_view piece, std::string* text) {
          const bool prepend =
              scheme_ == PrependScheme::kAlways ||
              (scheme_ == PrependScheme::kFirst && pieces->AtStart(i));
          if (prepend && piece[0] != ' ' && !piece.starts_with(replacement_)) {
            text->append(replacement_);
          }
          for (const char c : piece) {
            if (c == ' ') {
              text->append(replacement_);
            } else {
              text->push_back(c);
            }
          }
        }));
    return split_ ? split_->Apply(pieces) : absl::OkStatus();
  }

 private:
  const std::string replacement_;
  const PrependScheme scheme_;
  std::unique_ptr<PreTokenizer> split_;
};

class ByteLevel final : public PreTokenizer {
 public:
  ByteLevel(bool add_prefix_space, bool use_regex, bool raw_bytes)
      : add_prefix_space_(add_prefix_space),
        use_regex_(use_regex),
        raw_bytes_(raw_bytes) {}

  absl::Status Apply(Pieces* pieces) const override {
    if (add_prefix_space_) {
      INLAY_RETURN_IF_ERROR(RewriteEach(
          pieces, [](size_t, std::string_view piece, std::string* text) {
            if (piece[0] != ' ') text->push_back(' ');
            text->append(piece);
          }));
    }
    if (use_regex_) Cut(pieces);
    if (raw_bytes_) return absl::OkStatus();
    return RewriteEach(pieces,
                       [](size_t, std::string_view piece, std::string* text) {
                         AppendByteAlphabet(piece, text);
                       });
  }
  WordCut word_cut() const override {
    // The space would be put before what follows the cut, too.
    if (add_prefix_space_) return WordCut::kNone;
    // Steps behind it would see no white space.
    return use_regex_ ? WordCut::kCuts : WordCut::kNone;
  }

 private:
  // GPT-2's pattern matches everywhere, so the matches are the pieces.
  static void Cut(Pieces* pieces) {
    std::vector<Match> matches;
    std::vector<Span> spans;
    for (size_t i = 0; i < pieces->size(); ++i) {
      matches.clear();
      FindSplits(SplitPattern::kGpt2, (*pieces)[i], &matches);
      const uint32_t begin = pieces->span(i).begin;
      for (const Match& match : matches) {
        spans.push_back({begin + static_cast<uint32_t>(match.begin),
                         begin + static_cast<uint32_t>(match.end)});
      }
    }
    pieces->Recut(&spans);
  }

  const bool add_prefix_space_;
  const bool use_regex_;
  const bool raw_bytes_;
};

}  // namespace

std::unique_ptr<PreTokenizer> MakeMetaspace(std::string replacement,
                                            PrependScheme scheme, bool split) {
  return std::make_unique<Metaspace>(std::move(replacement), scheme, split);
}

std::unique_ptr<PreTokenizer> MakeByteLevel(bool add_prefix_space,
                                            bool use_regex, bool raw_bytes) {
  return std::make_unique<ByteLevel>(add_prefix_space, use_regex, raw_bytes);
}

}  // namespace inlay
