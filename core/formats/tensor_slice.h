// TensorSlice: a matrix or bias within a tensor that holds several (of experts,
// or of q, k and v), and how to read it. Owns nothing; whoever makes one has
// checked shapes.
#ifndef INLAY_CORE_FORMATS_TENSOR_SLICE_H_
#define INLAY_CORE_FORMATS_TENSOR_SLICE_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "core/formats/weight_source.h"

namespace inlay {

enum class SliceLayout : uint8_t {
  // Rows lie in runs of `run` rows, which begin `step` rows apart from row
  // `first` of the stored tensor, all of whose leading dimensions count as
  // rows. A bias has rows of one element.
  kRows,
  // Element (i, j) is stored at row expert * inputs + j, column first + i *
  // step.
  kColumns,
  // Rows before `first` lie as they are. Of the runs of `run` rows after them,
  // run a * step + b, with b below `step`, is stored as run b * count / step +
  // a of the `count`.
  kTurnedRuns,
  // The same of each row's columns, `first` being 0 and `run` whole blocks.
  kTurnedColumns,
  // Rows as in kRows, of e2m1 codes in blocks and their scales apart.
  kMxfp4,
};

struct TensorSlice {
  SliceLayout layout = SliceLayout::kRows;
  const WeightInfo* stored = nullptr;  // codes, where those are apart
  const WeightInfo* scales = nullptr;  // of kMxfp4
  int64_t expert = 0;                  // of kColumns
  int64_t first = 0;
  int64_t step = 1;
  int64_t run = 1;  // of all but kColumns
};

// Where the slice, presented as `info`, lies as it is; null: nowhere.
const std::byte* MappedSlice(const WeightSource& source,
                             const TensorSlice& slice, const WeightInfo& info);

// Bytes [offset, offset + destination.size()) of the slice, presented as
// `info`. The range must lie in it.
absl::Status ReadSlice(const WeightSource& source, const TensorSlice& slice,
                       const WeightInfo& info, uint64_t offset,
                       absl::Span<std::byte> destination);

}  // namespace inlay

#endif  // INLAY_CORE_FORMATS_TENSOR_SLICE_H_
