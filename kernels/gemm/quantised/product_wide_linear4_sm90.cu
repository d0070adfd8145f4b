// product_wide_sm90.cuh for 4-bit integers.
#include "kernels/gemm/quantised/product_wide_sm90.cuh"

namespace inlay {

absl::Status LaunchWideLinear4(const GemmParams& params, const WideMaps& maps,
                               const QuantForm& form, const WideShape& shape,
                               CudaStream& stream) {
  constexpr QuantCodes kCodes = QuantCodes::kLinear4;
  if (form.group == 128) {
    return LaunchWide<WideForm<kCodes, 128, true>>(params, maps, form, shape,
                                                   stream);
  }
  if (form.group == 16) {
    return form.has_min ? LaunchWide<WideForm<kCodes, 16, true>>(
                              params, maps, form, shape, stream)
                        : LaunchWide<WideForm<kCodes, 16, false>>(
                              params, maps, form, shape, stream);
  }
  return form.has_min ? LaunchWide<WideForm<kCodes, 32, true>>(
                            params, maps, form, shape, stream)
                      : LaunchWide<WideForm<kCodes, 32, false>>(
                            params, maps, form, shape, stream);
}

}  // namespace inlay
