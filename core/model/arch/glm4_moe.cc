// GLM-4.5 and later with experts (arXiv:2508.06471): norms on q and k, rope on
// a part of each head, experts chosen by sigmoid scores with a correction, as
// in DeepSeek-V3 (arXiv:2412.19437), and a shared one. Solar Open (Upstage,
// 2025): the same with rope on whole heads, experts in all layers and no norms
// of q and k. Ling 2 (Ant Group, 2025; arXiv:2510.22115): with other names of
// tensors; q, k and v come apart (core/formats/head_source.h). Sarvam 30B
// (Sarvam AI, 2026): that with rope on whole heads. Ling 1 (arXiv:2503.05139):
// that without norms of q and k, experts by the softmax of all; its head may
// have columns of length 1 (core/formats/norm_head_source.h). Source of its
// names and defaults, which Ling's files do without: transformers'
// SarvamMoEConfig and conversion_mapping.py (5.24).
#include "core/model/arch.h"
#include "core/model/arch/deepseek_style.h"
#include "core/model/arch/llama_style.h"
#include "core/model/decoder.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

DecoderDefaults Glm4MoeDefaults() {
  DecoderDefaults defaults;
  defaults.vocab_size = 151552;
  defaults.intermediate_size = 10944;
  defaults.num_layers = 46;
  defaults.num_heads = 96;
  defaults.num_kv_heads = 8;
  defaults.max_positions = 131072;
  defaults.norm_epsilon = 1e-5;
  return defaults;
}

// Ling 2's names of what others call otherwise.
void NameAsLing(DecoderSpec* spec) {
  spec->embedding = "model.word_embeddings.weight";
  for (int i = 0; i < static_cast<int>(spec->layers.size()); ++i) {
    const std::string name = LayerPrefix(i) + "attention.";
    std::vector<BlockSpec>& blocks =
        spec->layers[static_cast<size_t>(i)].blocks;
    auto& attention = std::get<AttentionSpec>(blocks[0].part);
    attention.qkv[0].name = name + "q_proj";
    attention.qkv[1].name = name + "k_proj";
    attention.qkv[2].name = name + "v_proj";
    attention.output.name = name + "dense";
    attention.q_norm.name = name + "query_layernorm";
    attention.k_norm.name = name + "key_layernorm";
    if (auto* moe = std::get_if<MoeSpec>(&blocks[1].part); moe != nullptr) {
      if (!moe->correction.empty()) {
        moe->correction = LayerPrefix(i) + "mlp.gate.expert_bias";
      }
    }
  }
}

// Keys of published files that transformers does not read.
absl::Status CheckSarvamKeys(const Json& json, const DeepseekExperts& experts) {
  INLAY_RETURN_IF_ERROR(ExpectName(json, "score_function", "sigmoid"));
  INLAY_RETURN_IF_ERROR(
      ExpectFlag(json, "moe_router_enable_expert_bias", true));
  INLAY_RETURN_IF_ERROR(ExpectFlag(json, "norm_head", false));
  INLAY_RETURN_IF_ERROR(ExpectFlag(json, "use_bias", false));
  INLAY_RETURN_IF_ERROR(ExpectFlag(json, "use_rmsnorm", true));
  constexpr char kWidth[] = "moe_shared_expert_intermediate_size";
  const int64_t usual = experts.moe.width * experts.num_shared;
  INLAY_ASSIGN_OR_RETURN(const int64_t width,
                         JsonInt(json, kWidth, usual, 0, kMaxHidden));
  if (width == usual) return absl::OkStatus();
  return absl::UnimplementedError(FormattedString(
      "config.json: %s is %d; supported here is %d, moe_intermediate_size for "
      "each shared expert",
      kWidth, width, usual));
}

// What Ling 1's published code has ways for and no published file asks for.
absl::Status CheckLingKeys(const Json& json) {
  for (const char* key :
       {"use_bias", "norm_softmax", "multi_gate", "use_sliding_window"}) {
    INLAY_RETURN_IF_ERROR(ExpectFlag(json, key, false));
  }
  INLAY_ASSIGN_OR_RETURN(const bool tied,
                         JsonBool(json, "tie_word_embeddings", false));
  return tied ? ExpectFlag(json, "norm_head", false) : absl::OkStatus();
}

absl::StatusOr<DecoderSpec> Glm4MoeSpec(const Json& json,
                                        const DecoderConfig& config,
                                        const DeepseekExperts& experts,
                                        bool head_norms,
                                        const RopeDefaults& rotary) {
  INLAY_ASSIGN_OR_RETURN(const bool bias,
                         JsonBool(json, "attention_bias", false));
  INLAY_ASSIGN_OR_RETURN(const RopeSpec rope, ReadRope(json, config, rotary));
  DecoderSpec spec = LlamaStyleDecoder(config, NormKind::kRms);
  spec.max_positions = UsablePositions(config.max_positions, rope);
  spec.ropes.push_back(rope);
  for (int i = 0; i < config.num_layers; ++i) {
    const std::string prefix = LayerPrefix(i);
    AttentionSpec attention = LlamaStyleAttention(config, prefix, bias, false);
    if (head_norms) AddHeadNorms(config, prefix, NormKind::kRms, &attention);
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

absl::StatusOr<std::unique_ptr<Model>> MakeGlm4Moe(const Json& config,
                                                   ModelBuild& build) {
  INLAY_ASSIGN_OR_RETURN(const DecoderConfig sizes,
                         ReadDecoderConfig(config, Glm4MoeDefaults()));
  DeepseekDefaults defaults;
  defaults.moe = {128, 8, 1408, true};
  INLAY_ASSIGN_OR_RETURN(const DeepseekExperts experts,
                         ReadDeepseekExperts(config, defaults));
  INLAY_ASSIGN_OR_RETURN(const bool head_norms,
                         JsonBool(config, "use_qk_norm", false));
  INLAY_ASSIGN_OR_RETURN(
      const DecoderSpec spec,
      Glm4MoeSpec(config, sizes, experts, head_norms, {.partial = 0.5}));
  return BuildDecoder(spec, build);
}

absl::StatusOr<std::unique_ptr<Model>> MakeSolarOpen(const Json& json,
                                                     ModelBuild& build) {
  DecoderDefaults sizes = Glm4MoeDefaults();
  sizes.vocab_size = 196608;
  sizes.num_layers = 48;
  sizes.num_heads = 64;
  sizes.head_dim = 128;
  INLAY_ASSIGN_OR_RETURN(const DecoderConfig config,
                         ReadDecoderConfig(json, sizes));
  // Keys of the family that it is made of, which change nothing here.
  INLAY_RETURN_IF_ERROR(ExpectFlag(json, "use_qk_norm", false));
  Json sparse = json;
  sparse["first_k_dense_replace"] = 0;
  DeepseekDefaults defaults;
  defaults.moe = {128, 8, 1280, true};
  INLAY_ASSIGN_OR_RETURN(const DeepseekExperts experts,
                         ReadDeepseekExperts(sparse, defaults));
  INLAY_ASSIGN_OR_RETURN(const DecoderSpec spec,
                         Glm4MoeSpec(json, config, experts, false,
                                     {.theta = 1e6, .partial = 1.0}));
  return BuildDecoder(spec, build);
}

absl::StatusOr<std::unique_ptr<Model>> MakeSarvamMoe(const Json& own,
                                                     ModelBuild& build) {
  const Json json =
      WithUsualNames(own, {{"num_experts", "n_routed_experts"},
                           {"num_shared_experts", "n_shared_experts"},
                           {"use_qkv_bias", "attention_bias"}});
  DecoderDefaults sizes;
  sizes.vocab_size = 262144;
  sizes.intermediate_size = 8192;
  sizes.num_layers = 19;
  sizes.num_heads = 64;
  sizes.num_kv_heads = 4;
  sizes.head_dim = 64;
  sizes.max_positions = 131072;
  INLAY_ASSIGN_OR_RETURN(const DecoderConfig config,
                         ReadDecoderConfig(json, sizes));
  DeepseekDefaults defaults;
  defaults.moe = {128, 6, 1024, true};
  defaults.scale = 2.5;
  INLAY_ASSIGN_OR_RETURN(const DeepseekExperts experts,
                         ReadDeepseekExperts(json, defaults));
  INLAY_RETURN_IF_ERROR(CheckSarvamKeys(json, experts));
  INLAY_ASSIGN_OR_RETURN(const bool head_norms,
                         JsonBool(json, "use_qk_norm", true));
  INLAY_ASSIGN_OR_RETURN(DecoderSpec spec,
                         Glm4MoeSpec(json, config, experts, head_norms,
                                     {.theta = 8e6, .partial = 1.0}));
  NameAsLing(&spec);
  return BuildDecoder(spec, build);
}

absl::StatusOr<std::unique_ptr<Model>> MakeBailingMoe(const Json& own,
                                                      ModelBuild& build) {
  const Json json =
      WithUsualNames(own, {{"num_experts", "n_routed_experts"},
                           {"num_shared_experts", "n_shared_experts"},
                           {"use_qkv_bias", "attention_bias"}});
  INLAY_RETURN_IF_ERROR(CheckLingKeys(json));
  DecoderDefaults sizes;
  sizes.vocab_size = 126464;
  sizes.hidden_size = 2048;
  sizes.intermediate_size = 1408;
  sizes.num_layers = 28;
  sizes.num_heads = 16;
  sizes.num_kv_heads = 4;
  sizes.max_positions = 16384;
  INLAY_ASSIGN_OR_RETURN(const DecoderConfig config,
                         ReadDecoderConfig(json, sizes));
  DeepseekDefaults defaults;
  defaults.moe = {64, 6, 1408, true};
  defaults.num_dense = 0;
  defaults.num_shared = 0;
  INLAY_ASSIGN_OR_RETURN(DeepseekExperts experts,
                         ReadDeepseekExperts(json, defaults));
  RoutingDesc& routing = experts.moe.routing;
  routing.score = RoutingScore::kSoftmax;
  if (routing.top_k == 1) routing.normalised = false;
  INLAY_ASSIGN_OR_RETURN(DecoderSpec spec,
                         LlamaDeepseekDecoder(json, config, experts));
  for (LayerSpec& layer : spec.layers) {
    std::get<AttentionSpec>(layer.blocks[0].part).output.bias = false;
  }
  NameAsLing(&spec);
  return BuildDecoder(spec, build);
}

}  // namespace inlay
