// Products of packed quantised weights with many rows of x on Hopper whose sums
// have one order for all numbers of rows, for gemm's row, tests and benchmarks.
#ifndef INLAY_KERNELS_GEMM_QUANTISED_MANY_ROWS_PACKED_CUDA_H_
#define INLAY_KERNELS_GEMM_QUANTISED_MANY_ROWS_PACKED_CUDA_H_

#include "kernels/gemm/gemm.h"
#include "kernels/gemm/quantised/layout.h"
#include "kernels/gemm/quantised/streamed_cuda.h"
#include "memory/device/cuda_stream.h"

namespace inlay {

// What one launch takes, in microseconds, as measured on an H200
// (QUANTISED.md).
double ManyRowsPackedMicroseconds(const GemmDesc& desc, int64_t rows,
                                  int num_sms);

// many_rows_packed_sm90.cu, for what RunQuantisedStreamed takes, any number of
// rows and no gates. A row's bits are those that RunQuantisedStreamed gives it
// with a plan of as many clusters, shares and units of a place that rounds
// weights; of `plan` only these matter.
absl::Status RunManyRowsPacked(const GemmDesc& desc, const GemmParams& params,
                               const QuantForm& form, const StreamedPlan& plan,
                               CudaStream& stream);

}  // namespace inlay

#endif  // INLAY_KERNELS_GEMM_QUANTISED_MANY_ROWS_PACKED_CUDA_H_
