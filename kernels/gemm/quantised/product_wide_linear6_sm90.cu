// product_wide_sm90.cuh for 6-bit integers.
#include "kernels/gemm/quantised/product_wide_sm90.cuh"

namespace inlay {

absl::Status LaunchWideLinear6(const GemmParams& params, const CUtensorMap& x,
                               const QuantForm& form, const WideShape& shape,
                               CudaStream& stream) {
  constexpr QuantCodes kCodes = QuantCodes::kLinear6;
  return form.has_min ? LaunchWide<WideForm<kCodes, 32, true>>(params, x, form,
                                                               shape, stream)
                      : LaunchWide<WideForm<kCodes, 16, false>>(params, x, form,
                                                                shape, stream);
}

}  // namespace inlay
