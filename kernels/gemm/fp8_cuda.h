// Weights of products in e4m3 (Fp8Scales, cublaslt.h) and in int8
// (int8_cuda.h) from packed f8_g* and i8_g128 ones (quantised/layout.h). x's
// codes are rounding's (kernels/rounding). All pointers are device pointers;
// codes and scales lie on multiples of 16 bytes.
#ifndef INLAY_KERNELS_GEMM_FP8_CUDA_H_
#define INLAY_KERNELS_GEMM_FP8_CUDA_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/gemm/gemm.h"
#include "kernels/gemm/quantised/pack.h"
#include "memory/device/cuda_stream.h"

namespace inlay {

// Rows of w that share a scale at most: matrices are cut at multiples.
inline constexpr int64_t kFp8BlockRows = 128;

// Floats of the scales of w [rows, k], k a multiple of 128.
int64_t Fp8WeightScales(ScaleReach reach, int64_t rows, int64_t k);

// How far scales of a packed matrix [n, k] of f8_g128 or f8_g32 reach. Scales
// of one reach differ by powers of two, at most 2^-6 of the largest, so that
// codes can be brought to the largest: exactly but for codes below e4m3's
// normal numbers, which lose at most 2^-10 of it. Of i8_g128 they are finite
// and equal, with minima of 0. Waits for the stream and allocates a few bytes:
// for load time.
absl::StatusOr<ScaleReach> FindScaleReach(const QuantMatrix& matrix, int64_t n,
                                          const std::byte* packed,
                                          CudaStream& stream);

// Rows [first, first + count) of a packed matrix as codes [count, k] and their
// scales; first a multiple of kFp8BlockRows. A group whose scale is not finite
// becomes NaNs. kGroup: f8_g128 only; i8_g128: kRow only.
absl::Status RunUnpackCodes(const QuantMatrix& matrix, const std::byte* packed,
                            int64_t first, int64_t count, ScaleReach reach,
                            std::byte* codes, float* scales,
                            CudaStream& stream);

}  // namespace inlay

#endif  // INLAY_KERNELS_GEMM_FP8_CUDA_H_
