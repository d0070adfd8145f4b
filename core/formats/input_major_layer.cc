#include "core/formats/input_major_layer.h"

#include <utility>
#include <vector>

#include "core/formats/describe.h"
#include "core/formats/stored_tensor.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {

InputMajorLayer::InputMajorLayer(const std::string& layer, Grouping grouping,
                                 const InputMajorTensors& tensors,
                                 const ZeroPacking& packing,
                                 std::shared_ptr<const WeightSource> stored)
    : QuantizedLayer(layer, packing.bits == 4 ? CodeKind::kU4 : CodeKind::kI8,
                     tensors.scales->shape[1], std::move(grouping)),
      tensors_(tensors),
      packing_(packing),
      stored_(std::move(stored)) {}

absl::Status InputMajorLayer::Load(Band& band) const {
  const int64_t groups = grouping().groups;
  std::vector<float> scales(band.scales.size());
  INLAY_RETURN_IF_ERROR(ReadFloats(*stored_, *tensors_.scales, 0, groups,
                                   band.first, band.rows, scales.data()));
  const int fields = 32 / packing_.bits;
  const int64_t first_word = band.first / fields;
  const int64_t words = (band.first + band.rows - 1) / fields + 1 - first_word;
  std::vector<std::byte> zeros(static_cast<size_t>(groups * words * 4));
  INLAY_RETURN_IF_ERROR(ReadStrip(*stored_, *tensors_.zeros, 0, groups,
                                  first_word * 4, words * 4, zeros.data()));
  const uint32_t mask = packing_.bits == 4 ? 0xf : 0xff;
  // int8 codes are the stored ones less 128.
  const int32_t offset = packing_.bits == 4 ? 0 : 128;
  for (int64_t row = 0; row < band.rows; ++row) {
    const int64_t output = band.first + row;
    const int64_t at = output / fields - first_word;
    const int shift =
        packing_.bits * packing_.field_of[static_cast<size_t>(output % fields)];
    for (int64_t group = 0; group < groups; ++group) {
      const auto to = static_cast<size_t>(row * groups + group);
      band.scales[to] = scales[static_cast<size_t>(group * band.rows + row)];
      const uint32_t word =
          LoadWord(zeros.data(), group * words + at) + packing_.addend;
      band.zeros[to] = static_cast<int32_t>(word >> shift & mask) - offset;
    }
  }
  return LoadCodes(band);
}

absl::StatusOr<InputMajorTensors> FindInputMajorTensors(
    const WeightSource& stored, const std::string& layer,
    const WeightInfo* codes, int64_t n, int64_t groups, int bits) {
  const int fields = 32 / bits;
  if (n % fields != 0) {
    return absl::InvalidArgumentError(FormattedString(
        "layer %s has %d outputs; with packed zero points it must be a "
        "multiple of %d",
        Quoted(layer), n, fields));
  }
  InputMajorTensors tensors;
  tensors.codes = codes;
  INLAY_ASSIGN_OR_RETURN(tensors.scales,
                         StoredMatrix(stored, layer + ".scales", kScaleDTypes));
  INLAY_RETURN_IF_ERROR(CheckShape(*tensors.scales, {groups, n}));
  INLAY_ASSIGN_OR_RETURN(
      tensors.zeros, StoredMatrix(stored, layer + ".qzeros", {DType::kI32}));
  INLAY_RETURN_IF_ERROR(CheckShape(*tensors.zeros, {groups, n / fields}));
  return tensors;
}

}  // namespace inlay
