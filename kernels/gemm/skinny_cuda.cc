// Which products the kernel for some dozen rows serves.
#if INLAY_HAS_CUDA

#include "kernels/gemm/skinny_cuda.h"

namespace inlay {

// Chosen by measurement on an H200 (CUDA.md). Alone this kernel is the faster
// one for small matrices from one row on; in a model, where it begins while
// others end, from more than four. Where K is so long that gemv shares it among
// four blocks, whose clusters do not fill the chip, it is faster from one row.
bool SkinnyServes(const GemmDesc& desc, const GemmParams& params,
                  const CudaStream& stream) {
  const int64_t rows = params.x.rows();
  constexpr int64_t kLargeBytes = int64_t{128} << 20;
  const bool large = 2 * desc.n * desc.k > kLargeBytes;
  const bool fills = PlanGemv(desc.n, desc.k, stream.num_sms()).cluster == 2;
  const int64_t rows_of_gemv = fills ? (large ? kGemvRows : kGemvRows / 2) : 0;
  return rows > rows_of_gemv && rows <= kMostSkinnyRows &&
         desc.activation == desc.weight &&
         BulkGemvRows(desc, params.x, params.w, stream) > 0;
}

}  // namespace inlay

#endif  // INLAY_HAS_CUDA
