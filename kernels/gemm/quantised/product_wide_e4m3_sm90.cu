// product_wide_sm90.cuh for e4m3.
#include "kernels/gemm/quantised/product_wide_sm90.cuh"

namespace inlay {

absl::Status LaunchWideE4M3(const GemmParams& params, const WideMaps& maps,
                            const QuantForm& form, const WideShape& shape,
                            CudaStream& stream) {
  return WithQuantForm<QuantCodes::kE4M3>(form, [&]<class Form>(Form) {
    return LaunchWide<Form>(params, maps, form, shape, stream);
  });
}

}  // namespace inlay
