// WeightLoader: how bytes come onto the device: made in place where the host
// can write there, otherwise uploaded piece by piece.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include "absl/strings/str_format.h"
#include "core/model/random_weights.h"
#include "core/model/weights.h"
#include "kernels/quant/quant.h"
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
        return Draw(name, view.dtype, offset, piece);
      });
}

absl::Status WeightLoader::Draw(const std::string& name, DType dtype,
                                uint64_t offset, absl::Span<std::byte> piece) {
  const auto size = static_cast<size_t>(GetFormatInfo(dtype).block_bytes);
  if (offset % size != 0) {
    return absl::UnimplementedError(absl::StrFormat(
        "random weights of dtype %s are drawn on the host only; %s supports "
        "f32, f16 and bf16",
        DTypeName(dtype), device_.info().name));
  }
  INLAY_ASSIGN_OR_RETURN(ThreadPool * pool, Pool());
  const auto first = static_cast<int64_t>(offset / size);
  const auto count = static_cast<int64_t>(piece.size() / size);
  const uint64_t seed = files_.random->seed;
  const BlockCodec* codec = FindBlockCodec(dtype);
  if (codec == nullptr) {
    DrawWeights(seed, name, dtype, count, piece.data(), *pool, first);
    return absl::OkStatus();
  }
  return DrawBlocks(seed, name, *codec, first, count, piece.data(), *pool);
}

absl::Status WeightLoader::PackRows(const Packing& packing,
                                    const TensorView& rows, int64_t first,
                                    std::byte* packed) {
  INLAY_ASSIGN_OR_RETURN(ThreadPool * pool, Pool());
  const int64_t groups = (rows.rows() + packing.group - 1) / packing.group;
  pool->ParallelFor(groups, 1, [&](int64_t begin, int64_t end) {
    const int64_t from = begin * packing.group;
    const int64_t count = std::min(end * packing.group, rows.rows()) - from;
    packing.pack(rows.row<std::byte>(from), first + from, count, packed);
  });
  return absl::OkStatus();
}

absl::StatusOr<TensorView> WeightLoader::Repacked(const TensorView& matrix,
                                                  const Packing& packing) {
  INLAY_RETURN_IF_ERROR(Count(0, packing.bytes));
  TensorView view = matrix;
  if (mode_ == Mode::kPlan) return view;
  INLAY_ASSIGN_OR_RETURN(view.data, Allocate(packing.bytes));
  INLAY_RETURN_IF_ERROR(PackRows(packing, matrix, 0, view.data));
  return view;
}

absl::StatusOr<TensorView> WeightLoader::Packed(const std::string& name,
                                                int64_t n, int64_t k,
                                                const Packing& packing) {
  // Large enough that a read's start costs nothing beside it.
  constexpr size_t kBandBytes = 16 << 20;
  INLAY_ASSIGN_OR_RETURN(const DType dtype, MatrixDType(name, n, k));
  Plan({name, {n, k}, std::nullopt, files_.random ? nullptr : Lookup(name)});
  INLAY_RETURN_IF_ERROR(Count(static_cast<uint64_t>(n * k), packing.bytes));
  TensorView view = MatrixView(nullptr, dtype, n, k);
  if (mode_ == Mode::kPlan) return view;
  INLAY_ASSIGN_OR_RETURN(view.data, Allocate(packing.bytes));
  const WeightInfo* info = files_.random ? nullptr : Lookup(name);
  const std::byte* mapped =
      info == nullptr ? nullptr : files_.weights->Mapped(*info);
  TensorView band = view;
  if (mapped != nullptr) {
    band.data = const_cast<std::byte*>(mapped);
    INLAY_RETURN_IF_ERROR(PackRows(packing, band, 0, view.data));
    return view;
  }
  const size_t group_bytes =
      static_cast<size_t>(packing.group) * view.row_stride_bytes;
  const auto band_rows =
      static_cast<int64_t>(kBandBytes / group_bytes + 1) * packing.group;
  INLAY_ASSIGN_OR_RETURN(
      const Buffer staging,
      device_.AllocateStaging(static_cast<size_t>(std::min(band_rows, n)) *
                              view.row_stride_bytes));
  for (int64_t first = 0; first < n; first += band_rows) {
    band = MatrixView(staging.data(), dtype, std::min(band_rows, n - first), k);
    const uint64_t offset =
        static_cast<uint64_t>(first) * view.row_stride_bytes;
    const auto bytes = absl::MakeSpan(band.data, band.bytes());
    INLAY_RETURN_IF_ERROR(info == nullptr ? Draw(name, dtype, offset, bytes)
                                          : ReadPiece(*info, offset, bytes));
    INLAY_RETURN_IF_ERROR(PackRows(packing, band, first, view.data));
  }
  return view;
}

}  // namespace inlay
