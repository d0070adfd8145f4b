// Mamba 2 (arXiv:2405.21060): mixers alone, no attention and no MLP. Source of
// names and defaults: transformers' Mamba2Config.
#include "core/model/arch.h"
#include "core/model/arch/llama_style.h"
#include "core/model/arch/mamba_style.h"
#include "core/model/decoder.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

// The configuration has no length, and the recurrence none either.
constexpr int64_t kMamba2Positions = int64_t{1} << 20;

absl::StatusOr<DecoderSpec> Mamba2Spec(const Json& json) {
  DecoderSpec spec;
  INLAY_ASSIGN_OR_RETURN(spec.vocab_size,
                         JsonInt(json, "vocab_size", 32768, 1, kMaxVocab));
  INLAY_ASSIGN_OR_RETURN(spec.hidden_size,
                         JsonInt(json, "hidden_size", 4096, 1, kMaxHidden));
  INLAY_ASSIGN_OR_RETURN(const int64_t layers,
                         JsonInt(json, "num_hidden_layers", 64, 1, kMaxLayers));
  INLAY_ASSIGN_OR_RETURN(const int64_t expand,
                         JsonInt(json, "expand", 2, 1, 64));
  INLAY_ASSIGN_OR_RETURN(
      const double epsilon,
      JsonNumber(json, "layer_norm_epsilon", 1e-5, 0.0, 1.0));
  INLAY_ASSIGN_OR_RETURN(const bool tied,
                         JsonBool(json, "tie_word_embeddings", false));
  INLAY_RETURN_IF_ERROR(ExpectSilu(json, "hidden_act"));
  MambaKeys keys = {"num_heads",   "head_dim",      "n_groups", "state_size",
                    "conv_kernel", "use_conv_bias", "use_bias"};
  keys.default_head_dim = 64;
  keys.default_groups = 8;
  keys.default_state_size = 128;
  const auto norm_epsilon = static_cast<float>(epsilon);
  spec.optional_prefix = "backbone.";
  spec.max_positions = kMamba2Positions;
  spec.embedding = "backbone.embeddings.weight";
  spec.final_norm = {NormKind::kRms, "backbone.norm_f", norm_epsilon};
  (tied ? spec.tied_head : spec.head) = "lm_head";
  for (int64_t i = 0; i < layers; ++i) {
    const std::string prefix = FormattedString("backbone.layers.%d.", i);
    INLAY_ASSIGN_OR_RETURN(
        MambaSpec mixer,
        ReadMamba(json, keys, spec.hidden_size, expand * spec.hidden_size,
                  prefix + "mixer"));
    mixer.norm = {NormKind::kRms, prefix + "mixer.norm", norm_epsilon};
    // As mamba_ssm, which such models were trained with, llama.cpp and
    // transformers 5.24 have it (older ones, 5.17 among them, take the norm of
    // all groups at once). norm_before_gate is true in Codestral's config.json
    // and without a meaning: all of these gate first.
    mixer.norm_groups = mixer.num_groups;
    mixer.gate_first = true;
    LayerSpec& layer = spec.layers.emplace_back();
    layer.blocks.push_back(
        {.pre_norm = NormSpec{NormKind::kRms, prefix + "norm", norm_epsilon},
         .part = mixer});
  }
  return spec;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> MakeMamba2(const Json& config,
                                                  ModelBuild& build) {
  INLAY_ASSIGN_OR_RETURN(const DecoderSpec spec, Mamba2Spec(config));
  return BuildDecoder(spec, build);
}

}  // namespace inlay
