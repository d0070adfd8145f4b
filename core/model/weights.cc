#include "core/model/weights.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "core/model/random_weights.h"
#include "memory/status.h"

namespace inlay {
namespace {

bool IsPlainFloat(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16;
}

std::string ShapeText(absl::Span<const int64_t> shape) {
  return absl::StrFormat("[%s]", absl::StrJoin(shape, ", "));
}

bool IsAligned(const std::byte* data, DType dtype) {
  return reinterpret_cast<uintptr_t>(data) % RowBytes(dtype, 1) == 0;
}

// Bytes, not elements: a mapped tensor may be unaligned.
float Widen(const std::byte* data, DType dtype, int64_t i) {
  if (dtype == DType::kF32) {
    float value;
    std::memcpy(&value, data + i * 4, sizeof(value));
    return value;
  }
  uint16_t bits;
  std::memcpy(&bits, data + i * 2, sizeof(bits));
  return dtype == DType::kBF16 ? BF16ToF32(bits) : F16ToF32(bits);
}

// dst[n][k] = src[k][n], in tiles that keep both sides in cache.
template <size_t kSize>
void Transpose(const std::byte* src, std::byte* dst, int64_t n, int64_t k,
               ThreadPool& pool) {
  constexpr int64_t kTile = 32;
  pool.ParallelFor((n + kTile - 1) / kTile, 1, [&](int64_t begin, int64_t end) {
    for (int64_t n0 = begin * kTile; n0 < std::min(end * kTile, n);
         n0 += kTile) {
      for (int64_t k0 = 0; k0 < k; k0 += kTile) {
        for (int64_t i = n0; i < std::min(n0 + kTile, n); ++i) {
          for (int64_t j = k0; j < std::min(k0 + kTile, k); ++j) {
            std::memcpy(dst + (i * k + j) * static_cast<int64_t>(kSize),
                        src + (j * n + i) * static_cast<int64_t>(kSize), kSize);
          }
        }
      }
    }
  });
}

}  // namespace

WeightLoader::WeightLoader(const ModelFiles& files, Device& device, Mode mode,
                           LoadProgress progress, uint64_t total_bytes)
    : files_(files),
      device_(device),
      mode_(mode),
      progress_(std::move(progress)),
      total_bytes_(total_bytes) {
  storage_.source = files.weights;
}

absl::StatusOr<const WeightInfo*> WeightLoader::Find(
    const std::string& name, absl::Span<const int64_t> shape) const {
  const WeightInfo* info = files_.weights->Find(name);
  if (info == nullptr && !prefix_.empty() && name.starts_with(prefix_)) {
    info = files_.weights->Find(std::string_view(name).substr(prefix_.size()));
  }
  if (info == nullptr) {
    return absl::NotFoundError(
        absl::StrFormat("the weights have no tensor \"%s\" (shape %s wanted)",
                        name, ShapeText(shape)));
  }
  if (absl::MakeConstSpan(info->shape) != shape) {
    return absl::InvalidArgumentError(
        absl::StrFormat("tensor \"%s\" has shape %s; config.json asks for %s",
                        info->name, ShapeText(info->shape), ShapeText(shape)));
  }
  if (!IsPlainFloat(info->dtype)) {
    return absl::UnimplementedError(absl::StrFormat(
        "tensor \"%s\" is stored as %s; supported are f32, f16 and bf16",
        info->name, DTypeName(info->dtype)));
  }
  return info;
}

absl::Status WeightLoader::Count(uint64_t elements, uint64_t bytes) {
  num_parameters_ += elements;
  bytes_ += bytes;
  if (mode_ == Mode::kLoad && progress_ && !progress_(bytes_, total_bytes_)) {
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

absl::StatusOr<Buffer> WeightLoader::ReadCopy(const WeightInfo& info,
                                              MemoryClass memory_class) {
  INLAY_ASSIGN_OR_RETURN(Buffer buffer,
                         device_.Allocate(info.bytes, memory_class));
  INLAY_RETURN_IF_ERROR(
      files_.weights->Read(info, 0, absl::MakeSpan(buffer.data(), info.bytes)));
  return buffer;
}

absl::StatusOr<const std::byte*> WeightLoader::Bytes(const WeightInfo& info,
                                                     Buffer& staging) {
  const std::byte* mapped = files_.weights->Mapped(info);
  if (mapped != nullptr) return mapped;
  INLAY_ASSIGN_OR_RETURN(staging, ReadCopy(info, MemoryClass::kWorkspace));
  return staging.data();
}

absl::StatusOr<TensorView> WeightLoader::RandomMatrix(const std::string& name,
                                                      int64_t n, int64_t k) {
  const DType dtype = files_.random->dtype;
  if (!IsPlainFloat(dtype)) {
    return absl::UnimplementedError(
        absl::StrFormat("random weights of dtype %s are not supported; "
                        "supported are f32, f16 and bf16",
                        DTypeName(dtype)));
  }
  TensorView view = MatrixView(nullptr, dtype, n, k);
  INLAY_RETURN_IF_ERROR(Count(static_cast<uint64_t>(n * k), view.bytes()));
  if (mode_ == Mode::kPlan) return view;
  INLAY_ASSIGN_OR_RETURN(Buffer buffer,
                         device_.Allocate(view.bytes(), MemoryClass::kWeights));
  INLAY_ASSIGN_OR_RETURN(ThreadPool * pool, Pool());
  DrawWeights(files_.random->seed, name, dtype, n * k, buffer.data(), *pool);
  view.data = buffer.data();
  storage_.buffers.push_back(std::move(buffer));
  return view;
}

absl::StatusOr<TensorView> WeightLoader::Matrix(const std::string& name,
                                                int64_t n, int64_t k) {
  if (files_.random) return RandomMatrix(name, n, k);
  INLAY_ASSIGN_OR_RETURN(const WeightInfo* info, Find(name, {n, k}));
  INLAY_RETURN_IF_ERROR(Count(static_cast<uint64_t>(n * k), info->bytes));
  TensorView view = MatrixView(nullptr, info->dtype, n, k);
  if (mode_ == Mode::kPlan) return view;
  const std::byte* mapped = files_.weights->Mapped(*info);
  if (mapped != nullptr && IsAligned(mapped, info->dtype)) {
    // Kernels only read weights; a view has no const form.
    view.data = const_cast<std::byte*>(mapped);
    return view;
  }
  INLAY_ASSIGN_OR_RETURN(Buffer buffer, ReadCopy(*info, MemoryClass::kWeights));
  view.data = buffer.data();
  storage_.buffers.push_back(std::move(buffer));
  return view;
}

absl::StatusOr<TensorView> WeightLoader::Transposed(const std::string& name,
                                                    int64_t n, int64_t k) {
  if (files_.random) return RandomMatrix(name, n, k);
  INLAY_ASSIGN_OR_RETURN(const WeightInfo* info, Find(name, {k, n}));
  INLAY_RETURN_IF_ERROR(Count(static_cast<uint64_t>(n * k), info->bytes));
  TensorView view = MatrixView(nullptr, info->dtype, n, k);
  if (mode_ == Mode::kPlan) return view;
  Buffer staging;
  INLAY_ASSIGN_OR_RETURN(const std::byte* bytes, Bytes(*info, staging));
  INLAY_ASSIGN_OR_RETURN(Buffer buffer,
                         device_.Allocate(view.bytes(), MemoryClass::kWeights));
  INLAY_ASSIGN_OR_RETURN(ThreadPool * pool, Pool());
  if (info->dtype == DType::kF32) {
    Transpose<4>(bytes, buffer.data(), n, k, *pool);
  } else {
    Transpose<2>(bytes, buffer.data(), n, k, *pool);
  }
  view.data = buffer.data();
  storage_.buffers.push_back(std::move(buffer));
  return view;
}

absl::StatusOr<const float*> WeightLoader::Vector(const std::string& name,
                                                  int64_t size,
                                                  VectorKind kind) {
  const WeightInfo* info = nullptr;
  if (!files_.random) {
    INLAY_ASSIGN_OR_RETURN(info, Find(name, {size}));
  }
  const size_t wide_bytes = static_cast<size_t>(size) * sizeof(float);
  INLAY_RETURN_IF_ERROR(Count(static_cast<uint64_t>(size),
                              info == nullptr ? wide_bytes : info->bytes));
  if (mode_ == Mode::kPlan) return nullptr;
  INLAY_ASSIGN_OR_RETURN(Buffer buffer,
                         device_.Allocate(wide_bytes, MemoryClass::kWeights));
  auto* values = buffer.as<float>();
  if (info == nullptr) {
    std::fill_n(values, size, kind == VectorKind::kBias ? 0.0f : 1.0f);
  } else {
    Buffer staging;
    INLAY_ASSIGN_OR_RETURN(const std::byte* bytes, Bytes(*info, staging));
    const float one = kind == VectorKind::kZeroCentredScale ? 1.0f : 0.0f;
    for (int64_t i = 0; i < size; ++i) {
      const float value = Widen(bytes, info->dtype, i);
      values[i] = one == 0.0f ? value : one + value;
    }
  }
  storage_.buffers.push_back(std::move(buffer));
  return values;
}

WeightStorage WeightLoader::TakeStorage() { return std::move(storage_); }

}  // namespace inlay
