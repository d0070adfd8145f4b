// WeightLoader: matrices that stay in host memory, where a device reads them.
#include <algorithm>
#include <utility>

#include "core/model/weights.h"
#include "memory/status.h"

namespace inlay {

absl::StatusOr<std::byte*> WeightLoader::Room(size_t bytes) {
  if (mode_ == Mode::kPlan) return nullptr;
  return Allocate(bytes);
}

absl::StatusOr<std::byte*> WeightLoader::Image(
    absl::Span<const std::byte> bytes) {
  INLAY_ASSIGN_OR_RETURN(std::byte * data, Room(bytes.size()));
  if (data != nullptr) INLAY_RETURN_IF_ERROR(WriteAll(data, bytes));
  return data;
}

absl::StatusOr<const std::byte*> WeightLoader::InHostMemory(
    absl::Span<const std::vector<Rows>> matrices, int64_t k,
    const Packing* packing, size_t pitch) {
  INLAY_DCHECK(!device_.host_addressable());
  std::byte* base = nullptr;
  if (mode_ == Mode::kLoad) {
    // Pinned memory has one address for host and device.
    INLAY_ASSIGN_OR_RETURN(Buffer memory,
                           device_.AllocateStaging(pitch * matrices.size()));
    base = memory.data();
    storage_.buffers.push_back(std::move(memory));
  }
  std::byte* to = base;
  for (const std::vector<Rows>& parts : matrices) {
    INLAY_RETURN_IF_ERROR(packing == nullptr
                              ? StackInHostMemory(parts, k, to)
                              : PackInHostMemory(parts, k, *packing, to));
    if (to != nullptr) to += pitch;
    INLAY_RETURN_IF_ERROR(Report(bytes_));
  }
  return base;
}

absl::Status WeightLoader::StackInHostMemory(absl::Span<const Rows> parts,
                                             int64_t k, std::byte* to) {
  // So much is read between two reports.
  constexpr size_t kPieceBytes = 32 << 20;
  for (const Rows& part : parts) {
    INLAY_ASSIGN_OR_RETURN(const Pending pending, Begin(part.name, part.n, k));
    if (mode_ == Mode::kPlan) continue;
    const size_t bytes = pending.view.bytes();
    for (size_t done = 0; done < bytes; done += kPieceBytes) {
      const auto piece =
          absl::MakeSpan(to + done, std::min(kPieceBytes, bytes - done));
      INLAY_RETURN_IF_ERROR(
          pending.info != nullptr
              ? ReadPiece(*pending.info, done, piece)
              : Draw(part.name, pending.view.dtype, done, piece));
      INLAY_RETURN_IF_ERROR(Report(bytes_ - bytes + done + piece.size()));
    }
    to += bytes;
  }
  return absl::OkStatus();
}

absl::Status WeightLoader::PackInHostMemory(absl::Span<const Rows> parts,
                                            int64_t k, const Packing& packing,
                                            std::byte* to) {
  INLAY_ASSIGN_OR_RETURN(const DType dtype, PlanPacked(parts, k, packing));
  if (mode_ == Mode::kPlan) return absl::OkStatus();
  const bool here = PacksHere(packing);
  if (!here && packed_.bytes() < packing.bytes) {
    if (upload_ != nullptr) INLAY_RETURN_IF_ERROR(upload_->Finish());
    packed_ = Buffer();
    INLAY_ASSIGN_OR_RETURN(
        packed_, device_.Allocate(packing.bytes, MemoryClass::kWorkspace));
  }
  std::byte* const packed = here ? to : packed_.data();
  int64_t first = 0;
  for (const Rows& part : parts) {
    INLAY_RETURN_IF_ERROR(PackPart(part, dtype, k, first, packing, packed));
    first += part.n;
  }
  if (here) return absl::OkStatus();
  INLAY_RETURN_IF_ERROR(Inspect(packing, packed));
  return device_.Copy(to, packed, packing.bytes, upload_->stream());
}

}  // namespace inlay
