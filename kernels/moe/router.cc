#include "kernels/moe/router.h"

#include "kernels/moe/router_shape.h"

namespace inlay {

#if INLAY_HAS_CUDA
absl::Status RunMoeRouterSm90(const MoeRouterDesc& desc,
                              const MoeRouterParams& params,
                              Stream& stream);  // router_sm90.cu

namespace {

int64_t RowsThatFit(const MoeRouterDesc& desc) {
  int64_t tokens = kMostRouterTokens;
  while (RouterShapeOf(desc, tokens).shared_bytes > kMostRouterShared) {
    tokens /= 2;
    if (tokens < 8) return 0;
  }
  return tokens;
}

const char* Sm90Refuses(const MoeRouterDesc& desc, const DeviceInfo& device) {
  if (device.sm != 90) return "written for compute capability 9.0";
  if (device.num_sms < kRouterBlocks) return "too few multiprocessors";
  const RoutingDesc& routing = desc.routing;
  if (!ValidateRouting(routing).ok()) {
    return "numbers of experts are out of range";
  }
  if (routing.hashed) return "experts are chosen by a table";
  if (routing.top_groups < routing.num_groups) return "experts are in groups";
  if (routing.num_experts > kMostRouterExperts ||
      routing.top_k > kMostRouterTopK) {
    return "so many experts";
  }
  if (desc.activation != DType::kBF16 && desc.activation != DType::kF16) {
    return "activations are not of 16 bits";
  }
  if (desc.weight != desc.activation &&
      (desc.weight != DType::kF32 || desc.activation != DType::kBF16)) {
    return "weights are neither of the activations' type nor, beside bf16, f32";
  }
  if (desc.width % kRouterStep != 0 || desc.width > kMostRouterWidth) {
    return "such a width";
  }
  return RowsThatFit(desc) == 0 ? "weights do not fit shared memory" : nullptr;
}

constexpr MoeRouterRow kRows[] = {{"cuda_sm90", DeviceKind::kCuda, 90,
                                   Sm90Refuses, nullptr, RunMoeRouterSm90}};

}  // namespace

absl::Span<const MoeRouterRow> MoeRouterTable() { return kRows; }
int64_t MoeRouterTokens(const MoeRouterDesc& desc) { return RowsThatFit(desc); }
#else
absl::Span<const MoeRouterRow> MoeRouterTable() { return {}; }
int64_t MoeRouterTokens(const MoeRouterDesc&) { return 0; }
#endif

}  // namespace inlay
