#include "core/formats/norm_head_source.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include "core/formats/baichuan_config.h"
#include "core/formats/describe.h"
#include "core/formats/stored_tensor.h"
#include "memory/dtype.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

constexpr std::string_view kNormHead = "lm_head.weight";
// Shorter rows are divided by this (torch.nn.functional.normalize).
constexpr float kShortestRow = 1e-12f;
// Of Ling 1's columns.
constexpr float kAddedLength = 1e-7f;

// What each column of `head` is divided by. Reads it.
absl::StatusOr<std::vector<float>> ColumnLengths(const WeightSource& stored,
                                                 const WeightInfo& head) {
  const auto columns = static_cast<size_t>(head.shape[1]);
  std::vector<double> squares(columns);
  std::vector<float> row(columns);
  for (int64_t i = 0; i < head.shape[0]; ++i) {
    INLAY_RETURN_IF_ERROR(
        ReadFloats(stored, head, i, 1, 0, head.shape[1], row.data()));
    for (size_t j = 0; j < columns; ++j) {
      squares[j] += static_cast<double>(row[j]) * static_cast<double>(row[j]);
    }
  }
  for (size_t j = 0; j < columns; ++j) {
    row[j] = static_cast<float>(std::sqrt(squares[j])) + kAddedLength;
  }
  return row;
}

class NormHeadSource final : public WeightSource {
 public:
  // `lengths`: of columns; empty: rows are divided by their own.
  NormHeadSource(std::shared_ptr<const WeightSource> stored,
                 std::vector<float> lengths)
      : stored_(std::move(stored)), lengths_(std::move(lengths)) {}

  absl::Span<const WeightInfo> weights() const override {
    return stored_->weights();
  }
  uint64_t LeavePages(FileRange range) const override {
    return stored_->LeavePages(range);
  }
  const std::byte* Mapped(const WeightInfo& info) const override {
    return info.name == kNormHead ? nullptr : stored_->Mapped(info);
  }

  absl::Status Read(const WeightInfo& info, uint64_t offset,
                    absl::Span<std::byte> destination) const override {
    if (info.name != kNormHead) return stored_->Read(info, offset, destination);
    const auto columns = static_cast<size_t>(info.shape[1]);
    const uint64_t row_bytes = RowBytes(info.dtype, columns);
    std::vector<float> row(columns);
    std::vector<std::byte> own(row_bytes);
    for (uint64_t done = 0; done < destination.size();) {
      const uint64_t at = offset + done;
      const uint64_t within = at % row_bytes;
      INLAY_RETURN_IF_ERROR(ReadFloats(*stored_, info,
                                       static_cast<int64_t>(at / row_bytes), 1,
                                       0, info.shape[1], row.data()));
      if (lengths_.empty()) {
        Normalise(&row);
      } else {
        for (size_t j = 0; j < columns; ++j) row[j] /= lengths_[j];
      }
      Store(info.dtype, row, own.data());
      const uint64_t count =
          std::min<uint64_t>(row_bytes - within, destination.size() - done);
      std::memcpy(destination.data() + done, own.data() + within, count);
      done += count;
    }
    return absl::OkStatus();
  }

 private:
  static void Normalise(std::vector<float>* row) {
    double squares = 0.0;
    for (const float value : *row) {
      squares += static_cast<double>(value) * static_cast<double>(value);
    }
    const float length =
        std::max(static_cast<float>(std::sqrt(squares)), kShortestRow);
    for (float& value : *row) value /= length;
  }

  static void Store(DType dtype, const std::vector<float>& row,
                    std::byte* destination) {
    if (dtype == DType::kF32) {
      std::memcpy(destination, row.data(), row.size() * sizeof(float));
      return;
    }
    for (size_t i = 0; i < row.size(); ++i) {
      const uint16_t bits =
          dtype == DType::kBF16 ? F32ToBF16(row[i]) : F32ToF16(row[i]);
      std::memcpy(destination + i * sizeof(bits), &bits, sizeof(bits));
    }
  }

  std::shared_ptr<const WeightSource> stored_;
  std::vector<float> lengths_;
};

}  // namespace

absl::StatusOr<std::shared_ptr<const WeightSource>> PresentNormHead(
    const Json& config, std::shared_ptr<const WeightSource> stored) {
  const Json* type = JsonFind(config, "model_type");
  const bool is_ling = type != nullptr && *type == "bailing_moe";
  if (type == nullptr || (*type != "baichuan" && !is_ling)) return stored;
  INLAY_ASSIGN_OR_RETURN(const bool normalises,
                         is_ling ? JsonBool(config, "norm_head", false)
                                 : BaichuanHasNormHead(config));
  const WeightInfo* head = stored->Find(kNormHead);
  if (!normalises || head == nullptr) return stored;
  const bool is_plain = head->dtype == DType::kF32 ||
                        head->dtype == DType::kF16 ||
                        head->dtype == DType::kBF16;
  if (!is_plain || head->shape.size() != 2 || head->shape[0] < 1 ||
      head->shape[1] < 1) {
    return absl::UnimplementedError(FormattedString(
        "tensor %s, whose rows or columns are normalised, is %s with %d "
        "dimensions; "
        "supported is a matrix of f32, f16 or bf16",
        Quoted(head->name), DTypeName(head->dtype), head->shape.size()));
  }
  std::vector<float> lengths;
  if (is_ling) {
    INLAY_ASSIGN_OR_RETURN(lengths, ColumnLengths(*stored, *head));
  }
  return std::make_shared<NormHeadSource>(std::move(stored),
                                          std::move(lengths));
}

}  // namespace inlay
