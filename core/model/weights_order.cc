// WeightLoader: the order that quantised matrices have their columns in.
#include <cstring>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include "core/formats/quantized_layer.h"
#include "core/model/weights.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

constexpr std::string_view kWeight = ".weight";

std::string OrderName(std::string_view layer) {
  return std::string(layer) + std::string(kInputPermutation);
}

}  // namespace

bool WeightLoader::HasOrder(const std::string& layer) const {
  return Has(OrderName(layer));
}

absl::StatusOr<bool> WeightLoader::HaveOneOrder(
    const std::string& one, const std::string& other) const {
  const bool has = HasOrder(one);
  if (has != HasOrder(other)) return false;
  if (!has) return true;
  return AreEqual(OrderName(one), OrderName(other));
}

absl::Status WeightLoader::CheckOrder(const std::string& name) const {
  if (!name.ends_with(kWeight)) return absl::OkStatus();
  const std::string layer = name.substr(0, name.size() - kWeight.size());
  if (!HasOrder(layer) || ordered_.contains(layer)) return absl::OkStatus();
  return absl::UnimplementedError(FormattedString(
      "tensor \"%s\" has its inputs in another order (act order), allowed "
      "here: the order of the inputs",
      name));
}

absl::StatusOr<const int32_t*> WeightLoader::Orders(
    absl::Span<const std::string> layers, int64_t k) {
  const bool loads = mode_ == Mode::kLoad;
  const auto size = static_cast<size_t>(k);
  std::vector<int32_t> inputs(loads ? layers.size() * size : 0);
  for (size_t i = 0; i < layers.size(); ++i) {
    int32_t* const own = loads ? &inputs[i * size] : nullptr;
    INLAY_RETURN_IF_ERROR(ReadOrder(layers[i], k, own));
  }
  const size_t bytes = layers.size() * size * sizeof(int32_t);
  INLAY_RETURN_IF_ERROR(Count(0, bytes));
  if (!loads) return nullptr;
  INLAY_ASSIGN_OR_RETURN(std::byte * data, Allocate(bytes));
  INLAY_RETURN_IF_ERROR(WriteAll(
      data, absl::MakeConstSpan(
                reinterpret_cast<const std::byte*>(inputs.data()), bytes)));
  return reinterpret_cast<const int32_t*>(data);
}

absl::Status WeightLoader::ReadOrder(const std::string& layer, int64_t k,
                                     int32_t* inputs) {
  TakesOrder(layer);
  if (!HasOrder(layer)) {
    if (inputs != nullptr) std::iota(inputs, inputs + k, 0);
    return absl::OkStatus();
  }
  INLAY_ASSIGN_OR_RETURN(const WeightInfo* info, Find(OrderName(layer), {k}));
  if (info->dtype != DType::kI32) {
    return absl::InvalidArgumentError(
        FormattedString("tensor \"%s\" is stored as %s; indices must be i32",
                        info->name, DTypeName(info->dtype)));
  }
  if (inputs == nullptr) return absl::OkStatus();
  Buffer staging;
  INLAY_ASSIGN_OR_RETURN(const std::byte* bytes, Bytes(*info, staging));
  std::memcpy(inputs, bytes, info->bytes);
  for (int64_t j = 0; j < k; ++j) {
    if (inputs[j] >= 0 && inputs[j] < k) continue;
    return absl::InvalidArgumentError(
        FormattedString("tensor \"%s\" has the index %d; it must be in [0, %d)",
                        info->name, inputs[j], k));
  }
  return absl::OkStatus();
}

}  // namespace inlay
