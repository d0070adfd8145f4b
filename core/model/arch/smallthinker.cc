// SmallThinker (PowerInfer, arXiv:2507.20984): experts gated by ReLU, which a
// router chooses by what the layer's attention reads, before its norm; layers
// with windows or without, with rope or without, each as lists say. Source: the
// published modeling_smallthinker.py.
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/formats/smallthinker_config.h"
#include "core/model/arch.h"
#include "core/model/arch/deepseek_style.h"
#include "core/model/arch/llama_style.h"
#include "core/model/arch/moe_style.h"
#include "core/model/decoder.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

// `key` as a flag a layer, 0 or 1; `fallback` for all where it is absent.
absl::StatusOr<std::vector<bool>> ReadLayout(const Json& json,
                                             std::string_view key,
                                             int num_layers, bool fallback) {
  const auto count = static_cast<size_t>(num_layers);
  const Json* list = JsonFind(json, key);
  std::vector<bool> flags(count, fallback);
  if (list == nullptr) return flags;
  bool is_list = list->is_array() && list->size() == count;
  for (size_t i = 0; is_list && i < count; ++i) {
    is_list = (*list)[i] == 0 || (*list)[i] == 1;
    flags[i] = (*list)[i] == 1;
  }
  if (is_list) return flags;
  return absl::InvalidArgumentError(FormattedString(
      "config.json: %s is %s; it must be an array of %d numbers, each 0 or 1",
      key, ShownJson(*list), num_layers));
}

// What configurations of the family have names for and the published code has
// no way to do.
absl::Status ExpectPublishedLayers(const Json& json, int num_layers) {
  for (const char* key :
       {"moe_enable_secondary_experts", "moe_shared_primary_experts",
        "use_qk_norm", "attention_bias"}) {
    const Json* value = JsonFind(json, key);
    if (value == nullptr || *value == false || *value == 0) continue;
    return absl::UnimplementedError(
        FormattedString("config.json: %s is %s; supported here is none", key,
                        ShownJson(*value)));
  }
  constexpr char kLayers[] = "moe_layer_layout";
  INLAY_ASSIGN_OR_RETURN(const std::vector<bool> sparse,
                         ReadLayout(json, kLayers, num_layers, true));
  for (const bool has_experts : sparse) {
    if (has_experts) continue;
    return absl::UnimplementedError(FormattedString(
        "config.json: %s has 0; supported here are layers with experts alone",
        kLayers));
  }
  return absl::OkStatus();
}

absl::StatusOr<MoeConfig> ReadSmallThinkerExperts(const Json& json) {
  INLAY_ASSIGN_OR_RETURN(
      MoeConfig moe,
      ReadMoeConfig(json, "moe_intermediate_size", {32, 4, 768, true}));
  INLAY_ASSIGN_OR_RETURN(
      const bool softmax,
      JsonFlag(json, "moe_primary_router_apply_softmax", false));
  moe.routing.score = softmax ? RoutingScore::kSoftmax : RoutingScore::kSigmoid;
  moe.routing.normalised = true;  // whatever norm_topk_prob says
  return moe;
}

absl::StatusOr<DecoderSpec> SmallThinkerSpec(const Json& json) {
  DecoderDefaults defaults;
  defaults.vocab_size = 151936;
  defaults.hidden_size = 1536;
  defaults.intermediate_size = 768;
  defaults.num_heads = 12;
  defaults.num_kv_heads = 2;
  defaults.head_dim = 128;
  defaults.max_positions = 131072;
  defaults.tie_embeddings = true;
  INLAY_ASSIGN_OR_RETURN(DecoderConfig config,
                         ReadDecoderConfig(json, defaults));
  config.activation = Activation::kRelu;  // which no key names
  INLAY_RETURN_IF_ERROR(ExpectPublishedLayers(json, config.num_layers));
  INLAY_ASSIGN_OR_RETURN(const MoeConfig moe, ReadSmallThinkerExperts(json));
  INLAY_ASSIGN_OR_RETURN(
      const std::vector<bool> rotates,
      ReadLayout(json, "rope_layout", config.num_layers, true));
  INLAY_ASSIGN_OR_RETURN(
      const std::vector<bool> slides,
      ReadLayout(json, "sliding_window_layout", config.num_layers, false));
  INLAY_ASSIGN_OR_RETURN(const int window, ReadWindow(json, 4096));
  INLAY_ASSIGN_OR_RETURN(const RopeSpec rope,
                         ReadRope(json, config, {.theta = 1e6}));
  DecoderSpec spec = LlamaStyleDecoder(config, NormKind::kRms);
  spec.max_positions = UsablePositions(config.max_positions, rope);
  spec.ropes.push_back(rope);
  for (int i = 0; i < config.num_layers; ++i) {
    const std::string prefix = LayerPrefix(i);
    AttentionSpec attention = LlamaStyleAttention(config, prefix, false, false);
    if (!rotates[static_cast<size_t>(i)]) attention.rope = -1;
    if (slides[static_cast<size_t>(i)]) attention.window = window;
    MoeSpec experts =
        LlamaStyleMoe(config, moe, prefix + "block_sparse_moe.",
                      "primary_router", false, {"gate", "up", "down"});
    experts.routes_ahead = true;
    spec.layers.push_back(LlamaStyleLayer(config, prefix, NormKind::kRms,
                                          std::move(attention),
                                          std::move(experts)));
  }
  return spec;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> MakeSmallThinker(const Json& json,
                                                        ModelBuild& build) {
  INLAY_RETURN_IF_ERROR(ExpectFlag(json, "moe_enable_early_router", true));
  INLAY_ASSIGN_OR_RETURN(const DecoderSpec spec,
                         SmallThinkerSpec(WithUsualSmallThinkerNames(json)));
  return BuildDecoder(spec, build);
}

}  // namespace inlay
