// InternLM 2 and 2.5 (arXiv:2403.17297): Llama under names of its own, with q,
// k and v in one matrix, a head of keys after another, which come apart in
// core/formats/head_source.h. Source of names and defaults: the published
// configuration_internlm2.py and llama.cpp's converter.
#include <variant>

#include "core/model/arch.h"
#include "core/model/arch/llama_style.h"
#include "core/model/decoder.h"
#include "memory/status.h"

namespace inlay {
namespace {

void UsePublishedNames(DecoderSpec* spec) {
  spec->embedding = "model.tok_embeddings.weight";
  if (!spec->head.empty()) spec->head = "output";
  for (int i = 0; i < static_cast<int>(spec->layers.size()); ++i) {
    const std::string prefix = LayerPrefix(i);
    std::vector<BlockSpec>& blocks =
        spec->layers[static_cast<size_t>(i)].blocks;
    blocks[0].pre_norm.name = prefix + "attention_norm";
    blocks[1].pre_norm.name = prefix + "ffn_norm";
    auto& attention = std::get<AttentionSpec>(blocks[0].part);
    constexpr const char* kParts[] = {"q_proj", "k_proj", "v_proj"};
    for (size_t j = 0; j < 3; ++j) {
      attention.qkv[j].name = prefix + "attention." + kParts[j];
    }
    attention.output.name = prefix + "attention.wo";
    auto& mlp = std::get<MlpSpec>(blocks[1].part);
    mlp.input[0].name = prefix + "feed_forward.w1";
    mlp.input[1].name = prefix + "feed_forward.w3";
    mlp.output.name = prefix + "feed_forward.w2";
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> MakeInternLm2(const Json& json,
                                                     ModelBuild& build) {
  Json named = WithUsualNames(json, {{"bias", "attention_bias"}});
  if (!named.contains("attention_bias")) named["attention_bias"] = true;
  DecoderDefaults defaults;
  defaults.vocab_size = 103168;
  defaults.max_positions = 2048;
  INLAY_ASSIGN_OR_RETURN(const DecoderConfig config,
                         ReadDecoderConfig(named, defaults));
  INLAY_ASSIGN_OR_RETURN(DecoderSpec spec, LlamaStyleSpec(named, config, {}));
  UsePublishedNames(&spec);
  return BuildDecoder(spec, build);
}

}  // namespace inlay
