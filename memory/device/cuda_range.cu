#include "absl/memory/memory.h"
#include "memory/device/cuda_range.h"
#include "memory/status.h"

namespace inlay {
namespace {

CUmemAllocationProp Properties(int ordinal) {
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = ordinal;
  return properties;
}

}  // namespace

absl::StatusOr<size_t> CudaRangeGranularity(CudaContext& context) {
  const CudaContext::Scope scope(context);
  const CUmemAllocationProp properties = Properties(context.ordinal());
  size_t bytes = 0;
  INLAY_RETURN_IF_ERROR(
      context.Check(context.driver().mem_granularity(
                        &bytes, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM),
                    "asking for the granularity of memory"));
  return bytes;
}

absl::StatusOr<std::unique_ptr<AddressRange>> CudaRange::Create(
    CudaContext* context, MemoryAccount* account, MemoryClass memory_class,
    size_t bytes) {
  INLAY_RETURN_IF_ERROR(context->status());
  const CudaContext::Scope scope(*context);
  auto range =
      absl::WrapUnique(new CudaRange(context, account, memory_class, bytes));
  INLAY_RETURN_IF_ERROR(context->Check(
      context->driver().mem_address_reserve(&range->address_, bytes,
                                            /*alignment=*/0,
                                            /*addr=*/0, /*flags=*/0),
      "reserving addresses"));
  return std::unique_ptr<AddressRange>(std::move(range));
}

CudaRange::~CudaRange() {
  const CudaContext::Scope scope(*context_);
  for (const auto& [offset, piece] : pieces_) Drop(offset, piece);
  if (address_ != 0) context_->driver().mem_address_free(address_, bytes_);
}

absl::Status CudaRange::Map(size_t offset, size_t bytes) {
  INLAY_DCHECK(offset <= bytes_ && bytes <= bytes_ - offset);
  INLAY_RETURN_IF_ERROR(context_->status());
  // Its place in the map first: nothing can run out once memory is there.
  const auto entry = pieces_.emplace(offset, Piece{0, bytes}).first;
  const absl::Status charged = account_->Charge(bytes, memory_class_);
  if (!charged.ok()) {
    pieces_.erase(entry);
    return charged;
  }
  const CudaContext::Scope scope(*context_);
  const absl::Status mapped = MapPiece(offset, entry->second);
  if (mapped.ok()) return mapped;
  account_->Refund(bytes, memory_class_);
  pieces_.erase(entry);
  return mapped;
}

absl::Status CudaRange::MapPiece(size_t offset, Piece& piece) {
  const CudaDriver& driver = context_->driver();
  const CUmemAllocationProp properties = Properties(context_->ordinal());
  INLAY_RETURN_IF_ERROR(context_->Check(
      driver.mem_create(&piece.handle, piece.bytes, &properties, 0),
      "allocating memory of a range"));
  const CUdeviceptr begin = address_ + offset;
  const absl::Status mapped = context_->Check(
      driver.mem_map(begin, piece.bytes, 0, piece.handle, 0), "mapping memory");
  if (!mapped.ok()) {
    driver.mem_release(piece.handle);
    return mapped;
  }
  CUmemAccessDesc access = {};
  access.location = properties.location;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  const absl::Status usable =
      context_->Check(driver.mem_set_access(begin, piece.bytes, &access, 1),
                      "giving access to mapped memory");
  if (!usable.ok()) {
    driver.mem_unmap(begin, piece.bytes);
    driver.mem_release(piece.handle);
  }
  return usable;
}

void CudaRange::Unmap(size_t offset) {
  const auto entry = pieces_.find(offset);
  INLAY_DCHECK(entry != pieces_.end());
  const CudaContext::Scope scope(*context_);
  Drop(offset, entry->second);
  pieces_.erase(entry);
}

void CudaRange::Drop(size_t offset, const Piece& piece) {
  // On a device that failed these do, too; the driver then frees all with the
  // context.
  context_->driver().mem_unmap(address_ + offset, piece.bytes);
  context_->driver().mem_release(piece.handle);
  account_->Refund(piece.bytes, memory_class_);
}

}  // namespace inlay
