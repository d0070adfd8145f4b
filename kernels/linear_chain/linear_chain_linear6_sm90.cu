// linear_chain_sm90.cuh for 6-bit integers in groups of 16 and, with
// minima, 32.
#include "kernels/linear_chain/linear_chain_sm90.cuh"

namespace inlay {

absl::Status LaunchChainLinear6(const ChainShape& shape, DType type,
                                const ChainFormPair& forms,
                                CudaStream& stream) {
  constexpr QuantCodes kCodes = QuantCodes::kLinear6;
  return forms.first.group == 16
             ? LaunchChain<ChainForm<kCodes, 16, false>>(shape, type, stream)
             : LaunchChain<ChainForm<kCodes, 32, true>>(shape, type, stream);
}

}  // namespace inlay
