#include "core/model/layers/attention_block.h"

#include <algorithm>
#include <utility>

#include "memory/status.h"

namespace inlay {

absl::StatusOr<std::unique_ptr<Sublayer>> AttentionBlock::Create(
    const AttentionSpec& spec, const KvLayerView& kv, size_t kv_group,
    int rotary_dim, ModelBuild& build) {
  auto block = std::make_unique<AttentionBlock>();
  block->q_width_ = int64_t{spec.num_heads} * spec.head_dim;
  block->kv_width_ = int64_t{spec.num_kv_heads} * spec.head_dim;
  block->head_dim_ = spec.head_dim;
  block->rope_index_ = spec.rope;
  block->activation_ = build.activation;
  block->on_cpu_ = build.on_cpu();
  block->kv_ = kv;
  block->kv_group_ = kv_group;
  // Norms of heads want heads side by side.
  if (spec.q_norm.kind == NormKind::kNone &&
      spec.k_norm.kind == NormKind::kNone) {
    INLAY_ASSIGN_OR_RETURN(block->qkv_,
                           Linear::CreateSideBySide(spec.qkv, build));
  } else {
    for (const LinearSpec& linear : spec.qkv) {
      INLAY_ASSIGN_OR_RETURN(
          block->qkv_.emplace_back(),
          Linear::Create(linear, LinearOutput::kActivation, build));
    }
  }
  INLAY_ASSIGN_OR_RETURN(
      block->output_, Linear::Create(spec.output, LinearOutput::kFloat, build));
  INLAY_ASSIGN_OR_RETURN(
      block->q_norm_, Norm::Create(spec.q_norm, spec.head_dim, build.activation,
                                   build.activation, build));
  INLAY_ASSIGN_OR_RETURN(
      block->k_norm_, Norm::Create(spec.k_norm, spec.head_dim, build.activation,
                                   build.activation, build));
  INLAY_RETURN_IF_ERROR(block->ChooseKernels(spec, rotary_dim, build));
  if (!build.on_cpu()) block->AddCut(build);
  return std::unique_ptr<Sublayer>(std::move(block));
}

absl::Status AttentionBlock::ChooseKernels(const AttentionSpec& spec,
                                           int rotary_dim, ModelBuild& build) {
  if (spec.rope >= 0) {
    RopeDesc desc;
    // Side by side, heads of q and of k are turned in one go.
    desc.num_heads =
        spec.num_heads + (qkv_.size() == 1 ? spec.num_kv_heads : 0);
    desc.head_dim = spec.head_dim;
    desc.rotary_dim = rotary_dim;
    desc.style = spec.rope_style;
    desc.activation = build.activation;
    INLAY_ASSIGN_OR_RETURN(q_rope_,
                           build.kernels.Choose("rope", RopeTable(), desc));
    desc.num_heads = spec.num_kv_heads;
    INLAY_ASSIGN_OR_RETURN(k_rope_,
                           build.kernels.Choose("rope", RopeTable(), desc));
  }
  KvWriteDesc write;
  write.num_kv_heads = spec.num_kv_heads;
  write.head_dim = spec.head_dim;
  write.kv = kv_.dtype;
  write.activation = build.activation;
  INLAY_ASSIGN_OR_RETURN(
      kv_write_, build.kernels.Choose("kv_write", KvWriteTable(), write));
  AttentionDesc attention;
  attention.num_heads = spec.num_heads;
  attention.num_kv_heads = spec.num_kv_heads;
  attention.head_dim = spec.head_dim;
  attention.kv = kv_.dtype;
  attention.activation = build.activation;
  attention.scale = spec.scale;
  attention.softcap = spec.softcap;
  attention.window = spec.window;
  INLAY_ASSIGN_OR_RETURN(
      attention_,
      build.kernels.Choose("attention", AttentionTable(), attention));
  return absl::OkStatus();
}

void AttentionBlock::AddCut(ModelBuild& build) {
  cut_shape_ =
      MakeAttentionPlanShape(*attention_.row, attention_.desc, kv_.block_size,
                             build.kernels.device().num_sms);
  // One kernel for prompts and for single tokens.
  if (build.batch_invariant) cut_shape_.tile_tokens = 0;
  const AttentionCut cut{cut_shape_, kv_group_};
  const auto found = std::find(build.cuts.begin(), build.cuts.end(), cut);
  cut_ = static_cast<size_t>(found - build.cuts.begin());
  if (found == build.cuts.end()) build.cuts.push_back(cut);
}

AttentionBlock::Scratch AttentionBlock::Place(Arena& arena,
                                              int64_t tokens) const {
  Scratch scratch;
  if (qkv_.size() == 1) {
    scratch.fused =
        arena.TakeMatrix(tokens, q_width_ + 2 * kv_width_, activation_);
    scratch.q = ColumnSlice(scratch.fused, 0, q_width_);
    scratch.k = ColumnSlice(scratch.fused, q_width_, kv_width_);
    scratch.v = ColumnSlice(scratch.fused, q_width_ + kv_width_, kv_width_);
  } else {
    scratch.q = arena.TakeMatrix(tokens, q_width_, activation_);
    scratch.k = arena.TakeMatrix(tokens, kv_width_, activation_);
    scratch.v = arena.TakeMatrix(tokens, kv_width_, activation_);
  }
  scratch.context = arena.TakeMatrix(tokens, q_width_, activation_);
  return scratch;
}

size_t AttentionBlock::ScratchBytes(int64_t tokens) const {
  Arena arena(nullptr);
  Place(arena, tokens);
  return arena.used();
}

size_t AttentionBlock::KernelBytes(int64_t tokens, int64_t sequences) const {
  size_t bytes = std::max(
      output_.KernelBytes(tokens),
      on_cpu_ ? attention_.WorkspaceBytes(tokens)
              : AttentionWorkspaceBytes(cut_shape_, sequences, tokens));
  for (const Linear& linear : qkv_) {
    bytes = std::max(bytes, linear.KernelBytes(tokens));
  }
  return bytes;
}

absl::Status AttentionBlock::Project(const Step& step, const TensorView& x,
                                     const Scratch& scratch) const {
  if (qkv_.size() == 1) {
    return qkv_[0].Forward(x, {}, scratch.fused, step.kernel_workspace,
                           step.stream);
  }
  const TensorView* outputs[] = {&scratch.q, &scratch.k, &scratch.v};
  for (size_t i = 0; i < qkv_.size(); ++i) {
    INLAY_RETURN_IF_ERROR(qkv_[i].Forward(x, {}, *outputs[i],
                                          step.kernel_workspace, step.stream));
  }
  const auto normalise = [&](const Norm& norm, const TensorView& heads) {
    if (!norm.present()) return absl::OkStatus();
    const TensorView rows = MatrixView(heads.data, heads.dtype,
                                       heads.elements() / head_dim_, head_dim_);
    return norm.Forward(rows, rows, step.stream);
  };
  INLAY_RETURN_IF_ERROR(normalise(q_norm_, scratch.q));
  return normalise(k_norm_, scratch.k);
}

absl::Status AttentionBlock::Rotate(const Step& step,
                                    const Scratch& scratch) const {
  if (rope_index_ < 0) return absl::OkStatus();
  const RopeAngles& angles = step.angles[static_cast<size_t>(rope_index_)];
  RopeParams params;
  params.cos = angles.cos;
  params.sin = angles.sin;
  if (qkv_.size() == 1) {
    params.x = ColumnSlice(scratch.fused, 0, q_width_ + kv_width_);
    return q_rope_.Run(params, step.stream);
  }
  params.x = scratch.q;
  INLAY_RETURN_IF_ERROR(q_rope_.Run(params, step.stream));
  params.x = scratch.k;
  return k_rope_.Run(params, step.stream);
}

absl::Status AttentionBlock::Forward(const Step& step, const TensorView& x,
                                     const TensorView& residual,
                                     const TensorView& y) const {
  Arena arena(step.scratch);
  const Scratch scratch = Place(arena, x.rows());
  INLAY_RETURN_IF_ERROR(Project(step, x, scratch));
  INLAY_RETURN_IF_ERROR(Rotate(step, scratch));

  KvLayerView kv = kv_;
  kv.base = step.batch.kv_base;
  KvWriteParams write;
  write.k = scratch.k;
  write.v = scratch.v;
  write.kv = kv;
  write.slots = step.device.SlotsOf(kv_group_);
  INLAY_RETURN_IF_ERROR(kv_write_.Run(write, step.stream));

  AttentionParams params;
  params.q = scratch.q;
  params.out = scratch.context;
  params.kv = kv;
  params.sequences = step.batch.SequencesOf(kv_group_);
  if (!on_cpu_) params.plan = &step.device.plans[cut_];
  params.workspace = step.kernel_workspace;
  INLAY_RETURN_IF_ERROR(attention_.Run(params, step.stream));
  return output_.Forward(scratch.context, residual, y, step.kernel_workspace,
                         step.stream);
}

}  // namespace inlay
