#include "memory/device/device.h"

#include <utility>

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

}  // namespace inlay
