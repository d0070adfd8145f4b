#include "core/formats/step_config.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

constexpr int64_t kMaxStepLayers = 4096;
constexpr char kFullLayers[] = "full_attention";
constexpr char kSlidingLayers[] = "sliding_attention";
constexpr char kOtherSetting[] = "attention_other_setting";

absl::Status StepNotKnown(std::string_view key, const Json& value,
                          std::string_view known) {
  return absl::UnimplementedError(
      FormattedString("config.json: %s is %s; supported here is %s", key,
                      ShownJson(value), known));
}

// Lists that published files have longer, as the layers behind are in them.
class StepLayers {
 public:
  static absl::StatusOr<StepLayers> Read(const Json& config) {
    INLAY_ASSIGN_OR_RETURN(
        const int64_t layers,
        JsonInt(config, "num_hidden_layers", 45, 1, kMaxStepLayers));
    INLAY_ASSIGN_OR_RETURN(
        const int64_t further,
        JsonInt(config, "num_nextn_predict_layers", 0, 0, kMaxStepLayers));
    return StepLayers(static_cast<size_t>(layers),
                      static_cast<size_t>(layers + further));
  }

  size_t count() const { return count_; }

  // One value for each layer; null where the key is absent.
  absl::StatusOr<Json> List(const Json& config, const char* key) const {
    const Json* list = JsonFind(config, key);
    if (list == nullptr) return Json();
    if (!list->is_array() ||
        (list->size() != count_ && list->size() != padded_)) {
      return absl::InvalidArgumentError(FormattedString(
          "config.json: %s is %s of %d; it must be an array of %d, or of %d "
          "with the layers that predict further tokens",
          key, list->type_name(), list->size(), count_, padded_));
    }
    Json own = Json::array();
    for (size_t i = 0; i < count_; ++i) own.push_back((*list)[i]);
    return own;
  }

 private:
  StepLayers(size_t count, size_t padded) : count_(count), padded_(padded) {}
  size_t count_;
  size_t padded_;
};

// Which layers moe_layers_enum has: "3,4,5", or numbers.
absl::StatusOr<std::vector<bool>> SparseLayers(const Json& config,
                                               size_t count) {
  constexpr char kKey[] = "moe_layers_enum";
  const Json& value = *JsonFind(config, kKey);
  std::vector<bool> layers(count);
  const auto add = [&](int64_t layer) {
    if (layer < 0 || layer >= static_cast<int64_t>(count)) return;
    layers[static_cast<size_t>(layer)] = true;
  };
  bool is_known = value.is_string() || value.is_array();
  if (value.is_array()) {
    for (const Json& one : value) {
      is_known &= one.is_number_integer();
      if (is_known) add(one.get<int64_t>());
    }
  }
  const std::string text =
      value.is_string() ? value.get<std::string>() : std::string();
  for (size_t at = 0; is_known && at < text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    const size_t begin = text.find_first_not_of(' ', at);
    int64_t layer = -1;
    const auto read = std::from_chars(text.data() + std::min(begin, end),
                                      text.data() + end, layer);
    is_known = read.ec == std::errc() && read.ptr == text.data() + end;
    add(layer);
    at = end + 1;
  }
  if (is_known) return layers;
  return absl::InvalidArgumentError(FormattedString(
      "config.json: %s is %s; it must be numbers of layers, as an array or in "
      "a string with commas between them",
      kKey, ShownJson(value)));
}

absl::Status NameMlps(const StepLayers& layers, Json* config) {
  INLAY_ASSIGN_OR_RETURN(Json types, layers.List(*config, "mlp_layer_types"));
  if (types.is_null()) {
    std::vector<bool> sparse;
    const bool has_list = JsonFind(*config, "moe_layers_enum") != nullptr;
    if (has_list) {
      INLAY_ASSIGN_OR_RETURN(sparse, SparseLayers(*config, layers.count()));
    }
    types = Json::array();
    for (size_t i = 0; i < layers.count(); ++i) {
      const bool is_sparse = has_list ? sparse[i] : i >= 3;
      types.push_back(is_sparse ? "sparse" : "dense");
    }
  }
  (*config)["mlp_layer_types"] = std::move(types);
  return absl::OkStatus();
}

// What differs in layers with windows: heads and nothing else.
absl::Status NameHeads(const StepLayers& layers, Json* config) {
  const Json* heads = JsonFind(*config, "num_attention_heads");
  Json sliding = heads == nullptr ? Json(64) : *heads;
  if (const Json* other = JsonFind(*config, kOtherSetting); other != nullptr) {
    if (!other->is_object()) {
      return StepNotKnown(kOtherSetting, *other, "an object");
    }
    const Json* kv = JsonFind(*config, "num_key_value_heads");
    const Json* dim = JsonFind(*config, "head_dim");
    const std::pair<const char*, Json> same[] = {
        {"attention_type", kSlidingLayers},
        {"num_attention_groups", kv == nullptr ? Json(8) : *kv},
        {"head_dim", dim == nullptr ? Json(128) : *dim},
        {"true_head_dim", dim == nullptr ? Json(128) : *dim}};
    for (const auto& [key, known] : same) {
      const Json* value = JsonFind(*other, key);
      if (value == nullptr || *value == known) continue;
      return StepNotKnown(FormattedString("%s.%s", kOtherSetting, key), *value,
                          ShownJson(known));
    }
    const Json* own = JsonFind(*other, "num_attention_heads");
    if (own != nullptr) sliding = *own;
  }
  const Json* newer = JsonFind(*config, "num_sliding_attention_heads");
  if (newer != nullptr) sliding = *newer;
  (*config)["num_sliding_attention_heads"] = sliding;
  // transformers writes both.
  constexpr char kPerLayer[] = "per_layer_config";
  const Json* own = JsonFind(*config, kPerLayer);
  if (own == nullptr) return absl::OkStatus();
  Json known = Json::object();
  const Json* types = JsonFind(*config, "layer_types");
  for (size_t i = 0; types != nullptr && i < layers.count(); ++i) {
    if ((*types)[i] != kSlidingLayers) continue;
    known[FormattedString("%d", i)] = {{"num_attention_heads", sliding}};
  }
  if (*own == known || own->empty()) return absl::OkStatus();
  return StepNotKnown(kPerLayer, *own, ShownJson(known));
}

// The value of `list` in all layers of a type.
absl::StatusOr<Json> OneOfType(const Json& list, const Json& types,
                               const char* key, const char* type) {
  Json found;
  for (size_t i = 0; i < types.size(); ++i) {
    if (types[i] != type) continue;
    if (found.is_null()) found = list[i];
    if (list[i] == found) continue;
    return StepNotKnown(key, list[i],
                        FormattedString("one number for all of %s", type));
  }
  return found;
}

// Published files have a base and a part of heads for each layer, and one
// scaling, of full layers.
absl::Status NameRopes(const StepLayers& layers, Json* config) {
  const Json* nested = JsonFind(*config, "rope_parameters");
  if (nested != nullptr) {
    if (!nested->is_object() ||
        (JsonFind(*nested, kFullLayers) == nullptr &&
         JsonFind(*nested, kSlidingLayers) == nullptr)) {
      return StepNotKnown("rope_parameters", *nested,
                          "an object with full_attention and "
                          "sliding_attention");
    }
  } else {
    const Json* types = JsonFind(*config, "layer_types");
    const Json* scaling = JsonFind(*config, "rope_scaling");
    const Json scaled = Json::array({kFullLayers});
    const Json* only = JsonFind(*config, "yarn_only_types");
    if (scaling != nullptr && only != nullptr && *only != scaled) {
      return StepNotKnown("yarn_only_types", *only, ShownJson(scaled));
    }
    Json ropes = Json::object();
    for (const char* type : {kFullLayers, kSlidingLayers}) {
      Json rope = {{"rope_type", "default"}};
      if (type == kFullLayers && scaling != nullptr && scaling->is_object()) {
        rope.update(*scaling);
      }
      for (const auto& [from, to] :
           {std::pair{"rope_theta", "rope_theta"},
            std::pair{"partial_rotary_factors", "partial_rotary_factor"}}) {
        const Json* value = JsonFind(*config, from);
        if (value == nullptr) continue;
        if (!value->is_array()) {
          rope[to] = *value;
          continue;
        }
        INLAY_ASSIGN_OR_RETURN(const Json list, layers.List(*config, from));
        INLAY_ASSIGN_OR_RETURN(Json one, OneOfType(list, *types, from, type));
        if (!one.is_null()) rope[to] = std::move(one);
      }
      ropes[type] = std::move(rope);
    }
    (*config)["rope_parameters"] = std::move(ropes);
  }
  for (const char* key :
       {"rope_theta", "rope_scaling", "partial_rotary_factors",
        "partial_rotary_factor", "yarn_only_types"}) {
    config->erase(key);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Json> WithUsualStepNames(const Json& config) {
  Json usual = config;
  for (const auto& [own, name] :
       {std::pair{"num_attention_groups", "num_key_value_heads"},
        std::pair{"moe_num_experts", "num_local_experts"},
        std::pair{"n_routed_experts", "num_local_experts"},
        std::pair{"moe_top_k", "num_experts_per_tok"},
        std::pair{"share_expert_dims", "share_expert_dim"},
        std::pair{"max_seq_len", "max_position_embeddings"}}) {
    const Json* value = JsonFind(config, own);
    if (value == nullptr || JsonFind(usual, name) != nullptr) continue;
    usual[name] = *value;
  }
  INLAY_ASSIGN_OR_RETURN(const StepLayers layers, StepLayers::Read(config));
  for (const char* key :
       {"layer_types", "swiglu_limits", "swiglu_limits_shared"}) {
    INLAY_ASSIGN_OR_RETURN(Json list, layers.List(config, key));
    if (!list.is_null()) usual[key] = std::move(list);
  }
  if (JsonFind(usual, "layer_types") == nullptr) {
    usual["layer_types"] = Json(std::vector<Json>(layers.count(), kFullLayers));
  }
  INLAY_RETURN_IF_ERROR(NameMlps(layers, &usual));
  INLAY_RETURN_IF_ERROR(NameHeads(layers, &usual));
  INLAY_RETURN_IF_ERROR(NameRopes(layers, &usual));
  return usual;
}

}  // namespace inlay
