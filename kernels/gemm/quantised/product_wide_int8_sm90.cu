// product_wide_sm90.cuh for 8-bit integers.
#include "kernels/gemm/quantised/product_wide_sm90.cuh"

namespace inlay {

absl::Status LaunchWideInt8(const GemmParams& params, const WideMaps& maps,
                            const QuantForm& form, const WideShape& shape,
                            CudaStream& stream) {
  return WithQuantForm<QuantCodes::kInt8>(form, [&]<class Form>(Form) {
    return LaunchWide<Form>(params, maps, form, shape, stream);
  });
}

}  // namespace inlay
