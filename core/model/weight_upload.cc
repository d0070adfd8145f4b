#include "core/model/weight_upload.h"

#include <algorithm>

#include "absl/memory/memory.h"
#include "memory/status.h"

namespace inlay {
namespace {

// Of a piece in staging memory.
constexpr size_t kPieceAlignment = 64;

}  // namespace

absl::StatusOr<std::unique_ptr<WeightUpload>> WeightUpload::Create(
    Device* device, size_t staging_bytes) {
  INLAY_DCHECK(staging_bytes >= kPieceAlignment &&
               staging_bytes % kPieceAlignment == 0);
  auto upload = absl::WrapUnique(new WeightUpload(device));
  INLAY_ASSIGN_OR_RETURN(upload->stream_, device->CreateStream());
  for (Staging& staging : upload->staging_) {
    INLAY_ASSIGN_OR_RETURN(staging.memory,
                           device->AllocateStaging(staging_bytes));
    INLAY_ASSIGN_OR_RETURN(staging.copied, device->CreateEvent());
  }
  return upload;
}

WeightUpload::~WeightUpload() {
  // Copies still read the staging memory.
  if (stream_ != nullptr) stream_->Synchronize().IgnoreError();
}

absl::Status WeightUpload::NextStaging() {
  INLAY_RETURN_IF_ERROR(stream_->Record(*staging_[current_].copied));
  current_ = (current_ + 1) % staging_.size();
  used_ = 0;
  return staging_[current_].copied->Synchronize();
}

absl::Status WeightUpload::Put(std::byte* dst, size_t bytes, size_t unit,
                               Fill fill) {
  INLAY_DCHECK(unit > 0 && unit <= staging_[0].memory.bytes());
  for (size_t done = 0; done < bytes;) {
    if (staging_[current_].memory.bytes() - used_ < unit) {
      INLAY_RETURN_IF_ERROR(NextStaging());
    }
    const Buffer& memory = staging_[current_].memory;
    const size_t room = memory.bytes() - used_;
    const size_t piece = std::min(bytes - done, room - room % unit);
    std::byte* const from = memory.data() + used_;
    INLAY_RETURN_IF_ERROR(fill(done, absl::MakeSpan(from, piece)));
    INLAY_RETURN_IF_ERROR(device_->Copy(dst + done, from, piece, *stream_));
    used_ = std::min(memory.bytes(), (used_ + piece + kPieceAlignment - 1) /
                                         kPieceAlignment * kPieceAlignment);
    done += piece;
  }
  return absl::OkStatus();
}

absl::Status WeightUpload::Finish() { return stream_->Synchronize(); }

}  // namespace inlay
