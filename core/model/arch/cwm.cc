// CWM (Code World Model, arXiv:2510.02387): Llama 3 with windows on three
// layers of four.
#include <vector>

#include "core/model/arch.h"
#include "core/model/arch/deepseek_style.h"
#include "core/model/arch/llama_style.h"
#include "core/model/decoder.h"
#include "memory/status.h"

namespace inlay {
namespace {

// The first of four is full, unlike elsewhere.
absl::StatusOr<std::vector<bool>> ReadCwmSliding(const Json& json,
                                                 int num_layers) {
  INLAY_ASSIGN_OR_RETURN(std::vector<bool> sliding,
                         ReadSlidingLayers(json, num_layers));
  if (!sliding.empty()) return sliding;
  for (int i = 0; i < num_layers; ++i) sliding.push_back(i % 4 != 0);
  return sliding;
}

absl::StatusOr<DecoderSpec> CwmSpec(const Json& json) {
  DecoderDefaults defaults;
  defaults.vocab_size = 128256;
  defaults.hidden_size = 6144;
  defaults.intermediate_size = 21504;
  defaults.num_layers = 64;
  defaults.num_heads = 48;
  defaults.num_kv_heads = 8;
  defaults.head_dim = 128;
  defaults.max_positions = 131072;
  defaults.norm_epsilon = 1e-5;
  INLAY_ASSIGN_OR_RETURN(const Json usual, WithLlama3Rope(json, 16.0));
  INLAY_ASSIGN_OR_RETURN(const DecoderConfig config,
                         ReadDecoderConfig(usual, defaults));
  INLAY_RETURN_IF_ERROR(ExpectFlag(json, "attention_bias", false));
  INLAY_ASSIGN_OR_RETURN(const int window, ReadWindow(json, 8192));
  INLAY_ASSIGN_OR_RETURN(const std::vector<bool> sliding,
                         ReadCwmSliding(json, config.num_layers));
  INLAY_ASSIGN_OR_RETURN(
      DecoderSpec spec,
      LlamaStyleSpec(usual, config, {.rope = {.theta = 1e6}}));
  for (size_t i = 0; i < sliding.size(); ++i) {
    auto& attention = std::get<AttentionSpec>(spec.layers[i].blocks[0].part);
    attention.window = sliding[i] ? window : 0;
  }
  return spec;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> MakeCwm(const Json& config,
                                               ModelBuild& build) {
  INLAY_ASSIGN_OR_RETURN(const DecoderSpec spec, CwmSpec(config));
  return BuildDecoder(spec, build);
}

}  // namespace inlay
