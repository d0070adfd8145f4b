// WeightLoader: how bytes come onto the device: made in place where the host
// can write there, otherwise uploaded piece by piece.
#include <atomic>
#include <cstring>
#include <utility>

#include "core/model/random_weights.h"
#include "core/model/weights.h"
#include "memory/mutex.h"
#include "memory/status.h"

namespace inlay {

absl::Status WeightLoader::Report(uint64_t done) {
  if (mode_ == Mode::kLoad && progress_ && !progress_(done, total_bytes_)) {
    return absl::CancelledError("loading the model was cancelled");
  }
  return absl::OkStatus();
}

absl::StatusOr<ThreadPool*> WeightLoader::Pool() {
  if (pool_ == nullptr) {
    INLAY_ASSIGN_OR_RETURN(pool_,
                           ThreadPool::Create(device_.info().num_threads));
  }
  return pool_.get();
}

absl::StatusOr<std::byte*> WeightLoader::Allocate(size_t bytes) {
  INLAY_ASSIGN_OR_RETURN(Buffer buffer,
                         device_.Allocate(bytes, MemoryClass::kWeights));
  std::byte* const data = buffer.data();
  storage_.buffers.push_back(std::move(buffer));
  return data;
}

absl::Status WeightLoader::Write(std::byte* dst, size_t bytes,
                                 WeightUpload::Fill fill) {
  if (device_.host_addressable()) return fill(0, absl::MakeSpan(dst, bytes));
  if (upload_ == nullptr) {
    INLAY_ASSIGN_OR_RETURN(upload_, WeightUpload::Create(&device_));
  }
  return upload_->Put(dst, bytes, fill);
}

absl::Status WeightLoader::WriteAll(std::byte* dst,
                                    absl::Span<const std::byte> bytes) {
  return Write(dst, bytes.size(),
               [&](size_t offset, absl::Span<std::byte> piece) {
                 std::memcpy(piece.data(), bytes.data() + offset, piece.size());
                 return absl::OkStatus();
               });
}

absl::StatusOr<const std::byte*> WeightLoader::Bytes(const WeightInfo& info,
                                                     Buffer& staging) {
  const std::byte* mapped = files_.weights->Mapped(info);
  if (mapped != nullptr) return mapped;
  INLAY_ASSIGN_OR_RETURN(staging, device_.AllocateStaging(info.bytes));
  INLAY_RETURN_IF_ERROR(files_.weights->Read(
      info, 0, absl::MakeSpan(staging.data(), info.bytes)));
  return staging.data();
}

// For an upload one thread neither copies nor reads fast enough.
absl::Status WeightLoader::ReadPiece(const WeightInfo& info, uint64_t offset,
                                     absl::Span<std::byte> piece) {
  if (device_.host_addressable()) {
    return files_.weights->Read(info, offset, piece);
  }
  constexpr int64_t kGrain = 1 << 20;
  INLAY_ASSIGN_OR_RETURN(ThreadPool * pool, Pool());
  const std::byte* mapped = files_.weights->Mapped(info);
  std::atomic<bool> failed{false};
  Mutex mu;
  absl::Status status;
  pool->ParallelFor(
      static_cast<int64_t>(piece.size()), kGrain,
      [&](int64_t begin, int64_t end) {
        const auto at = static_cast<size_t>(begin);
        const auto part = piece.subspan(at, static_cast<size_t>(end - begin));
        if (mapped != nullptr) {
          std::memcpy(part.data(), mapped + offset + at, part.size());
          return;
        }
        const absl::Status read = files_.weights->Read(info, offset + at, part);
        if (read.ok() || failed.exchange(true)) return;
        MutexLock lock(&mu);
        status = read;
      });
  MutexLock lock(&mu);
  return status;
}

absl::Status WeightLoader::WriteMatrix(const std::string& name,
                                       const Pending& pending, std::byte* dst) {
  const TensorView& view = pending.view;
  const uint64_t before = bytes_ - view.bytes();
  return Write(
      dst, view.bytes(),
      [&](size_t offset, absl::Span<std::byte> piece) -> absl::Status {
        if (!device_.host_addressable()) {
          INLAY_RETURN_IF_ERROR(Report(before + offset + piece.size()));
        }
        if (pending.info != nullptr) {
          return ReadPiece(*pending.info, offset, piece);
        }
        const size_t size = RowBytes(view.dtype, 1);
        INLAY_ASSIGN_OR_RETURN(ThreadPool * pool, Pool());
        DrawWeights(files_.random->seed, name, view.dtype,
                    static_cast<int64_t>(piece.size() / size), piece.data(),
                    *pool, static_cast<int64_t>(offset / size));
        return absl::OkStatus();
      });
}

}  // namespace inlay
