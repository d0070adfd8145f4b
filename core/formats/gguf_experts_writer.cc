#include "core/formats/gguf_experts_writer.h"

#include <algorithm>
#include <initializer_list>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>

#include "absl/strings/str_join.h"
#include "core/formats/gguf_cohere_moe.h"
#include "core/formats/gguf_experts.h"
#include "core/formats/gguf_laguna.h"
#include "core/formats/gguf_sizes.h"
#include "core/formats/gguf_step.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

constexpr const char* kCounts[] = {"num_experts", "num_local_experts",
                                   "n_routed_experts", "moe_num_experts"};

// Values of expert_gating_func.
constexpr int64_t kSoftmaxScores = 1;
constexpr int64_t kSigmoidScores = 2;

// The one that config.json has.
const char* CountKey(const Json& config) {
  for (const char* key : kCounts) {
    if (JsonFind(config, key) != nullptr) return key;
  }
  return nullptr;
}

bool IsOneOf(std::string_view arch,
             std::initializer_list<std::string_view> archs) {
  return std::find(archs.begin(), archs.end(), arch) != archs.end();
}

// A count that may be 0.
absl::Status CopyNeededCount(const char* from, std::string_view to,
                             GgufKeyWriter& keys) {
  if (!keys.Has(from)) return keys.Size(from).status();
  return keys.CopyCount(from, to);
}

bool IsDeepseekStyle(const GgufKeyWriter& keys) {
  return IsOneOf(keys.arch(),
                 {"deepseek2", "deepseek2-ocr", "deepseek32", "glm-dsa",
                  "glm4moe", "dots1", "kimi-linear", "nemotron_h_moe",
                  "exaone-moe", "mistral4", "bailingmoe2"});
}

// Layers without experts come first, and no others are.
absl::Status SetLeadingLayers(GgufKeyWriter& keys) {
  constexpr char kLeading[] = "leading_dense_block_count";
  INLAY_RETURN_IF_ERROR(keys.Expect("moe_layer_freq", 1));
  const Json* types = JsonFind(keys.config(), "mlp_layer_types");
  if (types == nullptr || !types->is_array()) {
    return CopyNeededCount("first_k_dense_replace", kLeading, keys);
  }
  int64_t leading = 0;
  bool is_sparse = false;
  for (const Json& type : *types) {
    if (is_sparse && type != "sparse") {
      return keys.NotSaid("mlp_layer_types", *types);
    }
    is_sparse |= type == "sparse";
    leading += is_sparse ? 0 : 1;
  }
  return keys.SetU32(kLeading, leading);
}

// Those of DeepSeek's first mixture: weights are never normalised.
absl::Status SetFirstDeepseekExperts(GgufKeyWriter& keys) {
  INLAY_RETURN_IF_ERROR(keys.Expect("norm_topk_prob", false));
  INLAY_RETURN_IF_ERROR(keys.Expect("scoring_func", "softmax"));
  INLAY_RETURN_IF_ERROR(keys.Expect("routed_scaling_factor", 1.0));
  INLAY_RETURN_IF_ERROR(SetLeadingLayers(keys));
  INLAY_RETURN_IF_ERROR(
      keys.CopySize("n_shared_experts", "expert_shared_count").status());
  return keys.SetF32("expert_weights_scale", 1.0);
}

// Ling 1's: one expert a token keeps its weight.
absl::Status SetBailingExperts(GgufKeyWriter& keys) {
  INLAY_RETURN_IF_ERROR(keys.Expect("routed_scaling_factor", 1.0));
  INLAY_RETURN_IF_ERROR(SetLeadingLayers(keys));
  INLAY_RETURN_IF_ERROR(
      keys.CopySize("num_shared_experts", "expert_shared_count").status());
  INLAY_ASSIGN_OR_RETURN(const bool normalised,
                         JsonBool(keys.config(), "norm_topk_prob", true));
  INLAY_ASSIGN_OR_RETURN(const int64_t used, keys.Size("num_experts_per_tok"));
  INLAY_RETURN_IF_ERROR(
      keys.SetBool("expert_weights_norm", normalised && used > 1));
  return keys.SetF32("expert_weights_scale", 1.0);
}

absl::Status SetDeepseekExperts(GgufKeyWriter& keys) {
  const Json& config = keys.config();
  const bool is_nemotron = keys.arch() == "nemotron_h_moe";
  const bool is_ocr = keys.arch() == "deepseek2-ocr";
  const bool is_v2 = keys.model_type() == "deepseek_v2" || is_ocr;
  // All of its layers have experts, whatever config.json says.
  const bool is_solar = keys.model_type() == "solar_open";
  if (is_solar) {
    INLAY_RETURN_IF_ERROR(keys.SetU32("leading_dense_block_count", 0));
  } else if (!is_nemotron) {
    INLAY_RETURN_IF_ERROR(SetLeadingLayers(keys));
  }
  const bool is_exaone = keys.arch() == "exaone-moe";
  const char* shared = keys.Named("n_shared_experts", "num_shared_experts");
  if (is_exaone) shared = "num_shared_experts";
  INLAY_ASSIGN_OR_RETURN(const int64_t num_shared,
                         JsonInt(config, shared, is_v2 ? 2 : 1, 0, 64));
  INLAY_RETURN_IF_ERROR(keys.SetU32("expert_shared_count", num_shared));
  // llama.cpp multiplies Ling 2's by the count.
  const bool is_bailing = keys.arch() == "bailingmoe2";
  if (is_exaone || is_bailing) {
    INLAY_ASSIGN_OR_RETURN(const int64_t width,
                           keys.Size("moe_intermediate_size"));
    INLAY_RETURN_IF_ERROR(keys.SetU32("expert_shared_feed_forward_length",
                                      is_bailing ? width : num_shared * width));
  }
  // V2's plain choice has groups in its config.json all the same.
  INLAY_ASSIGN_OR_RETURN(const std::string method,
                         JsonString(config, "topk_method", "greedy"));
  const bool has_groups = !is_v2 || method != "greedy";
  for (const auto& [from, to] :
       {std::pair{keys.Named("n_group", "num_expert_group"),
                  "expert_group_count"},
        std::pair{"topk_group", "expert_group_used_count"}}) {
    INLAY_ASSIGN_OR_RETURN(
        const int64_t count,
        keys.Size(from, is_nemotron || is_solar || is_bailing || !has_groups
                            ? 1
                            : 0));
    INLAY_RETURN_IF_ERROR(keys.SetU32(to, has_groups ? count : 1));
  }
  const char* normal = keys.Named("norm_topk_prob", "moe_renormalize");
  const bool fallback = !is_v2 && keys.arch() != "dots1";
  INLAY_ASSIGN_OR_RETURN(const bool normalised,
                         JsonBool(config, normal, fallback));
  INLAY_RETURN_IF_ERROR(keys.SetBool("expert_weights_norm", normalised));
  if (!is_nemotron) {
    const bool is_softmax = is_v2 || keys.arch() == "mistral4";
    INLAY_RETURN_IF_ERROR(keys.SetU32(
        "expert_gating_func", is_softmax ? kSoftmaxScores : kSigmoidScores));
  }
  // V2 scales what it does not normalise.
  if (is_v2 && normalised) return keys.SetF32("expert_weights_scale", 1.0);
  const bool is_needed = !is_nemotron && !is_solar && !is_ocr;
  if (!keys.Has("routed_scaling_factor") && is_needed) {
    return keys.Size("routed_scaling_factor").status();
  }
  return keys.CopyNumber("routed_scaling_factor", "expert_weights_scale", 1.0);
}

// That all layers have experts, and that weights are what files stand for.
absl::Status CheckExperts(const GgufKeyWriter& keys, bool normalised) {
  const Json& config = keys.config();
  // Of which layers have experts it reads other keys.
  if (keys.arch() == "laguna") return keys.Expect("norm_topk_prob", true);
  INLAY_RETURN_IF_ERROR(keys.Expect("decoder_sparse_step", 1));
  const Json* dense = JsonFind(config, "mlp_only_layers");
  if (dense != nullptr && !dense->empty()) {
    return keys.NotSaid("mlp_only_layers", *dense);
  }
  const bool is_qwen = IsOneOf(keys.arch(), {"qwen2moe", "qwen3moe"});
  // The others have a key, or are as they are whatever config.json says.
  if (!is_qwen && !IsOneOf(keys.arch(), {"llama", "gpt-oss", "qwen3next",
                                         "minimax-m2", "lfm2moe", "olmoe"})) {
    return absl::OkStatus();
  }
  const bool fallback = !is_qwen && keys.arch() != "olmoe";
  INLAY_ASSIGN_OR_RETURN(const bool value,
                         JsonBool(config, "norm_topk_prob", fallback));
  return value == normalised ? absl::OkStatus()
                             : keys.NotSaid("norm_topk_prob", value);
}

absl::Status SetSharedWidth(GgufKeyWriter& keys) {
  constexpr char kShared[] = "expert_shared_feed_forward_length";
  if (keys.model_type() == "granitemoe" ||
      keys.model_type() == "granitemoe_swa" ||
      keys.model_type() == "granitemoeshared") {
    return keys.CopyCount("shared_intermediate_size", kShared);
  }
  if (keys.arch().starts_with("granite")) {
    return CopyNeededCount("shared_intermediate_size", kShared, keys);
  }
  if (keys.arch() == "nemotron_h_moe") {
    return keys.CopySize("moe_shared_expert_intermediate_size", kShared)
        .status();
  }
  if (!IsOneOf(keys.arch(), {"qwen2moe", "qwen3next", "qwen35moe", "laguna"})) {
    return absl::OkStatus();
  }
  return keys.CopySize("shared_expert_intermediate_size", kShared).status();
}

// All layers from one on have experts, every so many.
absl::Status SetErnieExperts(GgufKeyWriter& keys) {
  INLAY_ASSIGN_OR_RETURN(const int64_t layers, keys.Size("num_hidden_layers"));
  const Json* last = JsonFind(keys.config(), "moe_layer_end_index");
  if (last != nullptr && *last != -1 && *last != layers - 1) {
    return keys.NotSaid("moe_layer_end_index", *last);
  }
  INLAY_ASSIGN_OR_RETURN(
      const int64_t shared,
      JsonInt(keys.config(), "moe_num_shared_experts", 2, 0, 64));
  INLAY_ASSIGN_OR_RETURN(
      const int64_t first,
      JsonInt(keys.config(), "moe_layer_start_index", 1, 0, layers));
  INLAY_ASSIGN_OR_RETURN(const int64_t width,
                         keys.Size("moe_intermediate_size"));
  INLAY_RETURN_IF_ERROR(
      keys.CopySize("moe_layer_interval", "interleave_moe_layer_step", 1)
          .status());
  INLAY_RETURN_IF_ERROR(keys.SetU32("leading_dense_block_count", first));
  INLAY_RETURN_IF_ERROR(keys.SetU32("expert_shared_count", shared));
  return keys.SetU32("expert_shared_feed_forward_length", shared * width);
}

// A number, or a list with the same one for each layer; `fallback` where it is
// absent.
absl::StatusOr<int64_t> OneOfLayers(const GgufKeyWriter& keys, const char* key,
                                    int64_t fallback) {
  const Json* value = JsonFind(keys.config(), key);
  if (value == nullptr || !value->is_array() || value->empty()) {
    return keys.Size(key, fallback);
  }
  for (const Json& other : *value) {
    if (other != value->front()) return keys.NotSaid(key, *value);
  }
  return JsonInt(Json{{key, value->front()}}, key, 0, 1, kMaxGgufSize);
}

absl::Status SetHunyuanExperts(GgufKeyWriter& keys) {
  INLAY_ASSIGN_OR_RETURN(const int64_t width, keys.Size("intermediate_size"));
  INLAY_ASSIGN_OR_RETURN(const int64_t shared,
                         OneOfLayers(keys, "num_shared_expert", 1));
  INLAY_RETURN_IF_ERROR(keys.SetU32("expert_shared_count", shared));
  INLAY_RETURN_IF_ERROR(
      keys.SetU32("expert_shared_feed_forward_length", shared * width));
  for (const auto& [from, to, fallback] :
       {std::tuple{"num_experts", "expert_count", int64_t{0}},
        std::tuple{"moe_topk", "expert_used_count", int64_t{1}},
        std::tuple{"moe_intermediate_size", "expert_feed_forward_length",
                   width}}) {
    INLAY_ASSIGN_OR_RETURN(const int64_t value,
                           OneOfLayers(keys, from, fallback));
    INLAY_RETURN_IF_ERROR(keys.SetU32(to, value));
  }
  return absl::OkStatus();
}

// Weights are not scaled.
absl::Status SetLfm2Experts(GgufKeyWriter& keys) {
  INLAY_RETURN_IF_ERROR(keys.Expect("routed_scaling_factor", 1.0));
  INLAY_ASSIGN_OR_RETURN(const int64_t layers, keys.Size("num_hidden_layers"));
  INLAY_ASSIGN_OR_RETURN(
      const int64_t dense,
      JsonInt(keys.config(), "num_dense_layers", 2, 0, layers));
  INLAY_RETURN_IF_ERROR(keys.SetU32("leading_dense_block_count", dense));
  return keys.SetU32("expert_gating_func", kSigmoidScores);
}

absl::Status SetAfmoeExperts(GgufKeyWriter& keys) {
  INLAY_ASSIGN_OR_RETURN(const int64_t layers, keys.Size("num_hidden_layers"));
  INLAY_ASSIGN_OR_RETURN(
      const int64_t dense,
      JsonInt(keys.config(), "num_dense_layers", 1, 0, layers));
  INLAY_ASSIGN_OR_RETURN(
      const int64_t shared,
      JsonInt(keys.config(), "num_shared_experts", 2, 0, 64));
  INLAY_RETURN_IF_ERROR(keys.SetU32("leading_dense_block_count", dense));
  INLAY_RETURN_IF_ERROR(keys.SetU32("expert_shared_count", shared));
  INLAY_RETURN_IF_ERROR(
      keys.CopyNumber("route_scale", "expert_weights_scale", 1.0));
  INLAY_RETURN_IF_ERROR(keys.SetBool("expert_weights_norm", true));
  return keys.SetU32("expert_gating_func", kSigmoidScores);
}

// DeepSeek's architecture without experts: Youtu-LLM, and what its files are
// read as.
absl::StatusOr<bool> IsDenseDeepseek(const GgufKeyWriter& keys) {
  if (keys.model_type() == "youtu") return true;
  if (keys.arch() != "deepseek2" || CountKey(keys.config()) != nullptr) {
    return false;
  }
  INLAY_ASSIGN_OR_RETURN(const int64_t layers, keys.Size("num_hidden_layers"));
  INLAY_ASSIGN_OR_RETURN(
      const int64_t dense,
      JsonInt(keys.config(), "first_k_dense_replace", 0, 0, kMaxGgufLayers));
  return dense >= layers;
}

// All layers are leading ones.
absl::Status SetDenseDeepseek(GgufKeyWriter& keys) {
  INLAY_ASSIGN_OR_RETURN(const int64_t layers, keys.Size("num_hidden_layers"));
  INLAY_RETURN_IF_ERROR(keys.SetU32("leading_dense_block_count", layers));
  INLAY_RETURN_IF_ERROR(keys.SetU32("expert_shared_count", 0));
  return keys.CopySize("intermediate_size", "expert_feed_forward_length")
      .status();
}

// No key says other weights than these.
absl::Status SetMimoExperts(GgufKeyWriter& keys) {
  INLAY_RETURN_IF_ERROR(keys.Expect("n_group", 1));
  INLAY_RETURN_IF_ERROR(keys.Expect("topk_group", 1));
  INLAY_RETURN_IF_ERROR(keys.Expect("norm_topk_prob", true));
  INLAY_RETURN_IF_ERROR(keys.Expect("routed_scaling_factor", 1.0));
  return keys.SetU32("expert_gating_func", kSigmoidScores);
}

absl::Status SetHyExperts(GgufKeyWriter& keys) {
  INLAY_ASSIGN_OR_RETURN(
      const int64_t shared,
      JsonInt(keys.config(), "num_shared_experts", 1, 1, 64));
  INLAY_ASSIGN_OR_RETURN(const int64_t width,
                         keys.Size("moe_intermediate_size"));
  INLAY_RETURN_IF_ERROR(keys.SetU32("expert_shared_count", shared));
  INLAY_RETURN_IF_ERROR(
      keys.SetU32("expert_shared_feed_forward_length", shared * width));
  INLAY_RETURN_IF_ERROR(
      keys.CopyNumber("router_scaling_factor", "expert_weights_scale", 2.826));
  INLAY_RETURN_IF_ERROR(keys.SetBool("expert_weights_norm", true));
  return keys.SetU32("expert_gating_func", kSigmoidScores);
}

// Whether the family has experts where config.json is silent.
bool IsMixture(const GgufKeyWriter& keys) {
  if (keys.arch() == "llama") return keys.model_type() == "mixtral";
  if (keys.arch() == "granite_swa") {
    return keys.model_type() == "granitemoe_swa";
  }
  return FindGgufExperts(keys.arch()).ok();
}

}  // namespace

bool HasGgufExperts(const Json& config) {
  const char* key = CountKey(config);
  return key != nullptr && *JsonFind(config, key) != 0;
}

absl::Status SetGgufExperts(GgufKeyWriter& keys) {
  // Nemotron's pattern of layers may have none all the same.
  if (keys.arch() == "nemotron_h") return absl::OkStatus();
  // Says 1 of its MLP.
  if (keys.arch() == "hunyuan-dense") return absl::OkStatus();
  if (keys.arch() == "hunyuan-moe") return SetHunyuanExperts(keys);
  // With all of its keys (gguf_minimax.h).
  if (keys.arch() == "minimax-m3") return absl::OkStatus();
  const char* count = CountKey(keys.config());
  INLAY_ASSIGN_OR_RETURN(const bool is_dense, IsDenseDeepseek(keys));
  if (is_dense) return SetDenseDeepseek(keys);
  if (count == nullptr && IsMixture(keys)) {
    return absl::InvalidArgumentError(
        FormattedString("config.json: %s is missing: a GGUF file needs it",
                        absl::StrJoin(kCounts, " or ")));
  }
  if (!HasGgufExperts(keys.config())) return absl::OkStatus();
  INLAY_ASSIGN_OR_RETURN(const GgufExpertsRow row,
                         FindGgufExperts(keys.arch()));
  INLAY_RETURN_IF_ERROR(CheckExperts(keys, row.normalised));
  INLAY_RETURN_IF_ERROR(keys.CopySize(count, "expert_count").status());
  const char* used = keys.Named("num_experts_per_tok", "num_experts_per_token");
  if (keys.arch() == "ernie4_5-moe") used = "moe_k";
  if (keys.arch() == "gemma4") used = "top_k_experts";
  INLAY_RETURN_IF_ERROR(keys.CopySize(used, "expert_used_count").status());
  // Where experts are as wide as MLPs are, there is the one key.
  const bool has_own = keys.arch() != "llama" && keys.arch() != "olmoe" &&
                       keys.arch() != "phimoe" && keys.arch() != "jamba" &&
                       keys.arch() != "minimax-01" && keys.arch() != "arctic" &&
                       !keys.arch().starts_with("granite");
  if (has_own) {
    INLAY_RETURN_IF_ERROR(
        keys.CopySize(row.width, "expert_feed_forward_length").status());
  }
  INLAY_RETURN_IF_ERROR(SetSharedWidth(keys));
  if (keys.arch() == "ernie4_5-moe") return SetErnieExperts(keys);
  if (keys.arch() == "lfm2moe") return SetLfm2Experts(keys);
  if (keys.arch() == "afmoe") return SetAfmoeExperts(keys);
  if (keys.arch() == "cohere2moe") return SetGgufCohereExperts(keys);
  if (keys.arch() == "mimo2") return SetMimoExperts(keys);
  if (keys.arch() == "hy_v3") return SetHyExperts(keys);
  if (keys.arch() == "bailingmoe") return SetBailingExperts(keys);
  if (keys.arch() == "deepseek") return SetFirstDeepseekExperts(keys);
  if (keys.arch() == "laguna") return SetGgufLagunaExperts(keys);
  if (keys.arch() == "step35") return SetGgufStepExperts(keys);
  if (keys.arch() == "minimax-m2") {
    INLAY_RETURN_IF_ERROR(keys.Expect("scoring_func", "sigmoid"));
    INLAY_RETURN_IF_ERROR(keys.Expect("use_routing_bias", true));
    return keys.SetU32("expert_gating_func", kSigmoidScores);
  }
  return IsDeepseekStyle(keys) ? SetDeepseekExperts(keys) : absl::OkStatus();
}

}  // namespace inlay
