// GgufWriter: writes a GGUF file (version 3) as a whole or not at all: keys and
// tensor infos first, then the data as it comes. Knows nothing of what the keys
// mean. Source: ggml's docs/gguf.md.
#ifndef INLAY_CORE_FORMATS_GGUF_WRITER_H_
#define INLAY_CORE_FORMATS_GGUF_WRITER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/formats/gguf.h"
#include "memory/dtype.h"
#include "memory/durable_file.h"

namespace inlay {

// Call in this order: Set..., AddTensor..., StartData, Append..., Commit. After
// an error every later call gives that error, and what was at the path stays.
// Movable; one thread.
class GgufWriter {
 public:
  // The file appears at `path` with Commit (see DurableFile for its rights and
  // errors). INVALID_ARGUMENT for an alignment that the format does not allow.
  static absl::StatusOr<GgufWriter> Create(
      const std::string& path, uint32_t alignment = kGgufDefaultAlignment);

  // INVALID_ARGUMENT for a key that is empty, too long or there already, or
  // general.alignment, which the writer sets.
  absl::Status SetU32(std::string_view key, uint32_t value);
  absl::Status SetI32(std::string_view key, int32_t value);
  absl::Status SetU64(std::string_view key, uint64_t value);
  absl::Status SetF32(std::string_view key, float value);
  absl::Status SetBool(std::string_view key, bool value);
  absl::Status SetString(std::string_view key, std::string_view value);
  absl::Status SetBytes(std::string_view key, std::string_view bytes);  // u8s
  absl::Status SetI32s(std::string_view key, absl::Span<const int32_t> values);
  absl::Status SetF32s(std::string_view key, absl::Span<const float> values);
  absl::Status SetStrings(std::string_view key,
                          absl::Span<const std::string> values);
  bool Has(std::string_view key) const { return keys_.contains(key); }
  // A value of a parsed file as it is.
  absl::Status Set(std::string_view key, const GgufValue& value);

  // `shape`: outermost dimension first, 1 to 4 of at least 1.
  // INVALID_ARGUMENT for names that are empty, too long or there already, for
  // other shapes and rows that are no whole blocks, UNIMPLEMENTED for a dtype
  // that GGUF does not have.
  absl::Status AddTensor(std::string_view name, DType dtype,
                         absl::Span<const int64_t> shape);

  // Writes what comes before the data. Nothing can be added after it.
  absl::Status StartData();
  // The next bytes of the tensors' data, in the order of AddTensor, in pieces
  // of any size that do not cross from one tensor to the next.
  absl::Status Append(absl::Span<const std::byte> bytes);
  // INVALID_ARGUMENT when a tensor lacks bytes. The last call.
  absl::Status Commit();

 private:
  struct Tensor {
    std::string name;
    uint32_t type = 0;
    std::vector<int64_t> shape;
    uint64_t bytes = 0;
  };

  GgufWriter(DurableFile file, uint32_t alignment)
      : file_(std::move(file)), alignment_(alignment) {}
  absl::Status Fail(absl::Status status);
  absl::Status AddEntry(std::string_view key, GgufType type, bool is_array,
                        uint64_t count, std::string_view data);
  absl::Status Pad();

  DurableFile file_;
  uint32_t alignment_;
  absl::Status status_;
  std::set<std::string, std::less<>> keys_;
  std::set<std::string, std::less<>> names_;
  std::string entries_;  // as the file has them
  std::vector<Tensor> tensors_;
  bool in_data_ = false;
  size_t current_ = 0;    // the tensor whose data comes next
  uint64_t written_ = 0;  // of its bytes
};

}  // namespace inlay

#endif  // INLAY_CORE_FORMATS_GGUF_WRITER_H_
