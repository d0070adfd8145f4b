// product_sm90.cuh for tables of 16 levels in groups of 16 and 32.
#include "kernels/gemm/quantised/product_sm90.cuh"

namespace inlay {

absl::Status LaunchTable4(const GemmParams& params, const QuantForm& form,
                          const QuantShape& shape, CudaStream& stream) {
  constexpr QuantCodes kCodes = QuantCodes::kTable4;
  return form.group == 16 ? LaunchQuantForm<QuantFormType<kCodes, 16, false>>(
                                params, form, shape, stream)
                          : LaunchQuantForm<QuantFormType<kCodes, 32, false>>(
                                params, form, shape, stream);
}

}  // namespace inlay
