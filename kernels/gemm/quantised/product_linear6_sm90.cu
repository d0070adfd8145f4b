// product_sm90.cuh for 6-bit integers.
#include "kernels/gemm/quantised/product_sm90.cuh"

namespace inlay {

absl::Status LaunchLinear6(const GemmParams& params, const QuantForm& form,
                           const QuantShape& shape, CudaStream& stream) {
  return WithQuantForm<QuantCodes::kLinear6>(form, [&]<class Form>(Form) {
    return LaunchQuantForm<Form>(params, form, shape, stream);
  });
}

}  // namespace inlay
