// product_sm90.cuh for 6-bit integers: in groups of 16 without a minimum, of 32
// with one.
#include "kernels/gemm/quantised/product_sm90.cuh"

namespace inlay {

absl::Status LaunchLinear6(const GemmParams& params, const QuantForm& form,
                           const QuantShape& shape, CudaStream& stream) {
  constexpr QuantCodes kCodes = QuantCodes::kLinear6;
  return form.has_min ? LaunchQuantForm<QuantFormType<kCodes, 32, true>>(
                            params, form, shape, stream)
                      : LaunchQuantForm<QuantFormType<kCodes, 16, false>>(
                            params, form, shape, stream);
}

}  // namespace inlay
