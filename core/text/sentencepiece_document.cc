#include "core/text/sentencepiece_document.h"

#include <google/protobuf/arena.h>

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "core/text/sentencepiece_model.h"
#include "memory/formatted_string.h"
#include "memory/status.h"
#include "sentencepiece_model.pb.h"

namespace inlay {
namespace {

using sentencepiece::ModelProto;
using sentencepiece::NormalizerSpec;
using sentencepiece::TrainerSpec;
using PieceProto = ModelProto::SentencePiece;

constexpr char kType[] = "SentencePiece";

// Without an arena, a message that finds no memory for one more element leaks
// that.
ModelProto& NewProto(google::protobuf::Arena* arena) {
  return *google::protobuf::Arena::CreateMessage<ModelProto>(arena);
}

absl::Status AddPiece(const Json& row, ModelProto* proto) {
  const bool well_formed =
      row.is_array() && row.size() == 3 && row[0].is_string() &&
      row[1].is_number() && std::abs(row[1].get<double>()) <= FLT_MAX &&
      row[2].is_number_integer() &&
      PieceProto::Type_IsValid(
          static_cast<int>(std::clamp(row[2].get<double>(), -1.0, 1e6)));
  if (!well_formed) {
    return absl::InvalidArgumentError(FormattedString(
        "sentencepiece: pieces[%d] is not [text, score, kind from 1 to 6]",
        proto->pieces_size()));
  }
  PieceProto* piece = proto->add_pieces();
  piece->set_piece(row[0].get<std::string>());
  piece->set_score(static_cast<float>(row[1].get<double>()));
  piece->set_type(static_cast<PieceProto::Type>(row[2].get<int>()));
  return absl::OkStatus();
}

absl::Status ReadTrainer(const Json& model, TrainerSpec* trainer) {
  INLAY_ASSIGN_OR_RETURN(const std::string name,
                         JsonString(model, "model_type", ""));
  TrainerSpec::ModelType type;
  if (!TrainerSpec::ModelType_Parse(name, &type)) {
    return absl::InvalidArgumentError(FormattedString(
        "sentencepiece: \"model_type\" is \"%s\", allowed: BPE, UNIGRAM",
        name));
  }
  trainer->set_model_type(type);
  INLAY_ASSIGN_OR_RETURN(const bool bytes,
                         JsonBool(model, "byte_fallback", false));
  trainer->set_byte_fallback(bytes);
  INLAY_ASSIGN_OR_RETURN(const bool suffix,
                         JsonBool(model, "treat_whitespace_as_suffix", false));
  trainer->set_treat_whitespace_as_suffix(suffix);
  INLAY_ASSIGN_OR_RETURN(
      std::string surface,
      JsonString(model, "unk_surface", trainer->unk_surface()));
  trainer->set_unk_surface(std::move(surface));
  INLAY_ASSIGN_OR_RETURN(std::string bos, JsonString(model, "bos_piece", ""));
  trainer->set_bos_piece(std::move(bos));
  INLAY_ASSIGN_OR_RETURN(std::string eos, JsonString(model, "eos_piece", ""));
  trainer->set_eos_piece(std::move(eos));
  return absl::OkStatus();
}

absl::Status ReadNormalizer(const Json& section, NormalizerSpec* spec) {
  INLAY_ASSIGN_OR_RETURN(const std::string base64,
                         JsonString(section, "precompiled_charsmap", ""));
  std::string charsmap;
  if (!absl::Base64Unescape(base64, &charsmap)) {
    return absl::InvalidArgumentError(
        FormattedString("sentencepiece: \"precompiled_charsmap\" (%d "
                        "characters) is not base64",
                        base64.size()));
  }
  spec->set_precompiled_charsmap(std::move(charsmap));
  INLAY_ASSIGN_OR_RETURN(const bool prefix,
                         JsonBool(section, "add_dummy_prefix", true));
  spec->set_add_dummy_prefix(prefix);
  INLAY_ASSIGN_OR_RETURN(const bool trims,
                         JsonBool(section, "remove_extra_whitespaces", true));
  spec->set_remove_extra_whitespaces(trims);
  INLAY_ASSIGN_OR_RETURN(const bool escapes,
                         JsonBool(section, "escape_whitespaces", true));
  spec->set_escape_whitespaces(escapes);
  return absl::OkStatus();
}

Json NormalizerJson(const NormalizerSpec& spec) {
  return Json{
      {"precompiled_charsmap", absl::Base64Escape(spec.precompiled_charsmap())},
      {"add_dummy_prefix", spec.add_dummy_prefix()},
      {"remove_extra_whitespaces", spec.remove_extra_whitespaces()},
      {"escape_whitespaces", spec.escape_whitespaces()}};
}

}  // namespace

bool IsSentencePieceDocument(const Json& document) {
  const Json* model = JsonFind(document, "model");
  const Json* type = model == nullptr ? nullptr : JsonFind(*model, "type");
  return type != nullptr && *type == kType;
}

absl::StatusOr<Json> SentencePieceDocument(std::string_view model_proto_bytes) {
  INLAY_RETURN_IF_ERROR(MakeSentencePieceTokenizer(model_proto_bytes).status());
  google::protobuf::Arena arena;
  ModelProto& proto =
      NewProto(&arena);  // within bounds that were checked there
  if (!proto.ParseFromArray(model_proto_bytes.data(),
                            static_cast<int>(model_proto_bytes.size()))) {
    return absl::InvalidArgumentError(
        "sentencepiece: not a serialised ModelProto");
  }
  const TrainerSpec& trainer = proto.trainer_spec();
  Json pieces = Json::array();
  for (const PieceProto& piece : proto.pieces()) {
    pieces.push_back(Json::array(
        {piece.piece(), piece.score(), static_cast<int>(piece.type())}));
  }
  Json document = {
      {"model",
       Json{
           {"type", kType},
           {"model_type", TrainerSpec::ModelType_Name(trainer.model_type())},
           {"pieces", std::move(pieces)},
           {"byte_fallback", trainer.byte_fallback()},
           {"treat_whitespace_as_suffix", trainer.treat_whitespace_as_suffix()},
           {"unk_surface", trainer.unk_surface()},
           {"bos_piece", trainer.bos_piece()},
           {"eos_piece", trainer.eos_piece()}}},
      {"normalizer", NormalizerJson(proto.normalizer_spec())}};
  if (!proto.denormalizer_spec().precompiled_charsmap().empty()) {
    document["denormalizer"] = NormalizerJson(proto.denormalizer_spec());
  }
  return document;
}

absl::StatusOr<std::string> ConfiguredSentencePiece(
    std::string model_proto_bytes, const Json& tokenizer_config,
    const std::vector<Json>& tokens) {
  if (!tokenizer_config.is_object() && tokens.empty()) return model_proto_bytes;
  INLAY_ASSIGN_OR_RETURN(const std::string type,
                         JsonString(tokenizer_config, "tokenizer_class", ""));
  const bool only_bos =
      absl::StrContains(type, "Llama") || absl::StrContains(type, "Gemma");
  INLAY_ASSIGN_OR_RETURN(const bool bos,
                         JsonBool(tokenizer_config, "add_bos_token", true));
  INLAY_ASSIGN_OR_RETURN(
      const bool eos, JsonBool(tokenizer_config, "add_eos_token", !only_bos));
  if (bos && eos && tokens.empty()) return model_proto_bytes;
  google::protobuf::Arena arena;
  ModelProto& proto = NewProto(&arena);
  // What is no model is refused by who makes one of it.
  if (!proto.ParseFromString(model_proto_bytes)) return model_proto_bytes;
  if (!bos) proto.mutable_trainer_spec()->set_bos_piece("");
  if (!eos) proto.mutable_trainer_spec()->set_eos_piece("");
  std::unordered_set<std::string> texts;
  for (const PieceProto& piece : proto.pieces()) texts.insert(piece.piece());
  for (const Json& token : tokens) {
    INLAY_ASSIGN_OR_RETURN(std::string text, JsonString(token, "content", ""));
    INLAY_ASSIGN_OR_RETURN(const bool special,
                           JsonBool(token, "special", false));
    if (text.empty() || !texts.insert(text).second) continue;
    PieceProto& piece = *proto.add_pieces();
    piece.set_piece(std::move(text));
    piece.set_score(0.0f);
    piece.set_type(special ? PieceProto::CONTROL : PieceProto::USER_DEFINED);
  }
  return proto.SerializeAsString();
}

absl::StatusOr<std::unique_ptr<Tokenizer>> MakeSentencePieceFromDocument(
    const Json& document) {
  const Json* model = JsonFind(document, "model");
  const Json* pieces = model == nullptr ? nullptr : JsonFind(*model, "pieces");
  if (pieces == nullptr || !pieces->is_array()) {
    return absl::InvalidArgumentError(
        "sentencepiece: \"pieces\" is missing, a list of [text, score, kind] "
        "expected");
  }
  google::protobuf::Arena arena;
  ModelProto& proto = NewProto(&arena);
  for (const Json& row : *pieces) {
    INLAY_RETURN_IF_ERROR(AddPiece(row, &proto));
  }
  INLAY_RETURN_IF_ERROR(ReadTrainer(*model, proto.mutable_trainer_spec()));
  const struct {
    const char* key;
    NormalizerSpec* spec;
  } sections[] = {{"normalizer", proto.mutable_normalizer_spec()},
                  {"denormalizer", proto.mutable_denormalizer_spec()}};
  for (const auto& [key, spec] : sections) {
    const Json* section = JsonFind(document, key);
    if (section == nullptr) continue;
    INLAY_RETURN_IF_ERROR(ReadNormalizer(*section, spec));
  }
  SentencePieceOptions options;
  const Json* between = JsonFind(*model, "between");
  for (const Json& piece : between == nullptr ? Json::array() : *between) {
    if (!piece.is_string()) {
      return absl::InvalidArgumentError(
          "sentencepiece: \"between\" is no list of pieces");
    }
    options.between.push_back(piece.get<std::string>());
  }
  return MakeSentencePieceTokenizer(proto.SerializeAsString(), options);
}

}  // namespace inlay
