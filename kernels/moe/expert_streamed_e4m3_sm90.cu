// expert_streamed_sm90.cuh for 8-bit floats.
#include "kernels/moe/expert_streamed_sm90.cuh"

namespace inlay {

absl::Status LaunchExpertStreamedE4M3(const ExpertLinearParams& params,
                                      const ExpertStreamedMaps& maps,
                                      const QuantForm& form, int row_tiles,
                                      const ExpertStreamedShape& shape,
                                      CudaStream& stream) {
  return WithQuantForm<QuantCodes::kE4M3>(form, [&]<class Form>(Form) {
    return LaunchExpertStreamed<Form>(params, maps, form, row_tiles, shape,
                                      stream);
  });
}

}  // namespace inlay
