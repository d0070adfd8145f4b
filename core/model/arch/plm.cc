// PLM (PLM Team, arXiv:2503.12167): latent attention whose queries are made at
// once, and MLPs of squared ReLUs without gates. Source of names: llama.cpp's
// converter (conversion/plm.py) and its graph (src/models/plm.cpp).
#include <utility>

#include "core/model/arch.h"
#include "core/model/arch/deepseek_style.h"
#include "core/model/arch/llama_style.h"
#include "core/model/decoder.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {

absl::StatusOr<std::unique_ptr<Model>> MakePlm(const Json& json,
                                               ModelBuild& build) {
  INLAY_RETURN_IF_ERROR(ExpectFlag(json, "attention_bias", false));
  INLAY_RETURN_IF_ERROR(ExpectFlag(json, "mlp_bias", false));
  constexpr char kQueryRank[] = "q_lora_rank";
  if (JsonFind(json, kQueryRank) != nullptr) {
    return absl::UnimplementedError(
        FormattedString("config.json: %s is %s; supported here is null",
                        kQueryRank, ShownJson(*JsonFind(json, kQueryRank))));
  }
  Json plain = json;
  plain[kQueryRank] = nullptr;
  DecoderDefaults defaults;
  defaults.vocab_size = 151936;
  defaults.hidden_size = 2048;
  defaults.intermediate_size = 8192;
  defaults.num_heads = 16;
  defaults.max_positions = 4096;
  defaults.activation = "relu2";
  defaults.tie_embeddings = true;
  INLAY_ASSIGN_OR_RETURN(const DecoderConfig config,
                         ReadDecoderConfig(plain, defaults));
  LatentConfig assumed;
  assumed.theta = 1e5;
  INLAY_ASSIGN_OR_RETURN(const LatentConfig latent,
                         ReadLatentConfig(plain, config.num_heads, assumed));
  DeepseekExperts none;
  none.sparse.assign(static_cast<size_t>(config.num_layers), false);
  INLAY_ASSIGN_OR_RETURN(DecoderSpec spec,
                         DeepseekDecoder(plain, config, latent, none, false));
  for (int i = 0; i < config.num_layers; ++i) {
    LayerSpec& layer = spec.layers[static_cast<size_t>(i)];
    std::get<LatentAttentionSpec>(layer.blocks[0].part).norm.epsilon =
        config.norm_epsilon;
    layer.blocks[1].part = LlamaStylePlainMlp(config, LayerPrefix(i), false);
  }
  return BuildDecoder(spec, build);
}

}  // namespace inlay
