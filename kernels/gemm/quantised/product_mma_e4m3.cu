// product_mma.cuh for e4m3.
#include "kernels/gemm/quantised/product_mma.cuh"

namespace inlay {

absl::Status LaunchMmaE4M3(const GemmParams& params, const QuantForm& form,
                           const QuantMmaShape& shape, CudaStream& stream) {
  return WithQuantForm<QuantCodes::kE4M3>(form, [&]<class Form>(Form) {
    return LaunchMmaForm<Form>(params, form, shape, stream);
  });
}

}  // namespace inlay
