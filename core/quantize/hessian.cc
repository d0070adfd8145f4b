#include "core/quantize/hessian.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "kernels/gemm/gemm.h"
#include "memory/device/thread_pool.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

constexpr int64_t kPieceTokens = 512;
constexpr int64_t kPanelRows = 256;

}  // namespace

TensorView FloatView(const float* matrix, int64_t rows, int64_t columns,
                     int64_t stride) {
  TensorView view =
      MatrixView(const_cast<float*>(matrix), DType::kF32, rows, columns);
  view.row_stride_bytes = static_cast<size_t>(stride) * sizeof(float);
  return view;
}

absl::Status MultiplyF32(const TensorView& x, const TensorView& w,
                         const TensorView& residual, const TensorView& y,
                         Stream& stream) {
  GemmDesc desc;
  desc.n = w.rows();
  desc.k = w.cols();
  DeviceInfo cpu;
  cpu.kind = DeviceKind::kCpu;
  INLAY_ASSIGN_OR_RETURN(const GemmRow* row,
                         Select("gemm", GemmTable(), desc, cpu, "cpu_simd"));
  GemmParams params;
  params.x = x;
  params.w = w;
  params.residual = residual;
  params.y = y;
  std::vector<float> workspace(row->workspace_bytes(desc, x.rows()) /
                               sizeof(float));
  params.workspace = workspace.data();
  return row->run(desc, params, stream);
}

Hessian::Hessian(int64_t inputs, bool full) : inputs_(inputs), full_(full) {
  const auto size = static_cast<size_t>(inputs);
  diagonal_.resize(size);
  magnitudes_.resize(size);
  largest_.resize(size);
}

absl::Status Hessian::Add(const TensorView& x, Stream& stream) {
  const auto each = [&](int64_t grain, ThreadPool::Body body) {
    stream.thread_pool()->ParallelFor(inputs_, grain, body);
  };
  std::vector<float> transposed;  // [inputs, tokens of a piece]
  if (full_) {
    matrix_.resize(static_cast<size_t>(inputs_ * inputs_));
    transposed.resize(
        static_cast<size_t>(inputs_ * std::min(kPieceTokens, x.rows())));
  }
  for (int64_t first = 0; first < x.rows(); first += kPieceTokens) {
    const int64_t count = std::min(kPieceTokens, x.rows() - first);
    each(64, [&](int64_t begin, int64_t end) {
      for (int64_t t = 0; t < count; ++t) {
        const float* row = x.row<const float>(first + t);
        for (int64_t i = begin; i < end; ++i) {
          const auto at = static_cast<size_t>(i);
          diagonal_[at] += double{row[i]} * row[i];
          magnitudes_[at] += std::abs(row[i]);
          largest_[at] = std::max(largest_[at], std::abs(row[i]));
          if (full_) transposed[static_cast<size_t>(i * count + t)] = row[i];
        }
      }
    });
    // The lower triangle, a panel of rows at a time.
    for (int64_t i = 0; full_ && i < inputs_; i += kPanelRows) {
      const int64_t rows = std::min(kPanelRows, inputs_ - i);
      const TensorView panel =
          FloatView(matrix_.data() + i * inputs_, rows, i + rows, inputs_);
      INLAY_RETURN_IF_ERROR(MultiplyF32(
          FloatView(transposed.data() + i * count, rows, count, count),
          FloatView(transposed.data(), i + rows, count, count), panel, panel,
          stream));
    }
  }
  tokens_ += x.rows();
  return absl::OkStatus();
}

void Hessian::AddMeanOf(const Hessian& other, int64_t tokens) {
  const double times = static_cast<double>(tokens) /
                       std::max<double>(1, static_cast<double>(other.tokens_));
  for (size_t i = 0; i < diagonal_.size(); ++i) {
    diagonal_[i] += times * other.diagonal_[i];
    magnitudes_[i] += times * other.magnitudes_[i];
    largest_[i] = std::max(largest_[i], other.largest_[i]);
  }
  if (full_) matrix_.resize(other.matrix_.size());
  for (size_t i = 0; full_ && i < matrix_.size(); ++i) {
    matrix_[i] += static_cast<float>(times) * other.matrix_[i];
  }
  tokens_ += tokens;
}

void Hessian::AddIndependent(int64_t tokens, bool alike) {
  const auto mean = [&](const std::vector<double>& sums) {
    const double all = std::accumulate(sums.begin(), sums.end(), 0.0);
    return tokens_ == 0 ? 1.0 : all / static_cast<double>(inputs_ * tokens_);
  };
  const double square = mean(diagonal_), magnitude = mean(magnitudes_);
  const double more = static_cast<double>(tokens);
  const double times = more / std::max<double>(1, static_cast<double>(tokens_));
  if (full_) matrix_.resize(static_cast<size_t>(inputs_ * inputs_));
  for (size_t i = 0; i < diagonal_.size(); ++i) {
    const double added = alike ? more * square : times * diagonal_[i];
    diagonal_[i] += added;
    magnitudes_[i] += alike ? more * magnitude : times * magnitudes_[i];
    if (full_) {
      matrix_[i * (diagonal_.size() + 1)] += static_cast<float>(added);
    }
  }
  tokens_ += tokens;
}

absl::Status Hessian::Check() const {
  if (tokens_ == 0) {
    return absl::InvalidArgumentError("calibration has no tokens for it");
  }
  for (size_t i = 0; i < diagonal_.size(); ++i) {
    // Sums are float32 in the matrix.
    if (diagonal_[i] <= std::numeric_limits<float>::max()) continue;
    return absl::InvalidArgumentError(FormattedString(
        "the squares of input %d add up to %g over %d tokens of calibration, "
        "allowed: finite values",
        i, diagonal_[i], tokens_));
  }
  return absl::OkStatus();
}

std::vector<float> Hessian::MeanMagnitudes() const {
  std::vector<float> means;
  for (const double sum : magnitudes_) {
    means.push_back(static_cast<float>(
        sum / std::max<double>(1, static_cast<double>(tokens_))));
  }
  return means;
}

}  // namespace inlay
