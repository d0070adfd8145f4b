#include "core/formats/group_source.h"

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_join.h"
#include "core/formats/describe.h"
#include "core/formats/quantized_layer.h"
#include "core/formats/sliced_source.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

constexpr std::string_view kLayer = ".wo_a";
constexpr std::string_view kWeight = ".weight";

// All of it is each group's.
absl::Status AddOrders(const WeightInfo& info, int64_t groups,
                       std::vector<SlicedTensor>* tensors) {
  INLAY_RETURN_IF_ERROR(CheckOrder(info));
  const std::string layer =
      info.name.substr(0, info.name.size() - kInputPermutation.size());
  for (int64_t g = 0; g < groups; ++g) {
    SlicedTensor& tensor = tensors->emplace_back();
    tensor.info = info;
    tensor.info.name = FormattedString("%s.%d%s", layer, g, kInputPermutation);
    tensor.is_slice = true;
    tensor.slice.stored = &info;
  }
  return absl::OkStatus();
}

absl::Status AddGroups(const WeightInfo& info, int64_t groups,
                       std::vector<SlicedTensor>* tensors) {
  if (info.shape.size() != 2 || info.bytes == 0 ||
      info.shape[0] % groups != 0) {
    return absl::InvalidArgumentError(FormattedString(
        "tensor %s has shape [%s]; its rows must be a multiple of %d groups",
        Quoted(info.name), absl::StrJoin(info.shape, ", "), groups));
  }
  const int64_t rows = info.shape[0] / groups;
  const std::string layer =
      info.name.substr(0, info.name.size() - kWeight.size());
  for (int64_t g = 0; g < groups; ++g) {
    SlicedTensor& tensor = tensors->emplace_back();
    tensor.info = info;
    tensor.info.name = FormattedString("%s.%d%s", layer, g, kWeight);
    tensor.info.shape[0] = rows;
    tensor.info.bytes = info.bytes / static_cast<uint64_t>(groups);
    tensor.is_slice = true;
    tensor.slice.stored = &info;
    tensor.slice.first = g * rows;
  }
  return absl::OkStatus();
}

// Which of a head's gates a tensor of all heads holds, and what.
struct HeadGates {
  std::string layer;  // "P.rg_lru.input_gate"
  bool is_bias = false;
};

std::optional<HeadGates> ParseHeadGates(std::string_view name) {
  for (const std::string_view gate :
       {".rg_lru.input_gate", ".rg_lru.recurrent_gate"}) {
    for (const std::string_view kind : {"_weight", "_bias"}) {
      if (!name.ends_with(kind)) continue;
      const std::string_view layer = name.substr(0, name.size() - kind.size());
      if (!layer.ends_with(gate)) continue;
      return HeadGates{std::string(layer), kind == "_bias"};
    }
  }
  return std::nullopt;
}

absl::Status AddGates(const WeightInfo& info, const HeadGates& gates,
                      int64_t heads, std::vector<SlicedTensor>* tensors) {
  const size_t rank = gates.is_bias ? 2 : 3;
  const bool is_float = info.dtype == DType::kF32 ||
                        info.dtype == DType::kF16 || info.dtype == DType::kBF16;
  if (!is_float || info.shape.size() != rank || info.bytes == 0 ||
      info.shape[0] != heads || info.shape[rank - 1] != info.shape[1]) {
    return absl::InvalidArgumentError(FormattedString(
        "tensor %s is %s [%s]; allowed: floats, %d (num_attention_heads) by %s",
        Quoted(info.name), DTypeName(info.dtype),
        absl::StrJoin(info.shape, ", "), heads,
        gates.is_bias ? "a head's width" : "a head's width twice"));
  }
  if (tensors->size() + static_cast<size_t>(heads) > kMaxGateTensors) {
    return absl::ResourceExhaustedError(FormattedString(
        "with the heads of tensor %s there are %d tensors, allowed: %d",
        Quoted(info.name), tensors->size() + static_cast<size_t>(heads),
        kMaxGateTensors));
  }
  for (int64_t head = 0; head < heads; ++head) {
    SlicedTensor& tensor = tensors->emplace_back();
    tensor.info = info;
    tensor.info.name = FormattedString("%s.%d.%s", gates.layer, head,
                                       gates.is_bias ? "bias" : "weight");
    tensor.info.shape.erase(tensor.info.shape.begin());
    tensor.info.bytes = info.bytes / static_cast<uint64_t>(heads);
    tensor.is_slice = true;
    tensor.slice.stored = &info;
    if (gates.is_bias) {
      tensor.slice.first = head * info.shape[1];
    } else {
      tensor.slice.layout = SliceLayout::kColumns;
      tensor.slice.expert = head;
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<const WeightSource>> PresentHeadGates(
    const Json& config, std::shared_ptr<const WeightSource> stored) {
  INLAY_ASSIGN_OR_RETURN(
      const int64_t heads,
      JsonInt(config, "num_attention_heads", 10, 1, int64_t{1} << 13));
  std::vector<SlicedTensor> tensors;
  bool any = false;
  for (const WeightInfo& info : stored->weights()) {
    if (const auto gates = ParseHeadGates(info.name)) {
      INLAY_RETURN_IF_ERROR(AddGates(info, *gates, heads, &tensors));
      any = true;
    } else {
      tensors.push_back({info});
    }
  }
  if (!any) return stored;
  return MakeSlicedSource(std::move(stored), std::move(tensors));
}

}  // namespace

absl::StatusOr<std::shared_ptr<const WeightSource>> PresentGroups(
    const Json& config, std::shared_ptr<const WeightSource> stored) {
  const Json* type = JsonFind(config, "model_type");
  if (type == nullptr) return stored;
  if (*type == "recurrent_gemma") {
    return PresentHeadGates(config, std::move(stored));
  }
  if (*type != "deepseek_v4") return stored;
  INLAY_ASSIGN_OR_RETURN(const int64_t groups,
                         JsonInt(config, "o_groups", 8, 1, int64_t{1} << 13));
  const std::string ending = std::string(kLayer) + std::string(kWeight);
  const std::string order =
      std::string(kLayer) + std::string(kInputPermutation);
  std::vector<SlicedTensor> tensors;
  bool any = false;
  for (const WeightInfo& info : stored->weights()) {
    if (info.name.ends_with(order)) {
      INLAY_RETURN_IF_ERROR(AddOrders(info, groups, &tensors));
      continue;
    }
    if (!info.name.ends_with(ending)) {
      tensors.push_back({info});
      continue;
    }
    INLAY_RETURN_IF_ERROR(AddGroups(info, groups, &tensors));
    any = true;
  }
  if (!any) return stored;
  return MakeSlicedSource(std::move(stored), std::move(tensors));
}

}  // namespace inlay
