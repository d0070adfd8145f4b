// Unigram from tokenizer.json: vocabulary checks, then the best path, merged
// unknown runs and byte fallback (unigram.h).
#include "core/text/unigram.h"

#include <array>
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "core/text/unigram_lattice.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

constexpr size_t kMaxVocab = size_t{16} << 20;
// What an unknown character costs below the worst piece: a constant of the
// format, in no file.
constexpr double kUnkPenalty = 10.0;

class Unigram : public TokenModel {
 public:
  std::vector<std::string> tokens;  // [id]
  PieceTrie trie;                   // of equal tokens the last

  UnigramLattice<double> lattice;
  // Ids of <0x00> to <0xFF>, -1 where missing; unused without byte fallback.
  std::array<int32_t, 256> byte_ids;
  bool byte_fallback = false;

  absl::Status Encode(std::string_view piece,
                      std::vector<int32_t>* ids) const override {
    if (piece.size() > std::numeric_limits<int32_t>::max()) {
      return absl::ResourceExhaustedError(FormattedString(
          "unigram: a pre-token of %d bytes, less than 2 GiB allowed",
          piece.size()));
    }
    std::vector<TextSpan> path;
    if (!lattice.BestPath(piece, &path)) return NoUnknown();
    for (size_t i = 0; i < path.size();) {
      TextSpan span = path[i++];
      if (span.id == lattice.unk_id) {
        while (i < path.size() && path[i].id == span.id) {
          span.end = path[i++].end;
        }
        // The merged run may happen to be a piece of its own.
        span.id = trie.Find(piece.substr(span.begin, span.end - span.begin));
      }
      if (span.id >= 0) {
        ids->push_back(span.id);
      } else if (!AppendBytes(piece.substr(span.begin, span.end - span.begin),
                              ids)) {
        ids->push_back(lattice.unk_id);
      }
    }
    return absl::OkStatus();
  }

  std::string_view IdToToken(int32_t id) const override {
    if (id < 0 || id >= vocab_size()) return {};
    return tokens[static_cast<size_t>(id)];
  }

  std::optional<int32_t> TokenToId(std::string_view token) const override {
    const int32_t id = trie.Find(token);
    if (id < 0) return std::nullopt;
    return id;
  }

  int32_t vocab_size() const override {
    return static_cast<int32_t>(tokens.size());
  }

 private:
  static absl::Status NoUnknown() {
    return absl::InvalidArgumentError(
        "unigram: the text has a character that no piece spells and the model "
        "has no unk_id");
  }

  // All of the bytes or none: a run with one missing byte piece is unknown.
  bool AppendBytes(std::string_view text, std::vector<int32_t>* ids) const {
    if (!byte_fallback) return false;
    const size_t before = ids->size();
    for (const char c : text) {
      const int32_t id = byte_ids[static_cast<unsigned char>(c)];
      if (id < 0) {
        ids->resize(before);
        return false;
      }
      ids->push_back(id);
    }
    return true;
  }
};

absl::Status CheckVocab(const Json* vocab) {
  if (vocab == nullptr || !vocab->is_array() || vocab->empty()) {
    return absl::InvalidArgumentError(
        "unigram: vocab is missing or empty, a list of [piece, score] "
        "expected");
  }
  if (vocab->size() > kMaxVocab) {
    return absl::InvalidArgumentError(
        FormattedString("unigram: vocab has %d pieces, at most %d allowed",
                        vocab->size(), kMaxVocab));
  }
  return absl::OkStatus();
}

// Checks the vocab's row `id` and appends it to the model.
absl::Status AddPiece(const Json& row, size_t id, Unigram* model) {
  if (!row.is_array() || row.size() != 2 || !row[0].is_string() ||
      !row[1].is_number()) {
    return absl::InvalidArgumentError(FormattedString(
        "unigram: vocab[%d] is not [piece, score] (a string and a number)",
        id));
  }
  const auto& piece = row[0].get_ref<const std::string&>();
  if (piece.size() > PieceTrie::kMaxPieceBytes) {
    return absl::InvalidArgumentError(
        FormattedString("unigram: vocab[%d] is %d bytes long, at most %d "
                        "allowed",
                        id, piece.size(), PieceTrie::kMaxPieceBytes));
  }
  const double score = row[1].get<double>();
  if (!std::isfinite(score)) {
    return absl::InvalidArgumentError(FormattedString(
        "unigram: the score of vocab[%d] is %f, a finite number expected", id,
        score));
  }
  model->tokens.push_back(piece);
  model->lattice.scores.push_back(score);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<TokenModel>> MakeUnigramFromJson(
    const Json& model) {
  const Json* vocab = JsonFind(model, "vocab");
  INLAY_RETURN_IF_ERROR(CheckVocab(vocab));
  auto unigram = std::make_unique<Unigram>();
  double min_score = std::numeric_limits<double>::infinity();
  for (size_t id = 0; id < vocab->size(); ++id) {
    INLAY_RETURN_IF_ERROR(AddPiece((*vocab)[id], id, unigram.get()));
    min_score = std::min(min_score, unigram->lattice.scores.back());
  }
  UnigramLattice<double>& lattice = unigram->lattice;
  INLAY_ASSIGN_OR_RETURN(
      const int64_t unk_id,
      JsonInt(model, "unk_id", UnigramLattice<double>::kNoUnk, 0,
              static_cast<int64_t>(vocab->size()) - 1));
  lattice.unk_id = static_cast<int32_t>(unk_id);
  lattice.unk_score = min_score - kUnkPenalty;

  // The tokens no longer move: the trie may look at them.
  std::vector<PieceTrie::Entry> entries;
  for (int32_t id = 0; id < unigram->vocab_size(); ++id) {
    const std::string_view token = unigram->IdToToken(id);
    if (!token.empty()) entries.push_back({token, id});
  }
  unigram->trie = PieceTrie::Build(std::move(entries));
  lattice.trie = &unigram->trie;

  INLAY_ASSIGN_OR_RETURN(unigram->byte_fallback,
                         JsonBool(model, "byte_fallback", false));
  for (int byte = 0; byte < 256; ++byte) {
    unigram->byte_ids[static_cast<size_t>(byte)] =
        unigram->trie.Find(FormattedString("<0x%02X>", byte));
  }
  return unigram;
}

}  // namespace inlay
