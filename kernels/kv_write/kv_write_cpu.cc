// kv_write, the scalar reference row.
#include "kernels/kv_write/kv_row.h"
#include "kernels/kv_write/kv_write.h"
#include "memory/device/thread_pool.h"

namespace inlay {

absl::Status RunKvWriteCpuScalar(const KvWriteDesc& desc,
                                 const KvWriteParams& params, Stream& stream) {
  const auto write = [&](int64_t token) {
    const int64_t row = KvRowSlot(params.slots[token], desc.row_tokens);
    if (desc.row_tokens > 1 && row < 0) return;
    const int64_t block = row / params.kv.block_size;
    const auto slot = static_cast<int>(row % params.kv.block_size);
    for (int head = 0; head < desc.num_kv_heads; ++head) {
      const float* k = params.k.row<float>(token) + head * desc.head_dim;
      EncodeKvRow(desc.kv, k, desc.head_dim,
                  params.kv.KeyRow(block, head, slot));
      if (desc.keys_only) continue;
      const float* v = params.v.row<float>(token) + head * desc.head_dim;
      EncodeKvRow(desc.kv, v, desc.head_dim,
                  params.kv.ValueRow(block, head, slot));
    }
  };
  stream.thread_pool()->ParallelFor(
      params.k.rows(), 4, [&](int64_t begin, int64_t end) {
        for (int64_t token = begin; token < end; ++token) write(token);
      });
  return absl::OkStatus();
}

}  // namespace inlay
