// Products of packed quantised weights (layout.h) with 17 and more rows of x on
// Hopper: how they are cut, and the launch of product_wide_sm90.cuh, where x
// has 16 bits, or of product_codes_sm90.cu, where it is codes. All pointers are
// device pointers.
#ifndef INLAY_KERNELS_GEMM_QUANTISED_WIDE_CUDA_H_
#define INLAY_KERNELS_GEMM_QUANTISED_WIDE_CUDA_H_

#include <cstddef>
#include <cstdint>

#include "kernels/gemm/gemm.h"
#include "kernels/gemm/quantised/layout.h"
#include "memory/device/cuda_stream.h"

namespace inlay {

struct WidePlan {
  bool codes = false;       // x is codes
  int columns = 64;         // rows of x a block takes: 64, 128 or 256
  int splits = 1;           // blocks of a cluster, which share K: 1 to 8
  bool last = false;        // K of the last jobs only, what rounds leave over
  int clusters = 1;         // of all blocks
  int whole = 0;            // jobs that blocks take alone, in turn
  int w_stages = 0;         // units of K under way, of weights
  int x_stages = 0;         // and of x
  size_t shared_bytes = 0;  // of a block
};

// The plan that should be fastest for `rows` of x.
WidePlan PlanWide(const QuantForm& form, int64_t n, int64_t k, int64_t rows,
                  int num_sms, bool codes = false);
// Sets clusters, whole, stages and shared_bytes for what else the plan says;
// takes splits back where rounds leave nothing over, or too much.
void FitWidePlan(const QuantForm& form, int64_t n, int64_t k, int64_t rows,
                 int num_sms, WidePlan& plan);

// Whether the copy engine can read x as it lies.
bool WideTakes(const TensorView& x);

// x of 16 bits that WideTakes, no permutation, y of x's type or f32. Where
// params.x_scales is there (f8_g128; i8_g128 with one scale a row): x is codes
// of the weights' kind, k a multiple of 128, and scales are one a row where
// desc.scale_reach is kRow, otherwise [k / 128, rows] on a multiple of 16
// bytes, with rows a multiple of 4.
absl::Status RunQuantisedWide(const GemmDesc& desc, const GemmParams& params,
                              const QuantForm& form, const WidePlan& plan,
                              CudaStream& stream);

// Rows of x in groups, each multiplied by a matrix of its own: what a mixture's
// experts are.
struct WideGroups {
  int num_groups = 0;
  // Between matrices, which lie one after another: whole tiles.
  size_t stride_bytes = 0;
  const int32_t* offsets = nullptr;  // [num_groups + 1], of rows of x
  const int32_t* slots = nullptr;    // row i of x makes row slots[i] of y
  // If not null, matrix g lies at params.w.data + table[g], at a multiple of
  // 16: units are copied tile by tile. [num_groups], on the device.
  const int64_t* table = nullptr;
};

// The same for groups; params.w.data is the first matrix, params.bias that of
// all groups [num_groups, n] or null. No residual.
absl::Status RunQuantisedWideGroups(const GemmDesc& desc,
                                    const GemmParams& params,
                                    const QuantForm& form,
                                    const WideGroups& groups,
                                    CudaStream& stream);

// Of weights that are small differences of level and minimum, as in 16 columns
// of 2 bits, rounding each of these leaves too little: a model's logits are off
// by five times as much as with unpacking.
bool WideRoundsTooMuch(const QuantForm& form);

}  // namespace inlay

#endif  // INLAY_KERNELS_GEMM_QUANTISED_WIDE_CUDA_H_
