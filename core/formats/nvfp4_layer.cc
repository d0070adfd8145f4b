#include "core/formats/nvfp4_layer.h"

#include <cmath>
#include <utility>
#include <vector>

#include "core/formats/describe.h"
#include "core/formats/stored_tensor.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

constexpr int64_t kNvfp4Group = 16;
constexpr int64_t kNvfp4Block = 64;

struct Nvfp4Tensors {
  const WeightInfo* codes = nullptr;   // u8 [n, k / 2]
  const WeightInfo* scales = nullptr;  // e4m3 [n, k / 16]
};

Grouping Nvfp4Grouping(int64_t k) {
  Grouping grouping;
  grouping.k = k;
  grouping.groups = k / kNvfp4Group;
  grouping.group_size = kNvfp4Group;
  grouping.block = kNvfp4Block;
  return grouping;
}

class Nvfp4Layer final : public QuantizedLayer {
 public:
  Nvfp4Layer(const std::string& layer, const Nvfp4Tensors& tensors,
             float factor, std::shared_ptr<const WeightSource> stored)
      : QuantizedLayer(layer, CodeKind::kNvfp4, tensors.codes->shape[0],
                       Nvfp4Grouping(2 * tensors.codes->shape[1])),
        tensors_(tensors),
        stored_(std::move(stored)) {
    set_factor(factor);
  }

 private:
  absl::Status Load(Band& band) const override {
    INLAY_RETURN_IF_ERROR(LoadNibbles(*stored_, *tensors_.codes, band));
    return ReadStrip(*stored_, *tensors_.scales, band.first, band.rows, 0,
                     grouping().groups,
                     reinterpret_cast<std::byte*>(band.scale_codes.data()));
  }

  Nvfp4Tensors tensors_;
  std::shared_ptr<const WeightSource> stored_;
};

absl::StatusOr<float> ReadFactor(const WeightSource& stored,
                                 const std::string& name, bool divides) {
  INLAY_ASSIGN_OR_RETURN(const WeightInfo* info,
                         StoredTensor(stored, name, {DType::kF32}));
  if (!info->shape.empty()) INLAY_RETURN_IF_ERROR(CheckShape(*info, {1}));
  float value = 0.0f;
  INLAY_RETURN_IF_ERROR(stored.Read(
      *info, 0,
      absl::MakeSpan(reinterpret_cast<std::byte*>(&value), sizeof(value))));
  const float factor = divides ? 1.0f / value : value;
  if (std::isfinite(value) && std::isfinite(factor) &&
      (!divides || value > 0.0f)) {
    return factor;
  }
  return absl::InvalidArgumentError(FormattedString(
      "tensor %s holds %g; it must be finite%s", Quoted(name), value,
      divides ? ", as its inverse, and more than 0" : ""));
}

}  // namespace

absl::StatusOr<std::unique_ptr<const QuantizedLayer>> MakeNvfp4Layer(
    const std::shared_ptr<const WeightSource>& stored, const std::string& layer,
    const Nvfp4Names& names) {
  Nvfp4Tensors tensors;
  INLAY_ASSIGN_OR_RETURN(
      tensors.codes, StoredMatrix(*stored, layer + names.codes, {DType::kU8}));
  const int64_t n = tensors.codes->shape[0];
  const int64_t k = FieldsIn(tensors.codes->shape[1], 2);
  INLAY_RETURN_IF_ERROR(CheckLayerSize(layer, n, k));
  if (k % kNvfp4Block != 0) {
    return absl::UnimplementedError(FormattedString(
        "layer %s has k = %d columns in NVFP4; supported are multiples of %d",
        Quoted(layer), k, kNvfp4Block));
  }
  INLAY_ASSIGN_OR_RETURN(
      tensors.scales,
      StoredMatrix(*stored, layer + names.scales, {DType::kF8E4M3}));
  INLAY_RETURN_IF_ERROR(CheckShape(*tensors.scales, {n, k / kNvfp4Group}));
  INLAY_ASSIGN_OR_RETURN(
      const float factor,
      ReadFactor(*stored, layer + names.factor, names.factor_divides));
  return std::make_unique<Nvfp4Layer>(layer, tensors, factor, stored);
}

}  // namespace inlay
