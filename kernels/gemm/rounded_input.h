// x of rows that multiply codes by codes: rounded by who made it or here, and
// the way back for products that are made with x as it is.
#ifndef INLAY_KERNELS_GEMM_ROUNDED_INPUT_H_
#define INLAY_KERNELS_GEMM_ROUNDED_INPUT_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/gemm/gemm.h"
#include "memory/device/cuda_stream.h"

namespace inlay {

// Rows of x that packed codes are multiplied with as they lie, on Hopper; fewer
// are as fast with x as it is (FP8.md).
inline constexpr int64_t kLeastCodesRows = 17;

// Of RoundInput's part of a workspace, which lies on a multiple of 256.
size_t RoundedInputBytes(int64_t rows, int64_t k);
// Of RunKeepingInput's, behind that of cuda_quantised.
size_t WidenedInputBytes(const GemmDesc& desc);

// Whether x is codes or can be rounded: it lies on 16 bytes.
bool HasCodes(const GemmParams& params);
// params.x where it is codes already, otherwise made of it at `at`.
absl::StatusOr<RoundedRows> RoundInput(const GemmDesc& desc,
                                       const GemmParams& params,
                                       RowRounding rounding, std::byte* at,
                                       CudaStream& stream);
// x as RoundInput makes it at the workspace's beginning, times the packed codes
// (quantised/wide_cuda.h).
absl::Status RunRoundedWide(const GemmDesc& desc, const GemmParams& params,
                            RowRounding rounding, CudaStream& stream);
// The row cuda_quantised on params.x, or on what its codes stand for.
absl::Status RunKeepingInput(const GemmDesc& desc, const GemmParams& params,
                             CudaStream& stream);

}  // namespace inlay

#endif  // INLAY_KERNELS_GEMM_ROUNDED_INPUT_H_
