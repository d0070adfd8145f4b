#include "core/formats/gguf_cohere_moe.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/formats/gguf_gemma.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

constexpr char kDense[] = "leading_dense_block_count";
constexpr char kShared[] = "expert_shared_count";
constexpr char kSharedWidth[] = "expert_shared_feed_forward_length";
constexpr char kGating[] = "expert_gating_func";
constexpr char kPattern[] = "attention.sliding_window_pattern";
// Values of kGating: softmax over all experts, sigmoid, softmax over the
// chosen.
constexpr int64_t kSoftmax = 1;
constexpr int64_t kSigmoid = 2;
constexpr int64_t kSoftmaxOfChosen = 3;

// A number means the distance of layers that see everything, from the first on.
absl::Status ReadPattern(const GgufArchKeys& keys, int64_t layers,
                         Json* config) {
  const GgufValue* value = keys.Find(kPattern);
  if (value != nullptr && value->is_array) {
    return ReadGgufPattern(keys, layers, false, config);
  }
  INLAY_ASSIGN_OR_RETURN(
      const int64_t every,
      keys.Required(kPattern, keys.Int(kPattern, 1, kMaxGgufLayers)));
  Json types = Json::array();
  for (int64_t i = 0; i < layers; ++i) {
    types.push_back(i % every == 0 ? "full_attention" : "sliding_attention");
  }
  (*config)["layer_types"] = std::move(types);
  return absl::OkStatus();
}

// Layers without experts come first; how many.
absl::StatusOr<int64_t> LeadingLayers(const GgufKeyWriter& keys,
                                      int64_t layers) {
  const Json* types = JsonFind(keys.config(), "mlp_layer_types");
  if (types == nullptr || !types->is_array()) {
    return JsonInt(keys.config(), "first_k_dense_replace", 0, 0, layers);
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
  return leading;
}

}  // namespace

absl::Status ReadGgufCohereMoe(const GgufFiles& files, const GgufArchKeys& keys,
                               const GgufSizes& sizes, Json* config) {
  constexpr char kWindow[] = "attention.sliding_window";
  INLAY_RETURN_IF_ERROR(keys.CopyNumber("attention.layer_norm_epsilon",
                                        "layer_norm_eps", config));
  // 0 of files with LayerNorms.
  if (config->value("rms_norm_eps", 0.0) == 0.0) config->erase("rms_norm_eps");
  INLAY_RETURN_IF_ERROR(keys.CopyNumber("logit_scale", "logit_scale", config));
  if (config->contains("rope_scaling")) {
    // config.json has one under this name alone.
    Json scaling = (*config)["rope_scaling"];
    scaling["rope_theta"] = (*config)["rope_theta"];
    (*config)["rope_parameters"] = std::move(scaling);
    config->erase("rope_scaling");
  }
  INLAY_ASSIGN_OR_RETURN(
      (*config)["sliding_window"],
      keys.Required(kWindow, keys.Int(kWindow, 1, kMaxGgufSize)));
  INLAY_RETURN_IF_ERROR(ReadPattern(keys, sizes.layers, config));
  INLAY_ASSIGN_OR_RETURN(const auto dense, keys.Int(kDense, 0, sizes.layers));
  (*config)["first_k_dense_replace"] = dense.value_or(0);
  (*config)["prefix_dense_intermediate_size"] = sizes.inner;
  // They have rope, whatever they see.
  (*config)["prefix_dense_sliding_window_pattern"] = 1;
  // No file has those of the output.
  (*config)["attention_bias"] =
      files.FindTensor("blk.0.attn_q.bias") != nullptr;
  return absl::OkStatus();
}

absl::Status ReadGgufCohereExperts(const GgufArchKeys& keys, Json* config) {
  INLAY_ASSIGN_OR_RETURN(const auto gating, keys.Int(kGating, 0, INT32_MAX));
  INLAY_ASSIGN_OR_RETURN(const auto norm, keys.Bool("expert_weights_norm"));
  INLAY_ASSIGN_OR_RETURN(const auto scale, keys.Number("expert_weights_scale"));
  const bool normalised = norm.value_or(false);
  int64_t score = gating.value_or(0);
  if (score == 0) score = kSigmoid;
  const bool is_softmax =
      score == kSoftmaxOfChosen || (score == kSoftmax && normalised);
  if (!is_softmax && score != kSigmoid) {
    return absl::UnimplementedError(FormattedString(
        "%s is %d with weights %s, allowed: %d (sigmoid), %d (softmax, "
        "normalised)",
        keys.Name(kGating), score, normalised ? "normalised" : "not normalised",
        kSigmoid, kSoftmax));
  }
  // Files without a scale say 0.
  if (scale.value_or(0.0) != 0.0 && *scale != 1.0) {
    return absl::UnimplementedError(FormattedString(
        "%s is %g, allowed: 1", keys.Name("expert_weights_scale"), *scale));
  }
  (*config)["expert_selection_fn"] = is_softmax ? "softmax" : "sigmoid";
  (*config)["norm_topk_prob"] = normalised;
  INLAY_ASSIGN_OR_RETURN(const auto shared, keys.Int(kShared, 0, kMaxGgufSize));
  INLAY_ASSIGN_OR_RETURN(const auto width,
                         keys.Int(kSharedWidth, 0, kMaxGgufSize));
  const int64_t count = shared.value_or(0);
  const int64_t one = (*config)["intermediate_size"].get<int64_t>();
  const int64_t all = width.value_or(0) == 0 ? count * one : *width;
  if (count > 0 && all % one != 0) {
    return absl::UnimplementedError(
        FormattedString("%s is %d, allowed: a multiple of an expert's %d",
                        keys.Name(kSharedWidth), all, one));
  }
  (*config)["num_shared_experts"] = count > 0 ? all / one : 0;
  (*config)["shared_expert_combination_strategy"] = "average";
  return absl::OkStatus();
}

absl::Status SetGgufCohereMoe(GgufKeyWriter& keys) {
  const Json& config = keys.config();
  INLAY_RETURN_IF_ERROR(keys.Expect("attention_bias", false));
  INLAY_RETURN_IF_ERROR(keys.CopyNumber("logit_scale", "logit_scale", 0.0625));
  if (keys.IsNull("sliding_window")) {
    return keys.NotSaid("sliding_window", Json());
  }
  INLAY_RETURN_IF_ERROR(
      keys.CopySize("sliding_window", "attention.sliding_window", 4096)
          .status());
  INLAY_ASSIGN_OR_RETURN(const int64_t layers, keys.Size("num_hidden_layers"));
  INLAY_ASSIGN_OR_RETURN(const int64_t dense, LeadingLayers(keys, layers));
  INLAY_ASSIGN_OR_RETURN(
      const int64_t first,
      JsonInt(config, "first_k_dense_replace", 0, 0, layers));
  constexpr char kDensePattern[] = "prefix_dense_sliding_window_pattern";
  INLAY_ASSIGN_OR_RETURN(const int64_t dense_every,
                         keys.Size(kDensePattern, 1));
  INLAY_ASSIGN_OR_RETURN(const int64_t every,
                         keys.Size("sliding_window_pattern", 4));
  const Json* types = JsonFind(config, "layer_types");
  std::vector<bool> slides;
  for (int64_t i = 0; i < layers; ++i) {
    const auto at = static_cast<size_t>(i);
    bool sliding =
        i < first ? (i + 1) % dense_every != 0 : (i - first + 1) % every != 0;
    if (types != nullptr && types->is_array() && at < types->size()) {
      sliding = (*types)[at] == "sliding_attention";
    }
    if (i < dense && !sliding && dense_every != 1) {
      return keys.NotSaid(kDensePattern, dense_every);
    }
    slides.push_back(sliding);
  }
  INLAY_RETURN_IF_ERROR(keys.SetU32(kDense, dense));
  return keys.SetBools(kPattern, slides);
}

absl::Status SetGgufCohereExperts(GgufKeyWriter& keys) {
  const Json& config = keys.config();
  INLAY_ASSIGN_OR_RETURN(const std::string score,
                         JsonString(config, "expert_selection_fn", "softmax"));
  if (score != "softmax" && score != "sigmoid") {
    return keys.NotSaid("expert_selection_fn", score);
  }
  const bool is_softmax = score == "softmax";
  INLAY_ASSIGN_OR_RETURN(const bool normalised,
                         JsonBool(config, "norm_topk_prob", true));
  INLAY_RETURN_IF_ERROR(
      keys.SetBool("expert_weights_norm", is_softmax || normalised));
  INLAY_RETURN_IF_ERROR(keys.SetU32(kGating, is_softmax ? kSoftmax : kSigmoid));
  INLAY_ASSIGN_OR_RETURN(const int64_t shared,
                         JsonInt(config, "num_shared_experts", 0, 0, 64));
  if (shared == 0) return absl::OkStatus();
  INLAY_RETURN_IF_ERROR(
      keys.Expect("shared_expert_combination_strategy", "average"));
  INLAY_ASSIGN_OR_RETURN(const int64_t width, keys.Size("intermediate_size"));
  INLAY_RETURN_IF_ERROR(keys.SetU32(kShared, shared));
  return keys.SetU32(kSharedWidth, shared * width);
}

}  // namespace inlay
