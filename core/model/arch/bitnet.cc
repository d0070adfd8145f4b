// BitNet b1.58 2B4T (arXiv:2504.12285): Llama with a squared ReLU and norms
// before the last product of each part. Its weights are ternary
// (core/formats/bitnet.cc). Source: transformers' BitNetConfig and its modules.
#include <utility>
#include <variant>

#include "core/model/arch.h"
#include "core/model/arch/deepseek_style.h"
#include "core/model/arch/llama_style.h"
#include "core/model/decoder.h"
#include "memory/status.h"

namespace inlay {
namespace {

absl::StatusOr<DecoderSpec> BitnetSpec(const Json& json) {
  DecoderDefaults defaults;
  defaults.vocab_size = 128256;
  defaults.hidden_size = 2560;
  defaults.intermediate_size = 6912;
  defaults.num_layers = 30;
  defaults.num_heads = 20;
  // null: one for each of queries.
  defaults.num_kv_heads = UnlessNull(json, "num_key_value_heads", 5);
  defaults.max_positions = 2048;
  defaults.norm_epsilon = 1e-5;
  defaults.activation = "relu2";
  INLAY_ASSIGN_OR_RETURN(const DecoderConfig config,
                         ReadDecoderConfig(json, defaults));
  INLAY_RETURN_IF_ERROR(ExpectFlag(json, "mlp_bias", false));
  LlamaVariant variant;
  variant.rope.theta = 500000.0;
  INLAY_ASSIGN_OR_RETURN(DecoderSpec spec,
                         LlamaStyleSpec(json, config, variant));
  for (int i = 0; i < config.num_layers; ++i) {
    LayerSpec& layer = spec.layers[static_cast<size_t>(i)];
    const std::string prefix = LayerPrefix(i);
    std::get<AttentionSpec>(layer.blocks[0].part).output_norm = {
        NormKind::kRms, prefix + "self_attn.attn_sub_norm",
        config.norm_epsilon};
    std::get<MlpSpec>(layer.blocks[1].part).inner_norm = {
        NormKind::kRms, prefix + "mlp.ffn_sub_norm", config.norm_epsilon};
  }
  return spec;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> MakeBitnet(const Json& config,
                                                  ModelBuild& build) {
  INLAY_ASSIGN_OR_RETURN(const DecoderSpec spec, BitnetSpec(config));
  return BuildDecoder(spec, build);
}

}  // namespace inlay
