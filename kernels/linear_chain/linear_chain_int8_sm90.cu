// linear_chain_sm90.cuh for 8-bit integers in groups of 32 and 128.
#include "kernels/linear_chain/linear_chain_sm90.cuh"

namespace inlay {

absl::Status LaunchChainInt8(const ChainShape& shape, DType type,
                             const ChainFormPair& forms, CudaStream& stream) {
  constexpr QuantCodes kCodes = QuantCodes::kInt8;
  if (forms.first.group == 128) {
    return LaunchChain<ChainForm<kCodes, 128, true>>(shape, type, stream);
  }
  return forms.first.has_min
             ? LaunchChain<ChainForm<kCodes, 32, true>>(shape, type, stream)
             : LaunchChain<ChainForm<kCodes, 32, false>>(shape, type, stream);
}

}  // namespace inlay
