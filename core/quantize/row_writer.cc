#include "core/quantize/row_writer.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "kernels/cpu_float.h"
#include "kernels/quant/quant.h"
#include "kernels/quant/row_floats.h"
#include "memory/caught.h"
#include "memory/status.h"

namespace inlay {
namespace {

constexpr int64_t kEncodeGrain = 4096;
// What a thread takes of a row: values of it before and after fit in its
// nearest cache. A multiple of all blocks.
constexpr int64_t kPieceElements = 4096;
static_assert(kPieceElements % kMaxBlockElements == 0);

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

int64_t BandRows(int64_t width, const RowMethod* method) {
  const int64_t together = method == nullptr ? 1 : method->rows_together();
  return std::max<int64_t>(1, kBandElements / width / together) * together;
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
      sums_[static_cast<size_t>(row)] =
          SumSquares(values, decoded, row_elements);
    }
  });
}

absl::Status RowWriter::AddErrors(RowErrors* errors) const {
  // In the rows' order, so that threads do not change the sums.
  for (const SquareSums& sums : sums_) errors->differences += sums.differences;
  for (const SquareSums& sums : sums_) errors->values += sums.values;
  if (std::isfinite(errors->differences)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "it has values that are not finite, or not within the type's range");
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

absl::Status RowWriter::WriteBand() {
  return written_.empty() ? absl::OkStatus() : sink_(written_);
}

absl::Status RowWriter::Write(RowReader& reader, DType from, DType to,
                              RowMethod* method, RowErrors* errors) {
  const int64_t width = reader.row_elements();
  const int64_t band = BandRows(width, method);
  const uint64_t row_bytes = RowBytes(to, width);
  const bool copies =
      from == to && reader.rows_are_stored() && method == nullptr;
  if (!copies && method == nullptr && reader.holds_rows()) {
    return WritePieces(reader, to, errors);
  }
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
      sums_.resize(static_cast<size_t>(rows));
      INLAY_RETURN_IF_ERROR(reader.Read(first, rows, values_.data()));
      INLAY_RETURN_IF_ERROR(EncodeBand(first, rows, width, to, method));
      INLAY_RETURN_IF_ERROR(AddErrors(errors));
    }
    INLAY_RETURN_IF_ERROR(sink_(encoded_));
    if (!progress_(static_cast<uint64_t>(rows * width))) {
      return absl::CancelledError("cancelled by the progress callback");
    }
  }
  return absl::OkStatus();
}

// Row by row of `reader`'s, held, in pieces of kPieceElements.
void RowWriter::EncodePieces(const RowReader& reader, DType to, int64_t begin,
                             int64_t end) {
  const BlockCodec* codec = FindBlockCodec(to);
  const int64_t width = reader.row_elements();
  const int64_t pieces = (width + kPieceElements - 1) / kPieceElements;
  const uint64_t row_bytes = RowBytes(to, width);
  float values[kPieceElements];
  float decoded[kPieceElements];
  for (int64_t piece = begin; piece < end; ++piece) {
    const int64_t row = piece / pieces;
    const int64_t at = piece % pieces * kPieceElements;
    const int64_t count = std::min(kPieceElements, width - at);
    reader.WidenHeld(row, at, count, values);
    EncodeRow(codec, to, values, count, /*is_encoded=*/false,
              encoded_.data() + static_cast<uint64_t>(row) * row_bytes +
                  RowBytes(to, static_cast<size_t>(at)),
              decoded);
    sums_[static_cast<size_t>(piece)] = SumSquares(values, decoded, count);
  }
}

absl::Status RowWriter::WritePieces(RowReader& reader, DType to,
                                    RowErrors* errors) {
  const int64_t width = reader.row_elements();
  // As much for each thread: a cancellation waits for that.
  const int64_t bands = std::clamp<int64_t>(pool_.num_threads() / 4, 1, 4);
  const int64_t band = std::max<int64_t>(1, bands * kBandElements / width);
  const uint64_t row_bytes = RowBytes(to, width);
  const int64_t pieces = (width + kPieceElements - 1) / kPieceElements;
  const int64_t grain = std::max<int64_t>(1, kEncodeGrain / width);
  // A band is written by one of the threads that encode the next.
  absl::Status written;
  written_.clear();
  for (int64_t first = 0; first < reader.rows(); first += band) {
    const int64_t rows = std::min(band, reader.rows() - first);
    encoded_.resize(static_cast<uint64_t>(rows) * row_bytes);
    sums_.resize(static_cast<size_t>(rows * pieces));
    INLAY_RETURN_IF_ERROR(reader.Hold(first, rows));
    pool_.ParallelFor(
        rows * pieces + 1, grain, [&](int64_t begin, int64_t end) {
          if (begin == 0) written = Caught([&] { return WriteBand(); });
          EncodePieces(reader, to, std::max<int64_t>(begin - 1, 0), end - 1);
        });
    INLAY_RETURN_IF_ERROR(written);
    INLAY_RETURN_IF_ERROR(AddErrors(errors));
    written_.swap(encoded_);
    if (!progress_(static_cast<uint64_t>(rows * width))) {
      return absl::CancelledError("cancelled by the progress callback");
    }
  }
  return WriteBand();
}

}  // namespace inlay
