// Rows of a source's tensors in the order and form in which a GGUF file has
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

// Rows [first, first + count) of one of several tensors, each multiplied by a
// factor.
struct RowRun {
  size_t part = 0;
  int64_t first = 0;
  int64_t count = 0;
  float factor = 1.0f;
};

// What a file's tensor is made of.
struct RowLayout {
  // One, or several whose rows have one width: experts, q with k and v.
  std::vector<const WeightInfo*> parts;
  GgufLayout layout = GgufLayout::kSame;
  // Empty: all rows of all parts, in order.
  std::vector<RowRun> runs;
  // The input that each column takes; empty: as published.
  std::vector<int32_t> columns;
  // Not 0: of each so many of the rows that `runs` gives the columns come as
  // rows.
  int64_t turned_rows = 0;
};

// A vector has rows of one element. Not thread-safe; the source and the pool
// must outlive it.
class RowReader {
 public:
  // INVALID_ARGUMENT for rows that do not divide into heads, UNIMPLEMENTED for
  // a dtype that cannot be widened, or that lies transposed in blocks.
  static absl::StatusOr<RowReader> Create(const WeightSource& source,
                                          const RowLayout& layout,
                                          const GgufHeads& heads,
                                          ThreadPool& pool);
  // All rows of one tensor.
  static absl::StatusOr<RowReader> Create(const WeightSource& source,
                                          const WeightInfo& info,
                                          GgufLayout layout,
                                          const GgufHeads& heads,
                                          ThreadPool& pool);

  // The rows of one of several tensors, which do not turn and come one tensor
  // after another.
  RowReader OfPart(size_t part) const;

  int64_t rows() const { return rows_; }
  int64_t row_elements() const { return row_elements_; }
  // Whether ReadStored gives what the file is to have, but for its type.
  bool rows_are_stored() const { return rows_are_stored_; }
  bool adds_one() const { return layout_ == GgufLayout::kPlusOne; }
  // The source's row that comes as `row`, and what it is multiplied by, of a
  // reader of one tensor that does not turn.
  int64_t SourceRow(int64_t row) const;
  float FactorOf(int64_t row) const { return RunOf(row).factor; }
  // Rows [first, first + count) as the source has them.
  absl::Status ReadStored(int64_t first, int64_t count, std::byte* rows) const;
  // The same widened.
  absl::Status Read(int64_t first, int64_t count, float* rows);

  // Whether rows can be had a piece at a time, by Hold and WidenHeld: those
  // that are the source's but for a factor.
  bool holds_rows() const;
  // Where rows [first, first + count) lie: in the source's mapping, or read
  // from it. Until the next call, or one of Read.
  absl::Status Hold(int64_t first, int64_t count);
  // Elements [begin, begin + count) of the row `row` of those held, widened;
  // both are multiples of the blocks of any format, or end the row. From any
  // number of threads.
  void WidenHeld(int64_t row, int64_t begin, int64_t count,
                 float* values) const;

 private:
  struct Part {
    const WeightInfo* info = nullptr;
    uint64_t row_bytes = 0;
    const std::byte* mapped = nullptr;  // null: to be read
    // The stored column that each of the file's takes; empty: the same.
    std::vector<int32_t> columns;
  };

  RowReader(const WeightSource& source, ThreadPool& pool)
      : source_(&source), pool_(&pool) {}
  absl::Status AddPart(const WeightInfo& info,
                       const std::vector<int32_t>& inputs);
  absl::Status SetColumns(const std::vector<int32_t>& inputs, Part* part) const;
  absl::Status SetRuns(std::vector<RowRun> runs, const GgufHeads& heads);
  absl::Status SetHeadRuns(int64_t heads);
  const RowRun& RunOf(int64_t row) const;
  template <typename Take>
  absl::Status ForRuns(int64_t first, int64_t count, Take take) const;
  absl::Status ReadStraight(int64_t first, int64_t count, float* rows);
  absl::Status ReadTransposed(int64_t first, int64_t count, float* rows);
  absl::Status ReadTurned(int64_t first, int64_t count, float* rows);
  void Finish(float factor, int64_t count, float* values) const;

  const WeightSource* source_;
  ThreadPool* pool_;
  GgufLayout layout_ = GgufLayout::kSame;
  std::vector<Part> parts_;
  std::vector<RowRun> runs_;
  std::vector<int64_t> starts_;  // of the runs among the rows that they give
  int64_t width_ = 1;            // of a part's rows
  int64_t rows_ = 0;
  int64_t row_elements_ = 1;
  int64_t turned_rows_ = 0;
  bool transposed_ = false;
  bool rows_are_stored_ = false;
  struct HeldRow {
    const std::byte* at = nullptr;
    const RowRun* run = nullptr;
  };
  std::vector<HeldRow> held_;      // a band
  std::vector<std::byte> stored_;  // those that are not mapped
  std::vector<float> strip_;
  std::vector<float> sorted_;  // a band in the order of the stored columns
};

}  // namespace inlay

#endif  // INLAY_CORE_QUANTIZE_ROW_READER_H_
