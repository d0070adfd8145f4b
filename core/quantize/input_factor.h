// InputFactor: a triangular factor of a layer's Hessian, which makes the error
// of rounding one input after another a plain sum. Knows no formats.
//
// H + damping = V V^T with V upper triangular. For errors e of a row of weights
//   e H e^T = sum over j of (V_jj (e_j + sum over i < j of e_i V_ij / V_jj))^2,
// so that with the errors of inputs before j given, input j is best rounded
// from w_j + sum over i < j of e_i V_ij / V_jj. That is GPTQ's update, which
// moves each error on to the columns after it by a row of the inverse's factor
// U = V^-1: without an inverse.
// Source: Frantar et al., GPTQ (arXiv:2210.17323); Chen et al., GPTQ as Babai's
// nearest plane algorithm (arXiv:2507.18553).
#ifndef INLAY_CORE_QUANTIZE_INPUT_FACTOR_H_
#define INLAY_CORE_QUANTIZE_INPUT_FACTOR_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/quantize/hessian.h"
#include "memory/device/stream.h"

namespace inlay {

struct FactorOptions {
  double damping = 0.01;   // of the diagonal's mean, added to all of it
  bool act_order = false;  // inputs of largest H_ii first
};

class InputFactor {
 public:
  // Blocked Cholesky: float32, sums within a block of 128 columns in float64;
  // inputs^3 / 3 multiply-adds. Uses the Hessian's memory up; as much again
  // with act_order. Inputs that were always 0 count as damping says.
  // INVALID_ARGUMENT as Hessian::Check says.
  static absl::StatusOr<InputFactor> Create(Hessian hessian,
                                            const FactorOptions& options,
                                            Stream& stream);

  int64_t inputs() const { return inputs_; }
  // The input that comes at each place; empty: in order.
  const std::vector<int32_t>& order() const { return order_; }
  // V_jj^2 by place: what the square of an error there costs at least.
  const std::vector<float>& costs() const { return costs_; }
  // V_ij / V_jj for places j in [first, first + count), i < j; above that
  // anything: [count, columns].
  TensorView Feedback(int64_t first, int64_t count, int64_t columns) const {
    return FloatView(matrix_.data() + first * inputs_, count, columns, inputs_);
  }
  // Sum of e H e^T of rows e [rows, inputs], columns by place. Float32 but for
  // the last sum.
  absl::StatusOr<double> Energy(const float* errors, int64_t rows,
                                Stream& stream) const;

 private:
  absl::Status Factorise(double damping, Stream& stream);

  int64_t inputs_ = 0;
  std::vector<int32_t> order_;
  std::vector<float> costs_;
  std::vector<float> matrix_;
};

}  // namespace inlay

#endif  // INLAY_CORE_QUANTIZE_INPUT_FACTOR_H_
