// embedding, the scalar reference row.
#include "kernels/cpu_float.h"
#include "kernels/embedding/embedding.h"
#include "memory/device/thread_pool.h"

namespace inlay {

absl::Status RunEmbeddingCpuScalar(const EmbeddingDesc& desc,
                                   const EmbeddingParams& params,
                                   Stream& stream) {
  const auto embed = [&](int64_t token) {
    const std::byte* entry = params.table.row<std::byte>(params.ids[token]);
    float* y = params.y.row<float>(token);
    for (int64_t i = 0; i < desc.width; ++i) {
      const float value = LoadFloat(desc.table, entry, i) * params.scale;
      y[i] = params.accumulate ? y[i] + value : value;
    }
  };
  stream.thread_pool()->ParallelFor(
      params.y.rows(), 1, [&](int64_t begin, int64_t end) {
        for (int64_t token = begin; token < end; ++token) embed(token);
      });
  return absl::OkStatus();
}

}  // namespace inlay
