#include "core/quantize/row_reader.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_format.h"
#include "core/formats/stored_tensor.h"
#include "kernels/cpu_float.h"
#include "kernels/quant/quant.h"
#include "memory/status.h"

namespace inlay {
namespace {

constexpr int64_t kDecodeGrain = 4096;

absl::Status CheckDType(const WeightInfo& info, bool transposed) {
  if (IsPlainFloat(info.dtype)) return absl::OkStatus();
  if (FindBlockCodec(info.dtype) != nullptr && info.shape.size() == 2 &&
      !transposed) {
    return absl::OkStatus();
  }
  return absl::UnimplementedError(absl::StrFormat(
      "tensor \"%s\" is stored as %s%s, allowed: f32, f16, bf16 and block "
      "formats of matrices by rows",
      info.name, DTypeName(info.dtype), transposed ? ", transposed" : ""));
}

}  // namespace

absl::StatusOr<RowReader> RowReader::Create(const WeightSource& source,
                                            const WeightInfo& info,
                                            GgufLayout layout,
                                            const GgufHeads& heads,
                                            ThreadPool& pool) {
  RowReader reader(source, info, pool);
  reader.layout_ = layout;
  reader.transposed_ =
      layout == GgufLayout::kTransposed && !info.rows_are_outputs;
  if (info.shape.empty() || info.shape.size() > 2) {
    return absl::UnimplementedError(
        absl::StrFormat("tensor \"%s\" has %d dimensions, allowed: 1 and 2",
                        info.name, info.shape.size()));
  }
  INLAY_RETURN_IF_ERROR(CheckDType(info, reader.transposed_));
  reader.rows_ = info.shape[0];
  if (info.shape.size() == 2) reader.row_elements_ = info.shape[1];
  if (reader.transposed_) std::swap(reader.rows_, reader.row_elements_);
  const bool is_query = layout == GgufLayout::kQueryRows;
  if (is_query || layout == GgufLayout::kKeyRows) {
    const int64_t count = is_query ? heads.query : heads.key;
    if (count < 1 || reader.rows_ % (2 * count) != 0) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "tensor \"%s\" has %d rows, allowed: a multiple of twice the %d "
          "heads",
          info.name, reader.rows_, count));
    }
    reader.head_rows_ = reader.rows_ / count;
  }
  INLAY_RETURN_IF_ERROR(reader.ReadPermutation());
  return reader;
}

absl::Status RowReader::ReadPermutation() {
  constexpr std::string_view kSuffix = ".weight";
  if (!info_->name.ends_with(kSuffix) || info_->shape.size() != 2) {
    return absl::OkStatus();
  }
  const std::string name =
      info_->name.substr(0, info_->name.size() - kSuffix.size()) +
      ".input_permutation";
  const WeightInfo* info = source_->Find(name);
  if (info == nullptr) return absl::OkStatus();
  INLAY_RETURN_IF_ERROR(CheckShape(*info, {row_elements_}));
  INLAY_ASSIGN_OR_RETURN(permutation_, ReadInts(*source_, *info));
  for (const int32_t input : permutation_) {
    if (input >= 0 && input < row_elements_) continue;
    return absl::InvalidArgumentError(
        absl::StrFormat("tensor \"%s\" has the index %d, allowed: 0 to %d",
                        name, input, row_elements_ - 1));
  }
  return absl::OkStatus();
}

int64_t RowReader::SourceRow(int64_t row) const {
  if (head_rows_ == 0) return row;
  // The rows of the two rotary halves take turns.
  const int64_t in_head = row % head_rows_;
  return row - in_head + in_head / 2 + (in_head % 2) * (head_rows_ / 2);
}

absl::Status RowReader::ReadStored(int64_t first, int64_t count,
                                   std::byte* rows) const {
  const uint64_t row_bytes = RowBytes(info_->dtype, row_elements_);
  const auto read = [&](int64_t row, int64_t n, std::byte* to) {
    return source_->Read(
        *info_, static_cast<uint64_t>(row) * row_bytes,
        absl::MakeSpan(to, static_cast<uint64_t>(n) * row_bytes));
  };
  if (head_rows_ == 0) return read(first, count, rows);
  for (int64_t i = 0; i < count; ++i) {
    INLAY_RETURN_IF_ERROR(read(SourceRow(first + i), 1,
                               rows + static_cast<uint64_t>(i) * row_bytes));
  }
  return absl::OkStatus();
}

absl::Status RowReader::ReadTransposed(int64_t first, int64_t count,
                                       float* rows) {
  strip_.resize(static_cast<size_t>(row_elements_ * count));
  INLAY_RETURN_IF_ERROR(ReadFloats(*source_, *info_, 0, row_elements_, first,
                                   count, strip_.data()));
  pool_->ParallelFor(count, 1, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      for (int64_t i = 0; i < row_elements_; ++i) {
        rows[row * row_elements_ + i] =
            strip_[static_cast<size_t>(i * count + row)];
      }
    }
  });
  return absl::OkStatus();
}

void RowReader::Widen(const std::byte* row, float* values) const {
  const BlockCodec* codec = FindBlockCodec(info_->dtype);
  if (codec == nullptr) {
    for (int64_t i = 0; i < row_elements_; ++i) {
      values[i] = LoadFloat(info_->dtype, row, i);
    }
  } else {
    codec->decode(row,
                  row_elements_ / GetFormatInfo(info_->dtype).block_elements,
                  values);
  }
  if (layout_ == GgufLayout::kPlusOne) {
    for (int64_t i = 0; i < row_elements_; ++i) values[i] += 1.0f;
  }
}

absl::Status RowReader::Read(int64_t first, int64_t count, float* rows) {
  if (transposed_) return ReadTransposed(first, count, rows);
  const uint64_t row_bytes = RowBytes(info_->dtype, row_elements_);
  stored_.resize(static_cast<uint64_t>(count) * row_bytes);
  INLAY_RETURN_IF_ERROR(ReadStored(first, count, stored_.data()));
  // Here: threads of the pool must not fail.
  if (!permutation_.empty()) {
    sorted_.resize(static_cast<size_t>(count * row_elements_));
  }
  const int64_t grain =
      std::max<int64_t>(1, kDecodeGrain / std::max<int64_t>(row_elements_, 1));
  pool_->ParallelFor(count, grain, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      float* values = rows + row * row_elements_;
      const std::byte* stored =
          stored_.data() + static_cast<uint64_t>(row) * row_bytes;
      if (permutation_.empty()) {
        Widen(stored, values);
        continue;
      }
      float* sorted = sorted_.data() + row * row_elements_;
      Widen(stored, sorted);
      for (size_t i = 0; i < permutation_.size(); ++i) {
        values[permutation_[i]] = sorted[i];
      }
    }
  });
  return absl::OkStatus();
}

}  // namespace inlay
