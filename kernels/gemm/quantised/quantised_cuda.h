// Products with packed quantised weights (layout.h) on CUDA devices, for gemm's
// row, tests and benchmarks. All pointers are device pointers.
#ifndef INLAY_KERNELS_GEMM_QUANTISED_QUANTISED_CUDA_H_
#define INLAY_KERNELS_GEMM_QUANTISED_QUANTISED_CUDA_H_

#include <cstddef>
#include <cstdint>

#include "kernels/gemm/gemm.h"
#include "kernels/gemm/quantised/pack.h"
#include "memory/device/cuda_stream.h"

namespace inlay {

// As PackQuantised: rows of blocks that lie on the device, at any address.
absl::Status RunPackQuantised(const QuantMatrix& matrix, const std::byte* rows,
                              int64_t first, int64_t count, std::byte* packed,
                              CudaStream& stream);

// Rows [first, first + count) of a packed matrix, first a multiple of
// kQuantRows, as [count, k] of a 16-bit type or f32, each value rounded once.
absl::Status RunUnpackQuantised(const QuantMatrix& matrix,
                                const std::byte* packed, int64_t first,
                                int64_t count, DType dtype, std::byte* to,
                                CudaStream& stream);

// y[m, i] = x[m, permutation[i]], both of one 16-bit type.
absl::Status RunGatherColumns(const TensorView& x, const int32_t* permutation,
                              const TensorView& y, CudaStream& stream);

// Clusters of so many blocks, one an SM, that run at once: a cluster lies in a
// group of SMs (16 or 18 of them, some fewer), which large ones do not fill.
int64_t ClustersAtOnce(int cluster, int num_sms);

// How product_sm90.cuh cuts a matrix: a function of n and k, so that a row's
// bits are the same for all numbers of rows.
struct QuantPlan {
  int cluster = 2;  // blocks that share K: 2, 4 or 8
  int num_clusters = 1;
  int warps = 8;        // that multiply
  int lanes = 1;        // of the warps, how many take rows apart; they share K
                        // otherwise
  int stage_units = 1;  // that a copy brings at most
  int stages = 2;       // of a warp's ring
  int slots = 2;        // of partial sums
  size_t shared_bytes = 0;  // of a block
};
// stages is 0 where nothing fits.
QuantPlan PlanQuantised(const QuantForm& form, int64_t n, int64_t k,
                        int num_sms);

inline constexpr int kMostQuantRows = 8;  // of x
// x and y of 16 bits, or y f32; at most kMostQuantRows rows.
absl::Status RunQuantisedSm90(const GemmDesc& desc, const GemmParams& params,
                              const QuantForm& form, const QuantPlan& plan,
                              CudaStream& stream);

// The same by what every GPU has (product_mma.cuh), for any number of rows, 16
// or 32 at a time; rows of x lie on multiples of 16 bytes (WideTakes), without
// a permutation. A row's bits are the same for all numbers of rows.
absl::Status RunQuantisedMma(const GemmDesc& desc, const GemmParams& params,
                             const QuantForm& form, CudaStream& stream);

// Any plain float types; y of x's or f32; any number of rows, 4 at a time.
absl::Status RunQuantisedPlain(const GemmDesc& desc, const GemmParams& params,
                               const QuantForm& form, CudaStream& stream);

}  // namespace inlay

#endif  // INLAY_KERNELS_GEMM_QUANTISED_QUANTISED_CUDA_H_
