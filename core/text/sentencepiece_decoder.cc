// SentencePiece's decoding (sentencepiece_decoder.h).
#include "core/text/sentencepiece_decoder.h"

#include <string_view>

#include "core/text/utf8.h"

namespace inlay {
namespace {

using Kind = SentencePieceVocab::Kind;

void AppendSpelled(std::string_view text, std::string* out) {
  for (size_t at = text.find(kSpaceSymbol); at != text.npos;
       at = text.find(kSpaceSymbol)) {
    out->append(text.substr(0, at)).push_back(' ');
    text.remove_prefix(at + kSpaceSymbol.size());
  }
  out->append(text);
}

class Stream : public DecodeStream {
 public:
  Stream(const SentencePieceVocab& vocab, const SentencePieceDecodeRules& rules,
         const DecodeOptions& options)
      : vocab_(vocab), rules_(rules), options_(options) {}

  void Push(int32_t id, std::string* text) override {
    if (!vocab_.Contains(id)) return;
    const SentencePieceVocab::Piece& piece = vocab_.at(id);
    if (options_.skip_special && IsSpecialPiece(piece)) return;
    std::string* out = rules_.denormalizer.has_value() ? &held_ : text;
    const size_t before = out->size();
    if (piece.kind == Kind::kByte) {
      bytes_ += SentencePieceBytes(piece, rules_);
      DrainBytes(/*last=*/false, out);
    } else {
      DrainBytes(/*last=*/true, out);
      started_ |= out->size() > before;
      PushPiece(piece, out);
    }
    started_ |= out->size() > before;
  }

  void Finish(std::string* text) override {
    if (!rules_.denormalizer.has_value()) {
      DrainBytes(/*last=*/true, text);
      return;
    }
    DrainBytes(/*last=*/true, &held_);
    std::string normalized;
    // Only fails for texts of hundreds of megabytes, better raw than lost.
    const bool done =
        rules_.denormalizer->Normalize(held_, true, &normalized).ok();
    AppendValidUtf8(done ? normalized : held_, text);
  }

 private:
  // SentencePiece replaces each byte that begins no character by U+FFFD, not
  // each maximal invalid sequence.
  void DrainBytes(bool last, std::string* out) {
    while (!bytes_.empty()) {
      const Utf8Step step = StepUtf8(bytes_, 0);
      if (step.kind == Utf8Kind::kValid) {
        out->append(bytes_, 0, step.bytes);
        bytes_.erase(0, step.bytes);
        continue;
      }
      if (step.kind == Utf8Kind::kCut && !last) return;
      out->append(kReplacementUtf8);
      bytes_.erase(0, 1);
    }
  }

  void PushPiece(const SentencePieceVocab::Piece& piece, std::string* out) {
    if (started_) at_start_ = false;
    std::string_view text = piece.text;
    if (!IsSpecialPiece(piece) && at_start_ && text.starts_with(kSpaceSymbol)) {
      if (rules_.strip_first_space) text.remove_prefix(kSpaceSymbol.size());
      // Nothing more goes even when that left no text.
      at_start_ = rules_.strip_leading_spaces;
    }
    if (IsSpecialPiece(piece)) {
      out->append(SentencePieceBytes(piece, rules_));
    } else {
      AppendSpelled(text, out);
    }
  }

  const SentencePieceVocab& vocab_;
  const SentencePieceDecodeRules& rules_;
  const DecodeOptions options_;
  bool at_start_ = true;  // the next piece may lose its space symbol
  bool started_ = false;  // some text has come
  std::string bytes_;     // of byte pieces, not yet a character; at most 3
  std::string held_;      // all of the text when there is a denormaliser
};

}  // namespace

std::unique_ptr<DecodeStream> StartSentencePieceDecode(
    const SentencePieceVocab& vocab, const SentencePieceDecodeRules& rules,
    const DecodeOptions& options) {
  return std::make_unique<Stream>(vocab, rules, options);
}

bool IsSpecialPiece(const SentencePieceVocab::Piece& piece) {
  return piece.kind == Kind::kControl || piece.kind == Kind::kUnknown;
}

std::string SentencePieceBytes(const SentencePieceVocab::Piece& piece,
                               const SentencePieceDecodeRules& rules) {
  if (piece.kind == Kind::kControl) return {};
  if (piece.kind == Kind::kUnknown) return rules.unk_surface;
  if (piece.kind == Kind::kByte) {
    const auto byte = SentencePieceVocab::ParseByte(piece.text);
    return std::string(1, static_cast<char>(byte.value_or(0)));
  }
  std::string bytes;
  AppendSpelled(piece.text, &bytes);
  return bytes;
}

}  // namespace inlay
