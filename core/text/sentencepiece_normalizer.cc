// SentencePiece's normaliser (sentencepiece_normalizer.h).
#include "core/text/sentencepiece_normalizer.h"

#include <utility>

#include "core/text/sentencepiece_vocab.h"
#include "memory/formatted_string.h"
#include "memory/status.h"
#include "sentencepiece_model.pb.h"

namespace inlay {
namespace {

constexpr size_t kMaxBytes = size_t{256} << 20;

}  // namespace

absl::StatusOr<SentencePieceNormalizer> SentencePieceNormalizer::Create(
    const sentencepiece::NormalizerSpec& spec, bool space_as_suffix,
    const PieceTrie* protected_pieces) {
  INLAY_ASSIGN_OR_RETURN(
      PrecompiledCharsMap charsmap,
      PrecompiledCharsMap::Create(spec.precompiled_charsmap()));
  SentencePieceNormalizer normalizer(std::move(charsmap));
  if (protected_pieces != nullptr && !protected_pieces->empty()) {
    normalizer.protected_pieces_ = protected_pieces;
  }
  normalizer.dummy_prefix_ = spec.add_dummy_prefix() && !space_as_suffix;
  normalizer.dummy_suffix_ = spec.add_dummy_prefix() && space_as_suffix;
  normalizer.trim_ = spec.remove_extra_whitespaces();
  if (spec.escape_whitespaces()) normalizer.space_ = kSpaceSymbol;
  return normalizer;
}

PrecompiledCharsMap::Match SentencePieceNormalizer::Step(
    std::string_view text) const {
  if (protected_pieces_ != nullptr) {
    const size_t length = protected_pieces_->LongestPrefix(text).length;
    if (length > 0) return {length, text.substr(0, length)};
  }
  return charsmap_.NormalizePrefix(text);
}

void SentencePieceNormalizer::AppendEscaped(std::string_view text,
                                            std::string* out) const {
  for (const char c : text) {
    if (c == ' ') {
      out->append(space_);
    } else {
      out->push_back(c);
    }
  }
}

absl::Status SentencePieceNormalizer::Normalize(std::string_view text,
                                                bool is_start,
                                                std::string* out) const {
  out->clear();
  while (trim_ && !text.empty()) {
    const auto step = Step(text);
    if (step.replacement != " ") break;
    text.remove_prefix(step.length);
  }
  if (text.empty()) return absl::OkStatus();

  out->reserve(text.size() + text.size() / 2);
  if (dummy_prefix_ && is_start) out->append(space_);
  bool after_space = trim_;
  while (!text.empty()) {
    const auto step = Step(text);
    text.remove_prefix(step.length);
    std::string_view piece = step.replacement;
    while (after_space && piece.starts_with(' ')) piece.remove_prefix(1);
    if (!piece.empty()) {
      AppendEscaped(piece, out);
      after_space = trim_ && piece.ends_with(' ');
    }
    if (out->size() > kMaxBytes) {
      return absl::ResourceExhaustedError(FormattedString(
          "sentencepiece: the normalised text is longer than the %d bytes "
          "allowed",
          kMaxBytes));
    }
  }
  // This may take the dummy prefix too: SentencePiece does it the same way.
  while (trim_ && std::string_view(*out).ends_with(space_)) {
    out->resize(out->size() - space_.size());
  }
  if (dummy_suffix_) out->append(space_);
  return absl::OkStatus();
}

}  // namespace inlay
