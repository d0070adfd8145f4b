#include "core/quantize/output_error.h"

namespace inlay {

absl::StatusOr<double> OutputEnergy::Of(const float* got, const float* want,
                                        int64_t rows, Stream& stream) {
  const int64_t inputs = factor_ != nullptr
                             ? factor_->inputs()
                             : static_cast<int64_t>(diagonal_->size());
  const auto at = [&](int64_t row, int64_t input) {
    const int64_t i = row * inputs + input;
    return want == nullptr ? got[i] : got[i] - want[i];
  };
  if (factor_ == nullptr) {
    double energy = 0.0;
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t i = 0; i < inputs; ++i) {
        const double error = at(row, i);
        energy += error * error * (*diagonal_)[static_cast<size_t>(i)];
      }
    }
    return energy;
  }
  errors_.resize(static_cast<size_t>(rows * inputs));
  const std::vector<int32_t>& order = factor_->order();
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t p = 0; p < inputs; ++p) {
      errors_[static_cast<size_t>(row * inputs + p)] =
          at(row, order.empty() ? p : order[static_cast<size_t>(p)]);
    }
  }
  return factor_->Energy(errors_.data(), rows, stream);
}

}  // namespace inlay
