// product_mma.cuh for 6-bit integers.
#include "kernels/gemm/quantised/product_mma.cuh"

namespace inlay {

absl::Status LaunchMmaLinear6(const GemmParams& params, const QuantForm& form,
                              const QuantMmaShape& shape, CudaStream& stream) {
  return WithQuantForm<QuantCodes::kLinear6>(form, [&]<class Form>(Form) {
    return LaunchMmaForm<Form>(params, form, shape, stream);
  });
}

}  // namespace inlay
