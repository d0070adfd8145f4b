#include "core/formats/sinusoid_source.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/formats/describe.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

constexpr int64_t kBefore = 2;  // rows before that of position 0
constexpr int64_t kMostPositions = int64_t{1} << 28;
constexpr int64_t kMostWidth = int64_t{1} << 20;

struct Sinusoids {
  int64_t rows = 0;
  int64_t width = 0;
  std::optional<int64_t> zero;  // row

  // In float32, operation by operation as it is defined.
  float Frequency(int64_t column) const {
    const int64_t half = width / 2;
    const double step =
        std::log(10000.0) / static_cast<double>(std::max<int64_t>(1, half - 1));
    return std::exp(static_cast<float>(column % half) *
                    -static_cast<float>(step));
  }

  float At(int64_t row, int64_t column, float frequency) const {
    const int64_t half = width / 2;
    if (row == zero || column >= 2 * half) return 0.0f;
    const float angle = static_cast<float>(row) * frequency;
    return column < half ? std::sin(angle) : std::cos(angle);
  }
};

class SinusoidSource final : public WeightSource {
 public:
  SinusoidSource(std::shared_ptr<const WeightSource> stored,
                 const Sinusoids& sinusoids)
      : stored_(std::move(stored)), sinusoids_(sinusoids) {
    for (const WeightInfo& info : stored_->weights()) {
      if (info.name != kComputedPositions) infos_.push_back(info);
    }
    WeightInfo own;
    own.name = std::string(kComputedPositions);
    own.shape = {sinusoids.rows, sinusoids.width};
    own.bytes = static_cast<uint64_t>(sinusoids.rows) *
                static_cast<uint64_t>(sinusoids.width) * sizeof(float);
    const auto at = std::lower_bound(
        infos_.begin(), infos_.end(), own,
        [](const auto& a, const auto& b) { return a.name < b.name; });
    infos_.insert(at, std::move(own));
    for (int64_t column = 0; column < sinusoids.width; ++column) {
      const bool is_padding = column >= sinusoids.width / 2 * 2;
      frequencies_.push_back(is_padding ? 0.0f : sinusoids.Frequency(column));
    }
  }

  absl::Span<const WeightInfo> weights() const override { return infos_; }

  uint64_t LeavePages(FileRange range) const override {
    return stored_->LeavePages(range);
  }

  const std::byte* Mapped(const WeightInfo& info) const override {
    const WeightInfo* stored = StoredOf(info);
    return stored == nullptr ? nullptr : stored_->Mapped(*stored);
  }

  absl::Status Read(const WeightInfo& info, uint64_t offset,
                    absl::Span<std::byte> destination) const override {
    if (info.name != kComputedPositions) {
      const WeightInfo* stored = StoredOf(info);
      if (stored != nullptr) return stored_->Read(*stored, offset, destination);
      return absl::NotFoundError(FormattedString(
          "tensor %s does not come from these files", Quoted(info.name)));
    }
    uint64_t done = 0;
    while (done < destination.size()) {
      const uint64_t byte = offset + done;
      const auto element = static_cast<int64_t>(byte / sizeof(float));
      const uint64_t within = byte % sizeof(float);
      const int64_t column = element % sinusoids_.width;
      const float value =
          sinusoids_.At(element / sinusoids_.width, column,
                        frequencies_[static_cast<size_t>(column)]);
      const uint64_t count =
          std::min<uint64_t>(sizeof(float) - within, destination.size() - done);
      std::memcpy(destination.data() + done,
                  reinterpret_cast<const std::byte*>(&value) + within, count);
      done += count;
    }
    return absl::OkStatus();
  }

 private:
  const WeightInfo* StoredOf(const WeightInfo& info) const {
    if (info.name == kComputedPositions) return nullptr;
    return stored_->Find(info.name);
  }

  std::shared_ptr<const WeightSource> stored_;
  Sinusoids sinusoids_;
  std::vector<float> frequencies_;  // of columns
  std::vector<WeightInfo> infos_;
};

}  // namespace

absl::StatusOr<std::shared_ptr<const WeightSource>> PresentSinusoids(
    const Json& config, std::shared_ptr<const WeightSource> stored) {
  const Json* type = JsonFind(config, "model_type");
  if (type == nullptr || *type != "xglm") return stored;
  Sinusoids sinusoids;
  INLAY_ASSIGN_OR_RETURN(
      const int64_t positions,
      JsonInt(config, "max_position_embeddings", 2048, 1, kMostPositions));
  INLAY_ASSIGN_OR_RETURN(const int64_t hidden,
                         JsonInt(config, "hidden_size", 1024, 2, kMostWidth));
  INLAY_ASSIGN_OR_RETURN(sinusoids.width,
                         JsonInt(config, "d_model", hidden, 2, kMostWidth));
  sinusoids.rows = positions + kBefore;
  const auto padding = config.find("pad_token_id");
  if (padding == config.end() || !padding->is_null()) {
    INLAY_ASSIGN_OR_RETURN(
        sinusoids.zero,
        JsonInt(config, "pad_token_id", 1, -kMostPositions, kMostPositions));
  }
  // Counted from the end, as PyTorch counts.
  if (sinusoids.zero.has_value() && *sinusoids.zero < 0) {
    *sinusoids.zero += sinusoids.rows;
  }
  return std::make_shared<SinusoidSource>(std::move(stored), sinusoids);
}

}  // namespace inlay
