// nomic-bert (Nussbaum et al., arXiv:2402.01613): BERT with rotary positions
// instead of learned ones, gated MLPs and no biases of layers; and
// nomic-embed-text-v2-moe (Nussbaum and Duderstadt, arXiv:2502.07972), with
// biases, MLPs without gates and, on every second layer, a mixture of such
// experts whose weights do not add up to 1 and whose sum has one bias.
// config.json is spelled as published files have it (GPT-2's names) or as
// transformers 5.24, whose tensors are the published ones, writes it (it has no
// mixtures). Of those the source is vLLM 0.10's bert_with_rope.py.
#include <algorithm>
#include <string>
#include <utility>

#include "core/model/arch.h"
#include "core/model/arch/bert_style.h"
#include "core/model/arch/moe_style.h"
#include "core/model/decoder.h"
#include "core/model/hf_config.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

absl::Status Unsupported(const std::string& key, const std::string& got,
                         const char* allowed) {
  return absl::UnimplementedError(FormattedString(
      "config.json: %s is %s; supported here is %s", key, got, allowed));
}

// What published files do not have.
absl::Status CheckKeys(const Json& json) {
  for (const char* key : {"prenorm", "use_rms_norm", "parallel_block", "causal",
                          "rotary_emb_interleaved", "expert_choice_router",
                          "moe_normalize_expert_weights"}) {
    INLAY_ASSIGN_OR_RETURN(const bool value, JsonBool(json, key, false));
    if (value) return Unsupported(key, "true", "false");
  }
  INLAY_ASSIGN_OR_RETURN(const bool scales,
                         JsonBool(json, "scale_attn_weights", true));
  if (!scales) return Unsupported("scale_attn_weights", "false", "true");
  for (const auto& [key, usual] :
       {std::pair{"rotary_emb_fraction", 1.0}, std::pair{"ffn_div", 1.0},
        std::pair{"num_shared_experts", 0.0}}) {
    INLAY_ASSIGN_OR_RETURN(const double value,
                           JsonNumber(json, key, usual, 0.0, 1e9));
    if (value == usual) continue;
    return absl::UnimplementedError(FormattedString(
        "config.json: %s is %g; supported here is %g", key, value, usual));
  }
  const Json* xpos = JsonFind(json, "rotary_emb_scale_base");
  if (xpos != nullptr) {
    return Unsupported("rotary_emb_scale_base", "set", "null");
  }
  return absl::OkStatus();
}

// What a layer adds to BERT's.
struct NomicConfig {
  bool gated = true;
  bool attention_bias = false;
  bool inner_bias = false;  // of MLPs, not of experts
  bool output_bias = false;
  // Layers 1, n + 1, ... are mixtures; 0: none is.
  int64_t moe_every = 0;
  int num_experts = 0;
  int top_k = 0;
  bool experts_bias = true;  // of their sum; GGUF files lack it

  bool is_moe(int64_t layer) const {
    return moe_every > 0 && layer % moe_every == 1;
  }
};

absl::Status ReadExperts(const Json& json, NomicConfig* out) {
  INLAY_ASSIGN_OR_RETURN(out->moe_every,
                         JsonInt(json, "moe_every_n_layers", 0, 0, kMaxLayers));
  if (out->moe_every == 0) return absl::OkStatus();
  if (out->gated) {
    return Unsupported("moe_every_n_layers", "set",
                       "0 where activation_function is not gelu");
  }
  for (const char* key : {"num_experts", "moe_top_k"}) {
    if (JsonFind(json, key) != nullptr) continue;
    return absl::InvalidArgumentError(FormattedString(
        "config.json: %s is missing, beside moe_every_n_layers", key));
  }
  INLAY_ASSIGN_OR_RETURN(const int64_t experts,
                         JsonInt(json, "num_experts", 0, 1, kMaxExperts));
  INLAY_ASSIGN_OR_RETURN(
      const int64_t top_k,
      JsonInt(json, "moe_top_k", 0, 1,
              std::min<int64_t>(experts, kMaxExpertsPerToken)));
  out->num_experts = static_cast<int>(experts);
  out->top_k = static_cast<int>(top_k);
  INLAY_ASSIGN_OR_RETURN(out->experts_bias,
                         JsonBool(json, "experts_bias", true));
  return absl::OkStatus();
}

absl::StatusOr<NomicConfig> ReadNomic(const Json& json) {
  NomicConfig out;
  // As published files have it, where a GELU alone has no gate.
  INLAY_ASSIGN_OR_RETURN(const std::string act,
                         JsonString(json, "activation_function", "swiglu"));
  if (act != "swiglu" && act != "geglu" && act != "gelu") {
    return Unsupported("activation_function", "\"" + act + "\"",
                       "swiglu, geglu or gelu");
  }
  out.gated = act != "gelu";
  for (const auto& [key, value] :
       {std::pair{"qkv_proj_bias", &out.attention_bias},
        std::pair{"mlp_fc1_bias", &out.inner_bias},
        std::pair{"mlp_fc2_bias", &out.output_bias}}) {
    INLAY_ASSIGN_OR_RETURN(*value, JsonBool(json, key, false));
    if (*value && out.gated) return Unsupported(key, "true", "false");
  }
  INLAY_RETURN_IF_ERROR(ReadExperts(json, &out));
  return out;
}

// Under BERT's names, with what the family assumes where it is silent.
absl::StatusOr<Json> UsualConfig(const Json& json) {
  Json usual = WithUsualNames(json, {{"n_embd", "hidden_size"},
                                     {"n_layer", "num_hidden_layers"},
                                     {"n_head", "num_attention_heads"},
                                     {"n_inner", "intermediate_size"},
                                     {"n_positions", "max_position_embeddings"},
                                     {"layer_norm_epsilon", "layer_norm_eps"},
                                     {"rotary_emb_base", "rope_theta"},
                                     {"activation_function", "hidden_act"}});
  if (JsonFind(usual, "vocab_size") == nullptr) usual["vocab_size"] = 30528;
  if (JsonFind(usual, "max_position_embeddings") == nullptr) {
    usual["max_position_embeddings"] = 2048;
  }
  // Beyond what it was trained for a model with a factor is stretched by its
  // own rule, which is not here.
  const Json* trained = JsonFind(json, "max_trained_positions");
  if (JsonFind(json, "rotary_scaling_factor") != nullptr &&
      trained != nullptr) {
    usual["max_position_embeddings"] = *trained;
  }
  INLAY_ASSIGN_OR_RETURN(const std::string act,
                         JsonString(usual, "hidden_act", "silu"));
  usual["hidden_act"] = act == "swiglu"  ? "silu"
                        : act == "geglu" ? "gelu"
                                         : act;
  return usual;
}

// Chosen by a softmax over all experts, whose weights stay as they are.
MoeSpec NomicMoe(const BertConfig& config, const NomicConfig& nomic,
                 const std::string& prefix) {
  MoeSpec moe;
  moe.routing.num_experts = nomic.num_experts;
  moe.routing.top_k = nomic.top_k;
  moe.router = {prefix + "router.layer", nomic.num_experts, config.hidden};
  if (nomic.experts_bias) moe.bias = prefix + "experts.bias";
  for (int i = 0; i < nomic.num_experts; ++i) {
    const std::string name = FormattedString("%sexperts.%d.", prefix, i);
    MlpSpec& expert = moe.experts.emplace_back();
    expert.width = config.inner;
    expert.activation = config.activation;
    expert.input = {{name + "w1", config.inner, config.hidden}};
    expert.output = {name + "w2", config.hidden, config.inner};
  }
  return moe;
}

LayerSpec NomicBertLayer(const BertConfig& config, const NomicConfig& nomic,
                         const std::string& prefix, bool is_moe) {
  LayerSpec layer = BertLayer(config, prefix,
                              {.attention_output = "attn.out_proj",
                               .attention_norm = "norm1",
                               .inner = "mlp.fc1",
                               .output = "mlp.fc2",
                               .output_norm = "norm2"});
  auto& attention = std::get<AttentionSpec>(layer.blocks[0].part);
  attention.qkv = {{prefix + "attn.Wqkv", 3 * config.hidden, config.hidden,
                    nomic.attention_bias}};
  attention.output.bias = nomic.attention_bias;
  attention.rope = 0;
  if (is_moe) {
    layer.blocks[1].part = NomicMoe(config, nomic, prefix + "mlp.");
    return layer;
  }
  auto& mlp = std::get<MlpSpec>(layer.blocks[1].part);
  mlp.input[0].bias = nomic.inner_bias;
  mlp.output.bias = nomic.output_bias;
  if (!nomic.gated) return layer;
  mlp.gated = true;
  // The second is the gate.
  mlp.input = {{prefix + "mlp.fc12", config.inner, config.hidden},
               {prefix + "mlp.fc11", config.inner, config.hidden}};
  return layer;
}

// Of files with a head; the published network alone has none.
std::string NomicPrefix(const ModelBuild& build) {
  constexpr char kPrefix[] = "nomic_bert.";
  return build.weights.Has(std::string(kPrefix) +
                           "embeddings.word_embeddings.weight")
             ? kPrefix
             : "";
}

absl::StatusOr<DecoderSpec> NomicBertSpec(const Json& json,
                                          const std::string& prefix) {
  INLAY_RETURN_IF_ERROR(CheckKeys(json));
  INLAY_ASSIGN_OR_RETURN(const NomicConfig nomic, ReadNomic(json));
  INLAY_ASSIGN_OR_RETURN(const Json usual, UsualConfig(json));
  INLAY_ASSIGN_OR_RETURN(const BertConfig config, ReadBertConfig(usual));
  INLAY_RETURN_IF_ERROR(CheckNumExperts(
      Json{{"num_hidden_layers", config.layers}}, nomic.num_experts));
  INLAY_ASSIGN_OR_RETURN(
      const int64_t head_dim,
      JsonInt(usual, "head_dim", config.head_dim(), 1, kMaxHeadDim));
  if (head_dim != config.head_dim()) {
    return absl::UnimplementedError(FormattedString(
        "config.json: head_dim is %d; supported here is hidden_size / "
        "num_attention_heads, %d",
        head_dim, config.head_dim()));
  }
  DecoderConfig decoder;
  decoder.head_dim = static_cast<int>(head_dim);
  decoder.max_positions = config.positions;
  INLAY_ASSIGN_OR_RETURN(const RopeSpec rope,
                         ReadRope(usual, decoder, {.theta = 1000.0}));
  DecoderSpec spec = BertStyleSpec(config, 0, prefix);
  spec.position_embedding.clear();
  spec.embedding_norm.name = prefix + "emb_ln";
  spec.ropes = {rope};
  spec.layers.clear();
  for (int64_t i = 0; i < config.layers; ++i) {
    spec.layers.push_back(NomicBertLayer(
        config, nomic, FormattedString("%sencoder.layers.%d.", prefix, i),
        nomic.is_moe(i)));
  }
  return spec;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> MakeNomicBert(const Json& json,
                                                     ModelBuild& build) {
  const std::string prefix = NomicPrefix(build);
  INLAY_ASSIGN_OR_RETURN(DecoderSpec spec, NomicBertSpec(json, prefix));
  if (HasLabels(build)) {
    HeadLayerSpec pooler;
    pooler.linear = {prefix + "pooler.dense", spec.hidden_size,
                     spec.hidden_size, true};
    pooler.tanh = true;
    INLAY_ASSIGN_OR_RETURN(
        spec.classifier,
        BertStyleClassifier(json, std::move(pooler), "classifier"));
  }
  return BuildDecoder(spec, build);
}

}  // namespace inlay
