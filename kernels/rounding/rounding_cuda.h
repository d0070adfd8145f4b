// rounding on CUDA, for kernels that round their own input. All pointers are
// device pointers.
#ifndef INLAY_KERNELS_ROUNDING_ROUNDING_CUDA_H_
#define INLAY_KERNELS_ROUNDING_ROUNDING_CUDA_H_

#include "absl/status/status.h"
#include "kernels/rounding/rounding.h"
#include "memory/device/cuda_stream.h"

namespace inlay {

// Null where the row "cuda" computes `desc`; otherwise why not.
const char* RoundingCudaRefuses(const RoundingDesc& desc);
absl::Status RunRoundingCuda(const RoundingDesc& desc,
                             const RoundingParams& params, Stream& stream);

// The way back: y = codes * scales of the rows from `first` on, as many as y
// has, rounded to y's type (f16 or bf16). y lies on 16 bytes, and so do its
// rows.
absl::Status RunWidenCuda(const RoundedRows& x, RowRounding rounding,
                          int64_t first, const TensorView& y,
                          CudaStream& stream);

}  // namespace inlay

#endif  // INLAY_KERNELS_ROUNDING_ROUNDING_CUDA_H_
