#include "core/model/weights.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

#include "absl/strings/str_join.h"
#include "kernels/cpu_float.h"
#include "kernels/quant/quant.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

std::string ShapeText(absl::Span<const int64_t> shape) {
  return FormattedString("[%s]", absl::StrJoin(shape, ", "));
}

// Blocks are read byte by byte.
bool IsAligned(const std::byte* data, DType dtype) {
  return IsBlockFormat(dtype) ||
         reinterpret_cast<uintptr_t>(data) % RowBytes(dtype, 1) == 0;
}

absl::Status CheckMatrixDType(const std::string& name, DType dtype, int64_t k) {
  if (!IsPlainFloat(dtype) && !IsBlockFormat(dtype)) {
    return absl::UnimplementedError(FormattedString(
        "tensor \"%s\" is stored as %s; supported are f32, f16, "
        "bf16 and the block formats of quantised weights",
        name, DTypeName(dtype)));
  }
  const int block = GetFormatInfo(dtype).block_elements;
  if (k % block != 0) {
    return absl::InvalidArgumentError(FormattedString(
        "tensor \"%s\" has rows of %d elements; in %s they must be a multiple "
        "of %d",
        name, k, DTypeName(dtype), block));
  }
  return absl::OkStatus();
}

// Whether a vector [wanted] lies there, with dimensions of 1 around it (Kimi's
// A_log), or one number without any (Apertus's beta).
bool IsVector(absl::Span<const int64_t> stored,
              absl::Span<const int64_t> wanted) {
  if (wanted.size() != 1) return false;
  if (stored.empty()) return wanted[0] == 1;
  return std::count(stored.begin(), stored.end(), int64_t{1}) + 1 ==
             static_cast<int64_t>(stored.size()) &&
         std::find(stored.begin(), stored.end(), wanted[0]) != stored.end();
}

// Bytes, not elements: a mapped tensor may be unaligned.
float FloatAt(const std::byte* data, DType dtype, int64_t i) {
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

const WeightInfo* WeightLoader::Lookup(const std::string& name) const {
  if (files_.weights == nullptr) return nullptr;
  const auto find = [&](std::string_view wanted) {
    const WeightInfo* info = files_.weights->Find(wanted);
    if (info == nullptr && !prefix_.empty() && wanted.starts_with(prefix_)) {
      info = files_.weights->Find(wanted.substr(prefix_.size()));
    }
    return info;
  };
  if (const WeightInfo* info = find(name)) return info;
  // As checkpoints from TensorFlow, BERT's first ones, have it; transformers
  // reads both.
  for (const auto& [ours, theirs] :
       {std::pair{"weight", "gamma"}, std::pair{"bias", "beta"}}) {
    const std::string end = std::string("LayerNorm.") + ours;
    if (!name.ends_with(end)) continue;
    return find(name.substr(0, name.size() - std::strlen(ours)) + theirs);
  }
  return nullptr;
}

absl::StatusOr<const WeightInfo*> WeightLoader::Find(
    const std::string& name, absl::Span<const int64_t> shape) const {
  const WeightInfo* info = Lookup(name);
  if (info == nullptr) {
    return absl::NotFoundError(
        FormattedString("the weights have no tensor \"%s\" (shape %s wanted)",
                        name, ShapeText(shape)));
  }
  if (absl::MakeConstSpan(info->shape) != shape) {
    return absl::InvalidArgumentError(
        FormattedString("tensor \"%s\" has shape %s; config.json asks for %s",
                        info->name, ShapeText(info->shape), ShapeText(shape)));
  }
  return info;
}

absl::StatusOr<DType> WeightLoader::MatrixDType(const std::string& name,
                                                int64_t n, int64_t k) const {
  DType dtype;
  if (files_.random) {
    dtype = files_.random->DTypeOf(name);
  } else {
    INLAY_ASSIGN_OR_RETURN(const WeightInfo* info, Find(name, {n, k}));
    dtype = info->dtype;
  }
  INLAY_RETURN_IF_ERROR(CheckMatrixDType(name, dtype, k));
  return dtype;
}

absl::Status WeightLoader::Count(uint64_t elements, uint64_t bytes) {
  num_parameters_ += elements;
  bytes_ += bytes;
  // What is uploaded reports as it goes.
  return device_.host_addressable() ? Report(bytes_) : absl::OkStatus();
}

void WeightLoader::Plan(PlannedWeight weight) {
  const bool first = planned_names_.insert(weight.name).second;
  if (first && mode_ == Mode::kPlan) planned_.push_back(std::move(weight));
}

DType WeightLoader::PrevailingDType() const {
  std::map<DType, uint64_t> plain;
  uint64_t quantised = 0;
  if (files_.random) {
    const DType dtype = files_.random->dtype;
    return IsBlockFormat(dtype) ? DType::kBF16 : dtype;
  }
  for (const WeightInfo& info : files_.weights->weights()) {
    if (info.shape.size() < 2) continue;
    if (IsPlainFloat(info.dtype)) {
      plain[info.dtype] += info.bytes / RowBytes(info.dtype, 1);
    } else if (IsBlockFormat(info.dtype)) {
      const FormatInfo& format = GetFormatInfo(info.dtype);
      quantised += info.bytes / static_cast<uint64_t>(format.block_bytes) *
                   static_cast<uint64_t>(format.block_elements);
    }
  }
  if (quantised > plain[DType::kF32]) {
    return plain[DType::kF16] > plain[DType::kBF16] ? DType::kF16
                                                    : DType::kBF16;
  }
  return std::max_element(
             plain.begin(), plain.end(),
             [](const auto& a, const auto& b) { return a.second < b.second; })
      ->first;
}

bool WeightLoader::SameDType(absl::Span<const Rows> parts) const {
  if (files_.random) {
    return std::all_of(parts.begin(), parts.end(), [&](const Rows& part) {
      return files_.random->DTypeOf(part.name) ==
             files_.random->DTypeOf(parts.front().name);
    });
  }
  const WeightInfo* first = nullptr;
  for (const Rows& part : parts) {
    const WeightInfo* info = Lookup(part.name);
    if (info == nullptr) continue;
    if (first == nullptr) first = info;
    if (info->dtype != first->dtype) return false;
  }
  return true;
}

absl::StatusOr<bool> WeightLoader::AreEqual(const std::string& one,
                                            const std::string& other) const {
  constexpr uint64_t kPieceBytes = 64 << 10;
  const WeightInfo* infos[] = {Lookup(one), Lookup(other)};
  if (infos[0] == nullptr || infos[1] == nullptr || files_.random) return false;
  if (infos[0]->dtype != infos[1]->dtype ||
      infos[0]->shape != infos[1]->shape) {
    return false;
  }
  const WeightSource& source = *files_.weights;
  std::vector<std::byte> read[2];
  for (uint64_t at = 0; at < infos[0]->bytes; at += kPieceBytes) {
    const size_t size = std::min(kPieceBytes, infos[0]->bytes - at);
    const std::byte* pieces[2];
    for (int i = 0; i < 2; ++i) {
      const std::byte* mapped = source.Mapped(*infos[i]);
      if (mapped != nullptr) {
        pieces[i] = mapped + at;
        continue;
      }
      read[i].resize(size);
      INLAY_RETURN_IF_ERROR(
          source.Read(*infos[i], at, absl::MakeSpan(read[i])));
      pieces[i] = read[i].data();
    }
    if (std::memcmp(pieces[0], pieces[1], size) != 0) return false;
  }
  return true;
}

InputCodes WeightLoader::InputCodesOf(absl::Span<const Rows> parts) const {
  InputCodes codes = InputCodes::kNone;
  for (const Rows& part : parts) {
    const WeightInfo* info = Lookup(part.name);
    if (info == nullptr) return InputCodes::kNone;
    if (&part == parts.data()) codes = info->input_codes;
    if (info->input_codes != codes) return InputCodes::kNone;
  }
  return codes;
}

absl::StatusOr<WeightLoader::Pending> WeightLoader::Begin(
    const std::string& name, int64_t n, int64_t k) {
  Pending pending;
  INLAY_ASSIGN_OR_RETURN(const DType dtype, MatrixDType(name, n, k));
  INLAY_RETURN_IF_ERROR(CheckOrder(name));
  if (!files_.random) pending.info = Lookup(name);
  pending.view = MatrixView(nullptr, dtype, n, k);
  Plan({name, {n, k}, std::nullopt, pending.info});
  INLAY_RETURN_IF_ERROR(
      Count(static_cast<uint64_t>(n * k), pending.view.bytes()));
  return pending;
}

absl::StatusOr<TensorView> WeightLoader::LoadMatrix(const std::string& name,
                                                    int64_t n, int64_t k) {
  INLAY_ASSIGN_OR_RETURN(const Pending pending, Begin(name, n, k));
  TensorView view = pending.view;
  if (mode_ == Mode::kPlan) return view;
  const std::byte* mapped =
      pending.info == nullptr ? nullptr : files_.weights->Mapped(*pending.info);
  if (device_.host_addressable() && mapped != nullptr &&
      IsAligned(mapped, view.dtype)) {
    // Kernels only read weights; a view has no const form.
    view.data = const_cast<std::byte*>(mapped);
    return view;
  }
  INLAY_ASSIGN_OR_RETURN(view.data, Allocate(view.bytes()));
  INLAY_RETURN_IF_ERROR(WriteMatrix(name, pending, view.data));
  return view;
}

absl::StatusOr<TensorView> WeightLoader::LoadStacked(
    absl::Span<const Rows> parts, int64_t k) {
  INLAY_DCHECK(SameDType(parts));
  int64_t rows = 0;
  for (const Rows& part : parts) rows += part.n;
  TensorView stack;
  int64_t first = 0;
  for (const Rows& part : parts) {
    INLAY_ASSIGN_OR_RETURN(const Pending pending, Begin(part.name, part.n, k));
    if (first == 0) {
      stack = MatrixView(nullptr, pending.view.dtype, rows, k);
      if (mode_ == Mode::kLoad) {
        INLAY_ASSIGN_OR_RETURN(stack.data, Allocate(stack.bytes()));
      }
    }
    if (mode_ == Mode::kLoad) {
      INLAY_RETURN_IF_ERROR(
          WriteMatrix(part.name, pending, stack.RowSlice(first, part.n).data));
    }
    first += part.n;
  }
  return stack;
}

absl::StatusOr<TensorView> WeightLoader::Transposed(const std::string& name,
                                                    int64_t n, int64_t k) {
  if (files_.random) return Matrix(name, n, k);
  const WeightInfo* info = Lookup(name);
  if (info != nullptr && info->rows_are_outputs) return Matrix(name, n, k);
  INLAY_ASSIGN_OR_RETURN(const Pending pending, Begin(name, k, n));
  if (!IsPlainFloat(pending.view.dtype)) {
    return absl::UnimplementedError(FormattedString(
        "tensor \"%s\" is stored transposed and as %s, whose blocks cannot be "
        "turned; supported are f32, f16 and bf16",
        name, DTypeName(pending.view.dtype)));
  }
  TensorView view = MatrixView(nullptr, pending.view.dtype, n, k);
  if (mode_ == Mode::kPlan) return view;
  Buffer staging;
  INLAY_ASSIGN_OR_RETURN(const std::byte* bytes, Bytes(*pending.info, staging));
  INLAY_ASSIGN_OR_RETURN(view.data, Allocate(view.bytes()));
  INLAY_ASSIGN_OR_RETURN(ThreadPool * pool, Pool());
  const auto transpose = [&](std::byte* to) {
    if (view.dtype == DType::kF32) {
      Transpose<4>(bytes, to, n, k, *pool);
    } else {
      Transpose<2>(bytes, to, n, k, *pool);
    }
  };
  if (device_.host_addressable()) {
    transpose(view.data);
    return view;
  }
  std::vector<std::byte> turned(view.bytes());
  transpose(turned.data());
  INLAY_RETURN_IF_ERROR(WriteAll(view.data, turned));
  INLAY_RETURN_IF_ERROR(Report(bytes_));
  return view;
}

absl::Status WeightLoader::Widen(const std::string& name,
                                 absl::Span<const int64_t> shape,
                                 VectorKind kind, float* values) {
  const WeightInfo* info = nullptr;
  int64_t size = 1;
  for (const int64_t dim : shape) size *= dim;
  if (!files_.random) {
    info = Lookup(name);
    if (info == nullptr || !IsVector(info->shape, shape)) {
      INLAY_ASSIGN_OR_RETURN(info, Find(name, shape));
    }
    if (!IsPlainFloat(info->dtype)) {
      return absl::UnimplementedError(FormattedString(
          "vector \"%s\" is stored as %s; supported are f32, f16 and bf16",
          info->name, DTypeName(info->dtype)));
    }
  }
  INLAY_RETURN_IF_ERROR(CheckOrder(name));
  if (info != nullptr) shape = info->shape;
  // Two blocks may read behind one norm (LongCat-Flash's).
  const bool again = planned_names_.contains(name);
  Plan({name, {shape.begin(), shape.end()}, kind, info});
  const size_t wide_bytes = static_cast<size_t>(size) * sizeof(float);
  INLAY_RETURN_IF_ERROR(Count(again ? 0 : static_cast<uint64_t>(size),
                              info == nullptr ? wide_bytes : info->bytes));
  if (mode_ == Mode::kPlan) return absl::OkStatus();
  if (info == nullptr) {
    std::fill_n(values, size, kind == VectorKind::kBias ? 0.0f : 1.0f);
    return absl::OkStatus();
  }
  Buffer staging;
  INLAY_ASSIGN_OR_RETURN(const std::byte* bytes, Bytes(*info, staging));
  const float one = kind == VectorKind::kZeroCentredScale ? 1.0f : 0.0f;
  for (int64_t i = 0; i < size; ++i) {
    const float value = FloatAt(bytes, info->dtype, i);
    values[i] = one == 0.0f ? value : one + value;
  }
  return absl::OkStatus();
}

absl::StatusOr<const float*> WeightLoader::Vector(const std::string& name,
                                                  int64_t size, VectorKind kind,
                                                  float factor) {
  if (factor == 1.0f) return StackedVector({{name, size}}, kind);
  return Mapped(name, size, kind, [factor](float x) { return x * factor; });
}

absl::StatusOr<const float*> WeightLoader::Mapped(
    const std::string& name, int64_t size, VectorKind kind,
    const std::function<float(float)>& map) {
  std::vector<float> values(mode_ == Mode::kPlan ? 0
                                                 : static_cast<size_t>(size));
  INLAY_RETURN_IF_ERROR(Widen(name, {size}, kind, values.data()));
  for (float& value : values) value = map(value);
  return Constants(values);
}

absl::StatusOr<float> WeightLoader::Scalar(const std::string& name) {
  float value = 1.0f;
  INLAY_RETURN_IF_ERROR(Widen(name, {1}, VectorKind::kScale, &value));
  return value;
}

absl::StatusOr<std::vector<float>> WeightLoader::Numbers(
    const std::string& name, int64_t size) {
  std::vector<float> values(static_cast<size_t>(size), 0.0f);
  INLAY_RETURN_IF_ERROR(Widen(name, {size}, VectorKind::kBias, values.data()));
  return values;
}

absl::StatusOr<const float*> WeightLoader::LoadStackedVector(
    absl::Span<const Rows> parts, VectorKind kind) {
  int64_t size = 0;
  for (const Rows& part : parts) size += part.n;
  std::vector<float> values(
      mode_ == Mode::kPlan ? 0 : static_cast<size_t>(size), 0.0f);
  int64_t first = 0;
  for (const Rows& part : parts) {
    if (!part.name.empty()) {
      float* to = values.empty() ? nullptr : values.data() + first;
      INLAY_RETURN_IF_ERROR(Widen(part.name, {part.n}, kind, to));
    }
    first += part.n;
  }
  return Constants(values);
}

absl::StatusOr<const float*> WeightLoader::Taps(
    absl::Span<const Rows> parts, int64_t num_taps,
    absl::Span<const float> scales) {
  int64_t channels = 0;
  for (const Rows& part : parts) channels += part.n;
  const bool loads = mode_ == Mode::kLoad;
  std::vector<float> taps(loads ? static_cast<size_t>(num_taps * channels) : 0);
  int64_t first = 0;
  for (const Rows& part : parts) {
    std::vector<float> own(loads ? static_cast<size_t>(num_taps * part.n) : 0);
    INLAY_RETURN_IF_ERROR(Widen(part.name, {part.n, 1, num_taps},
                                VectorKind::kScale, own.data()));
    for (size_t i = 0; i < own.size(); ++i) {
      const auto channel = first + static_cast<int64_t>(i) / num_taps;
      const auto tap = static_cast<int64_t>(i) % num_taps;
      taps[static_cast<size_t>(tap * channels + channel)] =
          own[i] *
          (scales.empty() ? 1.0f : scales[static_cast<size_t>(channel)]);
    }
    first += part.n;
  }
  return Constants(taps);
}

absl::StatusOr<const int32_t*> WeightLoader::IndexTable(const std::string& name,
                                                        int64_t rows,
                                                        int64_t columns,
                                                        int64_t end) {
  const auto count = static_cast<size_t>(rows * columns);
  const WeightInfo* info = nullptr;
  if (!files_.random) {
    INLAY_ASSIGN_OR_RETURN(info, Find(name, {rows, columns}));
    if (info->dtype != DType::kI32 && info->dtype != DType::kI64) {
      return absl::InvalidArgumentError(
          FormattedString("tensor \"%s\" is stored as %s; indices must be i32 "
                          "or i64",
                          info->name, DTypeName(info->dtype)));
    }
  }
  const size_t bytes = count * sizeof(int32_t);
  INLAY_RETURN_IF_ERROR(Count(0, info == nullptr ? bytes : info->bytes));
  if (mode_ == Mode::kPlan) return nullptr;
  std::vector<int32_t> indices(count);
  Buffer staging;
  const std::byte* stored = nullptr;
  if (info != nullptr) {
    INLAY_ASSIGN_OR_RETURN(stored, Bytes(*info, staging));
  }
  for (size_t i = 0; i < count; ++i) {
    int64_t index = (static_cast<int64_t>(i) / columns +
                     static_cast<int64_t>(i) % columns) %
                    end;
    if (info != nullptr && info->dtype == DType::kI64) {
      std::memcpy(&index, stored + i * sizeof(int64_t), sizeof(index));
    } else if (info != nullptr) {
      int32_t narrow;
      std::memcpy(&narrow, stored + i * sizeof(int32_t), sizeof(narrow));
      index = narrow;
    }
    if (index < 0 || index >= end) {
      return absl::InvalidArgumentError(
          FormattedString("tensor \"%s\" has the index %d; it must be in [0, "
                          "%d)",
                          name, index, end));
    }
    indices[i] = static_cast<int32_t>(index);
    const size_t row =
        i / static_cast<size_t>(columns) * static_cast<size_t>(columns);
    for (size_t j = row; j < i; ++j) {
      if (indices[j] != indices[i]) continue;
      return absl::InvalidArgumentError(FormattedString(
          "tensor \"%s\" has the index %d twice in row %d; those of a row "
          "must differ",
          name, index, static_cast<int64_t>(i) / columns));
    }
  }
  INLAY_ASSIGN_OR_RETURN(std::byte * data, Allocate(bytes));
  INLAY_RETURN_IF_ERROR(WriteAll(
      data, absl::MakeConstSpan(
                reinterpret_cast<const std::byte*>(indices.data()), bytes)));
  return reinterpret_cast<const int32_t*>(data);
}

absl::StatusOr<const float*> WeightLoader::Floats(const std::string& name,
                                                  int64_t n, int64_t k,
                                                  VectorKind kind) {
  std::vector<float> values(
      mode_ == Mode::kPlan ? 0 : static_cast<size_t>(n * k), 0.0f);
  INLAY_RETURN_IF_ERROR(Widen(name, {n, k}, kind, values.data()));
  return Constants(values);
}

absl::StatusOr<const float*> WeightLoader::Constants(
    absl::Span<const float> values) {
  if (mode_ == Mode::kPlan) return nullptr;
  const size_t bytes = values.size() * sizeof(float);
  INLAY_ASSIGN_OR_RETURN(std::byte * data, Allocate(bytes));
  INLAY_RETURN_IF_ERROR(WriteAll(
      data, absl::MakeConstSpan(
                reinterpret_cast<const std::byte*>(values.data()), bytes)));
  return reinterpret_cast<const float*>(data);
}

absl::StatusOr<WeightStorage> WeightLoader::TakeStorage() {
  if (upload_ != nullptr) {
    INLAY_RETURN_IF_ERROR(upload_->Finish());
    upload_ = nullptr;
    band_ = Buffer();
    packed_ = Buffer();
    storage_.source = nullptr;  // all of it has been copied
    INLAY_RETURN_IF_ERROR(Report(bytes_));
  }
  if (files_.weights != nullptr) files_.weights->LeavePages({});
  return std::move(storage_);
}

}  // namespace inlay
