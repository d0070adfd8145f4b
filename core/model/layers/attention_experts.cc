#include "core/model/layers/attention_experts.h"

#include <algorithm>

#include "memory/status.h"

namespace inlay {

absl::StatusOr<std::unique_ptr<Sublayer>> AttentionExperts::Create(
    const AttentionExpertsSpec& spec, const KvLayerView& kv, size_t kv_group,
    int rotary_dim, ModelBuild& build) {
  auto part = std::make_unique<AttentionExperts>();
  part->on_cpu_ = build.on_cpu();
  part->hidden_ = spec.key_value.k;
  part->width_ = int64_t{spec.num_kv_heads} * spec.head_dim;
  part->rope_ = spec.rope;
  part->activation_ = build.activation;
  part->kv_ = kv;
  part->kv_group_ = kv_group;
  const int top_k = spec.routing.top_k;
  const int heads = spec.num_kv_heads;
  for (int head = 0; head < heads; ++head) {
    for (int rank = 0; rank < top_k; ++rank) {
      part->to_heads_.push_back(
          {(rank * heads + head) * spec.head_dim, spec.head_dim});
    }
  }
  for (int rank = 0; rank < top_k; ++rank) {
    for (int head = 0; head < heads; ++head) {
      part->to_slots_.push_back(
          {(head * top_k + rank) * spec.head_dim, spec.head_dim});
    }
  }
  INLAY_RETURN_IF_ERROR(part->ChooseKernels(spec, rotary_dim, build));
  INLAY_RETURN_IF_ERROR(part->Load(spec, build));
  return std::unique_ptr<Sublayer>(std::move(part));
}

absl::Status AttentionExperts::ChooseKernels(const AttentionExpertsSpec& spec,
                                             int rotary_dim,
                                             ModelBuild& build) {
  const KernelChooser& kernels = build.kernels;
  INLAY_RETURN_IF_ERROR(ValidateRouting(spec.routing));
  INLAY_ASSIGN_OR_RETURN(
      routing_, kernels.Choose("moe_routing", RoutingTable(), spec.routing));
  INLAY_ASSIGN_OR_RETURN(
      columns_,
      kernels.Choose("columns", ColumnsTable(), ColumnsDesc{build.activation}));
  RopeDesc rope;
  rope.num_heads = spec.num_kv_heads;
  rope.head_dim = spec.head_dim;
  rope.rotary_dim = rotary_dim;
  rope.activation = build.activation;
  INLAY_ASSIGN_OR_RETURN(key_rope_, kernels.Choose("rope", RopeTable(), rope));
  rope.num_heads *= spec.routing.top_k;
  INLAY_ASSIGN_OR_RETURN(query_rope_,
                         kernels.Choose("rope", RopeTable(), rope));
  KvWriteDesc write;
  write.num_kv_heads = spec.num_kv_heads;
  write.head_dim = spec.head_dim;
  write.kv = kv_.dtype;
  write.activation = build.activation;
  INLAY_ASSIGN_OR_RETURN(kv_write_,
                         kernels.Choose("kv_write", KvWriteTable(), write));
  AttentionDesc attention;
  attention.num_heads = rope.num_heads;
  attention.num_kv_heads = spec.num_kv_heads;
  attention.head_dim = spec.head_dim;
  attention.kv = kv_.dtype;
  attention.activation = build.activation;
  attention.scale = spec.scale;
  INLAY_ASSIGN_OR_RETURN(
      attention_, kernels.Choose("attention", AttentionTable(), attention));
  if (!on_cpu_) {
    cut_ = build.AddCut(
        {MakeAttentionPlanShape(*attention_.row, attention, kv_.block_size,
                                kernels.device().num_sms),
         kv_group_});
    cut_shape_ = build.cuts[cut_].shape;
  }
  MoeCombineDesc combine;
  combine.width = hidden_;
  combine.top_k = spec.routing.top_k;
  combine.shared = true;  // the bias, the same for all tokens
  INLAY_ASSIGN_OR_RETURN(
      combine_, kernels.Choose("moe_combine", MoeCombineTable(), combine));
  return absl::OkStatus();
}

absl::Status AttentionExperts::Load(const AttentionExpertsSpec& spec,
                                    ModelBuild& build) {
  INLAY_ASSIGN_OR_RETURN(
      router_, Linear::Create(spec.router, LinearOutput::kFloat, build));
  INLAY_ASSIGN_OR_RETURN(
      key_value_,
      Linear::Create(spec.key_value, LinearOutput::kActivation, build));
  ExpertLinear::Experts queries, outputs;
  for (const LinearSpec& layer : spec.queries) queries.push_back({layer});
  for (const LinearSpec& layer : spec.outputs) outputs.push_back({layer});
  const int top_k = spec.routing.top_k;
  INLAY_ASSIGN_OR_RETURN(
      query_, ExpertLinear::Create(queries, top_k, false,
                                   LinearOutput::kActivation, build));
  INLAY_ASSIGN_OR_RETURN(
      output_,
      ExpertLinear::Create(outputs, top_k, true, LinearOutput::kFloat, build));
  INLAY_ASSIGN_OR_RETURN(
      bias_, build.weights.Vector(spec.bias, hidden_, VectorKind::kBias));
  return absl::OkStatus();
}

TensorView AttentionExperts::OfTokens(const TensorView& slots) const {
  const int64_t top_k = routing_.desc.top_k;
  return MatrixView(slots.data, slots.dtype, slots.rows() / top_k,
                    slots.cols() * top_k);
}

AttentionExperts::Scratch AttentionExperts::Place(Arena& arena,
                                                  int64_t tokens) const {
  const RoutingDesc& routing = routing_.desc;
  const int64_t slots = tokens * routing.top_k;
  const auto take = [&](int64_t count, size_t bytes) {
    return arena.Take(static_cast<size_t>(count) * bytes);
  };
  Scratch scratch;
  scratch.logits = arena.TakeMatrix(tokens, routing.num_experts, DType::kF32);
  scratch.routed.logits = scratch.logits;
  scratch.routed.experts =
      reinterpret_cast<int32_t*>(take(slots, sizeof(int32_t)));
  scratch.routed.weights = reinterpret_cast<float*>(take(slots, sizeof(float)));
  scratch.routed.offsets = reinterpret_cast<int32_t*>(
      take(routing.num_experts + 1, sizeof(int32_t)));
  scratch.routed.slots =
      reinterpret_cast<int32_t*>(take(slots, sizeof(int32_t)));
  scratch.slots = arena.TakeMatrix(slots, width_, activation_);
  scratch.query = arena.TakeMatrix(tokens, routing.top_k * width_, activation_);
  scratch.key_value = arena.TakeMatrix(tokens, 2 * width_, activation_);
  scratch.context =
      arena.TakeMatrix(tokens, routing.top_k * width_, activation_);
  scratch.output = arena.TakeMatrix(slots, hidden_, DType::kF32);
  return scratch;
}

size_t AttentionExperts::ScratchBytes(int64_t tokens) const {
  Arena arena(nullptr);
  Place(arena, tokens);
  return arena.used();
}

size_t AttentionExperts::KernelBytes(int64_t tokens, int64_t sequences) const {
  return std::max(
      {router_.KernelBytes(tokens), key_value_.KernelBytes(tokens),
       query_.KernelBytes(tokens), output_.KernelBytes(tokens),
       on_cpu_ ? attention_.WorkspaceBytes(tokens)
               : AttentionWorkspaceBytes(cut_shape_, sequences, tokens)});
}

absl::Status AttentionExperts::Project(const Step& step, const TensorView& x,
                                       const Scratch& scratch) const {
  void* const room = step.kernel_workspace;
  INLAY_RETURN_IF_ERROR(
      router_.Forward(x, {}, scratch.logits, room, step.stream));
  INLAY_RETURN_IF_ERROR(routing_.Run(scratch.routed, step.stream));
  INLAY_RETURN_IF_ERROR(
      query_.Forward(x, scratch.routed, scratch.slots, room, step.stream));
  INLAY_RETURN_IF_ERROR(
      key_value_.Forward(x, {}, scratch.key_value, room, step.stream));
  ColumnsParams order;
  order.x = OfTokens(scratch.slots);
  order.runs = to_heads_;
  order.y = scratch.query;
  return columns_.Run(order, step.stream);
}

absl::Status AttentionExperts::Rotate(const Step& step,
                                      const Scratch& scratch) const {
  const RopeAngles& angles = step.angles[static_cast<size_t>(rope_)];
  RopeParams rope;
  rope.cos = angles.cos;
  rope.sin = angles.sin;
  rope.x = scratch.query;
  INLAY_RETURN_IF_ERROR(query_rope_.Run(rope, step.stream));
  rope.x = ColumnSlice(scratch.key_value, 0, width_);
  return key_rope_.Run(rope, step.stream);
}

absl::Status AttentionExperts::Attend(const Step& step,
                                      const Scratch& scratch) const {
  KvLayerView kv = kv_;
  kv.base = step.batch.kv_base;
  KvWriteParams write;
  write.k = ColumnSlice(scratch.key_value, 0, width_);
  write.v = ColumnSlice(scratch.key_value, width_, width_);
  write.kv = kv;
  write.slots = step.device.SlotsOf(kv_group_);
  INLAY_RETURN_IF_ERROR(kv_write_.Run(write, step.stream));
  AttentionParams params;
  params.q = scratch.query;
  params.out = scratch.context;
  params.kv = kv;
  params.sequences = step.batch.SequencesOf(kv_group_);
  if (!on_cpu_) params.plan = &step.device.plans[cut_];
  params.workspace = step.kernel_workspace;
  INLAY_RETURN_IF_ERROR(attention_.Run(params, step.stream));
  ColumnsParams order;
  order.x = scratch.context;
  order.runs = to_slots_;
  order.y = OfTokens(scratch.slots);
  return columns_.Run(order, step.stream);
}

absl::Status AttentionExperts::Forward(const Step& step, const BlockInput& x,
                                       const TensorView& residual,
                                       const TensorView& y) const {
  Arena arena(step.scratch);
  const Scratch scratch = Place(arena, x.hidden.rows());
  INLAY_RETURN_IF_ERROR(x.Normalise(step.stream));
  INLAY_RETURN_IF_ERROR(Project(step, x.normalised, scratch));
  INLAY_RETURN_IF_ERROR(Rotate(step, scratch));
  INLAY_RETURN_IF_ERROR(Attend(step, scratch));
  INLAY_RETURN_IF_ERROR(output_.Forward(scratch.slots, scratch.routed,
                                        scratch.output, step.kernel_workspace,
                                        step.stream));
  MoeCombineParams combine;
  combine.x = scratch.output;
  combine.weights = scratch.routed.weights;
  combine.shared = MatrixView(const_cast<float*>(bias_), DType::kF32,
                              x.hidden.rows(), hidden_);
  combine.shared.row_stride_bytes = 0;
  combine.residual = residual;
  combine.y = y;
  return combine_.Run(combine, step.stream);
}

}  // namespace inlay
