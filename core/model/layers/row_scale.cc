#include "core/model/layers/row_scale.h"

#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {

absl::StatusOr<RowScale> RowScale::Create(int64_t width,
                                          const ModelBuild& build) {
  if (width % 2 != 0) {
    return absl::UnimplementedError(FormattedString(
        "rows of %d elements are to be scaled; their number must be even",
        width));
  }
  RopeDesc desc;
  desc.num_heads = static_cast<int>(width / 2);
  desc.head_dim = 2;
  desc.rotary_dim = 2;
  desc.style = RopeStyle::kInterleaved;
  desc.activation = build.activation;
  RowScale scale;
  INLAY_ASSIGN_OR_RETURN(scale.rope_,
                         build.kernels.Choose("rope", RopeTable(), desc));
  return scale;
}

absl::Status RowScale::Forward(const TensorView& x, const float* factors,
                               const float* zeros, Stream& stream) const {
  RopeParams params;
  params.x = x;
  params.cos = factors;
  params.sin = zeros;
  return rope_.Run(params, stream);
}

}  // namespace inlay
