// Aria's text model (Rhymes AI, arXiv:2410.05993): Llama with experts by
// softmax, in one tensor a matrix (core/formats/expert_source.h), and shared
// ones in all layers. Source of names and defaults: transformers'
// AriaTextConfig.
#include <utility>

#include "core/model/arch.h"
#include "core/model/arch/llama_style.h"
#include "core/model/arch/moe_style.h"
#include "core/model/decoder.h"
#include "memory/status.h"

namespace inlay {
namespace {

struct AriaConfig {
  DecoderConfig decoder;
  MoeConfig moe;
  int64_t num_shared = 0;  // as one of that many times the width
  bool bias = false;
  bool shared_bias = false;
  RopeSpec rope;
};

absl::StatusOr<AriaConfig> ReadAriaConfig(const Json& json) {
  AriaConfig config;
  DecoderDefaults defaults;
  defaults.intermediate_size = 4096;
  INLAY_ASSIGN_OR_RETURN(config.decoder, ReadDecoderConfig(json, defaults));
  Json named = json;
  // Other families' keys.
  for (const char* key : {"num_experts", "num_local_experts",
                          "n_routed_experts", "num_experts_per_tok"}) {
    named.erase(key);
  }
  named = WithUsualNames(named, {{"moe_num_experts", "num_experts"},
                                 {"moe_topk", "num_experts_per_tok"}});
  INLAY_ASSIGN_OR_RETURN(config.moe, ReadMoeConfig(named, "intermediate_size",
                                                   {8, 2, 4096, true}));
  config.moe.routing.normalised = true;
  INLAY_ASSIGN_OR_RETURN(config.num_shared,
                         JsonInt(json, "moe_num_shared_experts", 2, 1, 64));
  INLAY_ASSIGN_OR_RETURN(config.bias, JsonBool(json, "attention_bias", false));
  INLAY_ASSIGN_OR_RETURN(config.shared_bias, JsonBool(json, "mlp_bias", false));
  INLAY_ASSIGN_OR_RETURN(config.rope, ReadRope(json, config.decoder, {}));
  return config;
}

MoeSpec AriaMoe(const AriaConfig& config, const std::string& prefix) {
  // The chosen experts' activation is fixed, the shared one's is not.
  DecoderConfig experts = config.decoder;
  experts.activation = Activation::kSilu;
  MoeSpec moe = LlamaStyleMoe(experts, config.moe, prefix, "router", false);
  moe.shared = SharedExpert(config.decoder, prefix + "shared_experts.",
                            config.num_shared * config.moe.width);
  for (LinearSpec& input : moe.shared->input) input.bias = config.shared_bias;
  moe.shared->output.bias = config.shared_bias;
  return moe;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> MakeAria(const Json& json,
                                                ModelBuild& build) {
  INLAY_ASSIGN_OR_RETURN(const AriaConfig config, ReadAriaConfig(json));
  const DecoderConfig& decoder = config.decoder;
  DecoderSpec spec = LlamaStyleDecoder(decoder, NormKind::kRms);
  spec.max_positions = UsablePositions(decoder.max_positions, config.rope);
  spec.ropes.push_back(config.rope);
  for (int i = 0; i < decoder.num_layers; ++i) {
    const std::string prefix = LayerPrefix(i);
    spec.layers.push_back(LlamaStyleLayer(
        decoder, prefix, NormKind::kRms,
        LlamaStyleAttention(decoder, prefix, config.bias, config.bias),
        AriaMoe(config, prefix + "mlp.")));
  }
  return BuildDecoder(spec, build);
}

}  // namespace inlay
