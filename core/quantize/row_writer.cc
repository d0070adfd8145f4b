#include "core/quantize/row_writer.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "kernels/cpu_float.h"
#include "kernels/quant/quant.h"
#include "memory/status.h"

namespace inlay {
namespace {

constexpr int64_t kEncodeGrain = 4096;

void EncodeRow(const BlockCodec* codec, DType to, const float* values,
               int64_t count, bool is_encoded, std::byte* encoded,
               float* decoded) {
  if (codec == nullptr) {
    for (int64_t i = 0; i < count; ++i) {
      StoreFloat(to, encoded, i, values[i]);
      decoded[i] = LoadFloat(to, encoded, i);
    }
    return;
  }
  const int64_t blocks = count / GetFormatInfo(to).block_elements;
  if (!is_encoded) codec->encode(values, blocks, encoded);
  codec->decode(encoded, blocks, decoded);
}

}  // namespace

void RowWriter::Encode(int64_t rows, int64_t row_elements, DType to,
                       bool encoded) {
  const BlockCodec* codec = FindBlockCodec(to);
  const uint64_t row_bytes = RowBytes(to, row_elements);
  const int64_t grain = std::max<int64_t>(1, kEncodeGrain / row_elements);
  pool_.ParallelFor(rows, grain, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const float* values = values_.data() + row * row_elements;
      float* decoded = decoded_.data() + row * row_elements;
      EncodeRow(codec, to, values, row_elements, encoded,
                encoded_.data() + static_cast<uint64_t>(row) * row_bytes,
                decoded);
      double difference = 0.0, norm = 0.0;
      for (int64_t i = 0; i < row_elements; ++i) {
        const double value = values[i];
        const double off = value - decoded[i];
        difference += off * off;
        norm += value * value;
      }
      differences_[static_cast<size_t>(row)] = difference;
      norms_[static_cast<size_t>(row)] = norm;
    }
  });
}

absl::Status RowWriter::EncodeBand(int64_t first, int64_t rows,
                                   int64_t row_elements, DType to,
                                   RowMethod* method) {
  const bool by_method = method != nullptr && method->encodes();
  if (method != nullptr) method->Change(first, rows, values_.data());
  if (by_method) {
    INLAY_RETURN_IF_ERROR(
        method->Encode(rows, values_.data(), encoded_.data()));
  }
  Encode(rows, row_elements, to, by_method);
  if (!by_method) return absl::OkStatus();
  return method->Note(first, rows, values_.data(), encoded_.data(),
                      decoded_.data());
}

absl::Status RowWriter::TellLargest(RowReader& reader, RowMethod* method) {
  const int64_t width = reader.row_elements();
  const int64_t band = std::max<int64_t>(1, kBandElements / width);
  float largest = 0.0f;
  for (int64_t first = 0; first < reader.rows(); first += band) {
    const int64_t rows = std::min(band, reader.rows() - first);
    values_.resize(static_cast<size_t>(rows * width));
    INLAY_RETURN_IF_ERROR(reader.Read(first, rows, values_.data()));
    method->Change(first, rows, values_.data());
    for (const float value : values_) {
      largest = std::max(largest, std::abs(value));
    }
  }
  method->SetLargest(largest);
  return absl::OkStatus();
}

absl::Status RowWriter::Write(RowReader& reader, DType from, DType to,
                              RowMethod* method, RowErrors* errors) {
  const int64_t width = reader.row_elements();
  const int64_t band = std::max<int64_t>(1, kBandElements / width);
  const uint64_t row_bytes = RowBytes(to, width);
  const bool copies =
      from == to && reader.rows_are_stored() && method == nullptr;
  if (method != nullptr && method->wants_largest()) {
    INLAY_RETURN_IF_ERROR(TellLargest(reader, method));
  }
  for (int64_t first = 0; first < reader.rows(); first += band) {
    const int64_t rows = std::min(band, reader.rows() - first);
    encoded_.resize(static_cast<uint64_t>(rows) * row_bytes);
    if (copies) {
      INLAY_RETURN_IF_ERROR(reader.ReadStored(first, rows, encoded_.data()));
    } else {
      // All memory is taken here: threads of the pool must not fail.
      values_.resize(static_cast<size_t>(rows * width));
      decoded_.resize(values_.size());
      differences_.resize(static_cast<size_t>(rows));
      norms_.resize(static_cast<size_t>(rows));
      INLAY_RETURN_IF_ERROR(reader.Read(first, rows, values_.data()));
      INLAY_RETURN_IF_ERROR(EncodeBand(first, rows, width, to, method));
      // In the rows' order, so that threads do not change the sums.
      for (const double row : differences_) errors->differences += row;
      for (const double row : norms_) errors->values += row;
      if (!std::isfinite(errors->differences)) {
        return absl::InvalidArgumentError(
            "it has values that are not finite, or not within the type's "
            "range");
      }
    }
    INLAY_RETURN_IF_ERROR(sink_(encoded_));
    if (!progress_(static_cast<uint64_t>(rows * width))) {
      return absl::CancelledError("cancelled by the progress callback");
    }
  }
  return absl::OkStatus();
}

}  // namespace inlay
