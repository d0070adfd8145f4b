// dots.llm1 (rednote, arXiv:2506.05767): Qwen 3's attention, experts as in
// DeepSeek-V3. Source of names and defaults: transformers' Dots1Config.
#include <utility>

#include "core/model/arch.h"
#include "core/model/arch/deepseek_style.h"
#include "core/model/arch/llama_style.h"
#include "core/model/decoder.h"
#include "memory/status.h"

namespace inlay {
namespace {

// A window from max_window_layers on, unless layer_types says where.
absl::StatusOr<std::vector<int>> Dots1Windows(const Json& json,
                                              int num_layers) {
  INLAY_ASSIGN_OR_RETURN(const int window, ReadWindow(json, 4096));
  INLAY_ASSIGN_OR_RETURN(const int64_t first,
                         JsonInt(json, "max_window_layers", 62, 0, kMaxLayers));
  INLAY_ASSIGN_OR_RETURN(const std::vector<bool> sliding,
                         ReadSlidingLayers(json, num_layers));
  std::vector<int> windows;
  for (int i = 0; i < num_layers; ++i) {
    const bool slides =
        sliding.empty() ? i >= first : sliding[static_cast<size_t>(i)];
    windows.push_back(slides ? window : 0);
  }
  return windows;
}

// Published files call sigmoid scores with a correction "noaux_tc".
absl::StatusOr<DeepseekExperts> ReadDots1Experts(const Json& json) {
  INLAY_ASSIGN_OR_RETURN(const std::string score,
                         JsonString(json, "scoring_func", "noaux_tc"));
  if (score != "sigmoid") {
    INLAY_RETURN_IF_ERROR(ExpectName(json, "scoring_func", "noaux_tc"));
  }
  // The numbers of experts have no defaults.
  DeepseekDefaults defaults;
  defaults.moe = {1, 1, 1408, false};
  defaults.num_dense = 0;
  return ReadDeepseekExperts(json, defaults);
}

absl::StatusOr<DecoderSpec> Dots1Spec(const Json& json) {
  DecoderDefaults defaults;
  defaults.vocab_size = 152064;
  defaults.hidden_size = 4608;
  defaults.intermediate_size = 10944;
  defaults.num_layers = 62;
  defaults.num_kv_heads = 32;
  INLAY_ASSIGN_OR_RETURN(const DecoderConfig config,
                         ReadDecoderConfig(json, defaults));
  INLAY_ASSIGN_OR_RETURN(const DeepseekExperts experts, ReadDots1Experts(json));
  INLAY_ASSIGN_OR_RETURN(const bool bias,
                         JsonBool(json, "attention_bias", false));
  INLAY_ASSIGN_OR_RETURN(const std::vector<int> windows,
                         Dots1Windows(json, config.num_layers));
  INLAY_ASSIGN_OR_RETURN(const RopeSpec rope, ReadRope(json, config, {}));
  DecoderSpec spec = LlamaStyleDecoder(config, NormKind::kRms);
  spec.max_positions = UsablePositions(config.max_positions, rope);
  spec.ropes.push_back(rope);
  for (int i = 0; i < config.num_layers; ++i) {
    const std::string prefix = LayerPrefix(i);
    AttentionSpec attention = LlamaStyleAttention(config, prefix, bias, bias);
    AddHeadNorms(config, prefix, NormKind::kRms, &attention);
    attention.window = windows[static_cast<size_t>(i)];
    PartSpec mlp = LlamaStyleMlp(config, prefix, false);
    if (experts.HasExperts(i)) {
      mlp = DeepseekMoe(config, experts, prefix + "mlp.", true);
    }
    spec.layers.push_back(LlamaStyleLayer(config, prefix, NormKind::kRms,
                                          attention, std::move(mlp)));
  }
  return spec;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> MakeDots1(const Json& config,
                                                 ModelBuild& build) {
  INLAY_ASSIGN_OR_RETURN(const DecoderSpec spec, Dots1Spec(config));
  return BuildDecoder(spec, build);
}

}  // namespace inlay
