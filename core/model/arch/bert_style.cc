#include "core/model/arch/bert_style.h"

#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/formats/classification_config.h"
#include "core/model/hf_config.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

absl::Status CheckEncoder(const Json& json) {
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

}  // namespace

absl::Status CheckBertHeads(const BertConfig& config) {
  if (config.hidden % config.heads == 0 && config.head_dim() <= kMaxHeadDim) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(FormattedString(
      "config.json: hidden_size is %d with num_attention_heads %d; it "
      "must be a multiple, with at most %d dimensions a head",
      config.hidden, config.heads, kMaxHeadDim));
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
                         JsonInt(json, "type_vocab_size", 2, 0, kMaxHidden));
  INLAY_ASSIGN_OR_RETURN(const double epsilon,
                         JsonNumber(json, "layer_norm_eps", 1e-12, 0.0, 1.0));
  out.epsilon = static_cast<float>(epsilon);
  INLAY_ASSIGN_OR_RETURN(out.activation,
                         ReadActivation(json, "hidden_act", "gelu"));
  INLAY_RETURN_IF_ERROR(CheckBertHeads(out));
  INLAY_RETURN_IF_ERROR(CheckEncoder(json));
  return out;
}

absl::StatusOr<int64_t> RobertaOffset(const Json& json,
                                      const BertConfig& config) {
  INLAY_ASSIGN_OR_RETURN(
      const int64_t padding,
      JsonInt(json, "pad_token_id", 1, 0, config.positions - 2));
  return padding + 1;
}

Json WithDefaults(const Json& json, const Json& defaults) {
  Json all = json;
  for (const auto& [key, value] : defaults.items()) {
    if (JsonFind(all, key) == nullptr) all[key] = value;
  }
  return all;
}

LayerSpec BertLayer(const BertConfig& config, const std::string& prefix,
                    const BertLayerNames& names) {
  const int64_t hidden = config.hidden;
  const auto linear = [&](const char* name, int64_t n, int64_t k) {
    return LinearSpec{absl::StrCat(prefix, name), n, k, true};
  };
  AttentionSpec attention;
  attention.num_heads = static_cast<int>(config.heads);
  attention.num_kv_heads = attention.num_heads;
  attention.head_dim = static_cast<int>(config.head_dim());
  attention.qkv = {linear(names.query, hidden, hidden),
                   linear(names.key, hidden, hidden),
                   linear(names.value, hidden, hidden)};
  attention.output = linear(names.attention_output, hidden, hidden);
  attention.scale = 1.0f / std::sqrt(static_cast<float>(attention.head_dim));
  attention.causal = false;
  MlpSpec mlp;
  mlp.width = config.inner;
  mlp.activation = config.activation;
  mlp.input = {linear(names.inner, config.inner, hidden)};
  mlp.output = linear(names.output, hidden, config.inner);

  LayerSpec spec;
  spec.blocks.resize(2);
  spec.blocks[0].part = std::move(attention);
  spec.blocks[0].sum_norm = {NormKind::kLayer,
                             absl::StrCat(prefix, names.attention_norm),
                             config.epsilon};
  spec.blocks[1].part = std::move(mlp);
  spec.blocks[1].sum_norm = {NormKind::kLayer,
                             absl::StrCat(prefix, names.output_norm),
                             config.epsilon};
  return spec;
}

DecoderSpec BertStyleSpec(const BertConfig& config, int64_t offset,
                          const std::string& prefix, const char* layers,
                          const BertLayerNames& names) {
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
  if (config.segments > 0) {
    spec.segment_embedding = embeddings + "token_type_embeddings.weight";
    spec.num_segments = config.segments;
  }
  spec.embedding_norm = {NormKind::kLayer, embeddings + "LayerNorm",
                         config.epsilon};
  for (int64_t i = 0; i < config.layers; ++i) {
    spec.layers.push_back(
        BertLayer(config, absl::StrCat(prefix, layers, i, "."), names));
  }
  return spec;
}

absl::Status ReadNarrowEmbedding(const Json& json, const EmbeddingWidthKey& key,
                                 std::string linear, bool always,
                                 DecoderSpec* spec) {
  const int64_t hidden = spec->hidden_size;
  INLAY_ASSIGN_OR_RETURN(const int64_t width,
                         JsonInt(json, key.name, key.fallback, 1, kMaxHidden));
  if (width > hidden) {
    return absl::UnimplementedError(FormattedString(
        "config.json: %s is %d with hidden_size %d; supported are embeddings "
        "at most as wide as the network",
        key.name, width, hidden));
  }
  if (width == hidden && !always) return absl::OkStatus();
  spec->embedding_projection =
      EmbeddingProjectionSpec{.input = {std::move(linear), hidden, width, true},
                              .output = {},
                              .comes_last = true};
  return absl::OkStatus();
}

absl::StatusOr<ClassifierSpec> BertStyleClassifier(const Json& json,
                                                   HeadLayerSpec dense,
                                                   std::string output) {
  INLAY_ASSIGN_OR_RETURN(const ClassificationDefaults labels,
                         ReadClassificationDefaults(json));
  ClassifierSpec spec;
  spec.output = {std::move(output), static_cast<int64_t>(labels.labels.size()),
                 dense.linear.n, true};
  spec.layers.push_back(std::move(dense));
  return spec;
}

}  // namespace inlay
