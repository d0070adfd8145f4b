// Mamba (arXiv:2312.00752): mixers alone, no attention and no MLP; and Falcon
// Mamba (TII, arXiv:2410.05355), with norms of dt, B and C that have no
// weights. Source of names and defaults: transformers' MambaConfig and
// FalconMambaConfig.
#include "core/model/arch.h"
#include "core/model/arch/llama_style.h"
#include "core/model/arch/selective_style.h"
#include "core/model/decoder.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

// The configuration has no length, and the recurrence none either.
constexpr int64_t kMambaPositions = int64_t{1} << 20;

// intermediate_size goes before `expand`, which says another in Falcon Mamba's
// published files.
absl::StatusOr<int64_t> ReadMambaWidth(const Json& json, int64_t hidden_size) {
  INLAY_ASSIGN_OR_RETURN(const int64_t expand,
                         JsonInt(json, "expand", 2, 1, 64));
  INLAY_ASSIGN_OR_RETURN(
      const int64_t width,
      JsonInt(json, "intermediate_size", expand * hidden_size, 1, kMaxHidden));
  if (width <= kMaxHidden) return width;
  return absl::InvalidArgumentError(FormattedString(
      "config.json: expand is %d with a hidden_size of %d; mixers may be %d "
      "wide",
      expand, hidden_size, kMaxHidden));
}

absl::StatusOr<DecoderSpec> MambaOneSpec(const Json& json, bool is_falcon) {
  DecoderSpec spec;
  INLAY_ASSIGN_OR_RETURN(spec.vocab_size,
                         JsonInt(json, "vocab_size", 50280, 1, kMaxVocab));
  INLAY_ASSIGN_OR_RETURN(spec.hidden_size,
                         JsonInt(json, "hidden_size", 768, 1, kMaxHidden));
  INLAY_ASSIGN_OR_RETURN(const int64_t layers,
                         JsonInt(json, "num_hidden_layers", 32, 1, kMaxLayers));
  INLAY_ASSIGN_OR_RETURN(const int64_t width,
                         ReadMambaWidth(json, spec.hidden_size));
  INLAY_ASSIGN_OR_RETURN(
      const double epsilon,
      JsonNumber(json, "layer_norm_epsilon", 1e-5, 0.0, 1.0));
  INLAY_ASSIGN_OR_RETURN(const bool tied,
                         JsonBool(json, "tie_word_embeddings", true));
  INLAY_RETURN_IF_ERROR(ExpectSilu(json, "hidden_act"));
  NormSpec inner;
  if (is_falcon) {
    INLAY_ASSIGN_OR_RETURN(const double inner_epsilon,
                           JsonNumber(json, "mixer_rms_eps", 1e-6, 0.0, 1.0));
    inner = {NormKind::kRms, "", static_cast<float>(inner_epsilon)};
  }
  const auto norm_epsilon = static_cast<float>(epsilon);
  spec.optional_prefix = "backbone.";
  spec.max_positions = kMambaPositions;
  spec.embedding = "backbone.embeddings.weight";
  spec.final_norm = {NormKind::kRms, "backbone.norm_f", norm_epsilon};
  (tied ? spec.tied_head : spec.head) = "lm_head";
  for (int64_t i = 0; i < layers; ++i) {
    const std::string prefix = FormattedString("backbone.layers.%d.", i);
    INLAY_ASSIGN_OR_RETURN(
        SelectiveSpec mixer,
        ReadSelective(json, SelectiveKeys(), spec.hidden_size, width,
                      prefix + "mixer"));
    mixer.dt_norm = mixer.b_norm = mixer.c_norm = inner;
    LayerSpec& layer = spec.layers.emplace_back();
    layer.blocks.push_back(
        {.pre_norm = NormSpec{NormKind::kRms, prefix + "norm", norm_epsilon},
         .part = mixer});
  }
  return spec;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> MakeMamba(const Json& config,
                                                 ModelBuild& build) {
  INLAY_ASSIGN_OR_RETURN(const DecoderSpec spec, MambaOneSpec(config, false));
  return BuildDecoder(spec, build);
}

absl::StatusOr<std::unique_ptr<Model>> MakeFalconMamba(const Json& config,
                                                       ModelBuild& build) {
  INLAY_ASSIGN_OR_RETURN(const DecoderSpec spec, MambaOneSpec(config, true));
  return BuildDecoder(spec, build);
}

}  // namespace inlay
