#include "core/engine/pooler.h"

#include <cmath>

#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

// torch's normalize() divides by no less.
constexpr double kLeast = 1e-12;

}  // namespace

absl::Status CheckFinite(absl::Span<const float> values) {
  for (size_t i = 0; i < values.size(); ++i) {
    if (std::isfinite(values[i])) continue;
    return NumericError(
        FormattedString("the embedding is not finite: value %d of %d is %g", i,
                        values.size(), values[i]));
  }
  return absl::OkStatus();
}

absl::Status NormaliseEmbedding(absl::Span<float> values) {
  INLAY_RETURN_IF_ERROR(CheckFinite(values));
  double squares = 0;
  for (const double value : values) squares += value * value;
  const double length = std::fmax(std::sqrt(squares), kLeast);
  for (float& value : values) value = static_cast<float>(value / length);
  return absl::OkStatus();
}

bool Pooler::Wants(int64_t position, int64_t num_tokens) const {
  switch (pooling_) {
    case Pooling::kNone:
      return false;
    case Pooling::kMean:
      return position < num_tokens;
    case Pooling::kCls:
      return position == 0;
    case Pooling::kLast:
      return position == num_tokens - 1;
  }
  return false;
}

void Pooler::Add(absl::Span<const float> hidden) {
  sum_.resize(hidden.size());
  for (size_t i = 0; i < hidden.size(); ++i) sum_[i] += hidden[i];
  ++count_;
}

absl::StatusOr<std::vector<float>> Pooler::Finish() const {
  double squares = 0;
  for (const double sum : sum_) squares += sum * sum;
  const double count = static_cast<double>(count_);
  const double divisor =
      normalise_ ? std::fmax(std::sqrt(squares), kLeast * count) : count;
  std::vector<float> pooled;
  pooled.reserve(sum_.size());
  for (const double sum : sum_) {
    pooled.push_back(static_cast<float>(sum / divisor));
  }
  INLAY_RETURN_IF_ERROR(CheckFinite(pooled));
  return pooled;
}

}  // namespace inlay
