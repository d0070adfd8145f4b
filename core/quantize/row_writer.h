// One tensor from its source into the file, a band of rows at a time.
#ifndef INLAY_CORE_QUANTIZE_ROW_WRITER_H_
#define INLAY_CORE_QUANTIZE_ROW_WRITER_H_

#include <cmath>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "core/quantize/row_reader.h"
#include "memory/device/thread_pool.h"
#include "memory/dtype.h"

namespace inlay {

// Values in a band, unless one row has more.
inline constexpr int64_t kBandElements = int64_t{1} << 20;

// What a method does to the rows of one tensor on their way. Bands come in
// order; calls come from one thread.
class RowMethod {
 public:
  virtual ~RowMethod() = default;
  // Changes rows [first, first + rows) as they were read.
  virtual void Change(int64_t first, int64_t rows, float* values) = 0;
  // Whether Encode does it, not the format's encoder.
  virtual bool encodes() const = 0;
  virtual absl::Status Encode(int64_t rows, const float* values,
                              std::byte* encoded) = 0;
  // Whether it is to be told the largest magnitude of all rows, as Change
  // leaves them, before any is encoded.
  virtual bool wants_largest() const { return false; }
  virtual void SetLargest(float) {}
  // What the rows became, of a block format: blocks, and these decoded.
  virtual absl::Status Note(int64_t first, int64_t rows, const float* values,
                            const std::byte* encoded, const float* decoded) = 0;
};

// What rounding did to values: sums of squares.
struct RowErrors {
  double differences = 0.0;
  double values = 0.0;

  // Root mean square, relative to that of the values; 0 of zeros.
  double relative() const {
    return values > 0.0 ? std::sqrt(differences / values) : 0.0;
  }
};

// Encodes on the pool's threads. Keeps its memory from tensor to tensor.
class RowWriter {
 public:
  // Told the elements that were written since the last time; false cancels.
  using Progress = std::function<bool(uint64_t elements)>;

  // Gets the bytes in order.
  using Sink = std::function<absl::Status(absl::Span<const std::byte>)>;

  RowWriter(Sink sink, ThreadPool& pool, Progress progress)
      : sink_(std::move(sink)), pool_(pool), progress_(std::move(progress)) {}

  // All rows of `reader`, stored as `from`, as `to`, by `method` (null: the
  // format's encoder). What it did to them is added to `errors`.
  // INVALID_ARGUMENT for values that are not finite once encoded; CANCELLED.
  absl::Status Write(RowReader& reader, DType from, DType to, RowMethod* method,
                     RowErrors* errors);

 private:
  absl::Status TellLargest(RowReader& reader, RowMethod* method);
  // Unless it is `encoded` already.
  void Encode(int64_t rows, int64_t row_elements, DType to, bool encoded);
  absl::Status EncodeBand(int64_t first, int64_t rows, int64_t row_elements,
                          DType to, RowMethod* method);

  Sink sink_;
  ThreadPool& pool_;
  Progress progress_;
  std::vector<float> values_;
  std::vector<float> decoded_;  // what values_ became
  std::vector<std::byte> encoded_;
  // Of each row of the band: sums of squares.
  std::vector<double> differences_, norms_;
};

}  // namespace inlay

#endif  // INLAY_CORE_QUANTIZE_ROW_WRITER_H_
