// CalibratedLayers on the rows of one tensor.
#include <algorithm>

#include "core/quantize/calibrated_layers.h"
#include "kernels/quant/grid.h"
#include "memory/device/thread_pool.h"
#include "memory/status.h"

namespace inlay {
namespace {

// Of a band, that errors are reported of, or as many as are encoded as one.
constexpr int64_t kErrorRows = 32;

}  // namespace

void CalibratedLayers::Change(int64_t first, int64_t rows, float* values) {
  const int64_t width = reader_->row_elements();
  if (scaled_by_ != nullptr) {
    const LinearInput& linear = scaled_by_->linear;
    // Of the channels that come from a row all have the same scale.
    std::vector<float> of_row(static_cast<size_t>(
        linear.norm != nullptr ? linear.size() : linear.num_rows));
    for (int64_t i = 0; i < linear.size(); ++i) {
      of_row[static_cast<size_t>(linear.ChannelRow(i))] =
          scaled_by_->scales[static_cast<size_t>(i)];
    }
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t row = reader_->SourceRow(first + r) - linear.first_row;
      if (row < 0 || row >= static_cast<int64_t>(of_row.size())) continue;
      const float scale = of_row[static_cast<size_t>(row)];
      // The reader adds the 1 where the file is to have it.
      const bool lacks_one = place_.zero_centred && !reader_->adds_one();
      for (int64_t i = 0; i < width; ++i) {
        float& value = values[r * width + i];
        value = lacks_one ? (1.0f + value) / scale - 1.0f : value / scale;
      }
    }
  }
  if (columns_ == nullptr) return;
  for (int64_t i = 0; i < rows * width; ++i) {
    values[i] *= (*columns_)[static_cast<size_t>(i % width)];
  }
}

absl::Status CalibratedLayers::Encode(int64_t rows, const float* values,
                                      std::byte* encoded) {
  if (gptq_.has_value()) return gptq_->Encode(values, rows, encoded, stream_);
  if (to_nearest()) {
    return EncodeNearest(rows, values, encoded);
  }
  EncodeScaled(*codec_->grid, scheme_, values, rows, reads_->diagonal,
               ScalesOf(*reads_), *stream_.thread_pool(), encoded);
  return absl::OkStatus();
}

absl::Status CalibratedLayers::EncodeNearest(int64_t rows, const float* values,
                                             std::byte* encoded) {
  if (otherwise_ != nullptr) return otherwise_->Encode(rows, values, encoded);
  const int64_t width = reader_->row_elements();
  const FormatInfo& format = GetFormatInfo(codec_->dtype);
  const int64_t blocks = width / format.block_elements;
  stream_.thread_pool()->ParallelFor(rows, 1, [&](int64_t begin, int64_t end) {
    codec_->encode(values + begin * width, (end - begin) * blocks,
                   encoded + begin * blocks * format.block_bytes);
  });
  return absl::OkStatus();
}

void CalibratedLayers::Keep(int64_t first, int64_t rows,
                            const std::byte* encoded, const float* decoded) {
  const int64_t width = reader_->row_elements();
  if (!matrix_->blocks.empty()) {
    const auto bytes = static_cast<int64_t>(
        RowBytes(codec_->dtype, static_cast<size_t>(width)));
    for (int64_t r = 0; r < rows; ++r) {
      std::copy_n(
          encoded + r * bytes, bytes,
          matrix_->blocks.data() + reader_->SourceRow(first + r) * bytes);
    }
    return;
  }
  for (int64_t r = 0; r < rows; ++r) {
    const float factor = reader_->FactorOf(first + r);
    float* to = matrix_->values.data() + reader_->SourceRow(first + r) * width;
    for (int64_t i = 0; i < width; ++i) to[i] = decoded[r * width + i] / factor;
  }
}

absl::Status CalibratedLayers::Note(int64_t first, int64_t rows,
                                    const float* values,
                                    const std::byte* encoded,
                                    const float* decoded) {
  if (matrix_ != nullptr) Keep(first, rows, encoded, decoded);
  return AddErrors(std::min(rows, std::max(kErrorRows, rows_together())),
                   values, decoded);
}

absl::Status CalibratedLayers::AddErrors(int64_t rows, const float* values,
                                         const float* decoded) {
  const int64_t width = reader_->row_elements();
  const auto unscaled = [&](const float* from) {
    std::vector<float> to(from, from + rows * width);
    for (size_t i = 0; columns_ != nullptr && i < to.size(); ++i) {
      to[i] /= (*columns_)[i % columns_->size()];
    }
    return to;
  };
  const std::vector<float> want = unscaled(values);
  const std::vector<float> got = unscaled(decoded);
  std::vector<std::byte> encoded(static_cast<size_t>(rows) *
                                 RowBytes(codec_->dtype, width));
  INLAY_RETURN_IF_ERROR(EncodeNearest(rows, want.data(), encoded.data()));
  std::vector<float> nearest(want.size());
  codec_->decode(encoded.data(),
                 rows * width / GetFormatInfo(codec_->dtype).block_elements,
                 nearest.data());
  OutputEnergy energy = reads_->factor.has_value()
                            ? OutputEnergy(&*reads_->factor)
                            : OutputEnergy(&reads_->diagonal);
  INLAY_ASSIGN_OR_RETURN(const double outputs,
                         energy.Of(want.data(), nullptr, rows, stream_));
  INLAY_ASSIGN_OR_RETURN(const double error,
                         energy.Of(got.data(), want.data(), rows, stream_));
  INLAY_ASSIGN_OR_RETURN(const double of_nearest,
                         energy.Of(nearest.data(), want.data(), rows, stream_));
  sums_.outputs += outputs;
  sums_.errors += error;
  sums_.nearest_errors += of_nearest;
  return absl::OkStatus();
}

}  // namespace inlay
