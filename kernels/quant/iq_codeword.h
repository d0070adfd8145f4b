// Search of codebooks, for the encoders of the iq formats.
#ifndef INLAY_KERNELS_QUANT_IQ_CODEWORD_H_
#define INLAY_KERNELS_QUANT_IQ_CODEWORD_H_

#include <cstddef>
#include <limits>

#include "kernels/quant/iq_grids.h"

namespace inlay {

struct Codeword {
  int index;
  float distance;  // squared
};

// The codeword nearest to `x`; of NaN: 0.
template <size_t kCodewords, size_t kDim>
Codeword NearestCodeword(const IqGrid<kCodewords, kDim>& grid, const float* x) {
  using Grid = IqGrid<kCodewords, kDim>;
  float distances[2][Grid::kHalves];
  for (size_t half = 0; half < 2; ++half) {
    for (size_t h = 0; h < Grid::kHalves; ++h) {
      float distance = 0.0f;
      for (size_t i = 0; i < kDim / 2; ++i) {
        const float off = x[half * (kDim / 2) + i] -
                          static_cast<float>(grid.half_codewords[h][i]);
        distance += off * off;
      }
      distances[half][h] = distance;
    }
  }
  Codeword best = {0, std::numeric_limits<float>::infinity()};
  for (size_t c = 0; c < kCodewords; ++c) {
    const float distance =
        distances[0][grid.halves[c][0]] + distances[1][grid.halves[c][1]];
    if (distance < best.distance) best = {static_cast<int>(c), distance};
  }
  return best;
}

// What least squares needs of values x and what they are coded as, v: the best
// scale is products / squares, and takes `Gain` off the squared error.
struct Correlation {
  float products = 0.0f;
  float squares = 0.0f;

  void Add(float x, float v) {
    products += x * v;
    squares += v * v;
  }
  float Scale() const { return squares > 0.0f ? products / squares : 0.0f; }
  float Gain() const { return Scale() * products; }
};

}  // namespace inlay

#endif  // INLAY_KERNELS_QUANT_IQ_CODEWORD_H_
