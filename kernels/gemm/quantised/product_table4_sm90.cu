// product_sm90.cuh for tables of 16 levels.
#include "kernels/gemm/quantised/product_sm90.cuh"

namespace inlay {

absl::Status LaunchTable4(const GemmParams& params, const QuantForm& form,
                          const QuantShape& shape, CudaStream& stream) {
  return WithQuantForm<QuantCodes::kTable4>(form, [&]<class Form>(Form) {
    return LaunchQuantForm<Form>(params, form, shape, stream);
  });
}

}  // namespace inlay
