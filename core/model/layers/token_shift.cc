#include "core/model/layers/token_shift.h"

#include "memory/status.h"

namespace inlay {
namespace {

constexpr int kShiftTaps = 2;

}  // namespace

absl::StatusOr<TokenShift> TokenShift::Create(
    const std::vector<std::string>& names, int64_t ways, int64_t width,
    ModelBuild& build) {
  TokenShift shift;
  ShortConvDesc desc;
  desc.channels = width;
  desc.num_taps = kShiftTaps;
  desc.activation = build.activation;
  INLAY_ASSIGN_OR_RETURN(
      shift.conv_, build.kernels.Choose("short_conv", ShortConvTable(), desc));
  INLAY_ASSIGN_OR_RETURN(shift.taps_,
                         build.weights.ShiftTaps(names, ways, width));
  return shift;
}

absl::Status TokenShift::Forward(int way, const StateParams& state,
                                 const TensorView& x, const TensorView& y,
                                 Stream& stream) const {
  ShortConvParams params;
  params.x = x;
  params.taps = taps_ + int64_t{way} * kShiftTaps * width();
  params.state = state;
  params.y = y;
  return conv_.Run(params, stream);
}

}  // namespace inlay
