#include "core/quantize/given_importance.h"

#include <algorithm>

#include "core/quantize/awq.h"
#include "kernels/quant/grid.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {

uint64_t GivenImportance::bytes() const {
  uint64_t bytes = 0;
  for (const auto& [name, squares] : imatrix_) {
    bytes += name.size() + squares.size() * sizeof(float);
  }
  return bytes;
}

absl::StatusOr<RowMethod*> GivenImportance::Start(const std::string& gguf,
                                                  DType from, DType to,
                                                  const RowReader& reader) {
  const auto found = imatrix_.find(gguf);
  codec_ = FindBlockCodec(to);
  if (found == imatrix_.end() || from == to || codec_ == nullptr ||
      codec_->grid == nullptr) {
    return nullptr;
  }
  squares_ = &found->second;
  width_ = reader.row_elements();
  const int64_t rows = reader.rows();
  const auto inputs = static_cast<int64_t>(squares_->size());
  const int64_t matrices = inputs / width_;
  if (matrices == 0 || inputs % width_ != 0 || rows % matrices != 0) {
    return absl::InvalidArgumentError(FormattedString(
        "the imatrix has %d inputs for tensor \"%s\", which has %d rows of %d, "
        "allowed: as many as a row has, or these for each matrix of a stack",
        inputs, gguf, rows, width_));
  }
  matrix_rows_ = rows / matrices;
  sums_ = {};
  return static_cast<RowMethod*>(this);
}

absl::Span<const float> GivenImportance::ImportanceOf(int64_t row) const {
  return absl::MakeConstSpan(*squares_).subspan(
      static_cast<size_t>(row / matrix_rows_ * width_),
      static_cast<size_t>(width_));
}

absl::Status GivenImportance::Encode(int64_t rows, const float* values,
                                     std::byte* encoded) {
  const size_t row_bytes = RowBytes(codec_->dtype, static_cast<size_t>(width_));
  for (int64_t r = 0; r < rows;) {
    const int64_t row = first_ + r;
    const int64_t alike = std::min(rows - r, matrix_rows_ - row % matrix_rows_);
    EncodeScaled(*codec_->grid, nullptr, values + r * width_, alike,
                 ImportanceOf(row), {}, pool_,
                 encoded + static_cast<size_t>(r) * row_bytes);
    r += alike;
  }
  return absl::OkStatus();
}

absl::Status GivenImportance::Note(int64_t first, int64_t rows,
                                   const float* values,
                                   const std::byte* /*encoded*/,
                                   const float* decoded) {
  // Of a band, that errors are reported of.
  constexpr int64_t kErrorRows = 32;
  rows = std::min(rows, kErrorRows);
  const int64_t blocks = width_ / GetFormatInfo(codec_->dtype).block_elements;
  std::vector<std::byte> blocks_of_row(
      RowBytes(codec_->dtype, static_cast<size_t>(width_)));
  std::vector<float> nearest(static_cast<size_t>(width_));
  for (int64_t r = 0; r < rows; ++r) {
    const float* const row = values + r * width_;
    const float* const got = decoded + r * width_;
    codec_->encode(row, blocks, blocks_of_row.data());
    codec_->decode(blocks_of_row.data(), blocks, nearest.data());
    const absl::Span<const float> squares = ImportanceOf(first + r);
    for (size_t i = 0; i < nearest.size(); ++i) {
      const double weight = squares[i];
      const auto square = [](double x) { return x * x; };
      sums_.outputs += weight * square(row[i]);
      sums_.errors += weight * square(double{got[i]} - row[i]);
      sums_.nearest_errors += weight * square(double{nearest[i]} - row[i]);
    }
  }
  return absl::OkStatus();
}

void GivenImportance::Finish(MethodSums* sums) {
  sums->used = true;
  sums->outputs += sums_.outputs;
  sums->errors += sums_.errors;
  sums->nearest_errors += sums_.nearest_errors;
}

}  // namespace inlay
