// nomic-bert (Nussbaum et al., arXiv:2402.01613): BERT with rotary positions
// instead of learned ones, gated MLPs and no biases of layers. config.json is
// spelled as published files have it (GPT-2's names) or as transformers 5.24,
// whose tensors are the published ones, writes it.
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

// What published files do not have.
absl::Status CheckKeys(const Json& json) {
  for (const char* key :
       {"prenorm", "use_rms_norm", "parallel_block", "causal", "qkv_proj_bias",
        "mlp_fc1_bias", "mlp_fc2_bias", "rotary_emb_interleaved"}) {
    INLAY_ASSIGN_OR_RETURN(const bool value, JsonBool(json, key, false));
    if (!value) continue;
    return absl::UnimplementedError(FormattedString(
        "config.json: %s is true; supported here is false", key));
  }
  INLAY_ASSIGN_OR_RETURN(
      const double fraction,
      JsonNumber(json, "rotary_emb_fraction", 1.0, 0.0, 1.0));
  if (fraction != 1.0) {
    return absl::UnimplementedError(FormattedString(
        "config.json: rotary_emb_fraction is %g; supported here is 1",
        fraction));
  }
  INLAY_ASSIGN_OR_RETURN(const int64_t experts,
                         JsonInt(json, "num_experts", 0, 0, kMaxHidden));
  INLAY_ASSIGN_OR_RETURN(const int64_t every,
                         JsonInt(json, "moe_every_n_layers", 0, 0, kMaxLayers));
  if (every == 0 && experts == 0) return absl::OkStatus();
  return absl::UnimplementedError(
      "config.json: num_experts and moe_every_n_layers ask for a mixture of "
      "experts; only dense models of this family are supported");
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

LayerSpec NomicBertLayer(const BertConfig& config, const std::string& prefix) {
  LayerSpec layer = BertLayer(config, prefix,
                              {.attention_output = "attn.out_proj",
                               .attention_norm = "norm1",
                               .output = "mlp.fc2",
                               .output_norm = "norm2"});
  auto& attention = std::get<AttentionSpec>(layer.blocks[0].part);
  attention.qkv = {{prefix + "attn.Wqkv", 3 * config.hidden, config.hidden}};
  attention.output.bias = false;
  attention.rope = 0;
  auto& mlp = std::get<MlpSpec>(layer.blocks[1].part);
  mlp.gated = true;
  // The second is the gate.
  mlp.input = {{prefix + "mlp.fc12", config.inner, config.hidden},
               {prefix + "mlp.fc11", config.inner, config.hidden}};
  mlp.output.bias = false;
  return layer;
}

absl::StatusOr<DecoderSpec> NomicBertSpec(const Json& json) {
  INLAY_RETURN_IF_ERROR(CheckKeys(json));
  INLAY_ASSIGN_OR_RETURN(const Json usual, UsualConfig(json));
  INLAY_ASSIGN_OR_RETURN(const BertConfig config, ReadBertConfig(usual));
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
  DecoderSpec spec = BertStyleSpec(config, 0, "");
  spec.position_embedding.clear();
  spec.embedding_norm.name = "emb_ln";
  spec.ropes = {rope};
  spec.layers.clear();
  for (int64_t i = 0; i < config.layers; ++i) {
    spec.layers.push_back(
        NomicBertLayer(config, FormattedString("encoder.layers.%d.", i)));
  }
  return spec;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> MakeNomicBert(const Json& json,
                                                     ModelBuild& build) {
  INLAY_ASSIGN_OR_RETURN(const DecoderSpec spec, NomicBertSpec(json));
  return BuildDecoder(spec, build);
}

}  // namespace inlay
