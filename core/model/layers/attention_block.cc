#include "core/model/layers/attention_block.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "core/model/layers/attention_chunks.h"
#include "memory/status.h"

namespace inlay {

AttentionBlock::Scratch AttentionBlock::Place(Arena& arena,
                                              int64_t tokens) const {
  Scratch scratch;
  if (on_cpu_ && chunk_ > 0) {
    scratch.chunks = reinterpret_cast<AttentionSequence*>(
        arena.Take(static_cast<size_t>(tokens) * sizeof(AttentionSequence)));
  }
  if (selector_.present()) {
    scratch.selection =
        reinterpret_cast<int32_t*>(arena.Take(selector_.ScratchBytes(tokens)));
  }
  if (index_.present()) {
    scratch.selection =
        reinterpret_cast<int32_t*>(arena.Take(index_.SelectionBytes(tokens)));
    scratch.index = arena.Take(index_.ScratchBytes(tokens));
  }
  if (side_by_side_) {
    const int64_t width = q_width_ + 2 * kv_width_;
    if (gate_.splits()) {
      const int64_t all = width + gate_.width();
      scratch.q_and_gate = arena.TakeMatrix(tokens, all, activation_);
      // Rows stay where vectors can begin.
      constexpr int64_t kVector = 16;
      scratch.ordered = ColumnSlice(
          arena.TakeMatrix(tokens, (all + kVector - 1) / kVector * kVector,
                           activation_),
          0, all);
      scratch.fused = ColumnSlice(scratch.ordered, 0, width);
      scratch.gate = ColumnSlice(scratch.ordered, width, gate_.width());
    } else {
      if (values_.present()) {
        scratch.narrow = arena.TakeMatrix(
            tokens, q_width_ + kv_width_ + values_.value_width(), activation_);
      }
      scratch.fused = arena.TakeMatrix(tokens, width, activation_);
    }
    scratch.q = ColumnSlice(scratch.fused, 0, q_width_);
    scratch.k = ColumnSlice(scratch.fused, q_width_, kv_width_);
    scratch.v = ColumnSlice(scratch.fused, q_width_ + kv_width_, kv_width_);
  } else {
    scratch.q = arena.TakeMatrix(tokens, q_width_, activation_);
    if (!reads_other_kv_) {
      scratch.k = arena.TakeMatrix(tokens, kv_width_, activation_);
      scratch.v = arena.TakeMatrix(tokens, kv_width_, activation_);
    }
    if (values_.present()) {
      scratch.narrow =
          arena.TakeMatrix(tokens, values_.value_width(), activation_);
    }
  }
  if (gate_.splits() && !side_by_side_) {
    if (!gate_.is_apart()) {
      scratch.q_and_gate = arena.TakeMatrix(tokens, 2 * q_width_, activation_);
    }
    scratch.gate = arena.TakeMatrix(tokens, gate_.width(), activation_);
  }
  scratch.context = scratch.mixed =
      arena.TakeMatrix(tokens, q_width_, activation_);
  if (values_.present()) {
    scratch.mixed = arena.TakeMatrix(tokens, values_.width(), activation_);
  }
  return scratch;
}

size_t AttentionBlock::ScratchBytes(int64_t tokens) const {
  Arena arena(nullptr);
  Place(arena, tokens);
  return arena.used();
}

size_t AttentionBlock::KernelBytes(int64_t tokens, int64_t sequences) const {
  const size_t bytes =
      std::max({output_.KernelBytes(tokens), qkv_.KernelBytes(tokens),
                selector_.KernelBytes(tokens), index_.KernelBytes(tokens)});
  if (selects()) sequences = tokens;
  if (on_cpu_) return std::max(bytes, attention_.WorkspaceBytes(tokens));
  const int64_t parts =
      chunk_ == 0 ? sequences : MaxChunkSequences(tokens, sequences, chunk_);
  return std::max(bytes, AttentionWorkspaceBytes(cut_shape_, parts, tokens));
}

absl::Status AttentionBlock::Project(const Step& step, const BlockInput& x,
                                     const Scratch& scratch) const {
  if (side_by_side_) {
    return qkv_.ForwardSideBySide(step, x, Projected(scratch));
  }
  if (gate_.is_apart()) {
    return qkv_.Forward(step, x,
                        {scratch.q, scratch.gate, scratch.k, scratch.v});
  }
  if (values_.present()) {
    INLAY_RETURN_IF_ERROR(
        qkv_.Forward(step, x, {scratch.q, scratch.k, scratch.narrow}));
    return values_.Widen(scratch.narrow, scratch.v, step.stream);
  }
  // As many as there are layers are used.
  INLAY_RETURN_IF_ERROR(qkv_.Forward(
      step, x,
      {gate_.splits() ? scratch.q_and_gate : scratch.q, scratch.k, scratch.v}));
  if (!gate_.splits() || scratch.q_and_gate.empty()) return absl::OkStatus();
  return gate_.Split(scratch.q_and_gate, scratch.q, scratch.gate, step.stream);
}

absl::Status AttentionBlock::Order(const Step& step,
                                   const Scratch& scratch) const {
  if (!side_by_side_) return absl::OkStatus();
  if (values_.present()) {
    return values_.Order(scratch.narrow, scratch.fused, step.stream);
  }
  if (!gate_.splits()) return absl::OkStatus();
  return gate_.Order(scratch.q_and_gate, scratch.ordered, step.stream);
}

absl::Status AttentionBlock::NormaliseHeads(const Step& step,
                                            const Scratch& scratch) const {
  const auto rows = [&](const TensorView& heads) {
    return MatrixView(heads.data, heads.dtype, heads.elements() / head_dim_,
                      head_dim_);
  };
  const auto normalise = [&](const Norm& norm, const TensorView& heads) {
    if (!norm.present() || heads.empty()) return absl::OkStatus();
    if (joint_norms_) return norm.Forward(heads, heads, step.stream);
    if (norm.has_own_weights()) return norm.ForwardHeads(heads, step.stream);
    return norm.Forward(rows(heads), rows(heads), step.stream);
  };
  // Before keys change.
  if (v_norm_.present()) {
    INLAY_RETURN_IF_ERROR(
        v_norm_.Forward(rows(keys_as_values_ ? scratch.k : scratch.v),
                        rows(scratch.v), step.stream));
  }
  INLAY_RETURN_IF_ERROR(normalise(q_norm_, scratch.q));
  return normalise(k_norm_, scratch.k);
}

absl::Status AttentionBlock::Clip(const Step& step,
                                  const Scratch& scratch) const {
  if (limit_ == 0.0f) return absl::OkStatus();
  if (side_by_side_) {
    return clip_qkv_.Run({scratch.fused, {}, limit_}, step.stream);
  }
  if (!scratch.q.empty()) {
    INLAY_RETURN_IF_ERROR(clip_q_.Run({scratch.q, {}, limit_}, step.stream));
  }
  if (reads_other_kv_) return absl::OkStatus();
  INLAY_RETURN_IF_ERROR(clip_kv_.Run({scratch.k, {}, limit_}, step.stream));
  return clip_kv_.Run({scratch.v, {}, limit_}, step.stream);
}

absl::Status AttentionBlock::Rotate(const Step& step,
                                    const Scratch& scratch) const {
  if (rope_index_ < 0) return absl::OkStatus();
  const RopeAngles& angles = step.angles[static_cast<size_t>(rope_index_)];
  RopeParams params;
  params.cos = angles.cos;
  params.sin = angles.sin;
  if (side_by_side_) {
    params.x = ColumnSlice(scratch.fused, 0, q_width_ + kv_width_);
    return q_rope_.Run(params, step.stream);
  }
  params.x = scratch.q;
  if (!params.x.empty()) {
    INLAY_RETURN_IF_ERROR(q_rope_.Run(params, step.stream));
  }
  if (reads_other_kv_) return absl::OkStatus();
  params.x = scratch.k;
  return k_rope_.Run(params, step.stream);
}

RopeKvParams AttentionBlock::FusedParams(const Step& step,
                                         const KvLayerView& kv,
                                         const Scratch& scratch) const {
  RopeKvParams params;
  params.qkv = scratch.fused;
  params.q_norm = {q_norm_.weight(), q_norm_.epsilon()};
  params.k_norm = {k_norm_.weight(), k_norm_.epsilon()};
  if (rope_index_ >= 0) {
    const RopeAngles& angles = step.angles[static_cast<size_t>(rope_index_)];
    params.cos = angles.cos;
    params.sin = angles.sin;
  }
  params.kv = kv;
  params.slots = step.device.SlotsOf(kv_group_);
  return params;
}

absl::Status AttentionBlock::Finish(const Step& step, const KvLayerView& kv,
                                    const Scratch& scratch) const {
  INLAY_RETURN_IF_ERROR(Order(step, scratch));
  if (rope_kv_.row != nullptr) {
    return rope_kv_.Run(FusedParams(step, kv, scratch), step.stream);
  }
  if (norms_after_rope_) INLAY_RETURN_IF_ERROR(Rotate(step, scratch));
  INLAY_RETURN_IF_ERROR(NormaliseHeads(step, scratch));
  INLAY_RETURN_IF_ERROR(Clip(step, scratch));
  if (!norms_after_rope_) INLAY_RETURN_IF_ERROR(Rotate(step, scratch));
  if (reads_other_kv_) return absl::OkStatus();
  KvWriteParams write;
  write.k = scratch.k;
  write.v = scratch.v;
  write.kv = kv;
  write.slots = step.device.SlotsOf(kv_group_);
  return kv_write_.Run(write, step.stream);
}

absl::Span<const AttentionSequence> AttentionBlock::Sequences(
    absl::Span<const AttentionSequence> all, const Scratch& scratch) const {
  if (scratch.chunks == nullptr) return all;
  const int64_t count =
      SplitIntoChunks(all, chunk_, kv_.block_size, scratch.chunks);
  return {scratch.chunks, static_cast<size_t>(count)};
}

TensorView AttentionBlock::InputsOf(const Step& step, int64_t tokens) const {
  Arena arena(step.scratch);
  return Projected(Place(arena, tokens));
}

TensorView AttentionBlock::MixedOf(const Step& step, int64_t tokens) const {
  Arena arena(step.scratch);
  return Place(arena, tokens).mixed;
}

absl::Status AttentionBlock::Begin(const Step& step,
                                   const BlockInput& x) const {
  Arena arena(step.scratch);
  const Scratch scratch = Place(arena, x.hidden.rows());
  if (index_.present()) {
    INLAY_RETURN_IF_ERROR(index_.Project(step, x, scratch.index));
  }
  return Project(step, x, scratch);
}

KvLayerView AttentionBlock::KvOf(const Step& step) const {
  KvLayerView kv = kv_;
  kv.base = step.batch.kv_base;
  return kv;
}

absl::Status AttentionBlock::WriteKv(const Step& step,
                                     const BlockInput& x) const {
  if (reads_other_kv_) return absl::OkStatus();
  Arena arena(step.scratch);
  Scratch scratch = Place(arena, x.hidden.rows());
  // Side by side, queries come with the others.
  if (!side_by_side_) {
    scratch.q = scratch.q_and_gate = scratch.gate = TensorView();
  }
  INLAY_RETURN_IF_ERROR(Project(step, x, scratch));
  return Finish(step, KvOf(step), scratch);
}

absl::Status AttentionBlock::GiveBack(const Step& step,
                                      const Scratch& scratch) const {
  if (gate_channels_.present()) {
    INLAY_RETURN_IF_ERROR(
        gate_channels_.Forward(scratch.gate, scratch.gate, step.stream));
  }
  INLAY_RETURN_IF_ERROR(
      gate_.Apply(scratch.context, scratch.gate, step.stream));
  if (values_.present()) {
    INLAY_RETURN_IF_ERROR(
        values_.Narrow(scratch.context, scratch.mixed, step.stream));
  }
  if (!output_norm_.present()) return absl::OkStatus();
  return output_norm_.Forward(scratch.mixed, scratch.mixed, step.stream);
}

absl::Status AttentionBlock::Mix(const Step& step, int64_t tokens) const {
  const AttentionPlan* plan = on_cpu_ ? nullptr : &step.device.plans[cut_];
  if (decode_attention_.row == nullptr || !plan->few) {
    return Attend(step, tokens, {step.batch.SequencesOf(kv_group_), plan});
  }
  Arena arena(step.scratch);
  const Scratch scratch = Place(arena, tokens);
  INLAY_RETURN_IF_ERROR(Order(step, scratch));
  DecodeAttentionParams params;
  params.rope_kv = FusedParams(step, KvOf(step), scratch);
  params.out = scratch.context;
  params.sinks = sinks_;
  params.plan = plan;
  INLAY_RETURN_IF_ERROR(decode_attention_.Run(params, step.stream));
  return GiveBack(step, scratch);
}

absl::Status AttentionBlock::RunAttention(const AttentionParams& params,
                                          Stream& stream) const {
  if (disentangled_attention_.row != nullptr) {
    return disentangled_attention_.Run({params, relative_.rows()}, stream);
  }
  if (biased_attention_.row != nullptr) {
    return biased_attention_.Run({params, bias_}, stream);
  }
  return attention_.Run(params, stream);
}

absl::Status AttentionBlock::Attend(const Step& step, int64_t tokens,
                                    const Queries& queries) const {
  Arena arena(step.scratch);
  const Scratch scratch = Place(arena, tokens);
  const KvLayerView kv = KvOf(step);
  INLAY_RETURN_IF_ERROR(Finish(step, kv, scratch));
  if (query_channels_.present()) {
    INLAY_RETURN_IF_ERROR(
        query_channels_.Forward(scratch.q, scratch.q, step.stream));
  }
  if (query_factor_ >= 0) {
    const RopeAngles& factors = step.angles[static_cast<size_t>(query_factor_)];
    INLAY_RETURN_IF_ERROR(scale_queries_.Forward(scratch.q, factors.cos,
                                                 factors.sin, step.stream));
  }

  if (selector_.present()) {
    INLAY_RETURN_IF_ERROR(
        selector_.Forward(step, scratch.q, scratch.selection));
  }
  if (index_.present()) {
    INLAY_RETURN_IF_ERROR(
        index_.Select(step, tokens, scratch.index, scratch.selection));
  }
  AttentionParams params;
  params.selection = scratch.selection;
  params.q = scratch.q;
  params.out = scratch.context;
  params.kv = kv;
  params.sequences = Sequences(queries.sequences, scratch);
  params.sinks = sinks_;
  params.alibi_slopes = alibi_slopes_;
  if (has_pattern_) params.mask = step.pattern;
  if (reach_ >= 0 && !step.reaches.empty()) {
    params.mask = &step.reaches[static_cast<size_t>(reach_)];
  }
  params.plan = queries.plan;
  params.workspace = step.kernel_workspace;
  INLAY_RETURN_IF_ERROR(RunAttention(params, step.stream));
  return GiveBack(step, scratch);
}

absl::Status AttentionBlock::Forward(const Step& step, const BlockInput& x,
                                     const TensorView& residual,
                                     const TensorView& y) const {
  const int64_t tokens = x.hidden.rows();
  INLAY_RETURN_IF_ERROR(Begin(step, x));
  INLAY_RETURN_IF_ERROR(Mix(step, tokens));
  return output_.Forward(MixedOf(step, tokens), residual, y,
                         step.kernel_workspace, step.stream);
}

}  // namespace inlay
