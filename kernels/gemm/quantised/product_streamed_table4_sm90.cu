// product_streamed_sm90.cuh for tables of 16 levels.
#include "kernels/gemm/quantised/product_streamed_sm90.cuh"

namespace inlay {

absl::Status LaunchStreamedTable4(const GemmParams& params,
                                  const StreamedMaps& maps,
                                  const QuantForm& form, int x_tiles,
                                  const StreamedShape& shape,
                                  CudaStream& stream) {
  return WithQuantForm<QuantCodes::kTable4>(form, [&]<class Form>(Form) {
    return LaunchStreamed<Form>(params, maps, form, x_tiles, shape, stream);
  });
}

}  // namespace inlay
