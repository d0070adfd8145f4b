#include "core/formats/stored_tensor.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_join.h"
#include "core/formats/describe.h"
#include "memory/dtype.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

std::string ShapeText(absl::Span<const int64_t> shape) {
  return FormattedString("[%s]", absl::StrJoin(shape, ", "));
}

std::string DTypeNames(absl::Span<const DType> dtypes) {
  return absl::StrJoin(dtypes, ", ", [](std::string* out, DType dtype) {
    out->append(DTypeName(dtype));
  });
}

float FloatAt(const std::byte* data, DType dtype, int64_t i) {
  if (dtype == DType::kF32) {
    float value;
    std::memcpy(&value, data + i * 4, sizeof(value));
    return value;
  }
  uint16_t bits;
  std::memcpy(&bits, data + i * 2, sizeof(bits));
  return dtype == DType::kBF16 ? BF16ToF32(bits) : F16ToF32(bits);
}

}  // namespace

std::vector<std::string> LayersWith(const WeightSource& stored,
                                    std::string_view suffix) {
  std::vector<std::string> layers;
  for (const WeightInfo& info : stored.weights()) {
    if (!info.name.ends_with(suffix)) continue;
    layers.push_back(info.name.substr(0, info.name.size() - suffix.size()));
  }
  return layers;
}

absl::StatusOr<const WeightInfo*> StoredTensor(const WeightSource& stored,
                                               const std::string& name,
                                               absl::Span<const DType> dtypes) {
  const WeightInfo* info = stored.Find(name);
  if (info == nullptr) {
    return absl::NotFoundError(FormattedString(
        "tensor %s is missing; its layer is quantised", Quoted(name)));
  }
  if (std::find(dtypes.begin(), dtypes.end(), info->dtype) == dtypes.end()) {
    return absl::InvalidArgumentError(
        FormattedString("tensor %s is %s; allowed: %s", Quoted(name),
                        DTypeName(info->dtype), DTypeNames(dtypes)));
  }
  for (const int64_t dim : info->shape) {
    if (dim > 0) continue;
    return absl::InvalidArgumentError(
        FormattedString("tensor %s has shape %s; no dimension may be 0",
                        Quoted(name), ShapeText(info->shape)));
  }
  return info;
}

absl::StatusOr<const WeightInfo*> StoredMatrix(const WeightSource& stored,
                                               const std::string& name,
                                               absl::Span<const DType> dtypes) {
  INLAY_ASSIGN_OR_RETURN(const WeightInfo* info,
                         StoredTensor(stored, name, dtypes));
  if (info->shape.size() != 2) {
    return absl::InvalidArgumentError(
        FormattedString("tensor %s has shape %s; it must have two dimensions",
                        Quoted(name), ShapeText(info->shape)));
  }
  return info;
}

absl::Status CheckShape(const WeightInfo& tensor,
                        absl::Span<const int64_t> wanted) {
  if (absl::MakeConstSpan(tensor.shape) == wanted) return absl::OkStatus();
  return absl::InvalidArgumentError(FormattedString(
      "tensor %s has shape %s; its layer and config.json ask for %s",
      Quoted(tensor.name), ShapeText(tensor.shape), ShapeText(wanted)));
}

absl::Status CheckLayerSize(const std::string& layer, int64_t n, int64_t k) {
  if (k >= 1 && k <= kMaxQuantizedColumns && n >= 1 &&
      n <= kMaxQuantizedOutputs) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(FormattedString(
      "layer %s has %d outputs of %d columns; allowed: 1 to %d of 1 to %d",
      Quoted(layer), n, k, kMaxQuantizedOutputs, kMaxQuantizedColumns));
}

absl::Status CheckInputScale(const WeightSource& stored,
                             const std::string& layer) {
  const std::string name = layer + ".input_scale";
  if (stored.Find(name) == nullptr) return absl::OkStatus();
  INLAY_ASSIGN_OR_RETURN(const WeightInfo* info,
                         StoredTensor(stored, name, kScaleDTypes));
  if (info->shape.empty() ||
      absl::MakeConstSpan(info->shape) == absl::Span<const int64_t>({1})) {
    return absl::OkStatus();
  }
  return CheckShape(*info, {1});
}

absl::Status ReadStrip(const WeightSource& stored, const WeightInfo& matrix,
                       int64_t first, int64_t rows, int64_t begin,
                       int64_t width, std::byte* dst) {
  if (rows == 0 || width == 0) return absl::OkStatus();
  const int64_t pitch =
      static_cast<int64_t>(matrix.bytes) / matrix.shape.front();
  const bool whole = begin == 0 && width == pitch;
  const int64_t pieces = whole ? 1 : rows;
  const auto bytes = static_cast<size_t>(whole ? rows * width : width);
  const std::byte* const mapped = stored.Mapped(matrix);
  for (int64_t i = 0; i < pieces; ++i) {
    const int64_t offset = (first + i) * pitch + begin;
    std::byte* const to = dst + i * width;
    if (mapped != nullptr) {
      std::memcpy(to, mapped + offset, bytes);
    } else {
      INLAY_RETURN_IF_ERROR(stored.Read(matrix, static_cast<uint64_t>(offset),
                                        absl::MakeSpan(to, bytes)));
    }
  }
  return absl::OkStatus();
}

absl::Status ReadFloats(const WeightSource& stored, const WeightInfo& matrix,
                        int64_t first, int64_t rows, int64_t begin,
                        int64_t columns, float* dst) {
  const auto size = static_cast<int64_t>(RowBytes(matrix.dtype, 1));
  std::vector<std::byte> bytes(static_cast<size_t>(rows * columns * size));
  INLAY_RETURN_IF_ERROR(ReadStrip(stored, matrix, first, rows, begin * size,
                                  columns * size, bytes.data()));
  for (int64_t i = 0; i < rows * columns; ++i) {
    dst[i] = FloatAt(bytes.data(), matrix.dtype, i);
  }
  return absl::OkStatus();
}

absl::Status ReadScales(const WeightSource& stored, const WeightInfo& matrix,
                        int64_t first, int64_t rows, int64_t begin,
                        int64_t columns, float* dst) {
  if (matrix.dtype != DType::kU8) {
    return ReadFloats(stored, matrix, first, rows, begin, columns, dst);
  }
  constexpr int kBias = 127;
  constexpr uint8_t kNan = 255;
  std::vector<std::byte> bytes(static_cast<size_t>(rows * columns));
  INLAY_RETURN_IF_ERROR(
      ReadStrip(stored, matrix, first, rows, begin, columns, bytes.data()));
  for (const std::byte byte : bytes) {
    const auto exponent = static_cast<uint8_t>(byte);
    *dst++ = exponent == kNan ? std::numeric_limits<float>::quiet_NaN()
                              : std::ldexp(1.0f, exponent - kBias);
  }
  return absl::OkStatus();
}

absl::Status CheckFiniteScales(const WeightSource& stored,
                               const WeightInfo& tensor) {
  constexpr int64_t kAtOnce = int64_t{1} << 18;
  WeightInfo flat = tensor;
  flat.shape = {static_cast<int64_t>(tensor.bytes / RowBytes(tensor.dtype, 1)),
                1};
  std::vector<float> values;
  for (int64_t first = 0; first < flat.shape[0]; first += kAtOnce) {
    const int64_t count = std::min(kAtOnce, flat.shape[0] - first);
    values.resize(static_cast<size_t>(count));
    INLAY_RETURN_IF_ERROR(
        ReadFloats(stored, flat, first, count, 0, 1, values.data()));
    for (const float value : values) {
      if (std::isfinite(value)) continue;
      return absl::InvalidArgumentError(
          FormattedString("tensor %s holds %g; scales must be finite",
                          Quoted(tensor.name), value));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<int32_t>> ReadInts(const WeightSource& stored,
                                              const WeightInfo& tensor) {
  std::vector<int32_t> values(tensor.bytes / sizeof(int32_t));
  INLAY_RETURN_IF_ERROR(
      stored.Read(tensor, 0,
                  absl::MakeSpan(reinterpret_cast<std::byte*>(values.data()),
                                 values.size() * sizeof(int32_t))));
  return values;
}

}  // namespace inlay
