// Which products the kernel for some dozen rows serves.
#if INLAY_HAS_CUDA

#include "kernels/gemm/skinny_cuda.h"

namespace inlay {

// Chosen by measurement on an H200 (CUDA.md). Alone this kernel is the faster
// one for small matrices from one row on; in a model, where it begins while
// others end, from more than four.
bool SkinnyServes(const GemmDesc& desc, const GemmParams& params,
                  const CudaStream& stream) {
  const int64_t rows = params.x.rows();
  constexpr int64_t kLargeBytes = int64_t{128} << 20;
  const bool large = 2 * desc.n * desc.k > kLargeBytes;
  return rows > (large ? kGemvRows : kGemvRows / 2) &&
         rows <= kMostSkinnyRows && desc.activation == desc.weight &&
         BulkGemvRows(desc, params.x, params.w, stream) > 0;
}

}  // namespace inlay

#endif  // INLAY_HAS_CUDA
