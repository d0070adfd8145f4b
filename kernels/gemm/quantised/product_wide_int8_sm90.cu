// product_wide_sm90.cuh for 8-bit integers.
#include "kernels/gemm/quantised/product_wide_sm90.cuh"

namespace inlay {

absl::Status LaunchWideInt8(const GemmParams& params, const WideMaps& maps,
                            const QuantForm& form, const WideShape& shape,
                            CudaStream& stream) {
  constexpr QuantCodes kCodes = QuantCodes::kInt8;
  if (form.group == 128) {
    return LaunchWide<WideForm<kCodes, 128, true>>(params, maps, form, shape,
                                                   stream);
  }
  return form.has_min ? LaunchWide<WideForm<kCodes, 32, true>>(
                            params, maps, form, shape, stream)
                      : LaunchWide<WideForm<kCodes, 32, false>>(
                            params, maps, form, shape, stream);
}

}  // namespace inlay
