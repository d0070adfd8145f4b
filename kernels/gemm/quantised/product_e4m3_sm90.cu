// product_sm90.cuh for e4m3.
#include "kernels/gemm/quantised/product_sm90.cuh"

namespace inlay {

absl::Status LaunchE4M3(const GemmParams& params, const QuantForm& form,
                        const QuantShape& shape, CudaStream& stream) {
  return WithQuantForm<QuantCodes::kE4M3>(form, [&]<class Form>(Form) {
    return LaunchQuantForm<Form>(params, form, shape, stream);
  });
}

}  // namespace inlay
