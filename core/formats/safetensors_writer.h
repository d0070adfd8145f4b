// SafetensorsWriter: writes a safetensors file as a whole or not at all: names
// and shapes first, then the data as it comes. Knows nothing of models.
// Source: as safetensors.h.
#ifndef INLAY_CORE_FORMATS_SAFETENSORS_WRITER_H_
#define INLAY_CORE_FORMATS_SAFETENSORS_WRITER_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/json/json.h"
#include "memory/dtype.h"
#include "memory/durable_file.h"

namespace inlay {

// Call in this order: AddTensor..., StartData, Append..., Commit. Movable; one
// thread.
class SafetensorsWriter {
 public:
  // The file appears at `path` with Commit (see DurableFile).
  static absl::StatusOr<SafetensorsWriter> Create(const std::string& path);

  // f32, f16, bf16, i32, i64, i8, u8 or e4m3; sizes of at least 1.
  // INVALID_ARGUMENT for others and names that are there already.
  absl::Status AddTensor(const std::string& name, DType dtype,
                         absl::Span<const int64_t> shape);
  absl::Status StartData();
  // The next bytes of the tensors' data, in the order of AddTensor.
  absl::Status Append(absl::Span<const std::byte> bytes);
  // INVALID_ARGUMENT unless all bytes of all tensors came.
  absl::Status Commit();

 private:
  explicit SafetensorsWriter(DurableFile file) : file_(std::move(file)) {}

  DurableFile file_;
  Json header_ = Json::object();
  uint64_t data_bytes_ = 0;
  uint64_t header_bytes_ = 0;
};

}  // namespace inlay

#endif  // INLAY_CORE_FORMATS_SAFETENSORS_WRITER_H_
