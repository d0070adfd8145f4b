// product_streamed_sm90.cuh for 6-bit integers.
#include "kernels/gemm/quantised/product_streamed_sm90.cuh"

namespace inlay {

absl::Status LaunchStreamedLinear6(const GemmParams& params,
                                   const StreamedMaps& maps,
                                   const QuantForm& form, int x_tiles,
                                   const StreamedShape& shape,
                                   CudaStream& stream) {
  return WithQuantForm<QuantCodes::kLinear6>(form, [&]<class Form>(Form) {
    return LaunchStreamed<Form>(params, maps, form, x_tiles, shape, stream);
  });
}

}  // namespace inlay
