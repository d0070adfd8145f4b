// Hy4 (Tencent Hunyuan 4): latent attention with gates of elements and sinks,
// whose keys indexers select in some layers for those after them, DeepSeek-V3's
// mixtures of experts with cut-off gates, and several residual streams that
// know nothing of each other but what parts make of all. Names of tensors are
// those of published files, and where transformers writes others, those too.
// The text of Hy4-VL rotates neighbours, and its latents' norms have the
// others' epsilon. Source: transformers' HYV4Config, its modules and its table
// of names.
#include <utility>
#include <variant>
#include <vector>

#include "core/model/arch.h"
#include "core/model/arch/deepseek_style.h"
#include "core/model/arch/indexer_style.h"
#include "core/model/arch/llama_style.h"
#include "core/model/arch/streams_style.h"
#include "core/model/decoder.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

// The first of the names that the files have, with `ending`; otherwise the
// first.
std::string FirstOf(const std::vector<std::string>& names, const char* ending,
                    const ModelBuild& build) {
  for (const std::string& name : names) {
    if (build.weights.Has(name + ending)) return name;
  }
  return names.front();
}

absl::StatusOr<DecoderConfig> ReadHyV4Config(const Json& json) {
  DecoderDefaults defaults;
  defaults.vocab_size = 120832;
  defaults.hidden_size = 2816;
  defaults.intermediate_size = 6912;
  defaults.num_layers = 34;
  defaults.head_dim = 64;  // not used: latent attention has its own
  defaults.max_positions = 262144;
  defaults.norm_epsilon = 1e-5;
  // Every head has keys of its own, whatever num_key_value_heads says.
  Json own = json;
  own.erase("num_key_value_heads");
  return ReadDecoderConfig(own, defaults);
}

absl::StatusOr<DeepseekExperts> ReadHyV4Experts(const Json& json,
                                                int num_layers) {
  DeepseekDefaults defaults;
  defaults.moe = {256, 8, 768, true};
  defaults.scale = 2.827;
  INLAY_ASSIGN_OR_RETURN(DeepseekExperts experts,
                         ReadDeepseekV3Experts(json, defaults));
  INLAY_ASSIGN_OR_RETURN(experts.sparse, ReadMlpLayers(json, num_layers, 1));
  return experts;
}

absl::StatusOr<LatentConfig> ReadHyV4Latent(const Json& json, int num_heads) {
  LatentConfig defaults;
  defaults.key_dim = 192;
  defaults.value_dim = 256;
  return ReadLatentConfig(json, num_heads, defaults);
}

// indexer_types; or layers 0, 1, 5 and so on.
absl::StatusOr<std::vector<bool>> ReadSelecting(const Json& json,
                                                int num_layers) {
  INLAY_ASSIGN_OR_RETURN(
      std::vector<bool> selects,
      ReadLayerKinds(json, "indexer_types", num_layers, "full", "shared"));
  for (int i = static_cast<int>(selects.size()); i < num_layers; ++i) {
    selects.push_back(i == 0 || i % 4 == 1);
  }
  return selects;
}

void FinishAttention(const std::string& prefix, const DecoderConfig& config,
                     bool of_multimodal, LatentAttentionSpec* attention) {
  const std::string name = prefix + "self_attn.";
  attention->rope_style =
      of_multimodal ? RopeStyle::kInterleaved : RopeStyle::kHalf;
  if (of_multimodal) {
    attention->query_norm.epsilon = config.norm_epsilon;
    attention->norm.epsilon = config.norm_epsilon;
  }
  attention->sinks = name + "learnable_sink_param";
  attention->gate = LinearSpec{
      name + "linear_gate",
      int64_t{attention->num_heads} * attention->value_dim, config.hidden_size};
  if (!attention->indexer.has_value()) return;
  attention->indexer->rope_style = attention->rope_style;
  attention->indexer->rotates_last = true;
}

// transformers writes the name that gates of attention have for those of MLPs,
// too.
void NameGate(const std::string& name, const ModelBuild& build, MlpSpec* mlp) {
  mlp->input.front().name =
      FirstOf({name + "gate_proj", name + "linear_gate"}, ".weight", build);
}

void FinishMlp(const std::string& prefix, float limit, const ModelBuild& build,
               PartSpec* part) {
  const std::string name = prefix + "mlp.";
  if (auto* mlp = std::get_if<MlpSpec>(part)) {
    NameGate(name, build, mlp);
    return;
  }
  auto& moe = std::get<MoeSpec>(*part);
  for (MlpSpec& expert : moe.experts) {
    expert.activation = Activation::kLimitedSilu;
    expert.limit = limit;
  }
  if (moe.shared.has_value()) {
    NameGate(name + "shared_experts.", build, &*moe.shared);
  }
}

absl::StatusOr<DecoderSpec> HyV4Spec(const Json& json,
                                     const ModelBuild& build) {
  INLAY_RETURN_IF_ERROR(ExpectName(json, "hidden_act", "silu"));
  INLAY_ASSIGN_OR_RETURN(const DecoderConfig config, ReadHyV4Config(json));
  INLAY_ASSIGN_OR_RETURN(const DeepseekExperts experts,
                         ReadHyV4Experts(json, config.num_layers));
  INLAY_ASSIGN_OR_RETURN(const LatentConfig latent,
                         ReadHyV4Latent(json, config.num_heads));
  INLAY_ASSIGN_OR_RETURN(const std::vector<bool> selects,
                         ReadSelecting(json, config.num_layers));
  // core/formats/text_model.cc says so.
  INLAY_ASSIGN_OR_RETURN(const bool of_multimodal,
                         JsonBool(json, "of_multimodal", false));
  INLAY_ASSIGN_OR_RETURN(const double limit,
                         JsonNumber(json, "swiglu_limit", 10.0, 1e-6, 1e6));
  INLAY_ASSIGN_OR_RETURN(DecoderSpec spec,
                         DeepseekDecoder(json, config, latent, experts, true));
  INLAY_ASSIGN_OR_RETURN(spec.streams, ReadIndependentStreams(json, config));
  spec.streams->head =
      FirstOf({"model.hc_pre.hc_head.hc_head", "model.hc_head.hc_pre.hc_head",
               "model.hc_head.hc_head"},
              "_fn", build);
  IndexDefaults index_defaults;
  index_defaults.num_heads = 16;
  index_defaults.key_epsilon = config.norm_epsilon;
  INLAY_ASSIGN_OR_RETURN(
      const IndexConfig index,
      ReadIndexConfig(json, index_defaults, latent, spec.max_positions));
  INLAY_RETURN_IF_ERROR(AddIndexers(index, selects, latent, &spec));
  for (int i = 0; i < config.num_layers; ++i) {
    const std::string prefix = LayerPrefix(i);
    std::vector<BlockSpec>& blocks = spec.layers[static_cast<size_t>(i)].blocks;
    const auto hyper = [&](const std::string& layer) {
      return FirstOf({prefix + "hc_pre." + layer, prefix + layer}, "_fn",
                     build);
    };
    blocks[0].hyper = hyper("hc_attn_layer.hc");
    blocks[1].hyper = hyper("hc_mlp_layer.hc");
    FinishAttention(prefix, config, of_multimodal,
                    &std::get<LatentAttentionSpec>(blocks[0].part));
    FinishMlp(prefix, static_cast<float>(limit), build, &blocks[1].part);
  }
  return spec;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> MakeHyV4(const Json& json,
                                                ModelBuild& build) {
  INLAY_ASSIGN_OR_RETURN(const DecoderSpec spec, HyV4Spec(json, build));
  return BuildDecoder(spec, build);
}

}  // namespace inlay
