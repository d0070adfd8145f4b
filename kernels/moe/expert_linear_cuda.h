// The kernels of expert_linear on CUDA devices, for its rows and benchmarks.
// All pointers are device pointers.
#ifndef INLAY_KERNELS_MOE_EXPERT_LINEAR_CUDA_H_
#define INLAY_KERNELS_MOE_EXPERT_LINEAR_CUDA_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/moe/expert_linear.h"
#include "memory/device/cuda_stream.h"

namespace inlay {

// Where experts have more slots than this on average, the kernels for many rows
// read weights less often; their sums have another order.
inline constexpr int64_t kFewExpertRows = 12;

inline bool ExpertRowsAreFew(const ExpertLinearDesc& desc, int64_t num_slots) {
  return desc.gemm.batch_invariant ||
         num_slots <= kFewExpertRows * desc.num_experts;
}

// Up to so many the kernel for some slots does, where it takes them.
inline constexpr int64_t kSomeExpertRows = 20;

inline bool ExpertRowsAreSome(const ExpertLinearDesc& desc, int64_t num_slots) {
  return desc.gemm.batch_invariant ||
         num_slots <= kSomeExpertRows * desc.num_experts;
}

// Any plain float types, widths and strides.
absl::Status RunExpertLinearPlain(const ExpertLinearDesc& desc,
                                  const ExpertLinearParams& params,
                                  CudaStream& stream);

// x's rows in the order of params.slots, in params.workspace, which has so many
// bytes. Rows of x are of multiples of 16 bytes, and at such. expert_gather.cu.
size_t GatheredExpertBytes(const ExpertLinearDesc& desc, int64_t max_tokens);
absl::StatusOr<TensorView> GatherExpertRows(const ExpertLinearDesc& desc,
                                            const ExpertLinearParams& params,
                                            CudaStream& stream);

// The same of codes of 8 bits and their scales, [rows] or by groups [k / 128,
// rows], with an expert's rows where expert_codes.h has them, and the two
// middle ones of four pairs of columns exchanged in each 16: columns 0, 1, 8,
// 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15. `codes` and `scales` have
// ExpertRowsRoom rows.
absl::Status GatherExpertCodes(const ExpertLinearDesc& desc,
                               const ExpertLinearParams& params,
                               const RoundedRows& x, bool groups,
                               const TensorView& codes, float* scales,
                               CudaStream& stream);

// Weights and x of one 16-bit type, k a multiple of 32, rows of both at
// multiples of 16 bytes.
absl::Status RunExpertLinearMma(const ExpertLinearDesc& desc,
                                const ExpertLinearParams& params,
                                CudaStream& stream);

// The same on Hopper for more than one token, and for many where each goes to
// every expert, as matrix products of the experts' rows; k a multiple of 8. Not
// batch-invariant.
bool ExpertLinearWideTakes(const ExpertLinearDesc& desc,
                           const ExpertLinearParams& params,
                           const CudaStream& stream);
size_t ExpertLinearWideBytes(const ExpertLinearDesc& desc, int64_t max_tokens);
absl::Status RunExpertLinearWide(const ExpertLinearDesc& desc,
                                 const ExpertLinearParams& params,
                                 CudaStream& stream);

// Packed weights (kernels/gemm/quantised/layout.h), x of 16 bits, its rows at
// multiples of 4 bytes.
absl::Status RunExpertLinearQuantisedFew(const ExpertLinearDesc& desc,
                                         const ExpertLinearParams& params,
                                         CudaStream& stream);
absl::Status RunExpertLinearQuantisedMany(const ExpertLinearDesc& desc,
                                          const ExpertLinearParams& params,
                                          CudaStream& stream);

// The same for some slots an expert on Hopper, gated or not: experts' matrices
// of a multiple of 32 rows, x's rows on multiples of 16 bytes.
bool ExpertStreamedTakes(const ExpertLinearDesc& desc,
                         const ExpertLinearParams& params,
                         const CudaStream& stream);
absl::Status RunExpertStreamed(const ExpertLinearDesc& desc,
                               const ExpertLinearParams& params,
                               CudaStream& stream);

// The same for many slots on Hopper, as matrix products of the experts' rows.
bool ExpertLinearGroupedTakes(const ExpertLinearDesc& desc,
                              const ExpertLinearParams& params,
                              const CudaStream& stream);
size_t ExpertLinearGroupedBytes(const ExpertLinearDesc& desc,
                                int64_t max_tokens);
absl::Status RunExpertLinearGrouped(const ExpertLinearDesc& desc,
                                    const ExpertLinearParams& params,
                                    CudaStream& stream);

// The same with x rounded to codes of the weights' kind (f8_g128, i8_g128), or
// rounded already, where ExpertCodesRounding says so.
RowRounding ExpertCodesRounding(const ExpertLinearDesc& desc, int64_t slots);
bool ExpertCodesTakes(const ExpertLinearParams& params);
size_t ExpertCodesBytes(const ExpertLinearDesc& desc, int64_t max_tokens);
absl::Status RunExpertCodes(const ExpertLinearDesc& desc,
                            const ExpertLinearParams& params,
                            CudaStream& stream);

}  // namespace inlay

#endif  // INLAY_KERNELS_MOE_EXPERT_LINEAR_CUDA_H_
