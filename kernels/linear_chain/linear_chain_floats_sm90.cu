// linear_chain_sm90.cuh for codes that are multiplied as floats: e4m3 in groups
// of 32 and 128, and 4 bits whose levels are no integers (nf4, bnb_fp4).
#include "kernels/linear_chain/linear_chain_sm90.cuh"

namespace inlay {

absl::Status LaunchChainFloats(const ChainShape& shape, DType type,
                               const ChainFormPair& forms, CudaStream& stream) {
  constexpr QuantCodes kCodes = QuantCodes::kE4M3;
  if (forms.first.codes == QuantCodes::kTable4) {
    using Levels = ChainForm<QuantCodes::kTable4, 32, false, ChainX::kFloats>;
    return LaunchChain<Levels>(shape, type, stream);
  }
  return forms.first.group == 128
             ? LaunchChain<ChainForm<kCodes, 128, false>>(shape, type, stream)
             : LaunchChain<ChainForm<kCodes, 32, false>>(shape, type, stream);
}

}  // namespace inlay
