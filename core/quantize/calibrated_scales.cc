// CalibratedLayers: the scales of inputs, by AWQ and by SmoothQuant.
#include <algorithm>
#include <cmath>
#include <optional>

#include "core/quantize/calibrated_layers.h"
#include "core/quantize/smooth_quant.h"
#include "kernels/cpu_float.h"
#include "kernels/quant/quant.h"
#include "memory/status.h"

namespace inlay {
namespace {

// Of a matrix, that AWQ's search looks at.
constexpr int64_t kSearchRows = 256;

// Inputs that come from one row must have one scale: `join` of what they have.
template <typename Join>
void JoinChannels(const LinearInput& linear, Join join,
                  std::vector<float>* values) {
  std::vector<float> of_row(static_cast<size_t>(
      linear.norm != nullptr ? linear.size() : linear.num_rows));
  for (int64_t i = 0; i < linear.size(); ++i) {
    float& row = of_row[static_cast<size_t>(linear.ChannelRow(i))];
    row = join(row, (*values)[static_cast<size_t>(i)]);
  }
  for (int64_t i = 0; i < linear.size(); ++i) {
    (*values)[static_cast<size_t>(i)] =
        of_row[static_cast<size_t>(linear.ChannelRow(i))];
  }
}

float Larger(float a, float b) { return std::max(a, b); }

}  // namespace

absl::StatusOr<RowReader> CalibratedLayers::ReadLayer(
    const LinearSpec& spec) const {
  const Tensor& tensor = *find_(spec.name + std::string(kWeightSuffix));
  return RowReader::Create(
      *weights_, *tensor.info,
      spec.transposed ? GgufLayout::kTransposed : GgufLayout::kSame, {},
      *stream_.thread_pool());
}

absl::StatusOr<AwqReader> CalibratedLayers::SampleRows(
    const LinearSpec& spec) const {
  INLAY_ASSIGN_OR_RETURN(RowReader reader, ReadLayer(spec));
  AwqReader sample;
  const Tensor& tensor = *find_(spec.name + std::string(kWeightSuffix));
  sample.codec = FindBlockCodec(tensor.to);
  sample.scheme = tensor.scheme;
  sample.rows = std::min(kSearchRows, reader.rows());
  const int64_t width = reader.row_elements();
  sample.weights.resize(static_cast<size_t>(sample.rows * width));
  for (int64_t i = 0; i < sample.rows; ++i) {
    INLAY_RETURN_IF_ERROR(reader.Read(i * reader.rows() / sample.rows, 1,
                                      sample.weights.data() + i * width));
  }
  return sample;
}

absl::Status CalibratedLayers::Scale(Input& input) {
  const LinearInput& linear = input.linear;
  if (linear.norm == nullptr && linear.producer == nullptr) {
    return absl::OkStatus();
  }
  // Columns that stay as they are cannot be multiplied.
  for (const LinearSpec* reader : linear.readers) {
    if (!IsQuantized(reader->name + std::string(kWeightSuffix))) {
      return absl::OkStatus();
    }
  }
  INLAY_RETURN_IF_ERROR(is(QuantizeMethod::kAwq) ? SearchScales(input)
                                                 : Smooth(input));
  return linear.norm != nullptr ? KeepToNorm(input) : absl::OkStatus();
}

absl::Status CalibratedLayers::SearchScales(Input& input) {
  std::vector<AwqReader> readers;
  for (const LinearSpec* reader : input.linear.readers) {
    INLAY_ASSIGN_OR_RETURN(readers.emplace_back(), SampleRows(*reader));
  }
  INLAY_RETURN_IF_ERROR(NeedFactor(input));
  JoinChannels(
      input.linear, [](float a, float b) { return a + b; }, &input.sizes);
  INLAY_ASSIGN_OR_RETURN(
      input.scales, SearchAwqScales(*input.factor, input.diagonal, input.sizes,
                                    readers, stream_));
  return absl::OkStatus();
}

absl::Status CalibratedLayers::Smooth(Input& input) {
  const int64_t width = input.linear.size();
  const int64_t band = std::max<int64_t>(1, kBandElements / width);
  std::vector<float> columns(static_cast<size_t>(width));
  std::vector<float> rows;
  for (const LinearSpec* layer : input.linear.readers) {
    INLAY_ASSIGN_OR_RETURN(RowReader reader, ReadLayer(*layer));
    for (int64_t first = 0; first < reader.rows(); first += band) {
      const int64_t count = std::min(band, reader.rows() - first);
      rows.resize(static_cast<size_t>(count * width));
      INLAY_RETURN_IF_ERROR(reader.Read(first, count, rows.data()));
      for (size_t i = 0; i < rows.size(); ++i) {
        float& column = columns[i % columns.size()];
        column = std::max(column, std::abs(rows[i]));
      }
    }
  }
  std::vector<float> inputs = input.largest;
  JoinChannels(input.linear, Larger, &inputs);
  JoinChannels(input.linear, Larger, &columns);
  input.scales = SmoothScales(inputs, columns, options_.smoothing);
  return absl::OkStatus();
}

// A norm of 16 bits rounds what it is divided by. That would be an error of
// every output; columns can have the scale that comes of it instead.
absl::Status CalibratedLayers::KeepToNorm(Input& input) {
  const NormSpec& norm = *input.linear.norm;
  const Tensor* tensor = find_(norm.name + std::string(kWeightSuffix));
  if (tensor == nullptr || tensor->to == DType::kF32) return absl::OkStatus();
  INLAY_ASSIGN_OR_RETURN(
      RowReader reader,
      RowReader::Create(*weights_, *tensor->info, GgufLayout::kSame, {},
                        *stream_.thread_pool()));
  std::vector<float> weights(input.scales.size());
  INLAY_RETURN_IF_ERROR(reader.Read(0, input.linear.size(), weights.data()));
  const float added = norm.kind == NormKind::kRmsZeroCentred ? 1.0f : 0.0f;
  for (size_t i = 0; i < weights.size(); ++i) {
    const float value = weights[i] + added;
    std::byte stored[sizeof(float)];
    StoreFloat(tensor->to, stored, 0, value / input.scales[i] - added);
    const float got = LoadFloat(tensor->to, stored, 0) + added;
    const float scale = value / got;
    if (scale > 0.0f && std::isfinite(scale)) input.scales[i] = scale;
  }
  return absl::OkStatus();
}

}  // namespace inlay
