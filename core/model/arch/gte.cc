// Encoders that are BERT with rotary positions and biases: GTE (Zhang et al.,
// arXiv:2407.19669; "new" where files come with code of their own) with gated
// MLPs, and jina-embeddings-v3 (Sturua et al., arXiv:2409.10173), whose files
// for transformers 5.24 keep the adapters of tasks apart: the network is the
// one without. Of heads GTE's classifier of sequences is loaded. Sources:
// transformers 5.24; of "ntk" vLLM's ntk_scaling_rope.py (Su,
// https://kexue.fm/archives/9706).
#include <cmath>
#include <string>
#include <utility>

#include "core/model/arch.h"
#include "core/model/arch/bert_style.h"
#include "core/model/decoder.h"
#include "core/model/hf_config.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

// Published files' way to say that positions are rotated is no position of
// BERT's. `defaults`: what the family has where config.json is silent.
absl::StatusOr<BertConfig> ReadRotaryBert(const Json& json,
                                          const Json& defaults) {
  Json usual = json;
  INLAY_ASSIGN_OR_RETURN(const std::string kind,
                         JsonString(json, "position_embedding_type", "rope"));
  if (kind != "rope" && kind != "rotary") {
    return absl::UnimplementedError(FormattedString(
        "config.json: position_embedding_type is \"%s\", supported here: rope",
        kind));
  }
  usual.erase("position_embedding_type");
  return ReadBertConfig(WithDefaults(usual, defaults));
}

// NTK-aware scaling by a fixed factor f: a base f times as large, and all
// frequencies divided by f^(2/d) besides.
absl::StatusOr<Json> WithoutNtk(const Json& json, int64_t head_dim,
                                double theta) {
  const Json* scaling = JsonFind(json, "rope_scaling");
  if (scaling == nullptr || !scaling->is_object()) return json;
  const Json* old_type = JsonFind(*scaling, "type");
  const Json* type = JsonFind(*scaling, "rope_type");
  if (type == nullptr) type = old_type;
  if (type == nullptr || *type != "ntk") return json;
  const Json* mixed = JsonFind(*scaling, "mixed_b");
  if (mixed != nullptr) {
    return absl::UnimplementedError(
        "config.json: rope_scaling.mixed_b is set; supported here is none");
  }
  INLAY_ASSIGN_OR_RETURN(const double factor,
                         JsonNumber(*scaling, "factor", 1.0, 1.0, 1e6));
  INLAY_ASSIGN_OR_RETURN(const double base,
                         JsonNumber(json, "rope_theta", theta, 1.0, 1e9));
  Json changed = json;
  changed["rope_theta"] = base * factor;
  changed["rope_scaling"] = {
      {"rope_type", "linear"},
      {"factor", std::pow(factor, 2.0 / static_cast<double>(head_dim))}};
  return changed;
}

absl::StatusOr<RopeSpec> ReadEncoderRope(const Json& json,
                                         const BertConfig& config,
                                         double theta) {
  DecoderConfig decoder;
  decoder.head_dim = static_cast<int>(config.head_dim());
  decoder.max_positions = config.positions;
  INLAY_ASSIGN_OR_RETURN(const Json usual,
                         WithoutNtk(json, config.head_dim(), theta));
  return ReadRope(usual, decoder, {.theta = theta});
}

// Layers named `names`, behind "PREFIXlayersN.", with one layer for q, k and v.
DecoderSpec RotaryBertSpec(const BertConfig& config, const RopeSpec& rope,
                           const std::string& prefix, const char* layers,
                           const BertLayerNames& names) {
  DecoderSpec spec = BertStyleSpec(config, 0, prefix, layers, names);
  spec.position_embedding.clear();
  spec.ropes = {rope};
  for (int64_t i = 0; i < config.layers; ++i) {
    auto& attention = std::get<AttentionSpec>(
        spec.layers[static_cast<size_t>(i)].blocks[0].part);
    attention.qkv = {
        {FormattedString("%s%s%d.%s", prefix, layers, i, names.query),
         3 * config.hidden, config.hidden, true}};
    attention.rope = 0;
  }
  return spec;
}

// What published files do not have: scores that grow with the length.
absl::Status CheckGte(const Json& json) {
  for (const char* key : {"logn_attention_scale", "logn_attention_clip1"}) {
    INLAY_ASSIGN_OR_RETURN(const bool value, JsonBool(json, key, false));
    if (!value) continue;
    return absl::UnimplementedError(FormattedString(
        "config.json: %s is true; supported here is false", key));
  }
  INLAY_ASSIGN_OR_RETURN(const bool packed, JsonBool(json, "pack_qkv", true));
  if (!packed) {
    return absl::UnimplementedError(
        "config.json: pack_qkv is false; supported here is true");
  }
  INLAY_ASSIGN_OR_RETURN(const std::string norm,
                         JsonString(json, "layer_norm_type", "layer_norm"));
  if (norm == "layer_norm") return absl::OkStatus();
  return absl::UnimplementedError(FormattedString(
      "config.json: layer_norm_type is \"%s\", supported: layer_norm", norm));
}

// `prefix`: GtePrefix().
absl::StatusOr<DecoderSpec> GteSpec(const Json& json,
                                    const std::string& prefix) {
  constexpr char kLayers[] = "encoder.layer.";
  INLAY_RETURN_IF_ERROR(CheckGte(json));
  INLAY_ASSIGN_OR_RETURN(
      const BertConfig config,
      ReadRotaryBert(json, {{"vocab_size", 250048},
                            {"max_position_embeddings", 8192},
                            {"type_vocab_size", 1}}));
  INLAY_ASSIGN_OR_RETURN(const RopeSpec rope,
                         ReadEncoderRope(json, config, 160000.0));
  DecoderSpec spec = RotaryBertSpec(config, rope, prefix, kLayers,
                                    {.query = "attention.qkv_proj",
                                     .attention_output = "attention.o_proj",
                                     .attention_norm = "attn_ln",
                                     .output = "mlp.down_proj",
                                     .output_norm = "mlp_ln"});
  for (int64_t i = 0; i < config.layers; ++i) {
    auto& mlp =
        std::get<MlpSpec>(spec.layers[static_cast<size_t>(i)].blocks[1].part);
    // One layer, in files; its second half is the gate.
    const std::string name = FormattedString("%s%s%d.mlp.", prefix, kLayers, i);
    mlp.gated = true;
    mlp.input = {{name + "gate_proj", config.inner, config.hidden},
                 {name + "up_proj", config.inner, config.hidden}};
  }
  return spec;
}

// Of the model type, or what transformers keeps of the published names where it
// has made "gte" of the type "new" (its conversion_mapping.py).
std::string GtePrefix(const ModelBuild& build) {
  constexpr char kPublished[] = "new.";
  if (build.weights.Has(std::string(kPublished) +
                        "embeddings.word_embeddings.weight")) {
    return kPublished;
  }
  return FormattedString("%s.", build.model_type);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> MakeGte(const Json& json,
                                               ModelBuild& build) {
  const std::string prefix = GtePrefix(build);
  INLAY_ASSIGN_OR_RETURN(DecoderSpec spec, GteSpec(json, prefix));
  if (HasLabels(build)) {
    HeadLayerSpec dense;
    dense.linear = {prefix + "pooler.dense", spec.hidden_size, spec.hidden_size,
                    true};
    dense.tanh = true;
    INLAY_ASSIGN_OR_RETURN(
        spec.classifier,
        BertStyleClassifier(json, std::move(dense), "classifier"));
  }
  return BuildDecoder(spec, build);
}

absl::StatusOr<std::unique_ptr<Model>> MakeJinaEmbeddings(const Json& json,
                                                          ModelBuild& build) {
  // JinaEmbeddingsV3Config's.
  INLAY_ASSIGN_OR_RETURN(
      const BertConfig config,
      ReadRotaryBert(json, {{"vocab_size", 250002},
                            {"hidden_size", 1024},
                            {"num_hidden_layers", 24},
                            {"num_attention_heads", 16},
                            {"intermediate_size", 4096},
                            {"max_position_embeddings", 8194},
                            {"type_vocab_size", 1},
                            {"layer_norm_eps", 1e-5}}));
  INLAY_ASSIGN_OR_RETURN(const RopeSpec rope,
                         ReadEncoderRope(json, config, 20000.0));
  DecoderSpec spec = RotaryBertSpec(config, rope, "roberta.", "encoder.layers.",
                                    {.query = "mixer.Wqkv",
                                     .attention_output = "mixer.out_proj",
                                     .attention_norm = "norm1",
                                     .inner = "mlp.fc1",
                                     .output = "mlp.fc2",
                                     .output_norm = "norm2"});
  spec.embedding_norm.name = "roberta.emb_ln";
  return BuildDecoder(spec, build);
}

}  // namespace inlay
