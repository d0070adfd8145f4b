// product_sm90.cuh for 8-bit integers in groups of 32 and 128.
#include "kernels/gemm/quantised/product_sm90.cuh"

namespace inlay {

absl::Status LaunchInt8(const GemmParams& params, const QuantForm& form,
                        const QuantShape& shape, CudaStream& stream) {
  constexpr QuantCodes kCodes = QuantCodes::kInt8;
  if (form.group == 128) {
    return LaunchQuantForm<QuantFormType<kCodes, 128, true>>(params, form,
                                                             shape, stream);
  }
  return form.has_min ? LaunchQuantForm<QuantFormType<kCodes, 32, true>>(
                            params, form, shape, stream)
                      : LaunchQuantForm<QuantFormType<kCodes, 32, false>>(
                            params, form, shape, stream);
}

}  // namespace inlay
