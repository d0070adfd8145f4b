// The CUDA kernels for linear layers of few rows, which memory bounds, for
// gemm's rows, tests and benchmarks. Knows no cuBLAS.
#ifndef INLAY_KERNELS_GEMM_GEMV_CUDA_H_
#define INLAY_KERNELS_GEMM_GEMV_CUDA_H_

#include <cstddef>
#include <cstdint>

#include "kernels/activation/activation.h"
#include "kernels/gemm/gemm.h"
#include "memory/device/cuda_stream.h"

namespace inlay {

// Most rows of x that one launch takes, and up to which these kernels are the
// faster ones.
inline constexpr int kGemvRows = 8;

// How the kernel for Hopper cuts a matrix. What sums depend on (cluster,
// consumers) is a function of n and k, never of the batch: so a row's sums are
// the same in every batch.
struct GemvPlan {
  int cluster = 2;       // blocks that share K: 2, 4 or 8
  int num_clusters = 1;  // each takes every num_clusters-th tile of rows
  int consumers = 8;     // warps that multiply: 4 or 8
  int shared_bytes = 0;  // of a block: all is taken, used for the ring or not
  int in_flight = 8;     // stages of the ring that are loaded at once
};
GemvPlan PlanGemv(int64_t n, int64_t k, int num_sms);

// What a product for few rows may do besides (kernels/fused_linear). `w` is
// gates and as many ups where gated, and y [m, n / 2].
struct GemvFusion {
  bool normalise = false;  // x is one row of f32; its norm, rounded to w's type
  const float* norm_weight = nullptr;
  float epsilon = 0.0f;
  bool gated = false;  // act(gate) * up; no residual then
  Activation function = Activation::kSilu;
};

// Stages that the ring has for `m` rows; fewer than 2 do not run.
int BulkGemvStages(const GemmDesc& desc, int64_t m, const GemvPlan& plan);

// The kernels on tensor cores: weights and x of the same 16-bit type, y of that
// or f32, rows of x and w on multiples of 16 bytes, at most kGemvRows rows.
// gemv_sm90.cu, k a multiple of kBulkColumns:
inline constexpr int64_t kBulkColumns = 64;
absl::Status RunBulkGemv(const GemmDesc& desc, const GemmParams& params,
                         const GemvPlan& plan, const GemvFusion& fusion,
                         CudaStream& stream);
// gemv_cuda.cu, for devices before Hopper:
size_t RingGemvSharedBytes(int64_t k, int64_t m);
absl::Status RunRingGemv(const GemmDesc& desc, const GemmParams& params,
                         CudaStream& stream);

// Any plain float types; y that of x, or f32: a warp an output feature. Reads
// the weights once for every 8 rows.
absl::Status RunGemvPlain(const GemmDesc& desc, const GemmParams& params,
                          CudaStream& stream);

// Rows of x that RunBulkGemv takes at once for such weights and these views (by
// their addresses and strides); 0: it does not serve.
int64_t BulkGemvRows(const GemmDesc& desc, const TensorView& x,
                     const TensorView& w, const CudaStream& stream);

// Whether RunGemv reads the weights once for all rows of x, at most kGemvRows:
// the kernel before Hopper has no room for many rows of a long k.
bool GemvReadsOnce(const GemmDesc& desc, const GemmParams& params,
                   const CudaStream& stream);

// The fastest of these that serves, in parts of as many rows as fit. Which one
// it is does not depend on the number of rows.
absl::Status RunGemv(const GemmDesc& desc, const GemmParams& params,
                     CudaStream& stream);

// y = bias + residual (which may be empty, or y), rounded to y's type.
absl::Status RunStartWithBias(const GemmDesc& desc, const GemmParams& params,
                              CudaStream& stream);

}  // namespace inlay

#endif  // INLAY_KERNELS_GEMM_GEMV_CUDA_H_
