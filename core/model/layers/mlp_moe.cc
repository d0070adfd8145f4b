#include "core/model/layers/mlp_moe.h"

#include <algorithm>
#include <utility>

#include "core/model/layers/mlp.h"
#include "core/model/layers/moe.h"
#include "memory/status.h"

namespace inlay {

absl::Status MlpMoe::LoadNorms(const NormSpec& pre_norm,
                               const NormSpec& post_norm, int64_t hidden_size,
                               ModelBuild& build, Half* half) {
  INLAY_DCHECK(pre_norm.kind != NormKind::kNone &&
               post_norm.kind != NormKind::kNone);
  INLAY_ASSIGN_OR_RETURN(half->pre_norm,
                         Norm::Create(pre_norm, hidden_size, DType::kF32,
                                      build.activation, build));
  INLAY_ASSIGN_OR_RETURN(
      half->post_norm,
      Norm::Create(post_norm, hidden_size, DType::kF32, DType::kF32, build));
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Sublayer>> MlpMoe::Create(const MlpMoeSpec& spec,
                                                         int64_t hidden_size,
                                                         ModelBuild& build) {
  auto both = std::make_unique<MlpMoe>();
  both->activation_ = build.activation;
  INLAY_RETURN_IF_ERROR(LoadNorms(spec.mlp_pre_norm, spec.mlp_post_norm,
                                  hidden_size, build, &both->mlp_));
  INLAY_ASSIGN_OR_RETURN(both->mlp_.part,
                         Mlp::Create(spec.mlp, both->mlp_.pre_norm, build));
  INLAY_RETURN_IF_ERROR(LoadNorms(spec.moe_pre_norm, spec.moe_post_norm,
                                  hidden_size, build, &both->moe_));
  INLAY_ASSIGN_OR_RETURN(both->moe_.part,
                         Moe::Create(spec.moe, hidden_size, build));
  ElementwiseDesc add;
  add.function = Elementwise::kAdd;
  add.width = hidden_size;
  INLAY_ASSIGN_OR_RETURN(
      both->add_, build.kernels.Choose("elementwise", ElementwiseTable(), add));
  return std::unique_ptr<Sublayer>(std::move(both));
}

MlpMoe::Scratch MlpMoe::Place(Arena& arena, int64_t tokens) const {
  Scratch scratch;
  const int64_t hidden = add_.desc.width;
  scratch.input = arena.TakeMatrix(tokens, hidden, activation_);
  scratch.output = arena.TakeMatrix(tokens, hidden, DType::kF32);
  scratch.rest = arena.Take(std::max(mlp_.part->ScratchBytes(tokens),
                                     moe_.part->ScratchBytes(tokens)));
  return scratch;
}

size_t MlpMoe::ScratchBytes(int64_t tokens) const {
  Arena arena(nullptr);
  Place(arena, tokens);
  return arena.used();
}

size_t MlpMoe::KernelBytes(int64_t tokens, int64_t sequences) const {
  return std::max(mlp_.part->KernelBytes(tokens, sequences),
                  moe_.part->KernelBytes(tokens, sequences));
}

absl::Status MlpMoe::Run(const Half& half, const Step& step,
                         const TensorView& hidden, const Scratch& scratch,
                         const TensorView& y) {
  Step inner = step;
  inner.scratch = scratch.rest;
  INLAY_RETURN_IF_ERROR(
      half.part->Forward(inner, {half.pre_norm, hidden, scratch.input}, {}, y));
  return half.post_norm.Forward(y, y, step.stream);
}

absl::Status MlpMoe::Forward(const Step& step, const BlockInput& x,
                             const TensorView& residual,
                             const TensorView& y) const {
  INLAY_DCHECK(residual.empty());
  Arena arena(step.scratch);
  const Scratch scratch = Place(arena, x.hidden.rows());
  INLAY_RETURN_IF_ERROR(Run(mlp_, step, x.hidden, scratch, y));
  INLAY_RETURN_IF_ERROR(Run(moe_, step, x.hidden, scratch, scratch.output));
  ElementwiseParams add;
  add.y = y;
  add.x = scratch.output;
  return add_.Run(add, step.stream);
}

}  // namespace inlay
