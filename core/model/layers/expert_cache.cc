#include "core/model/layers/expert_cache.h"

#include <vector>

#include "memory/status.h"

namespace inlay {

absl::StatusOr<ExpertCache> ExpertCache::Create(
    absl::Span<ExpertLinear* const> matrices, int num_experts, int num_slots,
    ModelBuild& build) {
  INLAY_DCHECK(matrices.size() <= kMaxExpertMatrices);
  ExpertCache cache;
  ExpertFetchDesc desc;
  desc.num_experts = num_experts;
  desc.num_slots = num_slots;
  for (const ExpertLinear* matrix : matrices) {
    desc.bytes[desc.num_matrices++] = matrix->expert_bytes();
  }
  INLAY_ASSIGN_OR_RETURN(
      cache.op_,
      build.kernels.Choose("expert_fetch", ExpertFetchTable(), desc));
  INLAY_ASSIGN_OR_RETURN(
      std::byte * slots,
      build.weights.Room(desc.slot_bytes() * static_cast<size_t>(num_slots)));
  if (slots == nullptr) return cache;  // planning
  for (int m = 0; m < desc.num_matrices; ++m) {
    cache.params_.host[m] = matrices[static_cast<size_t>(m)]->in_host_memory();
    cache.params_.slots[m] = slots;
    slots += desc.pitch(m) * static_cast<size_t>(num_slots);
  }
  // As it is on the device, but for where it lies.
  std::vector<int64_t> image(
      (ExpertFetchStateBytes(desc) + sizeof(int64_t) - 1) / sizeof(int64_t));
  auto* const bytes = reinterpret_cast<std::byte*>(image.data());
  ExpertFetchParams first = cache.params_;
  first.state = ExpertFetchStateAt(desc, bytes);
  InitExpertFetch(desc, first);
  INLAY_ASSIGN_OR_RETURN(std::byte * state,
                         build.weights.Image(absl::MakeConstSpan(
                             bytes, image.size() * sizeof(int64_t))));
  cache.params_.state = ExpertFetchStateAt(desc, state);
  for (int m = 0; m < desc.num_matrices; ++m) {
    matrices[static_cast<size_t>(m)]->UseSlots(
        cache.params_.slots[m],
        cache.params_.state.table + int64_t{m} * num_experts);
  }
  return cache;
}

absl::Status ExpertCache::Fetch(const RoutingParams& routed,
                                Stream& stream) const {
  ExpertFetchParams params = params_;
  params.offsets = routed.offsets;
  return op_.Run(params, stream);
}

}  // namespace inlay
