// moe_identity, the scalar row, the only one: copies.
#include <algorithm>

#include "kernels/moe/identity.h"
#include "memory/device/thread_pool.h"

namespace inlay {

absl::Status RunMoeIdentityCpu(const MoeIdentityDesc& desc,
                               const MoeIdentityParams& params,
                               Stream& stream) {
  stream.thread_pool()->ParallelFor(
      params.y.rows(), 8, [&](int64_t begin, int64_t end) {
        for (int64_t slot = begin; slot < end; ++slot) {
          if (params.experts[slot] < desc.num_experts) continue;
          std::copy_n(params.x.row<const float>(slot / desc.top_k), desc.width,
                      params.y.row<float>(slot));
        }
      });
  return absl::OkStatus();
}

}  // namespace inlay
