#include "core/quantize/hessian.h"

#include <algorithm>
#include <cmath>
#include <limits>
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
  if (full) matrix_.resize(size * size);
}

absl::Status Hessian::Add(const TensorView& x, Stream& stream) {
  const auto each = [&](int64_t grain, ThreadPool::Body body) {
    stream.thread_pool()->ParallelFor(inputs_, grain, body);
  };
  if (full_) transposed_.resize(static_cast<size_t>(inputs_ * kPieceTokens));
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
          if (full_) transposed_[static_cast<size_t>(i * count + t)] = row[i];
        }
      }
    });
    // The lower triangle, a panel of rows at a time.
    for (int64_t i = 0; full_ && i < inputs_; i += kPanelRows) {
      const int64_t rows = std::min(kPanelRows, inputs_ - i);
      const TensorView panel =
          FloatView(matrix_.data() + i * inputs_, rows, i + rows, inputs_);
      INLAY_RETURN_IF_ERROR(MultiplyF32(
          FloatView(transposed_.data() + i * count, rows, count, count),
          FloatView(transposed_.data(), i + rows, count, count), panel, panel,
          stream));
    }
  }
  tokens_ += x.rows();
  return absl::OkStatus();
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
