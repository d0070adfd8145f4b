// Checks that the ops' validators share. For load time and tests: run() checks
// nothing.
#ifndef INLAY_KERNELS_VALIDATE_H_
#define INLAY_KERNELS_VALIDATE_H_

#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "memory/tensor.h"

namespace inlay {

// INVALID_ARGUMENT naming `op` and `name` unless `view` is a matrix of `rows` x
// `cols` of `dtype` whose row stride holds a row.
absl::Status CheckMatrix(std::string_view op, std::string_view name,
                         const TensorView& view, int64_t rows, int64_t cols,
                         DType dtype);

// INVALID_ARGUMENT unless `value` is in [least, most].
absl::Status CheckRange(std::string_view op, std::string_view name,
                        int64_t value, int64_t least, int64_t most);

// Whether any byte belongs to both.
bool Overlap(const TensorView& a, const TensorView& b);

}  // namespace inlay

#endif  // INLAY_KERNELS_VALIDATE_H_
