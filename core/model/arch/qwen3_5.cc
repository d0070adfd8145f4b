// Qwen 3.5, text, dense and with experts: Qwen 3 Next whose linear attention
// has a layer for each of qkv, z, b and a. The three sections of positions of
// its rope are equal for text, so that it is a plain one. Source of names and
// defaults: transformers' Qwen3_5TextConfig and Qwen3_5MoeTextConfig.
#include "core/model/arch.h"
#include "core/model/arch/llama_style.h"
#include "core/model/arch/qwen_hybrid_style.h"
#include "core/model/decoder.h"
#include "memory/status.h"

namespace inlay {
namespace {

DecoderDefaults Qwen35Defaults() {
  DecoderDefaults defaults;
  defaults.vocab_size = 248320;
  defaults.hidden_size = 4096;
  defaults.intermediate_size = 12288;
  defaults.num_layers = 32;
  defaults.num_heads = 16;
  defaults.num_kv_heads = 4;
  defaults.head_dim = 256;
  defaults.max_positions = 32768;
  return defaults;
}

absl::StatusOr<DecoderConfig> ReadQwen35Config(
    const Json& json, const DecoderDefaults& defaults) {
  INLAY_ASSIGN_OR_RETURN(const bool gated,
                         JsonBool(json, "attn_output_gate", true));
  if (!gated) {
    return absl::UnimplementedError(
        "config.json: attn_output_gate is false; only attention with gates is "
        "supported here");
  }
  return ReadDecoderConfig(json, defaults);
}

absl::StatusOr<DecoderSpec> Qwen35Spec(const Json& json) {
  INLAY_ASSIGN_OR_RETURN(const DecoderConfig config,
                         ReadQwen35Config(json, Qwen35Defaults()));
  QwenHybridParts parts;
  parts.projections = [&](const std::string& name, DeltaSpec* delta) {
    NameQwenDeltaInputs(config, name, delta);
  };
  parts.feed_forward = [&](int, const std::string& prefix) {
    return LlamaStyleMlp(config, prefix, false);
  };
  return QwenHybridSpec(json, config, parts);
}

absl::StatusOr<DecoderSpec> Qwen35MoeSpec(const Json& json) {
  DecoderDefaults defaults = Qwen35Defaults();
  defaults.hidden_size = 2048;
  defaults.num_layers = 40;
  defaults.num_kv_heads = 2;
  INLAY_ASSIGN_OR_RETURN(const DecoderConfig config,
                         ReadQwen35Config(json, defaults));
  INLAY_ASSIGN_OR_RETURN(QwenExperts experts,
                         ReadQwenExperts(json, {256, 8, 512}));
  // Whatever norm_topk_prob says, as in the reference.
  experts.moe.routing.normalised = true;
  QwenHybridParts parts;
  parts.projections = [&](const std::string& name, DeltaSpec* delta) {
    NameQwenDeltaInputs(config, name, delta);
  };
  parts.feed_forward = [&](int, const std::string& prefix) {
    return QwenExpertsPart(config, experts, prefix);
  };
  return QwenHybridSpec(json, config, parts);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> MakeQwen35(const Json& config,
                                                  ModelBuild& build) {
  INLAY_ASSIGN_OR_RETURN(const DecoderSpec spec, Qwen35Spec(config));
  return BuildDecoder(spec, build);
}

absl::StatusOr<std::unique_ptr<Model>> MakeQwen35Moe(const Json& config,
                                                     ModelBuild& build) {
  INLAY_ASSIGN_OR_RETURN(const DecoderSpec spec, Qwen35MoeSpec(config));
  return BuildDecoder(spec, build);
}

}  // namespace inlay
