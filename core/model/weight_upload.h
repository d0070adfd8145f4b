// WeightUpload: fills a device's memory from the host through pinned buffers,
// one being filled while the other is copied. Knows no tensors.
#ifndef INLAY_CORE_MODEL_WEIGHT_UPLOAD_H_
#define INLAY_CORE_MODEL_WEIGHT_UPLOAD_H_

#include <array>
#include <cstddef>
#include <memory>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "memory/device/device.h"

namespace inlay {

// One thread.
class WeightUpload {
 public:
  // Large enough that a copy's start costs nothing beside it.
  static constexpr size_t kDefaultStagingBytes = 32 << 20;

  // `device` must outlive it. RESOURCE_EXHAUSTED, out of memory.
  static absl::StatusOr<std::unique_ptr<WeightUpload>> Create(
      Device* device, size_t staging_bytes = kDefaultStagingBytes);
  // Waits for what is under way.
  ~WeightUpload();

  // Writes bytes [offset, offset + piece.size()) of what goes to `dst`.
  using Fill =
      absl::FunctionRef<absl::Status(size_t offset, absl::Span<std::byte>)>;
  // Has `fill` make `bytes` bytes for `dst`, in order; pieces begin at
  // multiples of `unit` bytes (at most a staging buffer). Returns before they
  // have arrived. The first error of `fill` ends it.
  absl::Status Put(std::byte* dst, size_t bytes, size_t unit, Fill fill);
  // What is queued here runs after what was put before, and before what is put
  // later arrives.
  Stream& stream() { return *stream_; }
  // Waits until everything has arrived.
  absl::Status Finish();

 private:
  struct Staging {
    Buffer memory;
    std::unique_ptr<StreamEvent> copied;
  };

  explicit WeightUpload(Device* device) : device_(device) {}
  absl::Status NextStaging();

  Device* device_;
  std::unique_ptr<Stream> stream_;
  std::array<Staging, 2> staging_;
  size_t current_ = 0;
  size_t used_ = 0;  // of the current one
};

}  // namespace inlay

#endif  // INLAY_CORE_MODEL_WEIGHT_UPLOAD_H_
