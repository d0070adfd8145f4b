// Rows of a source's tensor in the order and form in which a GGUF file has
// them, a band at a time. Knows nothing of types to write.
#ifndef INLAY_CORE_QUANTIZE_ROW_READER_H_
#define INLAY_CORE_QUANTIZE_ROW_READER_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/formats/gguf_arch.h"
#include "core/formats/gguf_source.h"
#include "core/formats/weight_source.h"
#include "memory/device/thread_pool.h"

namespace inlay {

// A vector has rows of one element. Not thread-safe; the source and the pool
// must outlive it.
class RowReader {
 public:
  // INVALID_ARGUMENT for rows that do not divide into heads, UNIMPLEMENTED for
  // a dtype that cannot be widened, or that lies transposed in blocks.
  static absl::StatusOr<RowReader> Create(const WeightSource& source,
                                          const WeightInfo& info,
                                          GgufLayout layout,
                                          const GgufHeads& heads,
                                          ThreadPool& pool);

  int64_t rows() const { return rows_; }
  int64_t row_elements() const { return row_elements_; }
  // Whether ReadStored gives what the file is to have, but for its type.
  bool rows_are_stored() const {
    return layout_ != GgufLayout::kPlusOne && !transposed_ &&
           permutation_.empty();
  }
  bool adds_one() const { return layout_ == GgufLayout::kPlusOne; }
  // The source's row that comes as `row`.
  int64_t SourceRow(int64_t row) const;
  // Rows [first, first + count) as the source has them.
  absl::Status ReadStored(int64_t first, int64_t count, std::byte* rows) const;
  // The same widened.
  absl::Status Read(int64_t first, int64_t count, float* rows);

 private:
  RowReader(const WeightSource& source, const WeightInfo& info,
            ThreadPool& pool)
      : source_(&source), info_(&info), pool_(&pool) {}
  absl::Status ReadPermutation();
  absl::Status ReadTransposed(int64_t first, int64_t count, float* rows);
  void Widen(const std::byte* row, float* values) const;

  const WeightSource* source_;
  const WeightInfo* info_;
  ThreadPool* pool_;
  GgufLayout layout_ = GgufLayout::kSame;
  int64_t rows_ = 0;
  int64_t row_elements_ = 1;
  int64_t head_rows_ = 0;  // 0: rows keep their order
  bool transposed_ = false;
  std::vector<int32_t> permutation_;  // the input that each column takes
  std::vector<std::byte> stored_;
  std::vector<float> strip_;
  std::vector<float> sorted_;  // a band in the order of the groups
};

}  // namespace inlay

#endif  // INLAY_CORE_QUANTIZE_ROW_READER_H_
