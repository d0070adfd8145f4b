#include "core/formats/row_major_layer.h"

#include <cstring>
#include <utility>
#include <vector>

#include "core/formats/describe.h"
#include "core/formats/stored_tensor.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

int64_t Cells(int64_t size, int64_t cell) { return (size - 1) / cell + 1; }

// A matrix [rows, columns] over the same bytes, whatever the shape was.
WeightInfo AsGrid(const WeightInfo& tensor, int64_t columns) {
  WeightInfo grid = tensor;
  const auto elements =
      static_cast<int64_t>(tensor.bytes / RowBytes(tensor.dtype, 1));
  grid.shape = {elements / columns, columns};
  return grid;
}

}  // namespace

absl::Status CheckGrid(const WeightInfo& tensor, const ScaleGrid& grid,
                       int64_t n, int64_t k) {
  const int64_t rows = Cells(n, grid.rows);
  const int64_t columns = Cells(k, grid.columns);
  const absl::Span<const int64_t> shape = tensor.shape;
  const bool one = rows == 1 && columns == 1;
  if ((one && shape.empty()) ||
      (columns == 1 && shape == absl::Span<const int64_t>({rows}))) {
    return absl::OkStatus();
  }
  return CheckShape(tensor, {rows, columns});
}

RowMajorLayer::RowMajorLayer(const std::string& layer, int64_t n,
                             Grouping grouping, const RowMajorTensors& tensors,
                             std::shared_ptr<const WeightSource> stored)
    : QuantizedLayer(layer, tensors.kind, n, std::move(grouping)),
      tensors_(tensors),
      stored_(std::move(stored)) {
  set_input_codes(tensors.input_codes);
}

absl::Status RowMajorLayer::LoadCodes(Band& band) const {
  const int64_t k = grouping().k;
  const WeightInfo& codes = *tensors_.codes;
  auto* const bytes = reinterpret_cast<std::byte*>(band.codes.data());
  if (codes.dtype != DType::kI32) {
    INLAY_RETURN_IF_ERROR(
        ReadStrip(*stored_, codes, band.first, band.rows, 0, k, bytes));
    return tensors_.kind == CodeKind::kU4 ? CentreNibbles(band)
                                          : absl::OkStatus();
  }
  // k is a multiple of the fields: blocks are.
  const int64_t words = k / fields();
  std::vector<std::byte> packed(static_cast<size_t>(band.rows * words * 4));
  INLAY_RETURN_IF_ERROR(ReadStrip(*stored_, codes, band.first, band.rows, 0,
                                  words * 4, packed.data()));
  for (int64_t i = 0; i < band.rows * words; ++i) {
    const uint32_t word = LoadWord(packed.data(), i);
    if (tensors_.kind == CodeKind::kU4) {
      const uint64_t spread = SpreadNibbles(word);
      std::memcpy(bytes + i * 8, &spread, sizeof(spread));
    } else {
      const uint32_t centred = word ^ 0x80808080u;
      std::memcpy(bytes + i * 4, &centred, sizeof(centred));
    }
  }
  return absl::OkStatus();
}

absl::Status RowMajorLayer::CentreNibbles(Band& band) const {
  for (uint8_t& code : band.codes) {
    const auto stored = static_cast<int8_t>(code);
    code += 8;
    if (code < 16) continue;
    return absl::InvalidArgumentError(FormattedString(
        "tensor %s has code %d; allowed are those of four bits, -8 to 7",
        Quoted(tensors_.codes->name), int{stored}));
  }
  return absl::OkStatus();
}

absl::Status RowMajorLayer::LoadScales(Band& band) const {
  const int64_t groups = grouping().groups;
  const int64_t first = band.first / tensors_.grid.rows;
  const int64_t rows =
      (band.first + band.rows - 1) / tensors_.grid.rows + 1 - first;
  std::vector<float> cells(static_cast<size_t>(rows * groups));
  INLAY_RETURN_IF_ERROR(ReadScales(*stored_, AsGrid(*tensors_.scales, groups),
                                   first, rows, 0, groups, cells.data()));
  for (float& cell : cells) cell /= tensors_.scale_divisor;
  for (int64_t row = 0; row < band.rows; ++row) {
    const int64_t cell = (band.first + row) / tensors_.grid.rows - first;
    std::memcpy(band.scales.data() + row * groups, cells.data() + cell * groups,
                static_cast<size_t>(groups) * sizeof(float));
  }
  return absl::OkStatus();
}

absl::Status RowMajorLayer::LoadZeros(Band& band) const {
  const int64_t groups = grouping().groups;
  const bool nibbles = tensors_.kind == CodeKind::kU4;
  if (tensors_.zeros == nullptr) {
    std::fill(band.zeros.begin(), band.zeros.end(), nibbles ? 8 : 0);
    return absl::OkStatus();
  }
  const bool packed = tensors_.zeros->dtype == DType::kI32;
  const int64_t outputs = packed ? fields() : tensors_.grid.rows;
  const int64_t first = band.first / outputs;
  const int64_t rows = (band.first + band.rows - 1) / outputs + 1 - first;
  const int64_t size = packed ? 4 : 1;
  std::vector<std::byte> cells(static_cast<size_t>(rows * groups * size));
  INLAY_RETURN_IF_ERROR(ReadStrip(*stored_, AsGrid(*tensors_.zeros, groups),
                                  first, rows, 0, groups * size, cells.data()));
  const int bits = nibbles ? 4 : 8;
  for (int64_t row = 0; row < band.rows; ++row) {
    const int64_t output = band.first + row;
    for (int64_t group = 0; group < groups; ++group) {
      const int64_t cell = (output / outputs - first) * groups + group;
      int32_t& zero = band.zeros[static_cast<size_t>(row * groups + group)];
      if (packed) {
        const uint32_t field =
            LoadWord(cells.data(), cell) >> bits * (output % outputs) &
            ((1u << bits) - 1);
        zero = static_cast<int32_t>(field) - (nibbles ? 0 : 128);
      } else {
        // The codes' 8 is added here.
        zero = static_cast<int8_t>(cells[static_cast<size_t>(cell)]) +
               (nibbles ? 8 : 0);
      }
    }
  }
  return absl::OkStatus();
}

absl::Status RowMajorLayer::Load(Band& band) const {
  INLAY_RETURN_IF_ERROR(LoadCodes(band));
  INLAY_RETURN_IF_ERROR(LoadScales(band));
  return tensors_.kind == CodeKind::kF8 ? absl::OkStatus() : LoadZeros(band);
}

}  // namespace inlay
