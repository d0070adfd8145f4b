// WeightLoader: how bytes come onto the device: made in place where the host
// can write there, otherwise uploaded piece by piece.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include "core/model/random_weights.h"
#include "core/model/weights.h"
#include "kernels/quant/quant.h"
#include "memory/caught.h"
#include "memory/mutex.h"
#include "memory/status.h"

namespace inlay {
namespace {

size_t BlockBytes(DType dtype) {
  return static_cast<size_t>(GetFormatInfo(dtype).block_bytes);
}

}  // namespace

absl::Status WeightLoader::Report(uint64_t done) {
  // So much of the files is the process's memory besides what it loads.
  constexpr uint64_t kMostPages = 256 << 20;
  if (mode_ == Mode::kLoad && files_.weights != nullptr &&
      done >= left_ + kMostPages) {
    files_.weights->LeavePages({});
    left_ = done;
  }
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

absl::Status WeightLoader::Write(std::byte* dst, size_t bytes, size_t unit,
                                 WeightUpload::Fill fill) {
  if (device_.host_addressable()) return fill(0, absl::MakeSpan(dst, bytes));
  if (upload_ == nullptr) {
    INLAY_ASSIGN_OR_RETURN(upload_, WeightUpload::Create(&device_));
  }
  return upload_->Put(dst, bytes, unit, fill);
}

absl::Status WeightLoader::WriteAll(std::byte* dst,
                                    absl::Span<const std::byte> bytes) {
  return Write(dst, bytes.size(), 1,
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
        // On worker threads, where nothing else would catch.
        const absl::Status read = Caught(
            [&] { return files_.weights->Read(info, offset + at, part); });
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
      dst, view.bytes(), BlockBytes(view.dtype),
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
  const size_t size = BlockBytes(dtype);
  INLAY_DCHECK(offset % size == 0);
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
  INLAY_RETURN_IF_ERROR(device_.host_addressable()
                            ? PackRows(packing, matrix, 0, view.data)
                            : packing.pack_on_device(matrix.data, 0,
                                                     matrix.rows(), view.data,
                                                     upload_->stream()));
  INLAY_RETURN_IF_ERROR(Inspect(packing, view.data));
  return view;
}

absl::Status WeightLoader::Inspect(const Packing& packing,
                                   const std::byte* packed) {
  if (device_.host_addressable() || packing.inspect == nullptr) {
    return absl::OkStatus();
  }
  return packing.inspect(packed, upload_->stream());
}

absl::StatusOr<DType> WeightLoader::PlanPacked(absl::Span<const Rows> parts,
                                               int64_t k,
                                               const Packing& packing) {
  int64_t rows = 0;
  for (const Rows& part : parts) rows += part.n;
  INLAY_ASSIGN_OR_RETURN(const DType dtype,
                         MatrixDType(parts.front().name, parts.front().n, k));
  for (const Rows& part : parts) {
    INLAY_RETURN_IF_ERROR(MatrixDType(part.name, part.n, k).status());
    INLAY_RETURN_IF_ERROR(CheckOrder(part.name));
    Plan({part.name,
          {part.n, k},
          std::nullopt,
          files_.random ? nullptr : Lookup(part.name)});
  }
  INLAY_RETURN_IF_ERROR(Count(static_cast<uint64_t>(rows * k), packing.bytes));
  return dtype;
}

absl::StatusOr<TensorView> WeightLoader::LoadPacked(
    absl::Span<const Rows> parts, int64_t k, const Packing& packing) {
  INLAY_ASSIGN_OR_RETURN(const DType dtype, PlanPacked(parts, k, packing));
  int64_t rows = 0;
  for (const Rows& part : parts) rows += part.n;
  TensorView view = MatrixView(nullptr, dtype, rows, k);
  if (mode_ == Mode::kPlan) return view;
  INLAY_ASSIGN_OR_RETURN(view.data, Allocate(packing.bytes));
  Buffer host;
  if (PacksHere(packing) && !device_.host_addressable()) {
    INLAY_ASSIGN_OR_RETURN(host, device_.AllocateStaging(packing.bytes));
  }
  std::byte* const packed = host.empty() ? view.data : host.data();
  int64_t first = 0;
  for (const Rows& part : parts) {
    INLAY_RETURN_IF_ERROR(PackPart(part, dtype, k, first, packing, packed));
    first += part.n;
    INLAY_RETURN_IF_ERROR(Report(bytes_ - packing.bytes +
                                 packing.bytes / static_cast<uint64_t>(rows) *
                                     static_cast<uint64_t>(first)));
  }
  if (!host.empty()) {
    INLAY_RETURN_IF_ERROR(
        WriteAll(view.data, absl::MakeConstSpan(packed, packing.bytes)));
  }
  INLAY_RETURN_IF_ERROR(Inspect(packing, view.data));
  return view;
}

absl::Status WeightLoader::PackPart(const Rows& part, DType dtype, int64_t k,
                                    int64_t first, const Packing& packing,
                                    std::byte* packed) {
  // Large enough that a read's start costs nothing beside it.
  constexpr size_t kBandBytes = 16 << 20;
  const TensorView whole = MatrixView(nullptr, dtype, part.n, k);
  const WeightInfo* info = files_.random ? nullptr : Lookup(part.name);
  const std::byte* mapped =
      info == nullptr ? nullptr : files_.weights->Mapped(*info);
  const bool here = PacksHere(packing);
  if (here && mapped != nullptr) {
    TensorView rows = whole;
    rows.data = const_cast<std::byte*>(mapped);
    return PackRows(packing, rows, first, packed);
  }
  const size_t group_bytes =
      static_cast<size_t>(packing.group) * whole.row_stride_bytes;
  const auto band_rows =
      std::min(part.n, static_cast<int64_t>(kBandBytes / group_bytes + 1) *
                           packing.group);
  const size_t band_bytes =
      static_cast<size_t>(band_rows) * whole.row_stride_bytes;
  Buffer& buffer = here ? host_band_ : band_;
  if (buffer.bytes() < band_bytes) {
    if (upload_ != nullptr) INLAY_RETURN_IF_ERROR(upload_->Finish());
    buffer = Buffer();
    INLAY_ASSIGN_OR_RETURN(
        buffer, here ? device_.AllocateStaging(band_bytes)
                     : device_.Allocate(band_bytes, MemoryClass::kWorkspace));
  }
  for (int64_t at = 0; at < part.n; at += band_rows) {
    const TensorView band =
        MatrixView(buffer.data(), dtype, std::min(band_rows, part.n - at), k);
    const uint64_t offset = static_cast<uint64_t>(at) * whole.row_stride_bytes;
    const auto fill = [&](size_t begin, absl::Span<std::byte> piece) {
      return info == nullptr ? Draw(part.name, dtype, offset + begin, piece)
                             : ReadPiece(*info, offset + begin, piece);
    };
    INLAY_RETURN_IF_ERROR(
        here ? fill(0, absl::MakeSpan(band.data, band.bytes()))
             : Write(band.data, band.bytes(), BlockBytes(dtype), fill));
    INLAY_RETURN_IF_ERROR(here ? PackRows(packing, band, first + at, packed)
                               : packing.pack_on_device(band.data, first + at,
                                                        band.rows(), packed,
                                                        upload_->stream()));
  }
  return absl::OkStatus();
}

}  // namespace inlay
