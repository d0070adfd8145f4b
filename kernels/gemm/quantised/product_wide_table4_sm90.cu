// product_wide_sm90.cuh for tables of 16 levels.
#include "kernels/gemm/quantised/product_wide_sm90.cuh"

namespace inlay {

absl::Status LaunchWideTable4(const GemmParams& params, const WideMaps& maps,
                              const QuantForm& form, const WideShape& shape,
                              CudaStream& stream) {
  constexpr QuantCodes kCodes = QuantCodes::kTable4;
  return form.group == 16 ? LaunchWide<WideForm<kCodes, 16, false>>(
                                params, maps, form, shape, stream)
                          : LaunchWide<WideForm<kCodes, 32, false>>(
                                params, maps, form, shape, stream);
}

}  // namespace inlay
