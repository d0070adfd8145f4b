// linear_chain_sm90.cuh for 4-bit codes whose levels are looked up.
#include "kernels/linear_chain/linear_chain_sm90.cuh"

namespace inlay {

absl::Status LaunchChainTable4(const ChainShape& shape, DType type,
                               const ChainFormPair& forms, CudaStream& stream) {
  constexpr QuantCodes kCodes = QuantCodes::kTable4;
  return forms.first.group == 16
             ? LaunchChain<ChainForm<kCodes, 16, false>>(shape, type, stream)
             : LaunchChain<ChainForm<kCodes, 32, false>>(shape, type, stream);
}

}  // namespace inlay
