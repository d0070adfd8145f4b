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
// The same where many experts have matrices of one input, and of each at least.
constexpr int64_t kSearchAllRows = 4096;
constexpr int64_t kSearchLeastRows = 16;

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

int64_t CalibratedLayers::SampledRows(size_t layers) {
  return std::clamp(kSearchAllRows / static_cast<int64_t>(layers),
                    kSearchLeastRows, kSearchRows);
}

absl::StatusOr<AwqReader> CalibratedLayers::SampleRows(const LinearSpec& spec,
                                                       int64_t most) const {
  INLAY_ASSIGN_OR_RETURN(RowReader reader, ReadLayer(spec));
  AwqReader sample;
  const Tensor& tensor = *find_(spec.name + std::string(kWeightSuffix));
  sample.codec = FindBlockCodec(tensor.to);
  sample.scheme = tensor.scheme;
  sample.rows = std::min(most, reader.rows());
  const int64_t width = reader.row_elements();
  sample.weights.resize(static_cast<size_t>(sample.rows * width));
  for (int64_t i = 0; i < sample.rows; ++i) {
    INLAY_RETURN_IF_ERROR(reader.Read(i * reader.rows() / sample.rows, 1,
                                      sample.weights.data() + i * width));
  }
  return sample;
}

bool CalibratedLayers::CanScale(const Input& input) const {
  const LinearInput& linear = input.linear;
  // Of rows of a common input the scales are that input's.
  if (linear.common >= 0) return false;
  if (linear.norm != nullptr) {
    if (linear.norm->name.empty()) return false;
  } else if (linear.producer == nullptr) {
    return false;
  } else {
    const Tensor* producer =
        find_(linear.producer->name + std::string(kWeightSuffix));
    if (producer == nullptr || !producer->by_rows) return false;
  }
  // Columns that stay as they are cannot be multiplied.
  const auto readers = ReadersOf(input);
  return std::all_of(readers.begin(), readers.end(), [&](const auto* reader) {
    return IsQuantized(reader->name + std::string(kWeightSuffix));
  });
}

absl::Status CalibratedLayers::Scale(Input& input) {
  INLAY_RETURN_IF_ERROR(is(QuantizeMethod::kAwq) ? SearchScales(input)
                                                 : Smooth(input));
  // Those of all are not needed at once.
  if (MayWait(input)) {
    input.hessian.reset();
    input.factor.reset();
  }
  return input.linear.norm != nullptr ? KeepToNorm(input) : absl::OkStatus();
}

absl::Status CalibratedLayers::SearchScales(Input& input) {
  std::vector<AwqReader> samples;
  const auto readers = ReadersOf(input);
  const int64_t each = SampledRows(readers.size());
  for (const LinearSpec* reader : readers) {
    INLAY_ASSIGN_OR_RETURN(samples.emplace_back(), SampleRows(*reader, each));
  }
  INLAY_RETURN_IF_ERROR(NeedFactor(input));
  JoinChannels(
      input.linear, [](float a, float b) { return a + b; }, &input.sizes);
  INLAY_ASSIGN_OR_RETURN(
      input.scales,
      SearchAwqScales(*input.factor, input.diagonal, input.sizes, samples,
                      !input.linear.kept.empty(), stream_));
  return absl::OkStatus();
}

absl::Status CalibratedLayers::Smooth(Input& input) {
  const int64_t width = input.linear.size();
  const int64_t band = std::max<int64_t>(1, kBandElements / width);
  std::vector<float> columns(static_cast<size_t>(width));
  std::vector<float> rows;
  for (const LinearSpec* layer : ReadersOf(input)) {
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
  if (!input.linear.kept.empty()) RoundToPowersOfTwo(&input.scales);
  return absl::OkStatus();
}

// A norm of 16 bits rounds what it is divided by. That would be an error of
// every output; columns can have the scale that comes of it instead.
absl::Status CalibratedLayers::KeepToNorm(Input& input) {
  const NormSpec& norm = *input.linear.norm;
  const Tensor* tensor = find_(norm.name + std::string(norm.suffix));
  if (tensor == nullptr || tensor->to == DType::kF32) return absl::OkStatus();
  INLAY_ASSIGN_OR_RETURN(
      RowReader reader,
      RowReader::Create(*weights_, *tensor->info, GgufLayout::kSame, {},
                        *stream_.thread_pool()));
  std::vector<float> weights(input.scales.size());
  INLAY_RETURN_IF_ERROR(reader.Read(0, input.linear.size(), weights.data()));
  const float added = IsZeroCentred(norm.kind) ? 1.0f : 0.0f;
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
