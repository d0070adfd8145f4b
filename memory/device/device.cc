#include "memory/device/device.h"

#include <utility>

#include "memory/formatted_string.h"

namespace inlay {

Buffer::Buffer(Buffer&& other) noexcept
    : device_(std::exchange(other.device_, nullptr)),
      data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)),
      class_(other.class_) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  // By way of a temporary, so that what this buffer held is freed last and
  // self-assignment is harmless.
  Buffer moved(std::move(other));
  std::swap(device_, moved.device_);
  std::swap(data_, moved.data_);
  std::swap(bytes_, moved.bytes_);
  std::swap(class_, moved.class_);
  return *this;
}

Buffer::~Buffer() {
  if (data_ != nullptr) device_->Free(data_, bytes_, class_);
}

absl::StatusOr<std::unique_ptr<AddressRange>> Device::ReserveRange(
    size_t bytes, MemoryClass) {
  return absl::UnimplementedError(
      FormattedString("%s: a range of %d addresses asked for, it has none",
                      info().name, bytes));
}

#if !INLAY_HAS_CUDA
absl::StatusOr<std::unique_ptr<Device>> CreateCudaDevice(int, size_t, int) {
  return absl::UnimplementedError(
      "cuda: this build has no CUDA backend, nvcc was not there when it was "
      "configured; use the CPU");
}
#endif

}  // namespace inlay
