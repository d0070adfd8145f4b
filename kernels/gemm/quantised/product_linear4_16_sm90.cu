// product_sm90.cuh for 4-bit integers in groups of 16.
#include "kernels/gemm/quantised/product_sm90.cuh"

namespace inlay {

absl::Status LaunchLinear4Of16(const GemmParams& params, const QuantForm& form,
                               const QuantShape& shape, CudaStream& stream) {
  constexpr QuantCodes kCodes = QuantCodes::kLinear4;
  return form.has_min ? LaunchQuantForm<QuantFormType<kCodes, 16, true>>(
                            params, form, shape, stream)
                      : LaunchQuantForm<QuantFormType<kCodes, 16, false>>(
                            params, form, shape, stream);
}

}  // namespace inlay
