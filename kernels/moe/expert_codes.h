// What a launch of expert_codes_sm90.cu is told, and where rows of x lie that
// are in the order of experts for it.
#ifndef INLAY_KERNELS_MOE_EXPERT_CODES_H_
#define INLAY_KERNELS_MOE_EXPERT_CODES_H_

#include <cuda.h>

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "kernels/gemm/quantised/layout.h"
#include "memory/device/cuda_stream.h"
#include "memory/tensor.h"

namespace inlay {

inline constexpr int kExpertCodesTiles = 8;      // of a block, a warp each
inline constexpr int kExpertCodesColumns = 192;  // rows of x a block takes
inline constexpr int kExpertCodesStep = 32;      // rows that a copy brings

// Each expert's rows begin at a multiple of so many: their scales are copied 16
// bytes at a time.
inline constexpr int kExpertRowsAlignment = 8;
// Rows of room for `slots`, whatever their experts.
INLAY_HOST_DEVICE constexpr int64_t ExpertRowsRoom(int64_t slots,
                                                   int num_experts) {
  return (slots + kExpertRowsAlignment - 1) / kExpertRowsAlignment *
             kExpertRowsAlignment +
         int64_t{kExpertRowsAlignment} * num_experts;
}
// Of an expert whose slots begin at `offset` of all: at least as far apart as
// it has slots, as floor(a + b) - floor(a) > b - alignment.
INLAY_HOST_DEVICE constexpr int ExpertRowsBegin(int expert, int offset) {
  return offset / kExpertRowsAlignment * kExpertRowsAlignment +
         kExpertRowsAlignment * expert;
}

struct ExpertCodesShape {
  int64_t n;
  int64_t tile_bytes;
  int units;  // of K
  int num_experts;
  int expert_tiles;        // of 16 rows of w
  int blocks_n;            // of kExpertCodesTiles
  bool vectors;            // y lies for four elements at a time
  const int32_t* offsets;  // as ExpertLinearParams
  const int32_t* slots;
  // Matrices lie one after another (and as the tensor map says), or where the
  // table says.
  const std::byte* w;
  const int64_t* table;
  const float* bias;
  // Of x's codes: [units][rows], or, without groups, [rows].
  const float* x_scales;
  int64_t rows;  // ExpertRowsRoom
  TensorView y;
};

// x as [rows][k] in boxes of kExpertCodesStep rows and 128 columns; packed
// weights as [tiles][halves of units][bytes], a unit of a block's tiles.
struct ExpertCodesMaps {
  CUtensorMap x;
  CUtensorMap w;
};

// `groups`: x has a scale for each 128 columns (e4m3 only). `blocks`: at
// most.
absl::Status LaunchExpertCodes(const ExpertCodesMaps& maps, QuantCodes codes,
                               bool groups, const ExpertCodesShape& shape,
                               int64_t blocks, CudaStream& stream);

}  // namespace inlay

#endif  // INLAY_KERNELS_MOE_EXPERT_CODES_H_
