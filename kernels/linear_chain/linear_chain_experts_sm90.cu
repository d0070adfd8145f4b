// linear_chain_sm90.cuh for chains with a mixture of experts.
#include "kernels/linear_chain/linear_chain_sm90.cuh"

namespace inlay {

absl::Status LaunchChainExperts(const ChainShape& shape, DType type,
                                const ChainFormPair& forms,
                                CudaStream& stream) {
  using Four = ChainForm<QuantCodes::kLinear4, 32, true>;
  using Six = ChainForm<QuantCodes::kLinear6, 16, false>;
  if (forms.is_mixed) return LaunchExpertChain<Four, Six>(shape, type, stream);
  switch (forms.first.codes) {
    case QuantCodes::kInt8:
      return LaunchExpertChain<ChainForm<QuantCodes::kInt8, 32, false>>(
          shape, type, stream);
    case QuantCodes::kLinear6:
      return LaunchExpertChain<Six>(shape, type, stream);
    default:
      break;
  }
  if (forms.first.group == 128) {
    return LaunchExpertChain<ChainForm<QuantCodes::kLinear4, 128, true>>(
        shape, type, stream);
  }
  return forms.first.has_min
             ? LaunchExpertChain<Four>(shape, type, stream)
             : LaunchExpertChain<ChainForm<QuantCodes::kLinear4, 32, false>>(
                   shape, type, stream);
}

}  // namespace inlay
