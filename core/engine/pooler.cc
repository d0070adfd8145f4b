#include "core/engine/pooler.h"

#include <cmath>

#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {

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
  // torch's normalize() divides by no less.
  constexpr double kLeast = 1e-12;
  const double count = static_cast<double>(count_);
  const double divisor =
      normalise_ ? std::fmax(std::sqrt(squares), kLeast * count) : count;
  std::vector<float> pooled;
  pooled.reserve(sum_.size());
  for (const double sum : sum_) {
    pooled.push_back(static_cast<float>(sum / divisor));
    if (!std::isfinite(pooled.back())) {
      return NumericError(
          FormattedString("the embedding is not finite: value %d of %d is %g",
                          pooled.size() - 1, sum_.size(), pooled.back()));
    }
  }
  return pooled;
}

}  // namespace inlay
