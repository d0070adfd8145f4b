// Extents of a KV cache.
#include "memory/kv/storage.h"

#include <algorithm>
#include <utility>

#include "memory/status.h"

namespace inlay {
namespace {

// All addresses that the device could ever have memory for.
absl::StatusOr<std::unique_ptr<AddressRange>> ReserveAll(Device& device,
                                                         size_t extent_bytes) {
  const size_t extents = device.info().memory_bytes / extent_bytes + 1;
  return device.ReserveRange(extents * extent_bytes, MemoryClass::kKv);
}

}  // namespace

KvStorage::KvStorage(Device* device, size_t block_bytes,
                     size_t target_extent_bytes)
    : device_(device), block_bytes_(block_bytes) {
  INLAY_DCHECK(device != nullptr && block_bytes >= 1);
  constexpr int kMaxShift = 20;
  while (shift_ < kMaxShift &&
         (block_bytes_ << (shift_ + 1)) <= target_extent_bytes) {
    ++shift_;
  }
  const size_t granularity = device->range_granularity();
  while (granularity != 0 && extent_bytes() % granularity != 0) ++shift_;
}

absl::StatusOr<Buffer> KvStorage::AddMemory(size_t index) {
  if (device_->range_granularity() == 0) {
    return device_->Allocate(extent_bytes(), MemoryClass::kKv);
  }
  if (range_ == nullptr) {
    INLAY_ASSIGN_OR_RETURN(range_, ReserveAll(*device_, extent_bytes()));
  }
  INLAY_RETURN_IF_ERROR(range_->Map(index * extent_bytes(), extent_bytes()));
  return Buffer();
}

absl::StatusOr<int32_t> KvStorage::AddExtent() {
  const auto absent = std::find(extents_.begin(), extents_.end(), nullptr);
  const auto index = static_cast<size_t>(absent - extents_.begin());
  // Should memory run out, then before there is anything to give back.
  buffers_.reserve(index + 1);
  extents_.reserve(index + 1);
  INLAY_ASSIGN_OR_RETURN(Buffer buffer, AddMemory(index));
  if (index == extents_.size()) {
    buffers_.emplace_back();
    extents_.push_back(nullptr);
  }
  extents_[index] = range_ == nullptr ? buffer.data()
                                      : range_->base() + index * extent_bytes();
  buffers_[index] = std::move(buffer);
  ++num_extents_;
  return static_cast<int32_t>(index);
}

void KvStorage::DropExtent(int32_t extent) {
  INLAY_DCHECK(HasExtent(extent));
  const auto index = static_cast<size_t>(extent);
  if (range_ != nullptr) range_->Unmap(index * extent_bytes());
  buffers_[index] = Buffer();
  extents_[index] = nullptr;
  --num_extents_;
}

absl::Status KvStorage::Stage() {
  if (stream_ != nullptr) return absl::OkStatus();
  INLAY_ASSIGN_OR_RETURN(staging_, device_->AllocateStaging(block_bytes_));
  INLAY_ASSIGN_OR_RETURN(stream_, device_->CreateStream());
  return absl::OkStatus();
}

absl::StatusOr<absl::Span<const std::byte>> KvStorage::Read(int32_t id) {
  if (device_->host_addressable()) {
    return absl::MakeConstSpan(Block(id), block_bytes_);
  }
  INLAY_RETURN_IF_ERROR(Stage());
  INLAY_RETURN_IF_ERROR(
      device_->Copy(staging_.data(), Block(id), block_bytes_, *stream_));
  INLAY_RETURN_IF_ERROR(stream_->Synchronize());
  return absl::MakeConstSpan(staging_.data(), block_bytes_);
}

absl::StatusOr<absl::Span<std::byte>> KvStorage::BeginWrite(int32_t id) {
  if (device_->host_addressable()) {
    return absl::MakeSpan(Block(id), block_bytes_);
  }
  INLAY_RETURN_IF_ERROR(Stage());
  return absl::MakeSpan(staging_.data(), block_bytes_);
}

absl::Status KvStorage::FinishWrite(int32_t id) {
  if (device_->host_addressable()) return absl::OkStatus();
  INLAY_RETURN_IF_ERROR(
      device_->Copy(Block(id), staging_.data(), block_bytes_, *stream_));
  return stream_->Synchronize();
}

}  // namespace inlay
