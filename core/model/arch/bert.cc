// BERT (Devlin et al., arXiv:1810.04805) and RoBERTa (Liu et al.,
// arXiv:1907.11692; XLM-R is one): encoders, the norms after the sums, learned
// positions, of which RoBERTa's begin after the padding id. Of heads the
// classifier of sequences is loaded.
#include <cmath>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/formats/classification_config.h"
#include "core/model/arch.h"
#include "core/model/decoder.h"
#include "core/model/hf_config.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

struct BertConfig {
  int64_t vocab_size = 0;
  int64_t hidden = 0;
  int64_t layers = 0;
  int64_t heads = 0;
  int64_t inner = 0;
  int64_t positions = 0;  // rows of the table
  int64_t segments = 0;
  float epsilon = 0.0f;
  Activation activation = Activation::kGelu;
};

absl::Status CheckEncoder(const Json& json, const BertConfig& config) {
  if (config.hidden % config.heads != 0 ||
      config.hidden / config.heads > kMaxHeadDim) {
    return absl::InvalidArgumentError(FormattedString(
        "config.json: hidden_size is %d with num_attention_heads %d; it must "
        "be a multiple, with at most %d dimensions a head",
        config.hidden, config.heads, kMaxHeadDim));
  }
  INLAY_ASSIGN_OR_RETURN(
      const std::string positions,
      JsonString(json, "position_embedding_type", "absolute"));
  if (positions != "absolute") {
    return absl::UnimplementedError(FormattedString(
        "config.json: position_embedding_type is \"%s\", supported: absolute",
        positions));
  }
  INLAY_ASSIGN_OR_RETURN(const bool decoder,
                         JsonBool(json, "is_decoder", false));
  if (decoder) {
    return absl::UnimplementedError(
        "config.json: is_decoder is true; only encoders of this family are "
        "supported");
  }
  return absl::OkStatus();
}

absl::StatusOr<BertConfig> ReadBertConfig(const Json& json) {
  BertConfig out;
  INLAY_ASSIGN_OR_RETURN(out.vocab_size,
                         JsonInt(json, "vocab_size", 30522, 1, kMaxVocab));
  INLAY_ASSIGN_OR_RETURN(out.hidden,
                         JsonInt(json, "hidden_size", 768, 1, kMaxHidden));
  INLAY_ASSIGN_OR_RETURN(out.layers,
                         JsonInt(json, "num_hidden_layers", 12, 1, kMaxLayers));
  INLAY_ASSIGN_OR_RETURN(
      out.heads, JsonInt(json, "num_attention_heads", 12, 1, kMaxHeads));
  INLAY_ASSIGN_OR_RETURN(
      out.inner, JsonInt(json, "intermediate_size", 3072, 1, 4 * kMaxHidden));
  INLAY_ASSIGN_OR_RETURN(out.positions, JsonInt(json, "max_position_embeddings",
                                                512, 1, kMaxHidden));
  INLAY_ASSIGN_OR_RETURN(out.segments,
                         JsonInt(json, "type_vocab_size", 2, 1, kMaxHidden));
  INLAY_ASSIGN_OR_RETURN(const double epsilon,
                         JsonNumber(json, "layer_norm_eps", 1e-12, 0.0, 1.0));
  out.epsilon = static_cast<float>(epsilon);
  INLAY_ASSIGN_OR_RETURN(out.activation,
                         ReadActivation(json, "hidden_act", "gelu"));
  INLAY_RETURN_IF_ERROR(CheckEncoder(json, out));
  return out;
}

LayerSpec EncoderLayer(const BertConfig& config, const std::string& prefix) {
  const int64_t hidden = config.hidden;
  const auto linear = [&](const char* name, int64_t n, int64_t k) {
    return LinearSpec{absl::StrCat(prefix, name), n, k, true};
  };
  AttentionSpec attention;
  attention.num_heads = static_cast<int>(config.heads);
  attention.num_kv_heads = attention.num_heads;
  attention.head_dim = static_cast<int>(hidden / config.heads);
  attention.qkv = {linear("attention.self.query", hidden, hidden),
                   linear("attention.self.key", hidden, hidden),
                   linear("attention.self.value", hidden, hidden)};
  attention.output = linear("attention.output.dense", hidden, hidden);
  attention.scale = 1.0f / std::sqrt(static_cast<float>(attention.head_dim));
  attention.causal = false;
  MlpSpec mlp;
  mlp.width = config.inner;
  mlp.activation = config.activation;
  mlp.input = {linear("intermediate.dense", config.inner, hidden)};
  mlp.output = linear("output.dense", hidden, config.inner);

  LayerSpec spec;
  spec.blocks.resize(2);
  spec.blocks[0].part = attention;
  spec.blocks[0].sum_norm = {
      NormKind::kLayer, prefix + "attention.output.LayerNorm", config.epsilon};
  spec.blocks[1].part = mlp;
  spec.blocks[1].sum_norm = {NormKind::kLayer, prefix + "output.LayerNorm",
                             config.epsilon};
  return spec;
}

// `offset`: of the first position's row.
DecoderSpec EncoderSpec(const BertConfig& config, int64_t offset,
                        const std::string& prefix) {
  const std::string embeddings = prefix + "embeddings.";
  DecoderSpec spec;
  spec.is_encoder = true;
  spec.optional_prefix = prefix;
  spec.vocab_size = config.vocab_size;
  spec.hidden_size = config.hidden;
  spec.max_positions = config.positions - offset;
  spec.embedding = embeddings + "word_embeddings.weight";
  spec.position_embedding = embeddings + "position_embeddings.weight";
  spec.position_offset = offset;
  spec.segment_embedding = embeddings + "token_type_embeddings.weight";
  spec.num_segments = config.segments;
  spec.embedding_norm = {NormKind::kLayer, embeddings + "LayerNorm",
                         config.epsilon};
  for (int64_t i = 0; i < config.layers; ++i) {
    spec.layers.push_back(EncoderLayer(
        config, FormattedString("%sencoder.layer.%d.", prefix, i)));
  }
  return spec;
}

absl::StatusOr<DecoderSpec> BertSpec(const Json& json) {
  INLAY_ASSIGN_OR_RETURN(const BertConfig config, ReadBertConfig(json));
  return EncoderSpec(config, 0, "bert.");
}

absl::StatusOr<DecoderSpec> RobertaSpec(const Json& json) {
  INLAY_ASSIGN_OR_RETURN(const BertConfig config, ReadBertConfig(json));
  INLAY_ASSIGN_OR_RETURN(
      const int64_t padding,
      JsonInt(json, "pad_token_id", 1, 0, config.positions - 2));
  return EncoderSpec(config, padding + 1, "roberta.");
}

absl::StatusOr<std::unique_ptr<Model>> MakeClassifier(const Json& json,
                                                      const char* dense,
                                                      const char* output,
                                                      DecoderSpec spec,
                                                      ModelBuild& build) {
  INLAY_ASSIGN_OR_RETURN(const ClassificationDefaults labels,
                         ReadClassificationDefaults(json));
  const int64_t hidden = spec.hidden_size;
  spec.classifier = {
      {dense, hidden, hidden, true},
      {output, static_cast<int64_t>(labels.labels.size()), hidden, true}};
  return BuildDecoder(spec, build);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> MakeBert(const Json& json,
                                                ModelBuild& build) {
  INLAY_ASSIGN_OR_RETURN(const DecoderSpec spec, BertSpec(json));
  return BuildDecoder(spec, build);
}

// The pooler, then the classifier.
absl::StatusOr<std::unique_ptr<Model>> MakeBertClassifier(const Json& json,
                                                          ModelBuild& build) {
  INLAY_ASSIGN_OR_RETURN(DecoderSpec spec, BertSpec(json));
  return MakeClassifier(json, "bert.pooler.dense", "classifier",
                        std::move(spec), build);
}

absl::StatusOr<std::unique_ptr<Model>> MakeRoberta(const Json& json,
                                                   ModelBuild& build) {
  INLAY_ASSIGN_OR_RETURN(const DecoderSpec spec, RobertaSpec(json));
  return BuildDecoder(spec, build);
}

absl::StatusOr<std::unique_ptr<Model>> MakeRobertaClassifier(
    const Json& json, ModelBuild& build) {
  INLAY_ASSIGN_OR_RETURN(DecoderSpec spec, RobertaSpec(json));
  return MakeClassifier(json, "classifier.dense", "classifier.out_proj",
                        std::move(spec), build);
}

}  // namespace inlay
