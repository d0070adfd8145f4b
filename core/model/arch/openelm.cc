// OpenELM (Apple, arXiv:2404.14619): Llama with norms of q and k, whose layers
// differ in their heads and in how wide their MLPs are. q, k and v, and the
// MLP's gate and up, come apart in core/formats/head_source.h. Source: the
// published modeling_openelm.py.
#include <string>
#include <utility>

#include "core/formats/openelm_config.h"
#include "core/model/arch.h"
#include "core/model/arch/deepseek_style.h"
#include "core/model/arch/llama_style.h"
#include "core/model/decoder.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

LayerSpec OpenElmLayer(const DecoderConfig& config, int layer,
                       bool head_norms) {
  const std::string prefix = FormattedString("transformer.layers.%d.", layer);
  AttentionSpec attention = LlamaStyleAttention(config, prefix, false, false);
  attention.qkv[0].name = prefix + "attn.q_proj";
  attention.qkv[1].name = prefix + "attn.k_proj";
  attention.qkv[2].name = prefix + "attn.v_proj";
  attention.output.name = prefix + "attn.out_proj";
  if (head_norms) {
    AddHeadNorms(config, prefix, NormKind::kRms, &attention);
    attention.q_norm.name = prefix + "attn.q_norm";
    attention.k_norm.name = prefix + "attn.k_norm";
  }
  MlpSpec mlp = LlamaStyleMlp(config, prefix, false);
  mlp.input[0].name = prefix + "ffn.gate_proj";
  mlp.input[1].name = prefix + "ffn.up_proj";
  mlp.output.name = prefix + "ffn.proj_2";
  LayerSpec spec = LlamaStyleLayer(config, prefix, NormKind::kRms,
                                   std::move(attention), std::move(mlp));
  spec.blocks[0].pre_norm.name = prefix + "attn_norm";
  spec.blocks[1].pre_norm.name = prefix + "ffn_norm";
  return spec;
}

absl::StatusOr<DecoderSpec> OpenElmSpec(const Json& json) {
  INLAY_RETURN_IF_ERROR(ExpectFlag(json, "ffn_with_glu", true));
  INLAY_RETURN_IF_ERROR(
      ExpectName(json, "normalization_layer_name", "rms_norm"));
  INLAY_ASSIGN_OR_RETURN(const OpenElmLayers layers, ReadOpenElmLayers(json));
  INLAY_ASSIGN_OR_RETURN(const Json usual, WithUsualOpenElmNames(json));
  DecoderDefaults defaults;
  defaults.hidden_size = 2048;
  defaults.num_layers = 12;
  defaults.head_dim = 128;
  defaults.activation_key = "activation_fn_name";
  INLAY_ASSIGN_OR_RETURN(const DecoderConfig config,
                         ReadDecoderConfig(usual, defaults));
  INLAY_ASSIGN_OR_RETURN(const bool head_norms,
                         JsonFlag(json, "normalize_qk_projections", false));
  INLAY_ASSIGN_OR_RETURN(const RopeSpec rope, ReadRope(usual, config, {}));
  DecoderSpec spec = LlamaStyleDecoder(config, NormKind::kRms);
  spec.optional_prefix = "transformer.";
  spec.embedding = "transformer.token_embeddings.weight";
  spec.final_norm.name = "transformer.norm";
  if (!spec.head.empty()) spec.head = "transformer.classifier";
  spec.ropes.push_back(rope);
  for (int i = 0; i < config.num_layers; ++i) {
    DecoderConfig sizes = config;
    sizes.num_heads = static_cast<int>(layers.heads[static_cast<size_t>(i)]);
    sizes.num_kv_heads =
        static_cast<int>(layers.kv_heads[static_cast<size_t>(i)]);
    sizes.intermediate_size = layers.widths[static_cast<size_t>(i)];
    spec.layers.push_back(OpenElmLayer(sizes, i, head_norms));
  }
  return spec;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> MakeOpenElm(const Json& json,
                                                   ModelBuild& build) {
  INLAY_ASSIGN_OR_RETURN(const DecoderSpec spec, OpenElmSpec(json));
  return BuildDecoder(spec, build);
}

}  // namespace inlay
