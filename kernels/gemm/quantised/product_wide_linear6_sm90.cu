// product_wide_sm90.cuh for 6-bit integers.
#include "kernels/gemm/quantised/product_wide_sm90.cuh"

namespace inlay {

absl::Status LaunchWideLinear6(const GemmParams& params, const WideMaps& maps,
                               const QuantForm& form, const WideShape& shape,
                               CudaStream& stream) {
  constexpr QuantCodes kCodes = QuantCodes::kLinear6;
  return form.has_min ? LaunchWide<WideForm<kCodes, 32, true>>(
                            params, maps, form, shape, stream)
                      : LaunchWide<WideForm<kCodes, 16, false>>(
                            params, maps, form, shape, stream);
}

}  // namespace inlay
