// Reading and checking the pieces of a SentencePiece model
// (sentencepiece_vocab.h).
#include "core/text/sentencepiece_vocab.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/text/utf8.h"
#include "memory/formatted_string.h"
#include "memory/status.h"
#include "sentencepiece_model.pb.h"

namespace inlay {
namespace {

using Kind = SentencePieceVocab::Kind;
using PieceProto = sentencepiece::ModelProto::SentencePiece;

Kind KindOf(const PieceProto& piece) {
  switch (piece.type()) {
    case PieceProto::UNKNOWN:
      return Kind::kUnknown;
    case PieceProto::CONTROL:
      return Kind::kControl;
    case PieceProto::USER_DEFINED:
      return Kind::kUserDefined;
    case PieceProto::UNUSED:
      return Kind::kUnused;
    case PieceProto::BYTE:
      return Kind::kByte;
    case PieceProto::NORMAL:
      break;
  }
  return Kind::kNormal;
}

bool IsReserved(Kind kind) {
  return kind == Kind::kUnknown || kind == Kind::kControl ||
         kind == Kind::kByte;
}

absl::Status CheckPiece(const PieceProto& piece, size_t id) {
  const std::string& text = piece.piece();
  if (text.empty() || text.size() > PieceTrie::kMaxPieceBytes) {
    return absl::InvalidArgumentError(FormattedString(
        "sentencepiece: piece %d is %d bytes long, 1 to %d allowed", id,
        text.size(), PieceTrie::kMaxPieceBytes));
  }
  if (!IsValidUtf8(text)) {
    return absl::InvalidArgumentError(
        FormattedString("sentencepiece: piece %d is not valid UTF-8", id));
  }
  if (!std::isfinite(piece.score())) {
    return absl::InvalidArgumentError(FormattedString(
        "sentencepiece: the score of piece %d is %f, a finite number expected",
        id, piece.score()));
  }
  return absl::OkStatus();
}

// `entries` are in the order of their ids, which do not repeat.
absl::StatusOr<PieceTrie> BuildUnique(std::vector<PieceTrie::Entry> entries) {
  PieceTrie trie = PieceTrie::Build(entries);
  for (const PieceTrie::Entry& entry : entries) {
    const int32_t last = trie.Find(entry.text);
    if (last == entry.value) continue;
    return absl::InvalidArgumentError(
        FormattedString("sentencepiece: pieces %d and %d have the same text",
                        entry.value, last));
  }
  return trie;
}

absl::Status IndexPieces(SentencePieceVocab* vocab) {
  std::vector<PieceTrie::Entry> in_text, reserved, user_defined;
  for (size_t i = 0; i < vocab->pieces.size(); ++i) {
    const SentencePieceVocab::Piece& piece = vocab->pieces[i];
    const PieceTrie::Entry entry = {piece.text, static_cast<int32_t>(i)};
    (IsReserved(piece.kind) ? reserved : in_text).push_back(entry);
    if (piece.kind == Kind::kUserDefined) user_defined.push_back(entry);
  }
  INLAY_ASSIGN_OR_RETURN(vocab->in_text, BuildUnique(std::move(in_text)));
  INLAY_ASSIGN_OR_RETURN(vocab->reserved, BuildUnique(std::move(reserved)));
  vocab->user_defined = PieceTrie::Build(std::move(user_defined));
  return absl::OkStatus();
}

absl::Status FindUnknown(SentencePieceVocab* vocab) {
  const auto is_unknown = [](const SentencePieceVocab::Piece& piece) {
    return piece.kind == Kind::kUnknown;
  };
  const auto& pieces = vocab->pieces;
  const auto count = std::count_if(pieces.begin(), pieces.end(), is_unknown);
  if (count != 1) {
    return absl::InvalidArgumentError(FormattedString(
        "sentencepiece: %d unknown pieces, exactly one expected", count));
  }
  vocab->unk_id = static_cast<int32_t>(
      std::find_if(pieces.begin(), pieces.end(), is_unknown) - pieces.begin());
  return absl::OkStatus();
}

absl::Status FindBytes(SentencePieceVocab* vocab) {
  vocab->byte_ids.fill(-1);
  size_t count = 0;
  for (size_t i = 0; i < vocab->pieces.size(); ++i) {
    if (vocab->pieces[i].kind != Kind::kByte) continue;
    const auto byte = SentencePieceVocab::ParseByte(vocab->pieces[i].text);
    if (!byte.has_value() || !vocab->byte_fallback) {
      return absl::InvalidArgumentError(FormattedString(
          "sentencepiece: piece %d is a byte piece, which needs byte_fallback "
          "and a text from <0x00> to <0xFF>",
          i));
    }
    vocab->byte_ids[*byte] = static_cast<int32_t>(i);
    ++count;  // texts do not repeat, so 256 of them are all bytes
  }
  if (vocab->byte_fallback && count != 256) {
    return absl::InvalidArgumentError(FormattedString(
        "sentencepiece: byte_fallback with %d byte pieces, 256 expected",
        count));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<const SentencePieceVocab>>
SentencePieceVocab::Create(const sentencepiece::ModelProto& model) {
  if (model.pieces().empty()) {
    return absl::InvalidArgumentError(
        "sentencepiece: the model has no pieces, at least one expected");
  }
  auto vocab = std::make_unique<SentencePieceVocab>();
  vocab->byte_fallback = model.trainer_spec().byte_fallback();
  vocab->pieces.reserve(static_cast<size_t>(model.pieces_size()));
  for (const PieceProto& piece : model.pieces()) {
    INLAY_RETURN_IF_ERROR(CheckPiece(piece, vocab->pieces.size()));
    vocab->pieces.push_back({piece.piece(), piece.score(), KindOf(piece)});
  }
  INLAY_RETURN_IF_ERROR(IndexPieces(vocab.get()));
  INLAY_RETURN_IF_ERROR(FindUnknown(vocab.get()));
  INLAY_RETURN_IF_ERROR(FindBytes(vocab.get()));
  const auto control = [&vocab](std::string_view text) {
    std::optional<int32_t> id = vocab->Find(text);
    if (id.has_value() && vocab->at(*id).kind != Kind::kControl) id.reset();
    return id;
  };
  vocab->bos_id = control(model.trainer_spec().bos_piece());
  vocab->eos_id = control(model.trainer_spec().eos_piece());
  return vocab;
}

std::optional<int32_t> SentencePieceVocab::Find(std::string_view text) const {
  int32_t id = reserved.Find(text);
  if (id < 0) id = in_text.Find(text);
  if (id < 0) return std::nullopt;
  return id;
}

std::optional<unsigned char> SentencePieceVocab::ParseByte(
    std::string_view text) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  if (text.size() != 6 || !text.starts_with("<0x") || text[5] != '>') {
    return std::nullopt;
  }
  const size_t high = kDigits.find(text[3]);
  const size_t low = kDigits.find(text[4]);
  if (high == kDigits.npos || low == kDigits.npos) return std::nullopt;
  return static_cast<unsigned char>(high << 4 | low);
}

}  // namespace inlay
