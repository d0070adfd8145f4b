// Mistral Large 4 (Mistral, 2026), text: latent attention whose keys indexers
// select, with queries that each head multiplies by what it has learned of the
// logarithm of their position, rotary frequencies that are learned, too, some
// layers without positions and some that read the latents of an earlier one;
// experts by softmax. Names of tensors are Mistral's own, which is what
// transformers writes. Source: transformers' MistralLarge4TextConfig, its
// modules and its table of names. That has no class of the text alone; here it
// is MistralLarge4ForCausalLM.
#include <algorithm>
#include <utility>
#include <variant>
#include <vector>

#include "core/model/arch.h"
#include "core/model/arch/deepseek_style.h"
#include "core/model/arch/indexer_style.h"
#include "core/model/arch/llama_style.h"
#include "core/model/decoder.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

// The published code has it in the class.
constexpr float kQueryInputEpsilon = 1e-6f;

struct LargeConfig {
  DecoderConfig decoder;
  LatentConfig latent;
  DeepseekExperts experts;
  RopeSpec rope;
  IndexConfig index;
  // Of each layer.
  std::vector<bool> rotates;
  std::vector<bool> selects;
  std::vector<int> sources;  // layers; its own: it has latents
};

// Queries are never compressed, and rope is YaRN's where nothing is said.
Json WithTextDefaults(Json json) {
  json["q_lora_rank"] = nullptr;
  if (JsonFind(json, "rope_parameters") == nullptr &&
      JsonFind(json, "rope_scaling") == nullptr) {
    json["rope_parameters"] = Json{
        {"rope_type", "yarn"},    {"rope_theta", 10000.0},
        {"factor", 2048.0},       {"original_max_position_embeddings", 512},
        {"beta_fast", 32.0},      {"beta_slow", 1.0},
        {"attention_factor", 1.0}};
  }
  return json;
}

// `key`, a number a layer from 0 to `most`; there may be more than layers.
// Empty where it is null or absent.
absl::StatusOr<std::vector<int>> ReadLayerNumbers(const Json& json,
                                                  const char* key,
                                                  int num_layers, int most) {
  std::vector<int> numbers;
  const Json* list = JsonFind(json, key);
  if (list == nullptr) return numbers;
  const auto is_number = [&](const Json& number) {
    return number.is_number_integer() && number.get<int64_t>() >= 0 &&
           number.get<int64_t>() <= most;
  };
  if (!list->is_array() || list->size() < static_cast<size_t>(num_layers) ||
      !std::all_of(list->begin(), list->end(), is_number)) {
    return absl::InvalidArgumentError(FormattedString(
        "config.json: %s is %s; it must be an array of a number from 0 to %d "
        "for each of %d layers",
        key, ShownJson(*list), most, num_layers));
  }
  for (int i = 0; i < num_layers; ++i) {
    numbers.push_back((*list)[static_cast<size_t>(i)].get<int>());
  }
  return numbers;
}

absl::StatusOr<std::vector<bool>> ReadRotates(const Json& json,
                                              int num_layers) {
  INLAY_ASSIGN_OR_RETURN(
      const std::vector<int> flags,
      ReadLayerNumbers(json, "no_rope_layers", num_layers, 1));
  std::vector<bool> rotates(flags.begin(), flags.end());
  if (!rotates.empty()) return rotates;
  INLAY_ASSIGN_OR_RETURN(
      const int64_t interval,
      JsonInt(json, "no_rope_layer_interval", 4, 1, kMaxLayers));
  for (int i = 0; i < num_layers; ++i) {
    rotates.push_back((i + 1) % interval != 0);
  }
  return rotates;
}

// Published code keeps one layer's latents for those with rope and one's for
// those without, whatever layer a list names: what differs is refused.
absl::Status CheckSources(const std::vector<int>& sources,
                          const std::vector<bool>& rotates) {
  int kept[2] = {-1, -1};  // by whether they are rotated
  for (int i = 0; i < static_cast<int>(sources.size()); ++i) {
    const auto at = static_cast<size_t>(i);
    const int source = sources[at];
    if (source > i || sources[static_cast<size_t>(source)] != source) {
      return absl::InvalidArgumentError(FormattedString(
          "config.json: kv_source_layers has layer %d read those of %d; it "
          "must be itself or an earlier layer that reads its own",
          i, source));
    }
    int& own = kept[rotates[at] ? 1 : 0];
    if (source != i && source != own) {
      return absl::UnimplementedError(FormattedString(
          "config.json: kv_source_layers has layer %d read those of %d; "
          "supported here is the last layer that others read, of those that "
          "rotate as it does (no_rope_layers), %d",
          i, source, own));
    }
    if (source == i && std::count(sources.begin(), sources.end(), i) > 1) {
      own = i;
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<int>> ReadSources(const Json& json,
                                             const std::vector<bool>& rotates) {
  constexpr char kKey[] = "kv_source_layers";
  const auto num_layers = static_cast<int>(rotates.size());
  INLAY_ASSIGN_OR_RETURN(
      std::vector<int> sources,
      ReadLayerNumbers(json, kKey, num_layers, num_layers - 1));
  if (sources.empty()) {
    for (int i = 0; i < num_layers; ++i) sources.push_back(i);
    return sources;
  }
  if (JsonFind(json, kKey)->size() != sources.size()) {
    return absl::InvalidArgumentError(FormattedString(
        "config.json: kv_source_layers has %d numbers; it must have one a "
        "layer, %d",
        JsonFind(json, kKey)->size(), num_layers));
  }
  INLAY_RETURN_IF_ERROR(CheckSources(sources, rotates));
  return sources;
}

absl::StatusOr<DecoderConfig> ReadDecoder(const Json& json) {
  DecoderDefaults defaults;
  defaults.vocab_size = 204800;
  defaults.hidden_size = 6144;
  defaults.intermediate_size = 24576;
  defaults.num_layers = 72;
  defaults.num_heads = 64;
  defaults.head_dim = 64;  // not used: latent attention has its own
  defaults.max_positions = 1048576;
  defaults.norm_epsilon = 1e-5;
  return ReadDecoderConfig(json, defaults);
}

absl::StatusOr<DeepseekExperts> ReadLargeExperts(const Json& json,
                                                 int num_layers) {
  DeepseekDefaults defaults;
  defaults.moe = {128, 4, 6144, true};
  // Chosen by softmax, and normalised whatever the keys of others say.
  INLAY_ASSIGN_OR_RETURN(DeepseekExperts experts,
                         ReadDeepseekExperts(json, defaults));
  experts.moe.routing.score = RoutingScore::kSoftmax;
  experts.moe.routing.normalised = true;
  experts.every = 1;
  INLAY_ASSIGN_OR_RETURN(
      experts.sparse,
      ReadLayerKinds(json, "mlp_layer_types", num_layers, "sparse", "dense"));
  return experts;
}

absl::StatusOr<LargeConfig> ReadLargeConfig(const Json& json) {
  LargeConfig config;
  INLAY_ASSIGN_OR_RETURN(config.decoder, ReadDecoder(json));
  const int num_layers = config.decoder.num_layers;
  INLAY_ASSIGN_OR_RETURN(config.experts, ReadLargeExperts(json, num_layers));
  LatentConfig latent_defaults;
  latent_defaults.key_dim = 64;
  INLAY_ASSIGN_OR_RETURN(
      config.latent,
      ReadLatentConfig(json, config.decoder.num_heads, latent_defaults));
  INLAY_ASSIGN_OR_RETURN(config.rope,
                         ReadLatentRope(json, config.decoder, config.latent));
  if (config.rope.scaling == RopeScaling::kDynamic ||
      config.rope.scaling == RopeScaling::kLongRope) {
    return absl::UnimplementedError(
        "config.json: the rope type is \"dynamic\" or \"longrope\"; supported "
        "here are those whose frequencies do not depend on length");
  }
  config.rope.log_scales = "lerope.alpha";
  INLAY_ASSIGN_OR_RETURN(config.rotates, ReadRotates(json, num_layers));
  INLAY_ASSIGN_OR_RETURN(config.selects, ReadSelectingLayers(json, num_layers));
  INLAY_RETURN_IF_ERROR(CheckFirstSelects(config.selects));
  INLAY_ASSIGN_OR_RETURN(config.sources, ReadSources(json, config.rotates));
  IndexDefaults index;
  index.num_heads = 32;
  index.interleaved = true;
  index.reads_low_rank = false;
  INLAY_ASSIGN_OR_RETURN(
      config.index,
      ReadIndexConfig(
          json, index, config.latent,
          UsablePositions(config.decoder.max_positions, config.rope)));
  return config;
}

// The part's place among layers of the cache; and, of those that have latents,
// where they are.
class KvPlaces {
 public:
  explicit KvPlaces(const LargeConfig& config) {
    int next = 0;
    for (size_t i = 0; i < config.sources.size(); ++i) {
      const bool own = config.sources[i] == static_cast<int>(i);
      of_layer_.push_back(own ? next++ : -1);
      next += config.selects[i] ? 1 : 0;
    }
  }
  int Of(int layer) const { return of_layer_[static_cast<size_t>(layer)]; }

 private:
  std::vector<int> of_layer_;
};

LatentAttentionSpec Attention(const LargeConfig& config, int layer,
                              const KvPlaces& places,
                              const DecoderSpec& decoder,
                              const std::string& prefix) {
  const auto at = static_cast<size_t>(layer);
  const std::string name = prefix + "attention.";
  LatentConfig latent = config.latent;
  if (!config.rotates[at]) {
    latent.key_dim += latent.rope_dim;
    latent.rope_dim = 0;
  }
  LatentAttentionSpec spec = RotatedLatentAttention(
      config.decoder, latent, config.rope, prefix, "attention.");
  if (!config.rotates[at]) spec.rope = -1;
  spec.query.front().name = name + "wq";
  spec.down.name = name + "wkv_a_with_mqa";
  spec.norm = {NormKind::kRms, name + "kv_a_norm", config.decoder.norm_epsilon};
  spec.up.name = name + "wkv_b";
  spec.output.name = name + "wo";
  spec.head_scale = name + "ssmax_scaling";
  const int source = config.sources[at];
  if (source != layer) spec.kv_source = places.Of(source);
  spec.selects = config.index.top_k;
  if (!config.selects[at]) return spec;
  const std::string indexer = name + "indexer.";
  const int64_t hidden = config.decoder.hidden_size;
  IndexerSpec& index =
      spec.indexer.emplace(LayerIndexer(config.index, hidden, decoder, prefix));
  index.query.name = indexer + "wq_b";
  index.key.name = indexer + "wk";
  index.key_norm.name = indexer + "k_norm";
  index.weights.name = indexer + "weights_proj";
  index.query_norm = {NormKind::kLayer, indexer + "q_input_norm",
                      kQueryInputEpsilon};
  index.head_scale = indexer + "ssmax_scaling";
  return spec;
}

MlpSpec NamedMlp(MlpSpec mlp, const std::string& name) {
  mlp.input[0].name = name + "w1";
  mlp.input[1].name = name + "w3";
  mlp.output.name = name + "w2";
  return mlp;
}

PartSpec FeedForward(const LargeConfig& config, int layer,
                     const std::string& prefix) {
  if (!config.experts.HasExperts(layer)) {
    return NamedMlp(LlamaStyleMlp(config.decoder, prefix, false),
                    prefix + "feed_forward.");
  }
  MoeSpec moe = DeepseekMoe(config.decoder, config.experts, prefix, false,
                            {"w1", "w3", "w2"});
  if (moe.shared.has_value()) {
    moe.shared = NamedMlp(*std::move(moe.shared), prefix + "shared_experts.");
  }
  return moe;
}

absl::StatusOr<DecoderSpec> MistralLarge4Spec(const Json& published) {
  const Json json = WithTextDefaults(published);
  INLAY_ASSIGN_OR_RETURN(const LargeConfig config, ReadLargeConfig(json));
  INLAY_ASSIGN_OR_RETURN(
      const double softcap,
      JsonNumber(json, "final_logit_softcapping", 30.0, 1e-6, 1e6));
  const DecoderConfig& decoder = config.decoder;
  DecoderSpec spec = LlamaStyleDecoder(decoder, NormKind::kRms);
  spec.optional_prefix = "";
  spec.embedding = "tok_embeddings.weight";
  spec.final_norm.name = "norm";
  (spec.head.empty() ? spec.tied_head : spec.head) = "output";
  spec.final_softcap = static_cast<float>(softcap);
  spec.max_positions = UsablePositions(decoder.max_positions, config.rope);
  spec.ropes.push_back(config.rope);
  const KvPlaces places(config);
  for (int i = 0; i < decoder.num_layers; ++i) {
    const std::string prefix = FormattedString("layers.%d.", i);
    LayerSpec& layer = spec.layers.emplace_back();
    layer.blocks.resize(2);
    const auto norm = [&](const char* name) -> NormSpec {
      return {NormKind::kRms, prefix + name, decoder.norm_epsilon};
    };
    layer.blocks[0].pre_norm = norm("attention_norm");
    layer.blocks[0].part = Attention(config, i, places, spec, prefix);
    layer.blocks[1].pre_norm = norm("ffn_norm");
    layer.blocks[1].part = FeedForward(config, i, prefix);
  }
  return spec;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> MakeMistralLarge4(const Json& json,
                                                         ModelBuild& build) {
  INLAY_ASSIGN_OR_RETURN(const DecoderSpec spec, MistralLarge4Spec(json));
  return BuildDecoder(spec, build);
}

}  // namespace inlay
