#include "core/formats/torchao_layer.h"

#include <utility>
#include <vector>

#include "core/formats/describe.h"
#include "core/formats/stored_tensor.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

struct Int4Tensors {
  const WeightInfo* codes = nullptr;
  const WeightInfo* scales = nullptr;
  const WeightInfo* zeros = nullptr;
};

class Int4Layer final : public QuantizedLayer {
 public:
  Int4Layer(const std::string& layer, Grouping grouping,
            const Int4Tensors& tensors,
            std::shared_ptr<const WeightSource> stored)
      : QuantizedLayer(layer, CodeKind::kU4, tensors.codes->shape[0],
                       std::move(grouping)),
        tensors_(tensors),
        stored_(std::move(stored)) {}

 private:
  // Blocks' codes have no sign: they are 8 more, and stand for the same.
  absl::Status Load(Band& band) const override {
    constexpr float kMore = 8.0f;
    INLAY_RETURN_IF_ERROR(LoadNibbles(*stored_, *tensors_.codes, band));
    for (uint8_t& code : band.codes) code ^= 8;
    INLAY_RETURN_IF_ERROR(LoadTurned(*tensors_.scales, band, &band.scales));
    band.mins.resize(band.scales.size());
    INLAY_RETURN_IF_ERROR(LoadTurned(*tensors_.zeros, band, &band.mins));
    for (size_t i = 0; i < band.mins.size(); ++i) {
      band.mins[i] -= kMore * band.scales[i];
    }
    return absl::OkStatus();
  }

  // The band's rows of a tensor [groups, n].
  absl::Status LoadTurned(const WeightInfo& tensor, const Band& band,
                          std::vector<float>* values) const {
    const int64_t groups = grouping().groups;
    std::vector<float> turned(static_cast<size_t>(groups * band.rows));
    INLAY_RETURN_IF_ERROR(ReadFloats(*stored_, tensor, 0, groups, band.first,
                                     band.rows, turned.data()));
    for (int64_t group = 0; group < groups; ++group) {
      for (int64_t row = 0; row < band.rows; ++row) {
        (*values)[static_cast<size_t>(row * groups + group)] =
            turned[static_cast<size_t>(group * band.rows + row)];
      }
    }
    return absl::OkStatus();
  }

  Int4Tensors tensors_;
  std::shared_ptr<const WeightSource> stored_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<const QuantizedLayer>> MakeTorchAoInt4Layer(
    const std::shared_ptr<const WeightSource>& stored, const std::string& layer,
    const TorchAoNames& names) {
  Int4Tensors tensors;
  INLAY_ASSIGN_OR_RETURN(tensors.codes, StoredMatrix(*stored, names.codes,
                                                     {DType::kI8, DType::kU8}));
  const int64_t n = tensors.codes->shape[0];
  const int64_t k = FieldsIn(tensors.codes->shape[1], 2);
  INLAY_RETURN_IF_ERROR(CheckLayerSize(layer, n, k));
  INLAY_ASSIGN_OR_RETURN(tensors.scales,
                         StoredMatrix(*stored, names.scales, kScaleDTypes));
  INLAY_ASSIGN_OR_RETURN(tensors.zeros,
                         StoredMatrix(*stored, names.zeros, kScaleDTypes));
  const int64_t groups = tensors.scales->shape[0];
  if (k % groups != 0) {
    return absl::InvalidArgumentError(FormattedString(
        "tensor %s has scales of %d groups; k = %d must be a multiple of that",
        Quoted(names.scales), groups, k));
  }
  INLAY_RETURN_IF_ERROR(CheckShape(*tensors.scales, {groups, n}));
  INLAY_RETURN_IF_ERROR(CheckShape(*tensors.zeros, {groups, n}));
  INLAY_ASSIGN_OR_RETURN(Grouping grouping,
                         ContiguousGroups(layer, k, k / groups));
  return std::make_unique<Int4Layer>(layer, std::move(grouping), tensors,
                                     stored);
}

}  // namespace inlay
