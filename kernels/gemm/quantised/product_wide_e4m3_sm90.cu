// product_wide_sm90.cuh for e4m3 floats.
#include "kernels/gemm/quantised/product_wide_sm90.cuh"

namespace inlay {

absl::Status LaunchWideE4M3(const GemmParams& params, const WideMaps& maps,
                            const QuantForm& form, const WideShape& shape,
                            CudaStream& stream) {
  constexpr QuantCodes kCodes = QuantCodes::kE4M3;
  return form.group == 128 ? LaunchWide<WideForm<kCodes, 128, false>>(
                                 params, maps, form, shape, stream)
                           : LaunchWide<WideForm<kCodes, 32, false>>(
                                 params, maps, form, shape, stream);
}

}  // namespace inlay
