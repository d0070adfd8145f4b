// WeightSource: the named tensors of a model, wherever they come from
// (safetensors files, GGUF, a random generator). Knows nothing of
// architectures; names and shapes are as the file has them.
#ifndef INLAY_CORE_FORMATS_WEIGHT_SOURCE_H_
#define INLAY_CORE_FORMATS_WEIGHT_SOURCE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "memory/dtype.h"

namespace inlay {

// kInt8: symmetrically, with a scale a token. kFp8: e4m3, with scales made
// while it runs (a token, or a group of columns of one) or kept in the
// checkpoint.
enum class InputCodes : uint8_t { kNone, kInt8, kFp8 };

struct WeightInfo {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;  // row-major, outermost first; every dimension >=
                               // 0, empty for a scalar
  uint64_t bytes = 0;  // dense size: the product of the shape in `dtype`,
                       // checked against the file
  // A matrix that checkpoints of its architecture store as [inputs, outputs]
  // (GPT-2's Conv1D) lies here as [outputs, inputs], and `shape` says so.
  bool rows_are_outputs = false;
  // Of a quantised matrix: what its checkpoint has the layer's inputs rounded
  // to while it runs.
  InputCodes input_codes = InputCodes::kNone;
};

struct FileRange {
  uint64_t begin = 0;
  uint64_t end = UINT64_MAX;

  // As counted from `bytes` on.
  FileRange From(uint64_t bytes) const {
    return {begin - std::min(begin, bytes), end - std::min(end, bytes)};
  }
};

// Immutable after construction; every method may run from any number of
// threads.
class WeightSource {
 public:
  virtual ~WeightSource() = default;

  // All tensors, sorted by name.
  virtual absl::Span<const WeightInfo> weights() const = 0;
  // Null when there is no such tensor.
  const WeightInfo* Find(std::string_view name) const;

  // The tensor's bytes where they lie in memory (a mapped file), valid as long
  // as the source; null when the source cannot offer that. Alignment is only
  // that of the element. `info` must come from this source.
  virtual const std::byte* Mapped(const WeightInfo& info) const = 0;
  // Copies bytes [offset, offset + destination.size()) of the tensor.
  virtual absl::Status Read(const WeightInfo& info, uint64_t offset,
                            absl::Span<std::byte> destination) const = 0;
  // MappedFile::LeavePages() of these bytes of the files, counted through all
  // of them: what was read counts no longer as the process's memory. The bytes
  // of all, whatever the range.
  virtual uint64_t LeavePages(FileRange range) const = 0;
};

}  // namespace inlay

#endif  // INLAY_CORE_FORMATS_WEIGHT_SOURCE_H_
