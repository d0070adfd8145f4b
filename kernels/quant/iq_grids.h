// The codebooks of the iq1, iq2 and iq3 formats: an index stands for a codeword
// of 8 or 4 levels.
//
// Source: ggml (ggml-common.h: iq2xxs_grid, iq2xs_grid, iq2s_grid,
// iq3xxs_grid, iq3s_grid, iq1s_grid).
#ifndef INLAY_KERNELS_QUANT_IQ_GRIDS_H_
#define INLAY_KERNELS_QUANT_IQ_GRIDS_H_

#include <array>
#include <cstddef>
#include <cstdint>

namespace inlay {

template <size_t kCodewords, size_t kDim>
struct IqGrid {
  static constexpr size_t kHalves = kDim == 8 ? 81 : 64;  // 3^4, 8^2
  std::array<std::array<int8_t, kDim>, kCodewords> codewords;
  // The same as two numbers of half codewords each: searching is faster by
  // them.
  std::array<std::array<uint8_t, 2>, kCodewords> halves;
  std::array<std::array<int8_t, kDim / 2>, kHalves> half_codewords;
};

// Magnitudes 8, 25, 43; signs are apart.
extern const IqGrid<256, 8> kIq2XxsGrid;
extern const IqGrid<512, 8> kIq2XsGrid;
extern const IqGrid<1024, 8> kIq2SGrid;
// Magnitudes 4, 12, .., 52, 62; signs are apart.
extern const IqGrid<256, 4> kIq3XxsGrid;
// Magnitudes 1, 3, .., 15; signs are apart.
extern const IqGrid<512, 4> kIq3SGrid;
// -1, 0, 1.
extern const IqGrid<2048, 8> kIq1Grid;

}  // namespace inlay

#endif  // INLAY_KERNELS_QUANT_IQ_GRIDS_H_
