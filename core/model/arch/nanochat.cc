// nanochat (Karpathy, 2025): norms without weights, one of embeddings among
// them, rope the other way round and before the norms of q and k, an MLP of
// squared ReLUs, a softcap of logits.
#include <optional>
#include <string>

#include "core/model/arch.h"
#include "core/model/arch/llama_style.h"
#include "core/model/decoder.h"
#include "memory/status.h"

namespace inlay {
namespace {

absl::StatusOr<DecoderSpec> NanoChatSpec(const Json& json) {
  DecoderDefaults defaults;
  defaults.vocab_size = 50304;
  defaults.hidden_size = 768;
  defaults.intermediate_size = 8192;
  defaults.num_layers = 12;
  defaults.num_heads = 6;
  defaults.activation = "relu2";
  INLAY_ASSIGN_OR_RETURN(const DecoderConfig config,
                         ReadDecoderConfig(json, defaults));
  INLAY_ASSIGN_OR_RETURN(const bool bias,
                         JsonBool(json, "attention_bias", false));
  INLAY_ASSIGN_OR_RETURN(
      const std::optional<double> softcap,
      ReadOptionalNumber(json, "final_logit_softcapping", 15.0, 1e-6, 1e9));
  INLAY_ASSIGN_OR_RETURN(RopeSpec rope, ReadRope(json, config, {}));
  rope.reversed = true;
  const NormSpec norm = {NormKind::kRms, "", config.norm_epsilon};
  DecoderSpec spec = LlamaStyleDecoder(config, NormKind::kRms);
  spec.max_positions = UsablePositions(config.max_positions, rope);
  spec.ropes.push_back(rope);
  spec.embedding_norm = spec.final_norm = norm;
  spec.final_softcap = static_cast<float>(softcap.value_or(0.0));
  for (int i = 0; i < config.num_layers; ++i) {
    const std::string prefix = LayerPrefix(i);
    AttentionSpec attention = LlamaStyleAttention(config, prefix, bias, bias);
    attention.q_norm = attention.k_norm = norm;
    attention.norms_after_rope = true;
    MlpSpec mlp = LlamaStylePlainMlp(config, prefix, false);
    mlp.input[0].name = prefix + "mlp.fc1";
    mlp.output.name = prefix + "mlp.fc2";
    LayerSpec layer = LlamaStyleLayer(config, prefix, NormKind::kRms, attention,
                                      std::move(mlp));
    for (BlockSpec& block : layer.blocks) block.pre_norm = norm;
    spec.layers.push_back(std::move(layer));
  }
  return spec;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> MakeNanoChat(const Json& config,
                                                    ModelBuild& build) {
  INLAY_ASSIGN_OR_RETURN(const DecoderSpec spec, NanoChatSpec(config));
  return BuildDecoder(spec, build);
}

}  // namespace inlay
