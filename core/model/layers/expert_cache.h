// ExpertCache: the experts of a layer that a device keeps of those in host
// memory (kernels/moe/expert_fetch.h), and the memory for them.
#ifndef INLAY_CORE_MODEL_LAYERS_EXPERT_CACHE_H_
#define INLAY_CORE_MODEL_LAYERS_EXPERT_CACHE_H_

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/model/layers/expert_linear.h"
#include "core/model/model_build.h"
#include "kernels/moe/expert_fetch.h"

namespace inlay {

// What is on the device changes with each Fetch, in the stream's order: all
// steps of a model are queued on one stream, its executor's.
class ExpertCache {
 public:
  ExpertCache() = default;  // none: all experts are where they are used
  // For all matrices of a layer's experts, made with ExpertPlace::kHost, which
  // it gives their slots.
  static absl::StatusOr<ExpertCache> Create(
      absl::Span<ExpertLinear* const> matrices, int num_experts, int num_slots,
      ModelBuild& build);

  bool present() const { return op_.row != nullptr; }
  uint64_t device_bytes() const {
    return op_.desc.slot_bytes() * static_cast<uint64_t>(op_.desc.num_slots);
  }
  uint64_t host_bytes() const {
    return op_.desc.slot_bytes() * static_cast<uint64_t>(op_.desc.num_experts);
  }
  // Before the products that `routed` is for.
  absl::Status Fetch(const RoutingParams& routed, Stream& stream) const;
  // What came of it so far, on the device.
  const ExpertFetchCounts* counts() const { return params_.state.counts; }

 private:
  Op<ExpertFetchDesc, ExpertFetchParams> op_;
  ExpertFetchParams params_;  // but for offsets
};

}  // namespace inlay

#endif  // INLAY_CORE_MODEL_LAYERS_EXPERT_CACHE_H_
