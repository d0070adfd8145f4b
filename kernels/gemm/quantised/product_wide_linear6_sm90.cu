// product_wide_sm90.cuh for 6-bit integers.
#include "kernels/gemm/quantised/product_wide_sm90.cuh"

namespace inlay {

absl::Status LaunchWideLinear6(const GemmParams& params, const WideMaps& maps,
                               const QuantForm& form, const WideShape& shape,
                               CudaStream& stream) {
  return WithQuantForm<QuantCodes::kLinear6>(form, [&]<class Form>(Form) {
    return LaunchWide<Form>(params, maps, form, shape, stream);
  });
}

}  // namespace inlay
