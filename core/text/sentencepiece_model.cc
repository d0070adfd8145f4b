// Reading tokenizer.model and tying its parts together: normaliser, one of two
// segmentations, unknown characters, decoding (sentencepiece_model.h).
#include "core/text/sentencepiece_model.h"

#include <google/protobuf/arena.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>

#include <algorithm>
#include <cfloat>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/text/sentencepiece_bpe.h"
#include "core/text/sentencepiece_decoder.h"
#include "core/text/sentencepiece_normalizer.h"
#include "core/text/sentencepiece_vocab.h"
#include "core/text/unigram_lattice.h"
#include "core/text/utf8.h"
#include "memory/formatted_string.h"
#include "memory/status.h"
#include "sentencepiece_model.pb.h"

namespace inlay {
namespace {

using Kind = SentencePieceVocab::Kind;
using sentencepiece::ModelProto;
using sentencepiece::TrainerSpec;

constexpr size_t kMaxBytes = size_t{256} << 20;
constexpr size_t kMaxPieces = size_t{16} << 20;
// Constants of the library, in no file: what an unknown character costs below
// the worst piece, and when scores start anew.
constexpr float kUnkPenalty = 10.0f;
constexpr float kRebaseAbove = 100000.0f;

class SentencePieceTokenizer : public Tokenizer {
 public:
  std::unique_ptr<const SentencePieceVocab> vocab;
  std::optional<SentencePieceNormalizer> normalizer;
  // One of the two.
  std::optional<SentencePieceBpe> bpe;
  std::optional<UnigramLattice<float>> unigram;
  SentencePieceDecodeRules decode_rules;
  PieceTrie control;  // and the unknown piece
  bool control_in_text = false;
  bool prefix_once = false;
  std::vector<int32_t> between;  // SentencePieceOptions

  absl::Status Encode(std::string_view text, const EncodeOptions& options,
                      std::vector<int32_t>* ids) const override {
    std::string repaired;
    if (!IsValidUtf8(text)) {
      AppendValidUtf8(text, &repaired);
      text = repaired;
    }
    if (options.add_special && vocab->bos_id.has_value()) {
      ids->push_back(*vocab->bos_id);
    }
    INLAY_RETURN_IF_ERROR(EncodeBare(text, options, ids));
    if (options.add_special && vocab->eos_id.has_value()) {
      ids->push_back(*vocab->eos_id);
    }
    return absl::OkStatus();
  }

  absl::Status EncodePair(std::string_view a, std::string_view b,
                          const EncodeOptions& options,
                          std::vector<int32_t>* ids,
                          std::vector<int32_t>* types) const override {
    const size_t before = ids->size();
    EncodeOptions bare = options;
    bare.add_special = options.add_special && between.empty();
    const bool adds = options.add_special && !between.empty();
    if (adds && vocab->bos_id.has_value()) ids->push_back(*vocab->bos_id);
    INLAY_RETURN_IF_ERROR(Encode(a, bare, ids));
    if (adds) ids->insert(ids->end(), between.begin(), between.end());
    const size_t middle = ids->size();
    INLAY_RETURN_IF_ERROR(Encode(b, bare, ids));
    if (adds && vocab->eos_id.has_value()) ids->push_back(*vocab->eos_id);
    if (types == nullptr) return absl::OkStatus();
    types->resize(types->size() + middle - before, 0);
    types->resize(types->size() + ids->size() - middle, 1);
    return absl::OkStatus();
  }

  std::unique_ptr<DecodeStream> StartDecode(
      const DecodeOptions& options) const override {
    return StartSentencePieceDecode(*vocab, decode_rules, options);
  }

  int32_t vocab_size() const override {
    return static_cast<int32_t>(vocab->pieces.size());
  }

  std::optional<int32_t> TokenToId(std::string_view token) const override {
    return vocab->Find(token);
  }

  std::string_view IdToToken(int32_t id) const override {
    return vocab->Contains(id) ? std::string_view(vocab->at(id).text)
                               : std::string_view();
  }

  bool IsSpecial(int32_t id) const override {
    return vocab->Contains(id) && IsSpecialPiece(vocab->at(id));
  }

  std::string TokenBytes(int32_t id) const override {
    return vocab->Contains(id) ? SentencePieceBytes(vocab->at(id), decode_rules)
                               : std::string();
  }

 private:
  // Without BOS and EOS, of valid UTF-8.
  absl::Status EncodeBare(std::string_view text, const EncodeOptions& options,
                          std::vector<int32_t>* ids) const {
    const bool finds_control =
        options.parse_control || (options.parse_special && control_in_text);
    bool is_start = true;
    for (size_t from = 0, at = 0; from < text.size();) {
      PieceTrie::Match match;
      if (finds_control) {
        while (at < text.size()) {
          match = control.LongestPrefix(text.substr(at));
          if (match.length > 0) break;
          ++at;
        }
      } else {
        at = text.size();
      }
      INLAY_RETURN_IF_ERROR(EncodePlain(text.substr(from, at - from), is_start,
                                        options.max_ids, ids));
      if (match.length > 0) {
        ids->push_back(match.value);
        INLAY_RETURN_IF_ERROR(CheckCount(*ids, options.max_ids));
      }
      from = at = at + match.length;
      is_start = !prefix_once;
    }
    return absl::OkStatus();
  }

  // Without control pieces.
  absl::Status EncodePlain(std::string_view text, bool is_start, size_t max_ids,
                           std::vector<int32_t>* ids) const {
    std::string normalized;
    INLAY_RETURN_IF_ERROR(normalizer->Normalize(text, is_start, &normalized));
    std::vector<TextSpan> path;
    bool after_unknown = false;
    for (size_t begin = 0; begin < normalized.size();) {
      path.clear();
      if (bpe.has_value()) {
        begin = bpe->Encode(normalized, begin, &path);
      } else {
        unigram->BestPath(normalized, &path);  // there is an unknown piece
        begin = normalized.size();
      }
      AppendIds(normalized, path, &after_unknown, ids);
      INLAY_RETURN_IF_ERROR(CheckCount(*ids, max_ids));
    }
    return absl::OkStatus();
  }

  static absl::Status CheckCount(const std::vector<int32_t>& ids,
                                 size_t max_ids) {
    if (ids.size() <= max_ids) return absl::OkStatus();
    return absl::OutOfRangeError(FormattedString(
        "sentencepiece: the text has more than %d tokens", max_ids));
  }

  // Unknown characters become their bytes, or a run of them one unknown id.
  void AppendIds(std::string_view normalized, const std::vector<TextSpan>& path,
                 bool* after_unknown, std::vector<int32_t>* ids) const {
    for (const TextSpan& span : path) {
      const bool unknown = span.id == vocab->unk_id;
      if (unknown && vocab->byte_fallback) {
        for (size_t i = span.begin; i < span.end; ++i) {
          ids->push_back(
              vocab->byte_ids[static_cast<unsigned char>(normalized[i])]);
        }
      } else if (!unknown || !*after_unknown) {
        ids->push_back(span.id);
      }
      *after_unknown = unknown;
    }
  }
};

// Parsing allocates an object a piece before anyone can look at it: count them
// first, and refuse those too short to hold a text.
absl::Status CheckPieces(std::string_view bytes) {
  using google::protobuf::internal::WireFormatLite;
  constexpr uint32_t kPiecesTag =
      WireFormatLite::MakeTag(ModelProto::kPiecesFieldNumber,
                              WireFormatLite::WIRETYPE_LENGTH_DELIMITED);
  constexpr uint32_t kMinPieceBytes = 3;  // tag, length, a byte of text
  google::protobuf::io::CodedInputStream in(
      reinterpret_cast<const uint8_t*>(bytes.data()),
      static_cast<int>(bytes.size()));
  size_t count = 0;
  while (const uint32_t tag = in.ReadTag()) {
    if (tag != kPiecesTag) {
      if (!WireFormatLite::SkipField(&in, tag)) break;
      continue;
    }
    uint32_t length = 0;
    if (!in.ReadVarint32(&length) ||
        length > static_cast<uint32_t>(std::numeric_limits<int>::max()) ||
        !in.Skip(static_cast<int>(length))) {
      break;
    }
    if (length < kMinPieceBytes) {
      return absl::InvalidArgumentError(
          FormattedString("sentencepiece: piece %d is empty", count));
    }
    if (++count > kMaxPieces) {
      return absl::InvalidArgumentError(FormattedString(
          "sentencepiece: more than the %d pieces allowed", kMaxPieces));
    }
  }
  return absl::OkStatus();  // what broke the loop early, the parser reports
}

// Owned by the arena: without one, a message that finds no memory for one more
// element leaks that.
absl::StatusOr<const ModelProto*> ParseModel(std::string_view bytes,
                                             google::protobuf::Arena* arena) {
  if (bytes.size() > kMaxBytes) {
    return absl::InvalidArgumentError(FormattedString(
        "sentencepiece: a model of %d bytes, at most %d allowed", bytes.size(),
        kMaxBytes));
  }
  INLAY_RETURN_IF_ERROR(CheckPieces(bytes));
  auto* model = google::protobuf::Arena::CreateMessage<ModelProto>(arena);
  if (!model->ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return absl::InvalidArgumentError(FormattedString(
        "sentencepiece: the %d bytes are not a serialised ModelProto",
        bytes.size()));
  }
  return model;
}

UnigramLattice<float> MakeLattice(const SentencePieceVocab& vocab) {
  float min_score = FLT_MAX;
  for (const SentencePieceVocab::Piece& piece : vocab.pieces) {
    if (piece.kind != Kind::kNormal) continue;
    min_score = std::min(min_score, piece.score);
  }
  UnigramLattice<float> lattice;
  lattice.trie = &vocab.in_text;
  lattice.unk_id = vocab.unk_id;
  lattice.unk_score = min_score - kUnkPenalty;
  lattice.rebase_above = kRebaseAbove;
  lattice.scores.reserve(vocab.pieces.size());
  for (const SentencePieceVocab::Piece& piece : vocab.pieces) {
    float score = piece.score;
    if (piece.kind == Kind::kUnused) {
      score = UnigramLattice<float>::kNever;
    } else if (piece.kind == Kind::kUserDefined) {
      // Above what a trained piece has, and more for one than for several.
      score =
          static_cast<float>(0.1 * static_cast<double>(piece.text.size() - 1));
    }
    lattice.scores.push_back(score);
  }
  return lattice;
}

PieceTrie MakeControl(const SentencePieceVocab& vocab) {
  std::vector<PieceTrie::Entry> entries;
  for (size_t i = 0; i < vocab.pieces.size(); ++i) {
    const SentencePieceVocab::Piece& piece = vocab.pieces[i];
    if (!IsSpecialPiece(piece)) continue;
    entries.push_back({piece.text, static_cast<int32_t>(i)});
  }
  return PieceTrie::Build(std::move(entries));
}

absl::Status SetDecodeRules(const ModelProto& model,
                            SentencePieceDecodeRules* rules) {
  rules->strip_leading_spaces =
      model.normalizer_spec().remove_extra_whitespaces();
  rules->strip_first_space =
      rules->strip_leading_spaces || model.normalizer_spec().add_dummy_prefix();
  rules->unk_surface = model.trainer_spec().unk_surface();
  if (!IsValidUtf8(rules->unk_surface)) {
    return absl::InvalidArgumentError(
        "sentencepiece: trainer_spec.unk_surface is not valid UTF-8");
  }
  if (!model.denormalizer_spec().precompiled_charsmap().empty()) {
    INLAY_ASSIGN_OR_RETURN(
        rules->denormalizer,
        SentencePieceNormalizer::Create(model.denormalizer_spec(),
                                        /*space_as_suffix=*/false,
                                        /*protected_pieces=*/nullptr));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Tokenizer>> MakeSentencePieceTokenizer(
    std::string_view model_proto_bytes, const SentencePieceOptions& options) {
  google::protobuf::Arena arena;
  INLAY_ASSIGN_OR_RETURN(const ModelProto* parsed,
                         ParseModel(model_proto_bytes, &arena));
  const ModelProto& model = *parsed;
  const TrainerSpec& trainer = model.trainer_spec();
  if (trainer.model_type() != TrainerSpec::UNIGRAM &&
      trainer.model_type() != TrainerSpec::BPE) {
    return absl::UnimplementedError(FormattedString(
        "sentencepiece: the model type %s is not supported, UNIGRAM and BPE "
        "are",
        TrainerSpec::ModelType_Name(trainer.model_type())));
  }
  auto tokenizer = std::make_unique<SentencePieceTokenizer>();
  INLAY_ASSIGN_OR_RETURN(tokenizer->vocab, SentencePieceVocab::Create(model));
  INLAY_ASSIGN_OR_RETURN(
      tokenizer->normalizer,
      SentencePieceNormalizer::Create(model.normalizer_spec(),
                                      trainer.treat_whitespace_as_suffix(),
                                      &tokenizer->vocab->user_defined));
  INLAY_RETURN_IF_ERROR(SetDecodeRules(model, &tokenizer->decode_rules));
  for (const std::string& piece : options.between) {
    const std::optional<int32_t> id = tokenizer->vocab->Find(piece);
    if (!id.has_value()) {
      return absl::InvalidArgumentError(
          FormattedString("sentencepiece: there is no piece \"%s\" to stand "
                          "between two texts",
                          piece.substr(0, 80)));
    }
    tokenizer->between.push_back(*id);
  }
  tokenizer->prefix_once = options.prefix_once;
  tokenizer->control_in_text = options.control_in_text;
  tokenizer->control = MakeControl(*tokenizer->vocab);
  if (trainer.model_type() == TrainerSpec::BPE) {
    tokenizer->bpe.emplace(tokenizer->vocab.get());
  } else {
    tokenizer->unigram = MakeLattice(*tokenizer->vocab);
  }
  return tokenizer;
}

}  // namespace inlay
