#include "core/formats/gguf_experts.h"

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "core/formats/gguf_cohere_moe.h"
#include "core/formats/gguf_laguna.h"
#include "core/formats/gguf_step.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

constexpr GgufExpertsRow kExpertArchs[] = {
    {"llama", "intermediate_size", true},
    {"qwen2moe", "moe_intermediate_size", false},
    {"qwen3moe", "moe_intermediate_size", true},
    {"qwen3vlmoe", "moe_intermediate_size", true},
    {"gpt-oss", "intermediate_size", true},
    {"qwen3next", "moe_intermediate_size", true},
    {"qwen35moe", "moe_intermediate_size", true},
    {"nemotron_h_moe", "moe_intermediate_size", false},
    {"kimi-linear", "moe_intermediate_size", true},
    {"deepseek", "moe_intermediate_size", false},
    {"deepseek2", "moe_intermediate_size", false},
    {"deepseek2-ocr", "moe_intermediate_size", false},
    {"deepseek32", "moe_intermediate_size", false},
    {"deepseek4", "moe_intermediate_size", true},
    {"glm-dsa", "moe_intermediate_size", false},
    {"glm4moe", "moe_intermediate_size", false},
    {"bailingmoe", "moe_intermediate_size", true},
    {"bailingmoe2", "moe_intermediate_size", false},
    {"minimax-m2", "intermediate_size", true},
    {"llama4", "intermediate_size", false},
    {"gemma4", "moe_intermediate_size", true},
    {"granitemoe", "intermediate_size", true},
    {"granitehybrid", "intermediate_size", true},
    {"dots1", "moe_intermediate_size", false},
    {"lfm2moe", "moe_intermediate_size", true},
    {"olmoe", "intermediate_size", false},
    {"ernie4_5-moe", "moe_intermediate_size", true},
    {"exaone-moe", "moe_intermediate_size", false},
    {"dbrx", "intermediate_size", true},
    {"phimoe", "intermediate_size", false},
    {"afmoe", "moe_intermediate_size", true},
    {"mistral4", "moe_intermediate_size", false},
    {"hunyuan-moe", "moe_intermediate_size", true},
    {"jamba", "intermediate_size", false},
    {"cohere2moe", "intermediate_size", true},
    {"mimo2", "moe_intermediate_size", true},
    {"mellum", "moe_intermediate_size", true},
    {"hy_v3", "moe_intermediate_size", true},
    {"laguna", "moe_intermediate_size", true},
    {"granite_swa", "intermediate_size", true},
    {"minimax-01", "intermediate_size", true},
    {"minimax-m3", "intermediate_size", true},
    {"step35", "moe_intermediate_size", true},
    {"arctic", "intermediate_size", true},
    {"grovemoe", "moe_intermediate_size", true},
    {"smallthinker", "moe_intermediate_size", true},
    {"nomic-bert-moe", "intermediate_size", false},
};

// What DeepSeek's published config.json calls it. Where files say nothing, all
// experts are one group, their weights are not normalised and their scale is 1,
// as llama.cpp has it.
absl::Status ReadDeepseekExperts(const GgufArchKeys& keys,
                                 const GgufSizes& sizes, int64_t experts,
                                 Json* config) {
  const struct {
    const char* key;
    const char* name;
    int64_t fallback;
    int64_t max;
  } integers[] = {
      {"leading_dense_block_count", "first_k_dense_replace", 0, sizes.layers},
      {"expert_shared_count", "n_shared_experts", 0, kMaxGgufSize},
      {"expert_group_count", "n_group", 1, experts},
      {"expert_group_used_count", "topk_group", 1, experts}};
  for (const auto& [key, name, fallback, max] : integers) {
    INLAY_ASSIGN_OR_RETURN(const auto value, keys.Int(key, 0, max));
    (*config)[name] = std::max(value.value_or(fallback), fallback);
  }
  INLAY_ASSIGN_OR_RETURN(const auto scale, keys.Number("expert_weights_scale"));
  INLAY_ASSIGN_OR_RETURN(const auto normalised,
                         keys.Bool("expert_weights_norm"));
  // Files without a scale say 0.
  (*config)["routed_scaling_factor"] =
      scale.value_or(0.0) == 0.0 ? 1.0 : *scale;
  if (normalised.has_value()) (*config)["norm_topk_prob"] = *normalised;
  return absl::OkStatus();
}

// Ling 2 and Sarvam 30B: DeepSeek's, by sigmoid alone.
absl::Status CheckBailingExperts(const GgufArchKeys& keys) {
  constexpr char kGating[] = "expert_gating_func";
  constexpr int64_t kSigmoid = 2;
  INLAY_ASSIGN_OR_RETURN(
      const int64_t gating,
      keys.Required(kGating, keys.Int(kGating, 0, INT32_MAX)));
  if (gating == kSigmoid) return absl::OkStatus();
  return absl::UnimplementedError(FormattedString(
      "%s is %d, allowed: %d (sigmoid)", keys.Name(kGating), gating, kSigmoid));
}

absl::Status ReadLfm2Experts(const GgufFiles& files, const GgufArchKeys& keys,
                             const GgufSizes& sizes, Json* config) {
  constexpr char kGating[] = "expert_gating_func";
  constexpr int64_t kSigmoid = 2;
  INLAY_ASSIGN_OR_RETURN(const auto gating, keys.Int(kGating, 0, INT32_MAX));
  if (gating.value_or(kSigmoid) != kSigmoid) {
    return absl::UnimplementedError(
        FormattedString("%s is %d, allowed: %d (sigmoid)", keys.Name(kGating),
                        *gating, kSigmoid));
  }
  INLAY_ASSIGN_OR_RETURN(
      const auto dense, keys.Int("leading_dense_block_count", 0, sizes.layers));
  (*config)["num_dense_layers"] = dense.value_or(0);
  bool is_corrected = false;
  for (int64_t i = 0; i < sizes.layers; ++i) {
    is_corrected |= files.FindTensor(FormattedString("blk.%d.exp_probs_b.bias",
                                                     i)) != nullptr;
  }
  (*config)["use_expert_bias"] = is_corrected;
  return absl::OkStatus();
}

absl::Status ReadAfmoeExperts(const GgufArchKeys& keys, const GgufSizes& sizes,
                              Json* config) {
  constexpr char kGating[] = "expert_gating_func";
  constexpr int64_t kSigmoid = 2;
  INLAY_ASSIGN_OR_RETURN(const auto gating, keys.Int(kGating, 0, INT32_MAX));
  // Older files say nothing, or 0.
  const int64_t function = gating.value_or(0);
  if (function != 0 && function != kSigmoid) {
    return absl::UnimplementedError(
        FormattedString("%s is %d, allowed: %d (sigmoid)", keys.Name(kGating),
                        function, kSigmoid));
  }
  INLAY_ASSIGN_OR_RETURN(
      const auto dense, keys.Int("leading_dense_block_count", 0, sizes.layers));
  INLAY_ASSIGN_OR_RETURN(const auto shared,
                         keys.Int("expert_shared_count", 0, kMaxGgufSize));
  INLAY_ASSIGN_OR_RETURN(const auto scale, keys.Number("expert_weights_scale"));
  INLAY_ASSIGN_OR_RETURN(const auto normalised,
                         keys.Bool("expert_weights_norm"));
  (*config)["num_dense_layers"] = dense.value_or(0);
  (*config)["num_shared_experts"] = shared.value_or(0);
  (*config)["route_scale"] = scale.value_or(0.0) == 0.0 ? 1.0 : *scale;
  (*config)["route_norm"] = normalised.value_or(true);
  return absl::OkStatus();
}

// Which layers have experts their tensors say.
absl::Status ReadHyExperts(const GgufFiles& files, const GgufArchKeys& keys,
                           const GgufSizes& sizes, Json* config) {
  constexpr char kGating[] = "expert_gating_func";
  constexpr char kNorm[] = "expert_weights_norm";
  constexpr char kShared[] = "expert_shared_feed_forward_length";
  constexpr int64_t kSigmoid = 2;
  INLAY_ASSIGN_OR_RETURN(const auto gating, keys.Int(kGating, 0, INT32_MAX));
  INLAY_ASSIGN_OR_RETURN(const auto normalised, keys.Bool(kNorm));
  INLAY_ASSIGN_OR_RETURN(const auto scale, keys.Number("expert_weights_scale"));
  INLAY_ASSIGN_OR_RETURN(const auto shared, keys.Int(kShared, 0, kMaxGgufSize));
  const int64_t score = gating.value_or(0);
  if ((score != 0 && score != kSigmoid) || !normalised.value_or(false)) {
    return absl::UnimplementedError(FormattedString(
        "%s is %d and %s %s, allowed: %d (sigmoid), true", keys.Name(kGating),
        score, keys.Name(kNorm), normalised.value_or(false) ? "true" : "false",
        kSigmoid));
  }
  const int64_t one = (*config)["moe_intermediate_size"].get<int64_t>();
  const int64_t all = shared.value_or(0) == 0 ? one : *shared;
  if (all % one != 0) {
    return absl::UnimplementedError(
        FormattedString("%s is %d, allowed: a multiple of an expert's %d",
                        keys.Name(kShared), all, one));
  }
  (*config)["num_shared_experts"] = all / one;
  (*config)["router_scaling_factor"] =
      scale.value_or(0.0) == 0.0 ? 1.0 : *scale;
  Json types = Json::array();
  for (int64_t i = 0; i < sizes.layers; ++i) {
    const bool is_sparse = files.FindTensor(FormattedString(
                               "blk.%d.ffn_gate_inp.weight", i)) != nullptr;
    types.push_back(is_sparse ? "sparse" : "dense");
  }
  (*config)["mlp_layer_types"] = std::move(types);
  return absl::OkStatus();
}

absl::Status ReadErnieExperts(const GgufArchKeys& keys, const GgufSizes& sizes,
                              Json* config) {
  (*config)["moe_num_experts"] = (*config)["num_local_experts"];
  (*config)["moe_k"] = (*config)["num_experts_per_tok"];
  (*config)["moe_layer_end_index"] = -1;
  const struct {
    const char* key;
    const char* name;
    int64_t fallback;
    int64_t min;
    int64_t max;
  } integers[] = {
      {"leading_dense_block_count", "moe_layer_start_index", 0, 0,
       sizes.layers},
      {"interleave_moe_layer_step", "moe_layer_interval", 1, 1, kMaxGgufLayers},
      {"expert_shared_count", "moe_num_shared_experts", 0, 0, kMaxGgufSize}};
  for (const auto& [key, name, fallback, min, max] : integers) {
    INLAY_ASSIGN_OR_RETURN(const auto value, keys.Int(key, min, max));
    (*config)[name] = value.value_or(fallback);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<GgufExpertsRow> FindGgufExperts(std::string_view arch) {
  std::string known;
  for (const GgufExpertsRow& row : kExpertArchs) {
    if (row.arch == arch) return row;
    known += (known.empty() ? "" : ", ") + std::string(row.arch);
  }
  return absl::UnimplementedError(
      FormattedString("experts load in the architectures %s", known));
}

absl::Status ReadGgufExperts(const GgufFiles& files, const GgufArchKeys& keys,
                             const GgufSizes& sizes, Json* config) {
  constexpr char kExperts[] = "expert_count";
  INLAY_ASSIGN_OR_RETURN(const auto experts,
                         keys.Int(kExperts, 0, kMaxGgufSize));
  if (experts.value_or(0) == 0) return absl::OkStatus();
  const auto found = FindGgufExperts(keys.arch());
  if (!found.ok()) {
    return absl::UnimplementedError(
        FormattedString("%s is %d: %s", keys.Name(kExperts), *experts,
                        found.status().message()));
  }
  constexpr char kUsed[] = "expert_used_count";
  INLAY_ASSIGN_OR_RETURN(const int64_t used,
                         keys.Required(kUsed, keys.Int(kUsed, 1, *experts)));
  INLAY_ASSIGN_OR_RETURN(
      const auto width,
      keys.Int("expert_feed_forward_length", 1, kMaxGgufSize));
  (*config)["num_local_experts"] = *experts;
  (*config)["num_experts_per_tok"] = used;
  (*config)["norm_topk_prob"] = found->normalised;
  (*config)[found->width] = width.value_or(sizes.inner);
  if (keys.arch() == "llama") {
    (*config)["architectures"] = {"MixtralForCausalLM"};
    (*config)["model_type"] = "mixtral";
  }
  if (keys.arch() == "gemma4") {
    (*config)["enable_moe_block"] = true;
    (*config)["num_experts"] = *experts;
    (*config)["top_k_experts"] = used;
    return absl::OkStatus();
  }
  if (keys.arch() == "gpt-oss") {
    // As published; the format has no key for it. Without a scaling config.json
    // would mean the family's.
    Json& scaling = (*config)["rope_scaling"];
    if (!scaling.is_object()) scaling = Json{{"rope_type", "default"}};
    scaling["truncate"] = false;
  }
  if (keys.arch() == "dbrx") {
    (*config)["ffn_config"] = {{"ffn_hidden_size", sizes.inner},
                               {"moe_num_experts", *experts},
                               {"moe_top_k", used}};
    return absl::OkStatus();
  }
  if (keys.arch() == "nomic-bert-moe") {
    (*config)["num_experts"] = *experts;
    (*config)["moe_top_k"] = used;
    return absl::OkStatus();
  }
  if (keys.arch() == "hunyuan-moe") {
    (*config)["num_experts"] = *experts;
    (*config)["moe_topk"] = used;
    // The shared MLP's is what this family has under that name.
    INLAY_ASSIGN_OR_RETURN(
        const auto shared,
        keys.Int("expert_shared_feed_forward_length", 1, kMaxGgufSize));
    (*config)["intermediate_size"] = shared.value_or(sizes.inner);
    return absl::OkStatus();
  }
  const bool is_nemotron = keys.arch() == "nemotron_h_moe";
  const bool is_bailing = keys.arch() == "bailingmoe2";
  if (is_bailing) INLAY_RETURN_IF_ERROR(CheckBailingExperts(keys));
  if (keys.arch() == "glm4moe" || keys.arch().starts_with("bailingmoe") ||
      keys.arch() == "dots1" || keys.arch().starts_with("deepseek") ||
      keys.arch() == "glm-dsa" || keys.arch() == "kimi-linear" ||
      keys.arch() == "exaone-moe" || keys.arch() == "mistral4" || is_nemotron) {
    INLAY_RETURN_IF_ERROR(ReadDeepseekExperts(keys, sizes, *experts, config));
    (*config)["num_shared_experts"] = (*config)["n_shared_experts"];
    (*config)["num_experts"] = *experts;
    if (!is_nemotron) return absl::OkStatus();
  }
  if (keys.arch() == "lfm2moe") {
    return ReadLfm2Experts(files, keys, sizes, config);
  }
  if (keys.arch() == "afmoe") return ReadAfmoeExperts(keys, sizes, config);
  if (keys.arch() == "cohere2moe") return ReadGgufCohereExperts(keys, config);
  if (keys.arch() == "hy_v3") return ReadHyExperts(files, keys, sizes, config);
  if (keys.arch() == "step35") {
    return ReadGgufStepExperts(files, keys, sizes, config);
  }
  if (keys.arch() == "laguna") {
    INLAY_RETURN_IF_ERROR(ReadGgufLagunaExperts(keys, sizes, config));
  }
  if (keys.arch() == "ernie4_5-moe") {
    return ReadErnieExperts(keys, sizes, config);
  }
  if (found->width != std::string_view("moe_intermediate_size") ||
      keys.arch() == "qwen3moe" || keys.arch() == "qwen3vlmoe" ||
      keys.arch() == "mimo2" || keys.arch() == "mellum" ||
      keys.arch() == "smallthinker" || keys.arch() == "grovemoe") {
    return absl::OkStatus();
  }
  constexpr char kShared[] = "expert_shared_feed_forward_length";
  INLAY_ASSIGN_OR_RETURN(
      const int64_t shared,
      keys.Required(kShared, keys.Int(kShared, 1, kMaxGgufSize)));
  (*config)[is_nemotron ? "moe_shared_expert_intermediate_size"
                        : "shared_expert_intermediate_size"] = shared;
  return absl::OkStatus();
}

}  // namespace inlay
