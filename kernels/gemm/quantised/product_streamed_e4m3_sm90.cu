// product_streamed_sm90.cuh for e4m3.
#include "kernels/gemm/quantised/product_streamed_sm90.cuh"

namespace inlay {

absl::Status LaunchStreamedE4M3(const GemmParams& params,
                                const StreamedMaps& maps, const QuantForm& form,
                                int x_tiles, const StreamedShape& shape,
                                CudaStream& stream) {
  return WithQuantForm<QuantCodes::kE4M3>(form, [&]<class Form>(Form) {
    return LaunchStreamed<Form>(params, maps, form, x_tiles, shape, stream);
  });
}

}  // namespace inlay
