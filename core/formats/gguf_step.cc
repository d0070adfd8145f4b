#include "core/formats/gguf_step.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/formats/gguf_metadata.h"
#include "core/formats/gguf_windows.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

constexpr char kStepHeads[] = "attention.head_count";
constexpr char kStepWindow[] = "attention.sliding_window";
constexpr char kStepPattern[] = "attention.sliding_window_pattern";
constexpr char kStepWindowBase[] = "rope.freq_base_swa";
constexpr char kStepGating[] = "expert_gating_func";
constexpr char kStepNormalised[] = "expert_weights_norm";
constexpr char kStepShared[] = "expert_shared_feed_forward_length";
constexpr int64_t kStepSigmoid = 2;
constexpr char kStepFull[] = "full_attention";
constexpr char kStepSliding[] = "sliding_attention";
// Of heads, that full layers rotate whatever files say.
constexpr double kStepPart = 0.5;
// swiglu_clamp_exp and so on, and what config.json calls them.
constexpr std::pair<const char*, const char*> kStepLimits[] = {
    {"swiglu_clamp_exp", "swiglu_limits"},
    {"swiglu_clamp_shexp", "swiglu_limits_shared"}};

// Heads of full layers and of those with windows.
absl::Status ReadStepHeads(const GgufArchKeys& keys,
                           const std::vector<bool>& slides, Json* config) {
  // One for all, or a list that LayerInts has checked.
  std::vector<int64_t> list(slides.size(),
                            (*config)["num_attention_heads"].get<int64_t>());
  const GgufValue* value = keys.Find(kStepHeads);
  if (value != nullptr && value->is_array) {
    INLAY_ASSIGN_OR_RETURN(auto found, keys.Ints(kStepHeads));
    list = std::move(found).value_or(list);
  }
  int64_t heads[2] = {};
  for (size_t i = 0; i < slides.size(); ++i) {
    int64_t& own = heads[slides[i] ? 1 : 0];
    if (own == 0) own = list[i];
    if (own == list[i]) continue;
    return absl::UnimplementedError(
        FormattedString("%s is %d at %d, allowed: %d, as in other layers of %s",
                        keys.Name(kStepHeads), list[i], i, own,
                        slides[i] ? kStepSliding : kStepFull));
  }
  (*config)["num_attention_heads"] = heads[0] != 0 ? heads[0] : heads[1];
  (*config)["num_sliding_attention_heads"] =
      heads[1] != 0 ? heads[1] : heads[0];
  return absl::OkStatus();
}

// rope_freqs.weight has one number for each pair of a whole head.
absl::Status ReadStepRopes(const GgufArchKeys& keys, const GgufSizes& sizes,
                           Json* config) {
  for (const char* key : {"rope.dimension_count", "rope.dimension_count_swa"}) {
    INLAY_ASSIGN_OR_RETURN(const auto dim, keys.Int(key, 0, kMaxGgufSize));
    if (dim.value_or(sizes.head_dim) == sizes.head_dim) continue;
    return absl::UnimplementedError(
        FormattedString("%s is %d, allowed: a head's %d", keys.Name(key), *dim,
                        sizes.head_dim));
  }
  Json full = {{"rope_type", "default"}};
  const Json* scaling = JsonFind(*config, "rope_scaling");
  if (scaling != nullptr && scaling->is_object()) full = *scaling;
  if (full["rope_type"] == "longrope") {
    const auto pairs = static_cast<size_t>(static_cast<double>(sizes.head_dim) *
                                           kStepPart / 2);
    for (const char* key : {"short_factor", "long_factor"}) {
      Json& list = full[key];
      while (list.is_array() && list.size() > pairs)
        list.erase(list.size() - 1);
    }
  } else if (full["rope_type"] != "default") {
    return absl::UnimplementedError(FormattedString(
        "%s is %s, allowed: none, or rope_freqs.weight",
        keys.Name("rope.scaling.type"), ShownJson(full["rope_type"])));
  }
  full["rope_theta"] = (*config)["rope_theta"];
  full["partial_rotary_factor"] = kStepPart;
  Json sliding = {{"rope_type", "default"},
                  {"rope_theta", full["rope_theta"]},
                  {"partial_rotary_factor", 1.0}};
  INLAY_RETURN_IF_ERROR(
      keys.CopyNumber(kStepWindowBase, "rope_theta", &sliding));
  config->erase("rope_scaling");
  config->erase("rope_theta");
  (*config)["rope_parameters"] = {{kStepFull, std::move(full)},
                                  {kStepSliding, std::move(sliding)}};
  return absl::OkStatus();
}

absl::Status ReadStepLimits(const GgufFiles& files, const GgufArchKeys& keys,
                            const GgufSizes& sizes, Json* config) {
  for (const auto& [key, name] : kStepLimits) {
    const GgufValue* value = keys.Find(key);
    if (value == nullptr) continue;
    const auto count = static_cast<size_t>(sizes.layers);
    std::vector<double> limits;
    if (value->is_array) {
      INLAY_ASSIGN_OR_RETURN(auto found,
                             GgufNumbers(files.header(), keys.Name(key)));
      limits = std::move(found).value_or(std::vector<double>());
    } else {
      INLAY_ASSIGN_OR_RETURN(const auto one, keys.Number(key));
      limits.assign(count, one.value_or(0.0));
    }
    if (limits.size() < count) {
      return absl::InvalidArgumentError(
          FormattedString("%s: %d numbers, allowed: one for each of %d layers",
                          keys.Name(key), limits.size(), count));
    }
    limits.resize(count);
    (*config)[name] = limits;
  }
  return absl::OkStatus();
}

// A flag for each layer of a list of names in config.json.
std::vector<bool> StepFlags(const GgufKeyWriter& keys, const char* key,
                            const char* name) {
  std::vector<bool> flags;
  const Json* list = JsonFind(keys.config(), key);
  for (size_t i = 0; list != nullptr && i < list->size(); ++i) {
    flags.push_back((*list)[i] == name);
  }
  return flags;
}

// What llama.cpp has fixed, and files say in no key.
absl::Status CheckStepRopes(const GgufKeyWriter& keys) {
  const Json& ropes = keys.config()["rope_parameters"];
  for (const char* type : {kStepFull, kStepSliding}) {
    const Json* rope = JsonFind(ropes, type);
    const std::vector<bool> used = StepFlags(keys, "layer_types", type);
    if (std::find(used.begin(), used.end(), true) == used.end()) continue;
    const bool is_full = type == kStepFull;
    if (rope == nullptr) return keys.NotSaid("rope_parameters", ropes);
    INLAY_ASSIGN_OR_RETURN(
        const double part,
        JsonNumber(*rope, "partial_rotary_factor", 1.0, 0.0, 1.0));
    if (part != (is_full ? kStepPart : 1.0)) {
      return keys.NotSaid("partial_rotary_factor", part);
    }
    INLAY_ASSIGN_OR_RETURN(const std::string scaling,
                           JsonString(*rope, "rope_type", "default"));
    const bool is_known =
        scaling == "default" ||
        (is_full && (scaling == "llama3" || scaling == "longrope"));
    if (!is_known) return keys.NotSaid("rope_parameters", ropes);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ReadGgufStep(const GgufFiles& files, const GgufArchKeys& keys,
                          const GgufSizes& sizes, Json* config) {
  INLAY_ASSIGN_OR_RETURN(
      (*config)["sliding_window"],
      keys.Required(kStepWindow, keys.Int(kStepWindow, 1, kMaxGgufSize)));
  INLAY_ASSIGN_OR_RETURN(const std::vector<bool> slides,
                         ReadGgufLayerFlags(keys, kStepPattern, sizes.layers));
  Json types = Json::array();
  for (const bool sliding : slides) {
    types.push_back(sliding ? kStepSliding : kStepFull);
  }
  (*config)["layer_types"] = std::move(types);
  INLAY_RETURN_IF_ERROR(ReadStepHeads(keys, slides, config));
  INLAY_RETURN_IF_ERROR(ReadStepLimits(files, keys, sizes, config));
  return ReadStepRopes(keys, sizes, config);
}

absl::Status ReadGgufStepExperts(const GgufFiles& files,
                                 const GgufArchKeys& keys,
                                 const GgufSizes& sizes, Json* config) {
  INLAY_ASSIGN_OR_RETURN(const auto gating,
                         keys.Int(kStepGating, 0, INT32_MAX));
  INLAY_ASSIGN_OR_RETURN(const auto normalised, keys.Bool(kStepNormalised));
  INLAY_ASSIGN_OR_RETURN(const auto scale, keys.Number("expert_weights_scale"));
  const int64_t score = gating.value_or(0);
  if ((score != 0 && score != kStepSigmoid) || !normalised.value_or(false)) {
    return absl::UnimplementedError(FormattedString(
        "%s is %d and %s %s, allowed: %d (sigmoid), true",
        keys.Name(kStepGating), score, keys.Name(kStepNormalised),
        normalised.value_or(false) ? "true" : "false", kStepSigmoid));
  }
  (*config)["moe_router_scaling_factor"] =
      scale.value_or(0.0) == 0.0 ? 1.0 : *scale;
  INLAY_ASSIGN_OR_RETURN(
      (*config)["share_expert_dim"],
      keys.Required(kStepShared, keys.Int(kStepShared, 1, kMaxGgufSize)));
  Json types = Json::array();
  for (int64_t i = 0; i < sizes.layers; ++i) {
    const bool is_sparse = files.FindTensor(FormattedString(
                               "blk.%d.ffn_gate_inp.weight", i)) != nullptr;
    types.push_back(is_sparse ? "sparse" : "dense");
  }
  (*config)["mlp_layer_types"] = std::move(types);
  return absl::OkStatus();
}

absl::Status SetGgufStepHeads(GgufKeyWriter& keys) {
  INLAY_ASSIGN_OR_RETURN(const int64_t full, keys.Size("num_attention_heads"));
  INLAY_ASSIGN_OR_RETURN(const int64_t windows,
                         keys.Size("num_sliding_attention_heads"));
  std::vector<uint32_t> heads;
  for (const bool slides : StepFlags(keys, "layer_types", kStepSliding)) {
    heads.push_back(static_cast<uint32_t>(slides ? windows : full));
  }
  return keys.SetU32s(kStepHeads, heads);
}

absl::Status SetGgufStep(GgufKeyWriter& keys) {
  INLAY_RETURN_IF_ERROR(keys.Expect("tie_word_embeddings", false));
  INLAY_RETURN_IF_ERROR(CheckStepRopes(keys));
  INLAY_RETURN_IF_ERROR(keys.CopySize("sliding_window", kStepWindow).status());
  INLAY_RETURN_IF_ERROR(keys.SetBools(
      kStepPattern, StepFlags(keys, "layer_types", kStepSliding)));
  for (const auto& [key, name] : kStepLimits) {
    const Json* list = JsonFind(keys.config(), name);
    if (list == nullptr) continue;
    std::vector<float> limits;
    for (const Json& limit : *list) {
      limits.push_back(limit.is_number() ? limit.get<float>() : 0.0f);
    }
    INLAY_RETURN_IF_ERROR(keys.writer().SetF32s(keys.Name(key), limits));
  }
  return absl::OkStatus();
}

absl::Status SetGgufStepExperts(GgufKeyWriter& keys) {
  const std::vector<bool> sparse = StepFlags(keys, "mlp_layer_types", "sparse");
  INLAY_RETURN_IF_ERROR(keys.SetU32(
      "leading_dense_block_count",
      std::find(sparse.begin(), sparse.end(), true) - sparse.begin()));
  INLAY_RETURN_IF_ERROR(
      keys.CopySize("share_expert_dim", kStepShared).status());
  INLAY_RETURN_IF_ERROR(keys.CopyNumber("moe_router_scaling_factor",
                                        "expert_weights_scale", 1.0));
  INLAY_RETURN_IF_ERROR(keys.SetBool(kStepNormalised, true));
  return keys.SetU32(kStepGating, kStepSigmoid);
}

}  // namespace inlay
