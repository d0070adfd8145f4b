// Products of packed quantised weights (layout.h) with 17 and more rows of
// 16-bit x on Hopper: how product_wide_sm90.cuh cuts them, and its launch. All
// pointers are device pointers.
#ifndef INLAY_KERNELS_GEMM_QUANTISED_WIDE_CUDA_H_
#define INLAY_KERNELS_GEMM_QUANTISED_WIDE_CUDA_H_

#include <cstddef>
#include <cstdint>

#include "kernels/gemm/gemm.h"
#include "kernels/gemm/quantised/layout.h"
#include "memory/device/cuda_stream.h"

namespace inlay {

inline constexpr int kWideRows = 256;  // of w, a block's

struct WidePlan {
  int columns = 64;         // rows of x a block takes: 64 or 128
  int splits = 1;           // blocks of a cluster, which share K: 1, 2, 4 or 8
  int clusters = 1;         // each takes jobs in turn
  int w_stages = 0;         // units of K under way, of weights
  int x_stages = 0;         // and of x
  size_t shared_bytes = 0;  // of a block
};

// The plan that should be fastest for `rows` of x.
WidePlan PlanWide(const QuantForm& form, int64_t n, int64_t k, int64_t rows,
                  int num_sms);
// Sets clusters, stages and shared_bytes for plan.columns and plan.splits.
void FitWidePlan(const QuantForm& form, int64_t n, int64_t k, int64_t rows,
                 int num_sms, WidePlan& plan);

// Whether the copy engine can read x as it lies.
bool WideTakes(const TensorView& x);

// x of 16 bits that WideTakes, no permutation, y of x's type or f32.
absl::Status RunQuantisedWide(const GemmDesc& desc, const GemmParams& params,
                              const QuantForm& form, const WidePlan& plan,
                              CudaStream& stream);

}  // namespace inlay

#endif  // INLAY_KERNELS_GEMM_QUANTISED_WIDE_CUDA_H_
