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
#include "kernels/quant/row_floats.h"
#include "memory/device/thread_pool.h"
#include "memory/dtype.h"

namespace inlay {

// Values in a band, unless one row has more; where only blocks are kept of it,
// up to four times as many, so that many threads have enough.
inline constexpr int64_t kBandElements = int64_t{1} << 20;
// What a method does to the rows of one tensor on their way. Bands come in
// order, each of whole rows_together() but for the last; calls come from one
// thread.
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
  // How many rows are encoded as one.
  virtual int64_t rows_together() const { return 1; }
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

  // Gets the bytes in order, on any of the pool's threads, one call at a time.
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
  // The sums of a band.
  absl::Status AddErrors(RowErrors* errors) const;
  // By the format's encoder, of rows that a reader holds: from where they lie
  // to their blocks in one go.
  absl::Status WritePieces(RowReader& reader, DType to, RowErrors* errors);
  void EncodePieces(const RowReader& reader, DType to, int64_t begin,
                    int64_t end);
  absl::Status WriteBand();
  absl::Status EncodeBand(int64_t first, int64_t rows, int64_t row_elements,
                          DType to, RowMethod* method);

  Sink sink_;
  ThreadPool& pool_;
  Progress progress_;
  std::vector<float> values_;
  std::vector<float> decoded_;  // what values_ became
  std::vector<std::byte> encoded_;
  std::vector<std::byte> written_;  // the band before, on its way to the sink
  std::vector<SquareSums> sums_;    // of each row or piece of the band
};

}  // namespace inlay

#endif  // INLAY_CORE_QUANTIZE_ROW_WRITER_H_
