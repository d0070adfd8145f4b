// expert_streamed_sm90.cuh for 4-bit codes that are looked up.
#include "kernels/moe/expert_streamed_sm90.cuh"

namespace inlay {

absl::Status LaunchExpertStreamedTable4(const ExpertLinearParams& params,
                                        const ExpertStreamedMaps& maps,
                                        const QuantForm& form, int row_tiles,
                                        const ExpertStreamedShape& shape,
                                        CudaStream& stream) {
  return WithQuantForm<QuantCodes::kTable4>(form, [&]<class Form>(Form) {
    return LaunchExpertStreamed<Form>(params, maps, form, row_tiles, shape,
                                      stream);
  });
}

}  // namespace inlay
