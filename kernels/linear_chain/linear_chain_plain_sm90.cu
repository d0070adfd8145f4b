// linear_chain_sm90.cuh for weights that are 16-bit floats of x's type, as they
// lie in files, where some are experts'.
#include "kernels/linear_chain/linear_chain_sm90.cuh"

namespace inlay {

absl::Status LaunchChainPlain(const ChainShape& shape, const ChainMaps& maps,
                              DType type, CudaStream& stream) {
  return type == DType::kF16
             ? LaunchChainTyped<ChainForms<ChainPlain<__half>>, __half, false,
                                true>(shape, maps, stream)
             : LaunchChainTyped<ChainForms<ChainPlain<__nv_bfloat16>>,
                                __nv_bfloat16, false, true>(shape, maps,
                                                            stream);
}

}  // namespace inlay
