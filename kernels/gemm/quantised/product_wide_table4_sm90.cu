// product_wide_sm90.cuh for tables of 16 levels.
#include "kernels/gemm/quantised/product_wide_sm90.cuh"

namespace inlay {

absl::Status LaunchWideTable4(const GemmParams& params, const WideMaps& maps,
                              const QuantForm& form, const WideShape& shape,
                              CudaStream& stream) {
  return WithQuantForm<QuantCodes::kTable4>(form, [&]<class Form>(Form) {
    return LaunchWide<Form>(params, maps, form, shape, stream);
  });
}

}  // namespace inlay
