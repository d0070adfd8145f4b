// Products with packed quantised weights for up to 32 rows of x on Hopper.
#ifndef INLAY_KERNELS_GEMM_QUANTISED_STREAMED_CUDA_H_
#define INLAY_KERNELS_GEMM_QUANTISED_STREAMED_CUDA_H_

#include <cstddef>
#include <cstdint>

#include "kernels/activation/activation.h"
#include "kernels/gemm/gemm.h"
#include "kernels/gemm/quantised/layout.h"
#include "memory/device/cuda_stream.h"

namespace inlay {

// How product_streamed_sm90.cuh cuts a matrix: a function of n, k and the tiles
// of x, so that a row's bits are the same for all numbers of rows with one
// plan.
struct StreamedPlan {
  bool gated = false;
  // Weights are rounded to x's type; with 4 tiles of x they are anyway.
  bool rounds_weights = false;
  int x_tiles = 1;  // of 8 rows of x: 1, 2 or 4
  int cluster = 1;  // blocks that share K: 1, 2 or 4
  int rounds = 1;   // jobs of a cluster, one after another
  int jobs = 1;
  int shares = 1;       // of a block's K
  int place_units = 1;  // of K, that a copy brings: a group
  int places = 0;       // of its ring; 0: nothing fits
  size_t shared_bytes = 0;
};

// Sets all but gated, rounds_weights, x_tiles, cluster, place_units and shares,
// of which it takes as many as there can be. False: it does not fit.
bool FitStreamedPlan(const QuantForm& form, int64_t n, int64_t k, int num_sms,
                     StreamedPlan& plan);
StreamedPlan PlanStreamed(const QuantForm& form, int64_t n, int64_t k,
                          int x_tiles, int num_sms, bool gated = false);
// Plans for 8, 16 and 32 rows that round weights and give a row the same bits:
// with K cut alike, as is fastest for 8. False: nothing fits, or weights do not
// bear rounding (WideRoundsTooMuch).
struct StreamedPlans {
  const StreamedPlan& For(int64_t rows) const {
    return plans[rows <= 8 ? 0 : rows <= 16 ? 1 : 2];
  }
  StreamedPlan plans[3];
};
bool PlanStreamedInOneOrder(const QuantForm& form, int64_t n, int64_t k,
                            int num_sms, StreamedPlans& plans);

// Tiles of 8 rows that so many rows of x take; with more than 2 weights are
// rounded to x's type, which not all forms bear (WideRoundsTooMuch).
int StreamedTilesOfX(const QuantForm& form, int64_t rows);

// Whether it can read so many columns of x.
bool StreamedTakesColumns(int64_t k);

// x of 16 bits that WideTakes (wide_cuda.h), y of x's type or f32; at most
// 8 plan.x_tiles rows. Where gated w is gate above up, n / 2 rows each, a
// multiple of kQuantRows, and y = function(gate) * up of x's type, of rounded
// gate and up; no residual.
absl::Status RunQuantisedStreamed(const GemmDesc& desc,
                                  const GemmParams& params,
                                  const QuantForm& form,
                                  const StreamedPlan& plan, CudaStream& stream,
                                  Activation function = Activation::kSilu);

}  // namespace inlay

#endif  // INLAY_KERNELS_GEMM_QUANTISED_STREAMED_CUDA_H_
