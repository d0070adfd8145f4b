// linear_chain_sm90.cuh for two formats: the mixtures of K-quants, 4 or 5 bits
// (packed as 6) in groups of 32 with minima, and some stages in 6 bits in
// groups of 16; experts in mxfp4 (or the like) and all else in q8_0, as
// gpt-oss's GGUF files are.
#include "kernels/linear_chain/linear_chain_sm90.cuh"

namespace inlay {

absl::Status LaunchChainMixed(const ChainShape& shape, DType type,
                              const ChainFormPair& forms, CudaStream& stream) {
  using Six = ChainForm<QuantCodes::kLinear6, 16, false>;
  using Five = ChainForm<QuantCodes::kLinear6, 32, true>;
  using Four = ChainForm<QuantCodes::kLinear4, 32, true>;
  using Levels = ChainForm<QuantCodes::kTable4, 32, false>;
  using Eight = ChainForm<QuantCodes::kInt8, 32, false, Levels::kX>;
  if (forms.first.codes == QuantCodes::kTable4) {
    return LaunchChain<Levels, Eight>(shape, type, stream);
  }
  if (forms.first.codes == QuantCodes::kLinear6) {
    return LaunchChain<Five, Six>(shape, type, stream);
  }
  return forms.second.group == 16
             ? LaunchChain<Four, Six>(shape, type, stream)
             : LaunchChain<Four, Five>(shape, type, stream);
}

}  // namespace inlay
