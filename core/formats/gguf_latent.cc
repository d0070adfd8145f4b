#include "core/formats/gguf_latent.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

// Values of expert_gating_func.
constexpr int64_t kSoftmax = 1;
constexpr int64_t kSigmoid = 2;

// The key for heads as they are before the latent takes them in.
absl::StatusOr<int64_t> HeadSize(const GgufArchKeys& keys, const char* mla,
                                 const char* old) {
  const char* key = keys.Find(mla) != nullptr ? mla : old;
  return keys.Required(key, keys.Int(key, 1, kMaxGgufSize));
}

// Some files of MiniCPM 3 have no size of values: what heads share of the
// residual stream.
absl::StatusOr<int64_t> ValueSize(const GgufArchKeys& keys,
                                  const GgufSizes& sizes) {
  constexpr char kValues[] = "attention.value_length";
  if (keys.arch() == "minicpm3" && keys.Find(kValues) == nullptr) {
    return std::max<int64_t>(sizes.hidden / sizes.heads, 1);
  }
  return HeadSize(keys, "attention.value_length_mla", kValues);
}

// Whether choices are corrected, which goes with sigmoid scores.
bool HasCorrection(const GgufFiles& files, const GgufSizes& sizes) {
  for (int64_t i = 0; i < sizes.layers; ++i) {
    const std::string name = FormattedString("blk.%d.exp_probs_b.bias", i);
    if (files.FindTensor(name) != nullptr) return true;
  }
  return false;
}

absl::Status ReadRouting(const GgufFiles& files, const GgufArchKeys& keys,
                         const GgufSizes& sizes, Json* config) {
  constexpr char kGating[] = "expert_gating_func";
  INLAY_ASSIGN_OR_RETURN(const auto gating, keys.Int(kGating, 0, INT32_MAX));
  int64_t score = gating.value_or(0);
  // DeepSeek-V2's files have no such key, nor have GLM-4.7-Flash's.
  if (score == 0) score = HasCorrection(files, sizes) ? kSigmoid : kSoftmax;
  if (score != kSoftmax && score != kSigmoid) {
    return absl::UnimplementedError(
        FormattedString("%s is %d, allowed: %d (softmax), %d (sigmoid)",
                        keys.Name(kGating), score, kSoftmax, kSigmoid));
  }
  if (keys.arch() == "mistral4") {
    return score == kSoftmax ? absl::OkStatus()
                             : absl::UnimplementedError(FormattedString(
                                   "%s is %d, allowed: %d (softmax)",
                                   keys.Name(kGating), score, kSoftmax));
  }
  if (score == kSoftmax) {
    INLAY_ASSIGN_OR_RETURN(const auto groups,
                           keys.Int("expert_group_count", 0, kMaxGgufSize));
    (*config)["topk_method"] =
        groups.value_or(1) > 1 ? "group_limited_greedy" : "greedy";
    return absl::OkStatus();
  }
  if (keys.arch() != "deepseek2") return absl::OkStatus();
  (*config)["architectures"] = {"DeepseekV3ForCausalLM"};
  (*config)["model_type"] = "deepseek_v3";
  return absl::OkStatus();
}

}  // namespace

absl::Status ReadGgufLatent(const GgufFiles& files, const GgufArchKeys& keys,
                            const GgufSizes& sizes, Json* config) {
  constexpr char kRank[] = "attention.kv_lora_rank";
  constexpr char kQueryRank[] = "attention.q_lora_rank";
  constexpr char kRope[] = "rope.dimension_count";
  INLAY_ASSIGN_OR_RETURN(
      const int64_t rank,
      keys.Required(kRank, keys.Int(kRank, 1, kMaxGgufSize)));
  INLAY_ASSIGN_OR_RETURN(const auto query_rank,
                         keys.Int(kQueryRank, 0, kMaxGgufSize));
  INLAY_ASSIGN_OR_RETURN(
      const int64_t key,
      HeadSize(keys, "attention.key_length_mla", "attention.key_length"));
  INLAY_ASSIGN_OR_RETURN(const int64_t value, ValueSize(keys, sizes));
  INLAY_ASSIGN_OR_RETURN(
      const int64_t rope,
      keys.Required(kRope, keys.Int(kRope, 1, kMaxGgufSize)));
  if (rope >= key) {
    return absl::InvalidArgumentError(
        FormattedString("%s is %d, allowed: less than the %d of a head's keys",
                        keys.Name(kRope), rope, key));
  }
  (*config)["kv_lora_rank"] = rank;
  (*config)["q_lora_rank"] =
      query_rank.value_or(0) > 0 ? Json(*query_rank) : Json();
  (*config)["qk_nope_head_dim"] = key - rope;
  (*config)["qk_rope_head_dim"] = rope;
  (*config)["v_head_dim"] = value;
  // Without experts all layers are dense; with them gguf_experts.h says.
  (*config)["first_k_dense_replace"] = sizes.layers;
  // Keys and values are made for all heads, whatever the file caches.
  (*config)["num_key_value_heads"] = sizes.heads;
  config->erase("head_dim");
  config->erase("partial_rotary_factor");
  if (keys.arch() == "minicpm3" || keys.arch() == "plm") {
    return absl::OkStatus();
  }
  // Mistral 4's, and those of Mistral Large 3, which say "deepseek2".
  constexpr char kTemperature[] = "attention.temperature_scale";
  INLAY_ASSIGN_OR_RETURN(const auto temperature, keys.Number(kTemperature));
  if (temperature.value_or(0.0) != 0.0 && keys.arch() != "mistral4") {
    return absl::UnimplementedError(FormattedString(
        "%s is %g, allowed: 0", keys.Name(kTemperature), *temperature));
  }
  // Stored as a tenth of what config.json has.
  INLAY_ASSIGN_OR_RETURN(const auto magnitude,
                         keys.Number("rope.scaling.yarn_log_multiplier"));
  const auto scaling = config->find("rope_scaling");
  if (magnitude.value_or(0.0) > 0.0 && scaling != config->end() &&
      scaling->is_object()) {
    // The two come as one in all published models: frequencies keep their
    // magnitude.
    (*scaling)["mscale"] = *magnitude * 10.0;
    (*scaling)["mscale_all_dim"] = *magnitude * 10.0;
  }
  return ReadRouting(files, keys, sizes, config);
}

absl::Status ReadGgufIndexer(const GgufArchKeys& keys, const GgufSizes& sizes,
                             Json* config) {
  constexpr char kTypes[] = "attention.indexer.types";
  for (const auto& [key, name] :
       {std::pair{"attention.indexer.head_count", "index_n_heads"},
        std::pair{"attention.indexer.key_length", "index_head_dim"},
        std::pair{"attention.indexer.top_k", "index_topk"}}) {
    INLAY_ASSIGN_OR_RETURN((*config)[name],
                           keys.Required(key, keys.Int(key, 1, kMaxGgufSize)));
  }
  if (keys.arch() != "glm-dsa") return absl::OkStatus();
  const GgufValue* types = keys.Find(kTypes);
  if (types == nullptr) {
    // GLM-5.2's, which is longer than the ones before it.
    constexpr int64_t kSharingContext = 1 << 20;
    const bool shares = sizes.context >= kSharingContext;
    (*config)["index_topk_freq"] = shares ? 4 : 1;
    (*config)["index_skip_topk_offset"] = 3;
    return absl::OkStatus();
  }
  if (!types->is_array || types->type != GgufType::kBool ||
      types->count < static_cast<uint64_t>(sizes.layers)) {
    return absl::InvalidArgumentError(
        FormattedString("%s: %d values, allowed: a bool for each of %d layers",
                        keys.Name(kTypes), types->count, sizes.layers));
  }
  Json list = Json::array();
  for (int64_t i = 0; i < sizes.layers; ++i) {
    const bool is_full = types->data[static_cast<size_t>(i)] != std::byte{0};
    list.push_back(is_full ? "full" : "shared");
  }
  (*config)["indexer_types"] = std::move(list);
  return absl::OkStatus();
}

}  // namespace inlay
