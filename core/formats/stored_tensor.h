// How the quantisation methods look at stored tensors: companions of a layer,
// checked; strips of rows; packed fields. Owns nothing.
#ifndef INLAY_CORE_FORMATS_STORED_TENSOR_H_
#define INLAY_CORE_FORMATS_STORED_TENSOR_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/formats/weight_source.h"

namespace inlay {

// Of a quantised layer: bounds what one row takes in memory, and keeps products
// of sizes in range.
inline constexpr int64_t kMaxQuantizedColumns = int64_t{1} << 24;
inline constexpr int64_t kMaxQuantizedOutputs = int64_t{1} << 31;

inline constexpr DType kScaleDTypes[] = {DType::kF16, DType::kBF16,
                                         DType::kF32};
// The same, and exponents alone.
inline constexpr DType kScaleOrExponentDTypes[] = {DType::kF16, DType::kBF16,
                                                   DType::kF32, DType::kU8};

// The names of layers that have a tensor `suffix` (".qweight").
std::vector<std::string> LayersWith(const WeightSource& stored,
                                    std::string_view suffix);

// The tensor `name`, of one of `dtypes`, no dimension 0. NOT_FOUND, or
// INVALID_ARGUMENT naming the tensor, what it is and what is allowed.
absl::StatusOr<const WeightInfo*> StoredTensor(const WeightSource& stored,
                                               const std::string& name,
                                               absl::Span<const DType> dtypes);
// The same with two dimensions.
absl::StatusOr<const WeightInfo*> StoredMatrix(const WeightSource& stored,
                                               const std::string& name,
                                               absl::Span<const DType> dtypes);
// Whether it has the shape wanted, else INVALID_ARGUMENT naming both.
absl::Status CheckShape(const WeightInfo& tensor,
                        absl::Span<const int64_t> wanted);
// Whether a layer's n and k are within the bounds above.
absl::Status CheckLayerSize(const std::string& layer, int64_t n, int64_t k);
// What `words` words of `fields` fields hold; beyond every bound above where
// that is out of range.
inline int64_t FieldsIn(int64_t words, int64_t fields) {
  return std::min(words, 2 * kMaxQuantizedOutputs) * fields;
}

// Checks "<layer>.input_scale" where it is there: one floating-point element,
// or one an output. Activations are not rounded on load, so nobody reads it.
absl::Status CheckInputScale(const WeightSource& stored,
                             const std::string& layer);

// Bytes [begin, begin + width) of each of the rows [first, first + rows) of a
// matrix, one after another.
absl::Status ReadStrip(const WeightSource& stored, const WeightInfo& matrix,
                       int64_t first, int64_t rows, int64_t begin,
                       int64_t width, std::byte* dst);
// The same in elements, widened: dst [rows, columns].
absl::Status ReadFloats(const WeightSource& stored, const WeightInfo& matrix,
                        int64_t first, int64_t rows, int64_t begin,
                        int64_t columns, float* dst);
// The same of scales: a byte is an exponent, of a power of two (e8m0: OCP
// Microscaling Formats specification 1.0, 5.4.1).
absl::Status ReadScales(const WeightSource& stored, const WeightInfo& matrix,
                        int64_t first, int64_t rows, int64_t begin,
                        int64_t columns, float* dst);
// Whether all elements of a tensor of floats are finite, else INVALID_ARGUMENT.
// Reads it.
absl::Status CheckFiniteScales(const WeightSource& stored,
                               const WeightInfo& tensor);
// All of an i32 tensor.
absl::StatusOr<std::vector<int32_t>> ReadInts(const WeightSource& stored,
                                              const WeightInfo& tensor);

inline uint32_t LoadWord(const std::byte* words, int64_t i) {
  uint32_t word;
  std::memcpy(&word, words + i * 4, sizeof(word));
  return word;
}
// The eight fields of 4 bits, lowest first, a byte each; lowest in byte 0.
inline uint64_t SpreadNibbles(uint32_t word) {
  uint64_t wide = word;
  wide = (wide | wide << 16) & 0x0000ffff0000ffffu;
  wide = (wide | wide << 8) & 0x00ff00ff00ff00ffu;
  return (wide | wide << 4) & 0x0f0f0f0f0f0f0f0fu;
}

}  // namespace inlay

#endif  // INLAY_CORE_FORMATS_STORED_TENSOR_H_
