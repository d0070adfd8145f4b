// expert_columns, the scalar row, the only one: two loads and a store an
// element, some thousands beside a product of as many times a matrix's rows.
#include "kernels/moe/expert_columns.h"
#include "memory/device/thread_pool.h"

namespace inlay {
namespace {

// Less than this costs less than waking a thread.
constexpr int64_t kGrain = 16 << 10;

}  // namespace

absl::Status RunExpertColumnsCpu(const ExpertColumnsDesc& desc,
                                 const ExpertColumnsParams& params,
                                 Stream& stream) {
  const int64_t width = desc.width;
  stream.thread_pool()->ParallelFor(
      params.y.rows(), kGrain / width + 1, [&](int64_t begin, int64_t end) {
        for (int64_t slot = begin; slot < end; ++slot) {
          const int64_t expert = params.experts == nullptr
                                     ? slot % desc.top_k
                                     : params.experts[slot];
          if (expert >= desc.num_experts) continue;
          const int32_t* order = params.orders + expert * width;
          const auto* x = params.x.row<const float>(
              desc.row_a_slot ? slot : slot / desc.top_k);
          auto* y = params.y.row<float>(slot);
          for (int64_t j = 0; j < width; ++j) y[j] = x[order[j]];
        }
      });
  return absl::OkStatus();
}

}  // namespace inlay
