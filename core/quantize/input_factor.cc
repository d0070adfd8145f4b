#include "core/quantize/input_factor.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "memory/device/thread_pool.h"
#include "memory/status.h"

namespace inlay {
namespace {

constexpr int64_t kBlock = 128;
constexpr int64_t kProductRows = 512;

// Element (a, b) of the lower triangle changes places with (n-1-b, n-1-a):
// rows and columns in reverse, transposed.
void Flip(float* matrix, int64_t n, ThreadPool& pool) {
  pool.ParallelFor(n, 16, [&](int64_t begin, int64_t end) {
    for (int64_t a = begin; a < end; ++a) {
      for (int64_t b = 0; b <= a && a + b < n - 1; ++b) {
        std::swap(matrix[a * n + b], matrix[(n - 1 - b) * n + n - 1 - a]);
      }
    }
  });
}

// L of a symmetric block [size, size], rows of `stride`, in place. A pivot
// cannot be below `least` but by rounding.
void FactorDiagonal(float* block, int64_t size, int64_t stride, double least,
                    double* factor) {
  for (int64_t r = 0; r < size; ++r) {
    for (int64_t c = 0; c <= r; ++c) {
      double sum = block[r * stride + c];
      for (int64_t p = 0; p < c; ++p) {
        sum -= factor[r * kBlock + p] * factor[c * kBlock + p];
      }
      factor[r * kBlock + c] = r == c ? std::sqrt(std::max(sum, least))
                                      : sum / factor[c * (kBlock + 1)];
      block[r * stride + c] = static_cast<float>(factor[r * kBlock + c]);
    }
  }
}

// x factor^T = row, in place.
void SolveRow(float* row, int64_t size, const double* factor) {
  double x[kBlock];
  for (int64_t c = 0; c < size; ++c) {
    double sum = row[c];
    for (int64_t p = 0; p < c; ++p) sum -= x[p] * factor[c * kBlock + p];
    x[c] = sum / factor[c * (kBlock + 1)];
    row[c] = static_cast<float>(x[c]);
  }
}

// In place, the lower triangle; left-looking, so that nearly all of it is
// products of matrices.
absl::Status Cholesky(float* matrix, int64_t n, double least, Stream& stream) {
  std::vector<float> products(static_cast<size_t>(n * kBlock));
  std::vector<double> factor(static_cast<size_t>(kBlock * kBlock));
  for (int64_t j = 0; j < n; j += kBlock) {
    const int64_t size = std::min(kBlock, n - j);
    // Some rows at a time: the product copies them.
    for (int64_t row = j; j > 0 && row < n; row += kProductRows) {
      const int64_t rows = std::min(kProductRows, n - row);
      INLAY_RETURN_IF_ERROR(MultiplyF32(
          FloatView(matrix + row * n, rows, j, n),
          FloatView(matrix + j * n, size, j, n), {},
          FloatView(products.data() + (row - j) * size, rows, size, size),
          stream));
    }
    const auto subtract = [&](int64_t row) {
      const float* product = products.data() + (row - j) * size;
      for (int64_t c = 0; j > 0 && c < std::min(size, row - j + 1); ++c) {
        matrix[row * n + j + c] -= product[c];
      }
    };
    for (int64_t row = j; row < j + size; ++row) subtract(row);
    FactorDiagonal(matrix + j * (n + 1), size, n, least, factor.data());
    stream.thread_pool()->ParallelFor(
        n - j - size, 8, [&](int64_t begin, int64_t end) {
          for (int64_t row = j + size + begin; row < j + size + end; ++row) {
            subtract(row);
            SolveRow(matrix + row * n + j, size, factor.data());
          }
        });
  }
  return absl::OkStatus();
}

std::vector<int32_t> FallingOrder(const std::vector<double>& diagonal) {
  std::vector<int32_t> order(diagonal.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return diagonal[static_cast<size_t>(a)] > diagonal[static_cast<size_t>(b)];
  });
  return order;
}

// The lower triangle with rows and columns in `order`.
std::vector<float> Permuted(const std::vector<float>& matrix,
                            const std::vector<int32_t>& order,
                            ThreadPool& pool) {
  const auto n = static_cast<int64_t>(order.size());
  std::vector<float> sorted(matrix.size());
  pool.ParallelFor(n, 16, [&](int64_t begin, int64_t end) {
    for (int64_t a = begin; a < end; ++a) {
      for (int64_t b = 0; b <= a; ++b) {
        const auto [low, high] = std::minmax(order[static_cast<size_t>(a)],
                                             order[static_cast<size_t>(b)]);
        sorted[static_cast<size_t>(a * n + b)] =
            matrix[static_cast<size_t>(high * n + low)];
      }
    }
  });
  return sorted;
}

}  // namespace

absl::StatusOr<InputFactor> InputFactor::Create(Hessian hessian,
                                                const FactorOptions& options,
                                                Stream& stream) {
  INLAY_RETURN_IF_ERROR(hessian.Check());
  InputFactor factor;
  factor.inputs_ = hessian.inputs();
  const std::vector<double>& diagonal = hessian.diagonal();
  factor.matrix_ = hessian.TakeMatrix();
  if (options.act_order) {
    factor.order_ = FallingOrder(diagonal);
    factor.matrix_ =
        Permuted(factor.matrix_, factor.order_, *stream.thread_pool());
  }
  const double mean = std::accumulate(diagonal.begin(), diagonal.end(), 0.0) /
                      static_cast<double>(factor.inputs_);
  // Where no input was ever there all are the same.
  const double damping = mean > 0.0 ? options.damping * mean : 1.0;
  INLAY_RETURN_IF_ERROR(factor.Factorise(damping, stream));
  return factor;
}

absl::Status InputFactor::Factorise(double damping, Stream& stream) {
  const int64_t n = inputs_;
  float* matrix = matrix_.data();
  for (int64_t i = 0; i < n; ++i) {
    matrix[i * (n + 1)] += static_cast<float>(damping);
  }
  // Backwards, L L^T has L's columns where V wants its rows.
  Flip(matrix, n, *stream.thread_pool());
  INLAY_RETURN_IF_ERROR(Cholesky(matrix, n, damping, stream));
  Flip(matrix, n, *stream.thread_pool());
  costs_.resize(static_cast<size_t>(n));
  stream.thread_pool()->ParallelFor(n, 16, [&](int64_t begin, int64_t end) {
    for (int64_t j = begin; j < end; ++j) {
      float* row = matrix + j * n;
      const float pivot = row[j];
      costs_[static_cast<size_t>(j)] = pivot * pivot;
      for (int64_t i = 0; i < j; ++i) row[i] /= pivot;
    }
  });
  return absl::OkStatus();
}

absl::StatusOr<double> InputFactor::Energy(const float* errors, int64_t rows,
                                           Stream& stream) const {
  std::vector<float> sums(static_cast<size_t>(rows * kBlock));
  std::vector<double> energies(static_cast<size_t>(rows));
  for (int64_t j = 0; j < inputs_; j += kBlock) {
    const int64_t size = std::min(kBlock, inputs_ - j);
    if (j > 0) {
      INLAY_RETURN_IF_ERROR(
          MultiplyF32(FloatView(errors, rows, j, inputs_), Feedback(j, size, j),
                      {}, FloatView(sums.data(), rows, size, kBlock), stream));
    }
    stream.thread_pool()->ParallelFor(rows, 1, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const float* error = errors + row * inputs_ + j;
        for (int64_t c = 0; c < size; ++c) {
          const float* feedback = matrix_.data() + (j + c) * inputs_ + j;
          float sum = sums[static_cast<size_t>(row * kBlock + c)] + error[c];
          for (int64_t p = 0; p < c; ++p) sum += error[p] * feedback[p];
          energies[static_cast<size_t>(row)] +=
              double{sum} * sum * costs_[static_cast<size_t>(j + c)];
        }
      }
    });
  }
  return std::accumulate(energies.begin(), energies.end(), 0.0);
}

}  // namespace inlay
