// product_mma.cuh for 8-bit integers.
#include "kernels/gemm/quantised/product_mma.cuh"

namespace inlay {

absl::Status LaunchMmaInt8(const GemmParams& params, const QuantForm& form,
                           const QuantMmaShape& shape, CudaStream& stream) {
  return WithQuantForm<QuantCodes::kInt8>(form, [&]<class Form>(Form) {
    return LaunchMmaForm<Form>(params, form, shape, stream);
  });
}

}  // namespace inlay
