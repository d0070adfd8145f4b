// moe_identity: what experts give that give back what they read
// (zero-computation experts, LongCat-Flash, arXiv:2509.01322): of every slot
// (routing.h) whose expert is one of those, the row of y is its token's of x.
#ifndef INLAY_KERNELS_MOE_IDENTITY_H_
#define INLAY_KERNELS_MOE_IDENTITY_H_

#include <cstdint>

#include "kernels/dispatch.h"
#include "memory/tensor.h"

namespace inlay {

struct MoeIdentityDesc {
  int64_t width = 0;
  int top_k = 0;
  int num_experts = 0;  // with matrices; those of higher numbers have none
  DType activation = DType::kF32;
};

struct MoeIdentityParams {
  TensorView x;                      // [tokens, width], rows may be strided
  const int32_t* experts = nullptr;  // [tokens, top_k], as routing gives them
  // [tokens * top_k, width] f32, rows may be strided; those of other slots stay
  // as they are. Must not overlap x.
  TensorView y;
};

using MoeIdentityRow = KernelRow<MoeIdentityDesc, MoeIdentityParams>;
absl::Span<const MoeIdentityRow> MoeIdentityTable();

}  // namespace inlay

#endif  // INLAY_KERNELS_MOE_IDENTITY_H_
