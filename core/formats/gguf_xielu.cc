#include "core/formats/gguf_xielu.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "core/formats/gguf_arch.h"
#include "core/formats/gguf_metadata.h"
#include "core/formats/gguf_sizes.h"
#include "core/formats/stored_tensor.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

constexpr const char* kLists[] = {"alpha_p", "alpha_n", "beta", "eps"};

std::string Key(const char* list) { return std::string("xielu.") + list; }

absl::StatusOr<float> ReadNumber(const WeightSource& weights,
                                 const std::string& name) {
  // Files saved from the bare network lack the prefix.
  constexpr std::string_view kPrefix = "model.";
  const WeightInfo* info = weights.Find(name);
  if (info == nullptr) info = weights.Find(name.substr(kPrefix.size()));
  if (info == nullptr) {
    return absl::NotFoundError(
        FormattedString("the weights have no tensor \"%s\"", name));
  }
  const bool is_float = std::count(std::begin(kScaleDTypes),
                                   std::end(kScaleDTypes), info->dtype) != 0;
  if (!is_float || info->bytes != RowBytes(info->dtype, 1)) {
    return absl::InvalidArgumentError(FormattedString(
        "tensor \"%s\" is %s in %d bytes, allowed: one number of f32, f16 or "
        "bf16",
        name, DTypeName(info->dtype), info->bytes));
  }
  WeightInfo flat = *info;
  flat.shape = {1, 1};
  float number = 0.0f;
  INLAY_RETURN_IF_ERROR(ReadFloats(weights, flat, 0, 1, 0, 1, &number));
  if (std::isfinite(number)) return number;
  return absl::InvalidArgumentError(FormattedString(
      "tensor \"%s\" is %g, allowed: finite numbers", name, number));
}

}  // namespace

absl::Status ReadGgufXielu(const GgufHeader& header, int64_t layers,
                           Json* config) {
  const auto count = static_cast<size_t>(layers);
  for (const char* list : kLists) {
    const std::string key = Key(list);
    const GgufValue* value = header.Find(key);
    if (value == nullptr) {
      return absl::InvalidArgumentError(
          FormattedString("key \"%s\" is missing", key));
    }
    std::vector<double> numbers;
    if (value->is_array) {
      INLAY_ASSIGN_OR_RETURN(const auto found, GgufNumbers(header, key));
      numbers = found.value_or(std::vector<double>());
    } else {
      INLAY_ASSIGN_OR_RETURN(const auto found, GgufNumber(header, key));
      numbers.assign(count, found.value_or(0.0));
    }
    if (numbers.size() != count) {
      return absl::InvalidArgumentError(FormattedString(
          "key \"%s\": %d values, allowed: one for each of %d layers", key,
          numbers.size(), layers));
    }
    (*config)["xielu"][list] = numbers;
  }
  return absl::OkStatus();
}

absl::StatusOr<Json> WithXielu(const ModelFiles& files) {
  Json config = files.config;
  const auto arch = FindGgufArchOf(config);
  if (!arch.ok() || (*arch)->name != "apertus" || config.contains("xielu") ||
      files.weights == nullptr) {
    return config;
  }
  INLAY_ASSIGN_OR_RETURN(const std::string activation,
                         JsonString(config, "hidden_act", "xielu"));
  if (activation != "xielu") return config;
  INLAY_ASSIGN_OR_RETURN(
      const int64_t layers,
      JsonInt(config, "num_hidden_layers", 32, 1, kMaxGgufLayers));
  for (int64_t i = 0; i < layers; ++i) {
    for (const char* list : kLists) {
      const std::string name =
          FormattedString("model.layers.%d.mlp.act_fn.%s", i, list);
      INLAY_ASSIGN_OR_RETURN(const float number,
                             ReadNumber(*files.weights, name));
      config["xielu"][list].push_back(number);
    }
  }
  return config;
}

absl::Status SetGgufXielu(const Json& config, GgufWriter* writer) {
  const Json* numbers = JsonFind(config, "xielu");
  for (const char* list : kLists) {
    const Json* all = numbers == nullptr ? nullptr : JsonFind(*numbers, list);
    if (all == nullptr || !all->is_array()) {
      return absl::InvalidArgumentError(FormattedString(
          "config.json: xielu.%s is missing: a GGUF file needs it", list));
    }
    std::vector<float> values;
    for (const Json& value : *all) {
      values.push_back(value.is_number() ? value.get<float>() : 0.0f);
    }
    INLAY_RETURN_IF_ERROR(writer->SetF32s(Key(list), values));
  }
  return absl::OkStatus();
}

}  // namespace inlay
