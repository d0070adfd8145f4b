#include "core/quantize/awq.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/quantize/output_error.h"
#include "kernels/quant/grid.h"
#include "memory/device/thread_pool.h"
#include "memory/status.h"

namespace inlay {
namespace {

constexpr int kSteps = 20;
// Of the largest, so that inputs that are never there keep finite scales.
constexpr float kLeastSize = 1e-4f;

// size^alpha, the largest and the smallest as far above 1 as below.
std::vector<float> PowerScales(absl::Span<const float> sizes, float alpha) {
  const float least =
      kLeastSize * *std::max_element(sizes.begin(), sizes.end());
  std::vector<float> scales;
  float low = std::numeric_limits<float>::infinity(), high = 0.0f;
  for (const float size : sizes) {
    scales.push_back(std::pow(std::max(size, least), alpha));
    low = std::min(low, scales.back());
    high = std::max(high, scales.back());
  }
  const float middle = std::sqrt(low * high);
  if (!(middle > 0.0f)) return std::vector<float>(sizes.size(), 1.0f);
  for (float& scale : scales) scale /= middle;
  return scales;
}

absl::StatusOr<double> ErrorWith(absl::Span<const float> scales,
                                 const InputFactor& factor,
                                 absl::Span<const float> diagonal,
                                 const AwqReader& reader, Stream& stream) {
  const auto inputs = static_cast<int64_t>(scales.size());
  const BlockGrid& grid = *reader.codec->grid;
  std::vector<float> scaled = reader.weights;
  for (size_t i = 0; i < scaled.size(); ++i) {
    scaled[i] *= scales[i % scales.size()];
  }
  const int64_t blocks = reader.rows * inputs / grid.elements;
  std::vector<std::byte> encoded(
      static_cast<size_t>(blocks * grid.block_bytes));
  EncodeScaled(grid, reader.scheme, scaled.data(), reader.rows, diagonal,
               scales, *stream.thread_pool(), encoded.data());
  reader.codec->decode(encoded.data(), blocks, scaled.data());
  for (size_t i = 0; i < scaled.size(); ++i) {
    scaled[i] /= scales[i % scales.size()];
  }
  OutputEnergy energy(&factor);
  return energy.Of(scaled.data(), reader.weights.data(), reader.rows, stream);
}

}  // namespace

void RoundToPowersOfTwo(std::vector<float>* scales) {
  for (float& scale : *scales) scale = std::exp2(std::round(std::log2(scale)));
}

void EncodeScaled(const BlockGrid& grid, const GroupScheme* scheme,
                  const float* weights, int64_t rows,
                  absl::Span<const float> diagonal,
                  absl::Span<const float> scales, ThreadPool& pool,
                  std::byte* encoded) {
  const auto inputs = static_cast<int64_t>(diagonal.size());
  std::vector<float> importance(diagonal.begin(), diagonal.end());
  float most = 0.0f;
  for (size_t i = 0; i < importance.size(); ++i) {
    if (!scales.empty()) importance[i] /= scales[i] * scales[i];
    most = std::max(most, importance[i]);
  }
  // Blocks of inputs that were never there still want a scale.
  const float least = most > 0.0f ? 1e-6f * most : 1.0f;
  for (float& value : importance) value = std::max(value, least);
  const int64_t blocks = inputs / grid.elements;
  pool.ParallelFor(rows, 1, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      std::byte* const to = encoded + row * blocks * grid.block_bytes;
      if (scheme != nullptr) {
        EncodeInGroups(*scheme, weights + row * inputs, importance.data(),
                       inputs, to);
      } else {
        EncodeOnGrid(grid, weights + row * inputs, importance.data(), blocks,
                     to);
      }
    }
  });
}

absl::StatusOr<std::vector<float>> SearchAwqScales(
    const InputFactor& factor, absl::Span<const float> diagonal,
    absl::Span<const float> sizes, absl::Span<const AwqReader> readers,
    bool powers_of_two, Stream& stream) {
  std::vector<float> best;
  double best_error = std::numeric_limits<double>::infinity();
  for (int step = 0; step <= kSteps; ++step) {
    std::vector<float> scales =
        PowerScales(sizes, static_cast<float>(step) / kSteps);
    if (powers_of_two) RoundToPowersOfTwo(&scales);
    double error = 0.0;
    for (const AwqReader& reader : readers) {
      INLAY_ASSIGN_OR_RETURN(
          const double of_reader,
          ErrorWith(scales, factor, diagonal, reader, stream));
      error += of_reader;
    }
    if (error < best_error) {
      best_error = error;
      best = std::move(scales);
    }
  }
  if (best.empty()) best.assign(sizes.size(), 1.0f);
  return best;
}

}  // namespace inlay
