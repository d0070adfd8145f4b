// rope, the scalar reference row.
#include "kernels/rope/rope.h"
#include "memory/device/thread_pool.h"

namespace inlay {

absl::Status RunRopeCpuScalar(const RopeDesc& desc, const RopeParams& params,
                              Stream& stream) {
  const int pairs = desc.rotary_dim / 2;
  const bool half = desc.style == RopeStyle::kHalf;
  const auto rotate = [&](int64_t token, int head) {
    float* x = params.x.row<float>(token) + head * desc.head_dim + desc.first;
    const float* cos = params.cos + token * pairs;
    const float* sin = params.sin + token * pairs;
    for (int i = 0; i < pairs; ++i) {
      float& first = half ? x[i] : x[2 * i];
      float& second = half ? x[i + pairs] : x[2 * i + 1];
      const float a = first;
      const float b = second;
      first = a * cos[i] - b * sin[i];
      second = b * cos[i] + a * sin[i];
    }
  };
  stream.thread_pool()->ParallelFor(
      params.x.rows(), 4, [&](int64_t begin, int64_t end) {
        for (int64_t token = begin; token < end; ++token) {
          for (int head = 0; head < desc.num_heads; ++head) rotate(token, head);
        }
      });
  return absl::OkStatus();
}

}  // namespace inlay
