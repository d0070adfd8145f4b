#include "core/formats/fp8_layer.h"

#include <utility>

#include "core/formats/row_major_layer.h"
#include "core/formats/stored_tensor.h"
#include "memory/status.h"

namespace inlay {
namespace {

WeightInfo WithoutGaps(const WeightInfo& scales) {
  WeightInfo flat = scales;
  const std::vector<int64_t>& shape = scales.shape;
  if (shape.size() == 4 && shape[1] == 1 && shape[3] == 1) {
    flat.shape = {shape[0], shape[2]};
  }
  return flat;
}

}  // namespace

absl::StatusOr<std::unique_ptr<const QuantizedLayer>> MakeFp8Layer(
    const std::shared_ptr<const WeightSource>& stored, const std::string& layer,
    const Fp8Scheme& scheme) {
  RowMajorTensors tensors;
  tensors.kind = CodeKind::kF8;
  tensors.input_codes = scheme.input_codes;
  INLAY_ASSIGN_OR_RETURN(tensors.codes, StoredMatrix(*stored, layer + ".weight",
                                                     {DType::kF8E4M3}));
  const int64_t n = tensors.codes->shape[0];
  const int64_t k = tensors.codes->shape[1];
  INLAY_RETURN_IF_ERROR(CheckLayerSize(layer, n, k));
  INLAY_ASSIGN_OR_RETURN(
      tensors.scales,
      StoredTensor(*stored, layer + scheme.scale,
                   scheme.may_be_exponents
                       ? absl::MakeConstSpan(kScaleOrExponentDTypes)
                       : absl::MakeConstSpan(kScaleDTypes)));
  tensors.grid = {scheme.grid.rows == 0 ? n : scheme.grid.rows,
                  scheme.grid.columns == 0 ? k : scheme.grid.columns};
  INLAY_RETURN_IF_ERROR(CheckGrid(
      scheme.scale_has_gaps ? WithoutGaps(*tensors.scales) : *tensors.scales,
      tensors.grid, n, k));
  INLAY_RETURN_IF_ERROR(CheckInputScale(*stored, layer));
  INLAY_ASSIGN_OR_RETURN(Grouping grouping,
                         ContiguousGroups(layer, k, tensors.grid.columns));
  return std::make_unique<RowMajorLayer>(layer, n, std::move(grouping), tensors,
                                         stored);
}

}  // namespace inlay
