// AWQ: factors for a layer's inputs that leave its outputs closest to what they
// were, once weights multiplied by them are rounded. Knows no models.
// Source: Lin et al., AWQ (arXiv:2306.00978): s = mean |x|^alpha, alpha by grid
// search. Here the error is that of all outputs, tr(E H E^T), and scales of
// blocks are weighted by the inputs' squares, which stands for AWQ's clipping.
#ifndef INLAY_CORE_QUANTIZE_AWQ_H_
#define INLAY_CORE_QUANTIZE_AWQ_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/quantize/group_scheme.h"
#include "core/quantize/input_factor.h"
#include "kernels/quant/quant.h"
#include "memory/device/stream.h"

namespace inlay {

// Some rows [rows, inputs] of a layer that reads the input.
struct AwqReader {
  std::vector<float> weights;
  int64_t rows = 0;
  const BlockCodec* codec = nullptr;    // with a grid
  const GroupScheme* scheme = nullptr;  // null: the grid's
};

// What AWQ rounds: rows of weights that were multiplied by `scales`, each block
// (or group of `scheme`, if that is not null) fitted with `diagonal` (of H)
// over the squares of these. Rows on the pool's threads.
void EncodeScaled(const BlockGrid& grid, const GroupScheme* scheme,
                  const float* weights, int64_t rows,
                  absl::Span<const float> diagonal,
                  absl::Span<const float> scales, ThreadPool& pool,
                  std::byte* encoded);

// [inputs]: what to multiply columns by; all 1 where that is best. The error of
// these rows is no larger than with all 1. `sizes`: alike where inputs must
// have one scale. A power of 0 to 1 in 20 steps of it; `powers_of_two`: rounded
// to those.
absl::StatusOr<std::vector<float>> SearchAwqScales(
    const InputFactor& factor, absl::Span<const float> diagonal,
    absl::Span<const float> sizes, absl::Span<const AwqReader> readers,
    bool powers_of_two, Stream& stream);
// Each to the nearest by its logarithm.
void RoundToPowersOfTwo(std::vector<float>* scales);

}  // namespace inlay

#endif  // INLAY_CORE_QUANTIZE_AWQ_H_
