// CudaRange: an AddressRange of a GPU (CUDA driver API, "Virtual Memory
// Management").
#ifndef INLAY_MEMORY_DEVICE_CUDA_RANGE_H_
#define INLAY_MEMORY_DEVICE_CUDA_RANGE_H_

#include <map>
#include <memory>

#include "absl/status/statusor.h"
#include "memory/device/cuda_context.h"
#include "memory/device/device.h"
#include "memory/device/memory_account.h"

namespace inlay {

// What pieces of a range are multiples of.
absl::StatusOr<size_t> CudaRangeGranularity(CudaContext& context);

class CudaRange final : public AddressRange {
 public:
  // Of `bytes` addresses; `context` and `account` must outlive it.
  static absl::StatusOr<std::unique_ptr<AddressRange>> Create(
      CudaContext* context, MemoryAccount* account, MemoryClass memory_class,
      size_t bytes);
  ~CudaRange() override;

  std::byte* base() const override {
    return reinterpret_cast<std::byte*>(address_);
  }
  size_t bytes() const override { return bytes_; }
  absl::Status Map(size_t offset, size_t bytes) override;
  void Unmap(size_t offset) override;

 private:
  struct Piece {
    CUmemGenericAllocationHandle handle;
    size_t bytes;
  };

  CudaRange(CudaContext* context, MemoryAccount* account,
            MemoryClass memory_class, size_t bytes)
      : context_(context),
        account_(account),
        memory_class_(memory_class),
        bytes_(bytes) {}
  absl::Status MapPiece(size_t offset, Piece& piece);
  void Drop(size_t offset, const Piece& piece);

  CudaContext* context_;
  MemoryAccount* account_;
  MemoryClass memory_class_;
  size_t bytes_;
  CUdeviceptr address_ = 0;
  std::map<size_t, Piece> pieces_;  // by offset
};

}  // namespace inlay

#endif  // INLAY_MEMORY_DEVICE_CUDA_RANGE_H_
