#include "kernels/validate.h"

#include <functional>

#include "memory/formatted_string.h"

namespace inlay {

absl::Status CheckMatrix(std::string_view op, std::string_view name,
                         const TensorView& view, int64_t rows, int64_t cols,
                         DType dtype) {
  if (view.rank != 2 || view.dims[0] != rows || view.dims[1] != cols) {
    return absl::InvalidArgumentError(FormattedString(
        "%s: %s is rank %d, [%d, %d]; expected rank 2, [%d, %d]", op, name,
        view.rank, view.rows(), view.cols(), rows, cols));
  }
  if (view.dtype != dtype) {
    return absl::InvalidArgumentError(
        FormattedString("%s: %s is %s; expected %s", op, name,
                        DTypeName(view.dtype), DTypeName(dtype)));
  }
  if (rows == 0) return absl::OkStatus();
  if (view.data == nullptr) {
    return absl::InvalidArgumentError(
        FormattedString("%s: %s has no data", op, name));
  }
  const size_t row_bytes = RowBytes(dtype, static_cast<size_t>(cols));
  if (rows > 1 && view.row_stride_bytes < row_bytes) {
    return absl::InvalidArgumentError(
        FormattedString("%s: %s has rows %d bytes apart; expected at least %d",
                        op, name, view.row_stride_bytes, row_bytes));
  }
  return absl::OkStatus();
}

absl::Status CheckRange(std::string_view op, std::string_view name,
                        int64_t value, int64_t least, int64_t most) {
  if (value >= least && value <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(FormattedString(
      "%s: %s is %d; expected %d to %d", op, name, value, least, most));
}

bool Overlap(const TensorView& a, const TensorView& b) {
  if (a.empty() || b.empty() || a.rows() == 0 || b.rows() == 0) return false;
  const auto end = [](const TensorView& view) {
    return view.data +
           static_cast<size_t>(view.rows() - 1) * view.row_stride_bytes +
           RowBytes(view.dtype, static_cast<size_t>(view.cols()));
  };
  const std::less<const std::byte*> before;
  return before(a.data, end(b)) && before(b.data, end(a));
}

}  // namespace inlay
