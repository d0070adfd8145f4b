// WeightLoader: small matrices that are turned, as float32.
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "core/model/weights.h"
#include "kernels/quant/quant.h"
#include "memory/status.h"

namespace inlay {

absl::StatusOr<const float*> WeightLoader::TurnedFloats(const std::string& name,
                                                        int64_t n, int64_t k,
                                                        VectorKind kind,
                                                        float (*map)(float)) {
  std::vector<float> values(mode_ == Mode::kPlan ? 0
                                                 : static_cast<size_t>(n * k));
  INLAY_RETURN_IF_ERROR(Widen(name, {n, k}, kind, values.data()));
  std::vector<float> turned(values.size());
  const auto columns = static_cast<size_t>(k);
  const auto rows = static_cast<size_t>(n);
  for (size_t i = 0; i < values.size(); ++i) {
    turned[i % columns * rows + i / columns] = map(values[i]);
  }
  return Constants(turned);
}

absl::StatusOr<const float*> WeightLoader::ShiftTaps(
    absl::Span<const std::string> names, int64_t ways, int64_t size) {
  const bool plans = mode_ == Mode::kPlan;
  std::vector<float> shares(plans ? 0 : static_cast<size_t>(ways * size));
  const bool is_one = names.size() == 1 && ways > 1;
  INLAY_DCHECK(is_one || static_cast<int64_t>(names.size()) == ways);
  std::vector<int64_t> shape = {size};
  if (is_one) shape.insert(shape.begin(), ways);
  for (size_t i = 0; i < names.size(); ++i) {
    float* to = plans ? nullptr : &shares[i * static_cast<size_t>(size)];
    INLAY_RETURN_IF_ERROR(Widen(names[i], shape, VectorKind::kScale, to));
  }
  std::vector<float> taps(2 * shares.size());
  const auto columns = static_cast<size_t>(size);
  for (size_t i = 0; i < shares.size(); ++i) {
    const size_t at = i / columns * 2 * columns + i % columns;
    taps[at] = shares[i];
    taps[at + columns] = 1.0f - shares[i];
  }
  return Constants(taps);
}

absl::StatusOr<const float*> WeightLoader::TurnedRows(
    const std::string& name, int64_t n, int64_t k,
    absl::Span<const int32_t> rows) {
  const bool plans = mode_ == Mode::kPlan;
  std::vector<float> values(plans ? 0 : static_cast<size_t>(n * k));
  INLAY_RETURN_IF_ERROR(WidenTable(name, n, k, values.data()));
  if (plans) return nullptr;
  std::vector<float> turned;
  turned.reserve(static_cast<size_t>(k) * rows.size());
  for (int64_t column = 0; column < k; ++column) {
    for (const int32_t row : rows) {
      turned.push_back(values[static_cast<size_t>(row * k + column)]);
    }
  }
  return Constants(turned);
}

absl::Status WeightLoader::WidenTable(const std::string& name, int64_t n,
                                      int64_t k, float* values) {
  const WeightInfo* info = files_.random ? nullptr : Lookup(name);
  const BlockCodec* codec =
      info == nullptr ? nullptr : FindBlockCodec(info->dtype);
  if (codec == nullptr) return Widen(name, {n, k}, VectorKind::kBias, values);
  INLAY_ASSIGN_OR_RETURN(info, Find(name, {n, k}));
  INLAY_RETURN_IF_ERROR(CheckOrder(name));
  Plan({name, info->shape, VectorKind::kBias, info});
  INLAY_RETURN_IF_ERROR(Count(static_cast<uint64_t>(n * k), info->bytes));
  if (mode_ == Mode::kPlan) return absl::OkStatus();
  Buffer staging;
  INLAY_ASSIGN_OR_RETURN(const std::byte* bytes, Bytes(*info, staging));
  const FormatInfo& format = GetFormatInfo(info->dtype);
  codec->decode(bytes, n * k / format.block_elements, values);
  return absl::OkStatus();
}

}  // namespace inlay
