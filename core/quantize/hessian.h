// Hessian: what calibration keeps of a layer's inputs: H = sum of x x^T, mean
// and largest magnitudes. Knows no models and no formats.
// Source: Frantar et al., GPTQ (arXiv:2210.17323): the error of a layer with
// weights W + E is tr(E H E^T).
#ifndef INLAY_CORE_QUANTIZE_HESSIAN_H_
#define INLAY_CORE_QUANTIZE_HESSIAN_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "memory/device/stream.h"
#include "memory/tensor.h"

namespace inlay {

// y [m, n] = x [m, k] w [n, k]^T (+ residual), all float32 and on CPU, through
// the engine's own kernels.
absl::Status MultiplyF32(const TensorView& x, const TensorView& w,
                         const TensorView& residual, const TensorView& y,
                         Stream& stream);
// Rows of `matrix`, of `stride` floats, as a view [rows, columns].
TensorView FloatView(const float* matrix, int64_t rows, int64_t columns,
                     int64_t stride);

class Hessian {
 public:
  // `full`: all of H, 4 inputs^2 bytes; otherwise its diagonal.
  Hessian(int64_t inputs, bool full);

  // x: [tokens, inputs] float32; takes 2 KB more for each input. Sums of at
  // most 512 tokens are made in float32 and added up in float32; the diagonal
  // is in float64.
  absl::Status Add(const TensorView& x, Stream& stream);
  // As if there had been so many tokens more with the mean squares that `other`
  // has over its own, and the largest magnitudes of both.
  void AddMeanOf(const Hessian& other, int64_t tokens);
  // As if there had been so many tokens more whose inputs do not depend on each
  // other: `alike`: with the mean square of all inputs (1 where there were no
  // tokens); otherwise each with its own.
  void AddIndependent(int64_t tokens, bool alike);
  // INVALID_ARGUMENT where an input was not finite, or nothing was added.
  absl::Status Check() const;

  int64_t inputs() const { return inputs_; }
  int64_t tokens() const { return tokens_; }
  bool full() const { return full_; }
  // Of sum of x^2.
  const std::vector<double>& diagonal() const { return diagonal_; }
  // Mean of |x|.
  std::vector<float> MeanMagnitudes() const;
  // Largest |x|.
  const std::vector<float>& largest() const { return largest_; }
  // [inputs, inputs], the lower triangle; only of a full one, and it leaves
  // none behind.
  std::vector<float> TakeMatrix() { return std::move(matrix_); }

 private:
  int64_t inputs_ = 0;
  bool full_ = false;
  int64_t tokens_ = 0;
  std::vector<double> diagonal_;
  std::vector<double> magnitudes_;  // sums of |x|
  std::vector<float> largest_;
  std::vector<float> matrix_;  // from the first token on
};

}  // namespace inlay

#endif  // INLAY_CORE_QUANTIZE_HESSIAN_H_
