// EXAONE 3 and 3.5 (arXiv:2408.03541, 2412.04862): Llama under names of GPT-2's
// kind. Source of defaults: transformers' ExaoneConfig.
#include <utility>

#include "core/formats/exaone_config.h"
#include "core/model/arch.h"
#include "core/model/arch/llama_style.h"
#include "core/model/decoder.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

void UsePublishedNames(DecoderSpec* spec) {
  spec->optional_prefix = "transformer.";
  spec->embedding = "transformer.wte.weight";
  spec->final_norm.name = "transformer.ln_f";
  for (size_t i = 0; i < spec->layers.size(); ++i) {
    const std::string prefix = FormattedString("transformer.h.%d.", i);
    std::vector<BlockSpec>& blocks = spec->layers[i].blocks;
    blocks[0].pre_norm.name = prefix + "ln_1";
    blocks[1].pre_norm.name = prefix + "ln_2";
    auto& attention = std::get<AttentionSpec>(blocks[0].part);
    const std::string name = prefix + "attn.attention.";
    constexpr const char* kParts[] = {"q_proj", "k_proj", "v_proj"};
    for (size_t j = 0; j < 3; ++j) attention.qkv[j].name = name + kParts[j];
    attention.output.name = name + "out_proj";
    auto& mlp = std::get<MlpSpec>(blocks[1].part);
    mlp.input[0].name = prefix + "mlp.c_fc_0";
    mlp.input[1].name = prefix + "mlp.c_fc_1";
    mlp.output.name = prefix + "mlp.c_proj";
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> MakeExaone(const Json& json,
                                                  ModelBuild& build) {
  const Json named = WithUsualExaoneNames(json);
  DecoderDefaults defaults;
  defaults.vocab_size = 102400;
  defaults.intermediate_size = 14336;
  defaults.num_kv_heads = UnlessNull(json, "num_key_value_heads", 8);
  defaults.max_positions = 4096;
  defaults.norm_epsilon = 1e-5;
  INLAY_ASSIGN_OR_RETURN(const DecoderConfig config,
                         ReadDecoderConfig(named, defaults));
  INLAY_ASSIGN_OR_RETURN(
      DecoderSpec spec,
      LlamaStyleSpec(named, config, {.rope = {.theta = 500000.0}}));
  UsePublishedNames(&spec);
  return BuildDecoder(spec, build);
}

}  // namespace inlay
