#include "core/formats/openelm_config.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>

#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

constexpr int64_t kMostOpenElm = int64_t{1} << 20;
constexpr int64_t kMostOpenElmLayers = 4096;

absl::Status BadOpenElmList(const char* key, int64_t layers, int64_t most) {
  return absl::InvalidArgumentError(FormattedString(
      "config.json: %s must be an array of %d numbers, above 0 and at most %d",
      key, layers, most));
}

// The list `key`, a number a layer.
absl::StatusOr<const Json*> OpenElmList(const Json& config, const char* key,
                                        int64_t layers, int64_t most) {
  const Json* list = JsonFind(config, key);
  bool is_list = list != nullptr && list->is_array() &&
                 static_cast<int64_t>(list->size()) == layers;
  for (size_t i = 0; is_list && i < list->size(); ++i) {
    const Json& number = (*list)[i];
    is_list = number.is_number() && number.get<double>() > 0.0 &&
              number.get<double>() <= static_cast<double>(most);
  }
  if (is_list) return list;
  return BadOpenElmList(key, layers, most);
}

absl::StatusOr<std::vector<int64_t>> OpenElmHeads(const Json& config,
                                                  const char* key,
                                                  int64_t layers,
                                                  int64_t most) {
  INLAY_ASSIGN_OR_RETURN(const Json* list,
                         OpenElmList(config, key, layers, most));
  std::vector<int64_t> heads;
  for (const Json& number : *list) {
    if (!number.is_number_integer()) return BadOpenElmList(key, layers, most);
    heads.push_back(number.get<int64_t>());
  }
  return heads;
}

// The multiple of `divisor` next to `width`, and not below nine tenths of it.
int64_t RoundedWidth(double width, int64_t divisor) {
  const double half = static_cast<double>(divisor) / 2.0;
  const int64_t next = static_cast<int64_t>(width + half) / divisor * divisor;
  const int64_t rounded = std::max(divisor, next);
  return static_cast<double>(rounded) < 0.9 * width ? rounded + divisor
                                                    : rounded;
}

}  // namespace

absl::StatusOr<OpenElmLayers> ReadOpenElmLayers(const Json& config) {
  // Files in GGUF have the usual name.
  const char* count = JsonFind(config, "num_transformer_layers") != nullptr
                          ? "num_transformer_layers"
                          : "num_hidden_layers";
  const char* width =
      JsonFind(config, "model_dim") != nullptr ? "model_dim" : "hidden_size";
  INLAY_ASSIGN_OR_RETURN(const int64_t layers,
                         JsonInt(config, count, 12, 1, kMostOpenElmLayers));
  INLAY_ASSIGN_OR_RETURN(const int64_t hidden,
                         JsonInt(config, width, 2048, 1, kMostOpenElm));
  INLAY_ASSIGN_OR_RETURN(const int64_t head_dim,
                         JsonInt(config, "head_dim", 128, 1, kMostOpenElm));
  INLAY_ASSIGN_OR_RETURN(
      const int64_t divisor,
      JsonInt(config, "ffn_dim_divisor", 256, 1, kMostOpenElm));
  OpenElmLayers all;
  const int64_t most_heads = kMostOpenElm / head_dim;
  INLAY_ASSIGN_OR_RETURN(
      all.heads, OpenElmHeads(config, "num_query_heads", layers, most_heads));
  INLAY_ASSIGN_OR_RETURN(
      all.kv_heads, OpenElmHeads(config, "num_kv_heads", layers, most_heads));
  constexpr char kFactors[] = "ffn_multipliers";
  INLAY_ASSIGN_OR_RETURN(const Json* factors,
                         OpenElmList(config, kFactors, layers, kMostOpenElm));
  for (size_t i = 0; i < all.heads.size(); ++i) {
    if (all.heads[i] % all.kv_heads[i] != 0) {
      return absl::InvalidArgumentError(FormattedString(
          "config.json: num_kv_heads has %d at %d; it must divide the layer's "
          "num_query_heads, %d",
          all.kv_heads[i], i, all.heads[i]));
    }
    const double own =
        (*factors)[i].get<double>() * static_cast<double>(hidden);
    const int64_t rounded = own <= static_cast<double>(kMostOpenElm)
                                ? RoundedWidth(own, divisor)
                                : kMostOpenElm + 1;
    if (rounded > kMostOpenElm) {
      return absl::InvalidArgumentError(FormattedString(
          "config.json: %s has %g at %d, which makes an MLP wider than %d",
          kFactors, (*factors)[i].get<double>(), i, kMostOpenElm));
    }
    all.widths.push_back(rounded);
  }
  return all;
}

absl::StatusOr<Json> WithUsualOpenElmNames(const Json& config) {
  constexpr std::pair<const char*, const char*> kNames[] = {
      {"model_dim", "hidden_size"},
      {"num_transformer_layers", "num_hidden_layers"},
      {"max_context_length", "max_position_embeddings"},
      {"rope_freq_constant", "rope_theta"},
      {"activation_fn_name", "hidden_act"},
      {"share_input_output_layers", "tie_word_embeddings"}};
  Json usual = config;
  for (const auto& [own, name] : kNames) {
    const Json* value = JsonFind(config, own);
    if (value != nullptr) usual[name] = *value;
  }
  if (JsonFind(usual, "tie_word_embeddings") == nullptr) {
    usual["tie_word_embeddings"] = false;
  }
  INLAY_ASSIGN_OR_RETURN(const OpenElmLayers layers, ReadOpenElmLayers(config));
  const auto most = [](const std::vector<int64_t>& list) {
    return *std::max_element(list.begin(), list.end());
  };
  usual["num_attention_heads"] = most(layers.heads);
  usual["num_key_value_heads"] = most(layers.heads);
  usual["intermediate_size"] = most(layers.widths);
  return usual;
}

}  // namespace inlay
