// product_sm90.cuh for e4m3 in groups of 32 and 128.
#include "kernels/gemm/quantised/product_sm90.cuh"

namespace inlay {

absl::Status LaunchE4M3(const GemmParams& params, const QuantForm& form,
                        const QuantShape& shape, CudaStream& stream) {
  constexpr QuantCodes kCodes = QuantCodes::kE4M3;
  return form.group == 128 ? LaunchQuantForm<QuantFormType<kCodes, 128, false>>(
                                 params, form, shape, stream)
                           : LaunchQuantForm<QuantFormType<kCodes, 32, false>>(
                                 params, form, shape, stream);
}

}  // namespace inlay
