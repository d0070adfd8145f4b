#include "core/model/hf_config.h"

#include <algorithm>

#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
int64_t UnlessNull(const Json& config, std::string_view key, int64_t fallback) {
  const auto found = config.find(std::string(key));
  return found != config.end() && found->is_null() ? 0 : fallback;
}

absl::Status CheckHeads(int64_t heads, int64_t kv_heads) {
  if (heads % kv_heads == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(FormattedString(
      "config.json: num_attention_heads is %d with num_key_value_heads %d; it "
      "must be a multiple",
      heads, kv_heads));
}

absl::StatusOr<Activation> ReadActivation(const Json& config,
                                          std::string_view key,
                                          std::string_view fallback) {
  INLAY_ASSIGN_OR_RETURN(const std::string name,
                         JsonString(config, key, fallback));
  const std::optional<Activation> activation = ActivationFromName(name);
  if (activation) return *activation;
  return absl::UnimplementedError(FormattedString(
      "config.json: %s \"%s\" is not supported; supported are silu, swish, "
      "gelu, gelu_new, gelu_fast, gelu_pytorch_tanh, relu, relu2",
      key, name));
}

absl::StatusOr<DecoderConfig> ReadDecoderConfig(
    const Json& config, const DecoderDefaults& defaults) {
  DecoderConfig out;
  INLAY_ASSIGN_OR_RETURN(
      out.vocab_size,
      JsonInt(config, "vocab_size", defaults.vocab_size, 1, kMaxVocab));
  INLAY_ASSIGN_OR_RETURN(
      out.hidden_size,
      JsonInt(config, "hidden_size", defaults.hidden_size, 1, kMaxHidden));
  INLAY_ASSIGN_OR_RETURN(out.intermediate_size,
                         JsonInt(config, defaults.intermediate_key,
                                 defaults.intermediate_size, 1, kMaxHidden));
  INLAY_ASSIGN_OR_RETURN(
      const int64_t layers,
      JsonInt(config, "num_hidden_layers", defaults.num_layers, 1, kMaxLayers));
  INLAY_ASSIGN_OR_RETURN(
      const int64_t heads,
      JsonInt(config, defaults.heads_key, defaults.num_heads, 1, kMaxHeads));
  // null: as many as heads.
  const bool own_kv =
      defaults.num_kv_heads == 0 || config.contains("num_key_value_heads");
  const int64_t default_kv = own_kv ? heads : defaults.num_kv_heads;
  INLAY_ASSIGN_OR_RETURN(
      const int64_t kv_heads,
      JsonInt(config, "num_key_value_heads", default_kv, 1, kMaxHeads));
  INLAY_RETURN_IF_ERROR(CheckHeads(heads, kv_heads));
  const bool derived =
      defaults.head_dim == 0 && JsonFind(config, "head_dim") == nullptr;
  if (derived && out.hidden_size % heads != 0) {
    return absl::InvalidArgumentError(FormattedString(
        "config.json: hidden_size is %d with %s %d and no head_dim; it must be "
        "a multiple",
        out.hidden_size, defaults.heads_key, heads));
  }
  const int64_t default_dim =
      defaults.head_dim == 0 ? out.hidden_size / heads : defaults.head_dim;
  INLAY_ASSIGN_OR_RETURN(
      const int64_t head_dim,
      JsonInt(config, "head_dim", default_dim, 1, kMaxHeadDim));
  if (head_dim < 1 || head_dim > kMaxHeadDim || heads * head_dim > kMaxHidden) {
    return absl::InvalidArgumentError(FormattedString(
        "config.json: %d heads of dimension %d; a head may have 1 to %d "
        "dimensions and all heads together at most %d",
        heads, head_dim, kMaxHeadDim, kMaxHidden));
  }
  INLAY_ASSIGN_OR_RETURN(out.max_positions,
                         JsonInt(config, "max_position_embeddings",
                                 defaults.max_positions, 1, kMaxPositions));
  INLAY_ASSIGN_OR_RETURN(const double epsilon,
                         JsonNumber(config, defaults.epsilon_key,
                                    defaults.norm_epsilon, 0.0, 1.0));
  INLAY_ASSIGN_OR_RETURN(
      out.activation,
      ReadActivation(config, defaults.activation_key, defaults.activation));
  INLAY_ASSIGN_OR_RETURN(
      out.tie_embeddings,
      JsonBool(config, "tie_word_embeddings", defaults.tie_embeddings));
  out.num_layers = static_cast<int>(layers);
  out.num_heads = static_cast<int>(heads);
  out.num_kv_heads = static_cast<int>(kv_heads);
  out.head_dim = static_cast<int>(head_dim);
  out.norm_epsilon = static_cast<float>(epsilon);
  return out;
}

Json WithUsualNames(const Json& config,
                    std::initializer_list<KeyAlias> aliases) {
  Json out = config;
  for (const KeyAlias& alias : aliases) {
    const Json* value = JsonFind(config, alias.own);
    if (value != nullptr) out[std::string(alias.usual)] = *value;
  }
  return out;
}

absl::StatusOr<std::optional<double>> ReadOptionalNumber(
    const Json& config, std::string_view key, std::optional<double> fallback,
    double min, double max) {
  const auto found = config.find(std::string(key));
  if (found == config.end()) return fallback;
  if (found->is_null()) return std::optional<double>();
  INLAY_ASSIGN_OR_RETURN(const double value,
                         JsonNumber(config, key, 0.0, min, max));
  return std::optional<double>(value);
}

absl::StatusOr<int> ReadWindow(const Json& config,
                               std::optional<int64_t> fallback) {
  const auto found = config.find("sliding_window");
  if (found == config.end()) return static_cast<int>(fallback.value_or(0));
  if (found->is_null()) return 0;
  INLAY_ASSIGN_OR_RETURN(const int64_t window, JsonInt(config, "sliding_window",
                                                       0, 1, kMaxPositions));
  return static_cast<int>(window);
}

absl::StatusOr<std::vector<bool>> ReadLayerKinds(const Json& config,
                                                 std::string_view key,
                                                 int num_layers,
                                                 std::string_view yes,
                                                 std::string_view no) {
  std::vector<bool> flags;
  const Json* types = JsonFind(config, key);
  if (types == nullptr) return flags;
  if (!types->is_array() || types->size() != static_cast<size_t>(num_layers)) {
    return absl::InvalidArgumentError(FormattedString(
        "config.json: %s is %s of %d; it must be an array of %d names", key,
        types->type_name(), types->size(), num_layers));
  }
  for (const Json& type : *types) {
    if (type == yes) {
      flags.push_back(true);
    } else if (type == no) {
      flags.push_back(false);
    } else {
      return absl::UnimplementedError(
          FormattedString("config.json: %s has %s; supported here are %s and "
                          "%s",
                          key, ShownJson(type), no, yes));
    }
  }
  return flags;
}

absl::StatusOr<std::vector<bool>> ReadSlidingLayers(const Json& config,
                                                    int num_layers,
                                                    std::string_view local) {
  return ReadLayerKinds(config, "layer_types", num_layers, local,
                        "full_attention");
}

absl::StatusOr<std::vector<bool>> ReadSlidingPattern(const Json& config,
                                                     int num_layers,
                                                     int64_t pattern) {
  INLAY_ASSIGN_OR_RETURN(std::vector<bool> sliding,
                         ReadSlidingLayers(config, num_layers));
  if (!sliding.empty()) return sliding;
  INLAY_ASSIGN_OR_RETURN(
      const int64_t newer,
      JsonInt(config, "_sliding_window_pattern", pattern, 1, kMaxLayers));
  INLAY_ASSIGN_OR_RETURN(
      const int64_t every,
      JsonInt(config, "sliding_window_pattern", newer, 1, kMaxLayers));
  for (int i = 0; i < num_layers; ++i) sliding.push_back((i + 1) % every != 0);
  return sliding;
}

absl::StatusOr<std::vector<bool>> ReadRopeLayers(const Json& config,
                                                 int num_layers) {
  INLAY_ASSIGN_OR_RETURN(
      const int64_t interval,
      JsonInt(config, "no_rope_layer_interval", 4, 1, kMaxLayers));
  std::vector<bool> rope;
  const Json* list = JsonFind(config, "no_rope_layers");
  if (list == nullptr || (list->is_array() && list->empty())) {
    for (int i = 0; i < num_layers; ++i)
      rope.push_back((i + 1) % interval != 0);
    return rope;
  }
  const auto is_flag = [](const Json& flag) { return flag == 0 || flag == 1; };
  if (!list->is_array() || list->size() < static_cast<size_t>(num_layers) ||
      !std::all_of(list->begin(), list->end(), is_flag)) {
    return absl::InvalidArgumentError(FormattedString(
        "config.json: no_rope_layers is %s; it must be an array of at least %d "
        "numbers, each 0 or 1",
        ShownJson(*list), num_layers));
  }
  for (int i = 0; i < num_layers; ++i) {
    rope.push_back((*list)[static_cast<size_t>(i)] == 1);
  }
  return rope;
}

}  // namespace inlay
