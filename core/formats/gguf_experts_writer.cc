#include "core/formats/gguf_experts_writer.h"

#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/str_format.h"
#include "core/formats/gguf_experts.h"
#include "memory/status.h"

namespace inlay {
namespace {

constexpr const char* kCounts[] = {"num_experts", "num_local_experts",
                                   "n_routed_experts"};

// Values of expert_gating_func.
constexpr int64_t kSoftmaxScores = 1;
constexpr int64_t kSigmoidScores = 2;

// The one that config.json has and is not 0.
const char* CountKey(const Json& config) {
  for (const char* key : kCounts) {
    const Json* value = JsonFind(config, key);
    if (value == nullptr) continue;
    return *value == 0 ? nullptr : key;
  }
  return nullptr;
}

absl::Status NotSaid(const GgufKeyWriter& keys, const char* what,
                     const Json& value) {
  return absl::UnimplementedError(absl::StrFormat(
      "config.json: %s is %s, which a GGUF file of \"%s\" cannot say", what,
      DumpJson(value), keys.arch()));
}

bool IsDeepseekStyle(const GgufKeyWriter& keys) {
  for (const std::string_view arch :
       {"deepseek2", "deepseek32", "glm-dsa", "glm4moe", "kimi-linear",
        "nemotron_h_moe"}) {
    if (keys.arch() == arch) return true;
  }
  return false;
}

// Layers without experts come first, and no others are.
absl::Status SetLeadingLayers(GgufKeyWriter& keys) {
  constexpr char kLeading[] = "leading_dense_block_count";
  INLAY_RETURN_IF_ERROR(keys.Expect("moe_layer_freq", 1));
  const Json* types = JsonFind(keys.config(), "mlp_layer_types");
  if (types == nullptr || !types->is_array()) {
    if (keys.Has("first_k_dense_replace")) {
      return keys.CopyCount("first_k_dense_replace", kLeading);
    }
    return keys.Size("first_k_dense_replace").status();
  }
  int64_t leading = 0;
  bool is_sparse = false;
  for (const Json& type : *types) {
    if (is_sparse && type != "sparse") {
      return NotSaid(keys, "mlp_layer_types", *types);
    }
    is_sparse |= type == "sparse";
    leading += is_sparse ? 0 : 1;
  }
  return keys.SetU32(kLeading, leading);
}

absl::Status SetDeepseekExperts(GgufKeyWriter& keys) {
  const Json& config = keys.config();
  const bool is_nemotron = keys.arch() == "nemotron_h_moe";
  const bool is_v2 = keys.model_type() == "deepseek_v2";
  if (!is_nemotron) INLAY_RETURN_IF_ERROR(SetLeadingLayers(keys));
  const char* shared = keys.AnyOf({"n_shared_experts", "num_shared_experts"});
  INLAY_ASSIGN_OR_RETURN(const int64_t num_shared,
                         JsonInt(config, shared, 0, 0, 64));
  INLAY_RETURN_IF_ERROR(keys.SetU32("expert_shared_count", num_shared));
  // V2's plain choice has groups in its config.json all the same.
  INLAY_ASSIGN_OR_RETURN(const std::string method,
                         JsonString(config, "topk_method", "greedy"));
  const bool has_groups = !is_v2 || method != "greedy";
  for (const auto& [from, to] :
       {std::pair{keys.AnyOf({"n_group", "num_expert_group"}),
                  "expert_group_count"},
        std::pair{keys.AnyOf({"topk_group"}), "expert_group_used_count"}}) {
    INLAY_ASSIGN_OR_RETURN(const int64_t count,
                           keys.Size(from, is_nemotron || !has_groups ? 1 : 0));
    INLAY_RETURN_IF_ERROR(keys.SetU32(to, has_groups ? count : 1));
  }
  const char* normal = keys.AnyOf({"norm_topk_prob", "moe_renormalize"});
  INLAY_ASSIGN_OR_RETURN(const bool normalised,
                         JsonBool(config, normal, !is_v2));
  INLAY_RETURN_IF_ERROR(keys.SetBool("expert_weights_norm", normalised));
  if (!is_nemotron) {
    INLAY_RETURN_IF_ERROR(keys.SetU32("expert_gating_func",
                                      is_v2 ? kSoftmaxScores : kSigmoidScores));
  }
  // V2 scales what it does not normalise.
  if (is_v2 && normalised) return keys.SetF32("expert_weights_scale", 1.0);
  if (!keys.Has("routed_scaling_factor") && !is_nemotron) {
    return keys.Size("routed_scaling_factor").status();
  }
  return keys.CopyNumber("routed_scaling_factor", "expert_weights_scale", 1.0);
}

// That all layers have experts, and that weights are what files stand for.
absl::Status CheckExperts(const GgufKeyWriter& keys, bool normalised) {
  const Json& config = keys.config();
  INLAY_RETURN_IF_ERROR(keys.Expect("decoder_sparse_step", 1));
  const Json* dense = JsonFind(config, "mlp_only_layers");
  if (dense != nullptr && !dense->empty()) {
    return NotSaid(keys, "mlp_only_layers", *dense);
  }
  // The others' are normalised whatever config.json says.
  const bool reads = keys.arch() == "qwen2moe" || keys.arch() == "qwen3moe";
  if (!reads) return absl::OkStatus();
  INLAY_ASSIGN_OR_RETURN(const bool value,
                         JsonBool(config, "norm_topk_prob", false));
  return value == normalised ? absl::OkStatus()
                             : NotSaid(keys, "norm_topk_prob", value);
}

absl::Status SetSharedWidth(GgufKeyWriter& keys) {
  constexpr char kShared[] = "expert_shared_feed_forward_length";
  if (keys.arch().starts_with("granite")) {
    return keys.CopyCount("shared_intermediate_size", kShared);
  }
  for (const char* key : {"shared_expert_intermediate_size",
                          "moe_shared_expert_intermediate_size"}) {
    if (keys.Has(key)) return keys.CopySize(key, kShared).status();
  }
  return absl::OkStatus();
}

}  // namespace

bool HasGgufExperts(const Json& config) { return CountKey(config) != nullptr; }

absl::Status SetGgufExperts(GgufKeyWriter& keys) {
  const char* count = CountKey(keys.config());
  // Nemotron's pattern of layers may have none all the same.
  if (count == nullptr || keys.arch() == "nemotron_h") return absl::OkStatus();
  INLAY_ASSIGN_OR_RETURN(const GgufExpertsRow row,
                         FindGgufExperts(keys.arch()));
  INLAY_RETURN_IF_ERROR(CheckExperts(keys, row.normalised));
  INLAY_RETURN_IF_ERROR(keys.CopySize(count, "expert_count").status());
  INLAY_RETURN_IF_ERROR(
      keys.CopySize(keys.AnyOf({"num_experts_per_tok", "num_experts_per_token",
                                "top_k_experts"}),
                    "expert_used_count")
          .status());
  // Where experts are as wide as MLPs are, there is the one key.
  const bool has_own =
      keys.arch() != "llama" && !keys.arch().starts_with("granite");
  if (has_own) {
    INLAY_RETURN_IF_ERROR(
        keys.CopySize(row.width, "expert_feed_forward_length").status());
  }
  INLAY_RETURN_IF_ERROR(SetSharedWidth(keys));
  if (keys.arch() == "minimax-m2") {
    INLAY_RETURN_IF_ERROR(keys.Expect("scoring_func", "sigmoid"));
    INLAY_RETURN_IF_ERROR(keys.Expect("use_routing_bias", true));
    return keys.SetU32("expert_gating_func", kSigmoidScores);
  }
  return IsDeepseekStyle(keys) ? SetDeepseekExperts(keys) : absl::OkStatus();
}

}  // namespace inlay
