// TensorView: a typed, strided, non-owning window onto memory of one device.
// Knows no models.
#ifndef INLAY_MEMORY_TENSOR_H_
#define INLAY_MEMORY_TENSOR_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "memory/dtype.h"

namespace inlay {

// Row-major: dims[rank-1] is contiguous. row_stride_bytes separates consecutive
// rows (a row is the last dimension); all leading dimensions are dense over
// rows. The memory belongs to whoever made the view.
struct TensorView {
  static constexpr int kMaxRank = 4;

  std::byte* data = nullptr;
  DType dtype = DType::kF32;
  int rank = 0;
  std::array<int64_t, kMaxRank> dims = {};
  size_t row_stride_bytes = 0;

  bool empty() const { return data == nullptr; }
  int64_t cols() const {
    return rank == 0 ? 0 : dims[static_cast<size_t>(rank - 1)];
  }
  int64_t rows() const {
    int64_t rows = 1;
    for (int i = 0; i + 1 < rank; ++i) rows *= dims[static_cast<size_t>(i)];
    return rank == 0 ? 0 : rows;
  }
  int64_t elements() const { return rows() * cols(); }
  size_t bytes() const {
    return static_cast<size_t>(rows()) * row_stride_bytes;
  }

  template <typename T>
  T* row(int64_t r) const {
    return reinterpret_cast<T*>(data +
                                static_cast<size_t>(r) * row_stride_bytes);
  }

  // Rows [first, first + count) as a [count, cols] view. Weights whose output
  // rows are fused (q, k, v) are split this way.
  TensorView RowSlice(int64_t first, int64_t count) const {
    TensorView view = *this;
    view.rank = 2;
    view.dims = {count, cols()};
    view.data = data + static_cast<size_t>(first) * row_stride_bytes;
    return view;
  }
};

// A dense [rows, cols] view.
inline TensorView MatrixView(void* data, DType dtype, int64_t rows,
                             int64_t cols) {
  return TensorView{static_cast<std::byte*>(data),
                    dtype,
                    2,
                    {rows, cols},
                    RowBytes(dtype, static_cast<size_t>(cols))};
}

// A dense vector of `size` elements.
inline TensorView VectorView(void* data, DType dtype, int64_t size) {
  return TensorView{static_cast<std::byte*>(data),
                    dtype,
                    1,
                    {size},
                    RowBytes(dtype, static_cast<size_t>(size))};
}

}  // namespace inlay

#endif  // INLAY_MEMORY_TENSOR_H_
