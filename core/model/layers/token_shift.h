// TokenShift: RWKV's mixes of a token's row with the one before it, each
// channel by a factor of its own: x_(t-1) m + x_t (1 - m), in several ways over
// one state, which is the last token's row. Convolutions of two taps
// (short_conv) compute it: each of them leaves that row, with the same bits.
#ifndef INLAY_CORE_MODEL_LAYERS_TOKEN_SHIFT_H_
#define INLAY_CORE_MODEL_LAYERS_TOKEN_SHIFT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/model/layers/recurrent.h"
#include "core/model/layers/step.h"
#include "core/model/model_build.h"
#include "kernels/linear_attention/short_conv.h"

namespace inlay {

class TokenShift {
 public:
  // `names`: as WeightLoader::ShiftTaps.
  static absl::StatusOr<TokenShift> Create(
      const std::vector<std::string>& names, int64_t ways, int64_t width,
      ModelBuild& build);
  // Floats of its state.
  static int64_t StateFloats(int64_t width) { return width; }

  int64_t width() const { return conv_.desc.channels; }
  // y must not be x.
  absl::Status Forward(int way, const StateParams& state, const TensorView& x,
                       const TensorView& y, Stream& stream) const;

 private:
  const float* taps_ = nullptr;  // [ways][2][width]
  Op<ShortConvDesc, ShortConvParams> conv_;
};

}  // namespace inlay

#endif  // INLAY_CORE_MODEL_LAYERS_TOKEN_SHIFT_H_
