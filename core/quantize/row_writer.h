// One tensor from its source into the file, a band of rows at a time.
#ifndef INLAY_CORE_QUANTIZE_ROW_WRITER_H_
#define INLAY_CORE_QUANTIZE_ROW_WRITER_H_

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "core/formats/gguf_writer.h"
#include "core/quantize/row_reader.h"
#include "memory/device/thread_pool.h"
#include "memory/dtype.h"

namespace inlay {

// Values in a band, unless one row has more.
inline constexpr int64_t kBandElements = int64_t{1} << 20;

// Encodes on the pool's threads. Keeps its memory from tensor to tensor.
class RowWriter {
 public:
  // Told the elements that were written since the last time; false cancels.
  using Progress = std::function<bool(uint64_t elements)>;

  RowWriter(GgufWriter& writer, ThreadPool& pool, Progress progress)
      : writer_(writer), pool_(pool), progress_(std::move(progress)) {}

  // All rows of `reader`, stored as `from`, as `to`. `error` gets the root mean
  // square of the differences relative to that of the values; 0 of zeros.
  // INVALID_ARGUMENT for values that are not finite once encoded; CANCELLED.
  absl::Status Write(RowReader& reader, DType from, DType to, double* error);

 private:
  void Encode(int64_t rows, int64_t row_elements, DType to);

  GgufWriter& writer_;
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
