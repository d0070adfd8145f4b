#include "core/model/layers/block_index.h"

#include <algorithm>

#include "memory/status.h"

namespace inlay {

absl::StatusOr<BlockIndex> BlockIndex::Create(const AttentionSpec& layer,
                                              const Norm& norm,
                                              const KvLayerView& kv,
                                              size_t kv_group, int rotary_dim,
                                              ModelBuild& build) {
  const BlockIndexSpec& spec = *layer.block_index;
  BlockIndex index;
  index.rope_ = layer.rope;
  index.activation_ = build.activation;
  index.kv_ = kv;
  index.kv_group_ = kv_group;
  INLAY_RETURN_IF_ERROR(index.ChooseKernels(layer, rotary_dim, build));
  INLAY_ASSIGN_OR_RETURN(
      index.query_,
      InputLinear::Create({&spec.query, 1}, norm, nullptr, build));
  INLAY_ASSIGN_OR_RETURN(
      index.key_, InputLinear::Create({&spec.key, 1}, norm, nullptr, build));
  const auto norm_of = [&](const NormSpec& of_heads) {
    return Norm::Create(of_heads, spec.head_dim, build.activation,
                        build.activation, build);
  };
  INLAY_ASSIGN_OR_RETURN(index.query_norm_, norm_of(spec.query_norm));
  INLAY_ASSIGN_OR_RETURN(index.key_norm_, norm_of(spec.key_norm));
  return index;
}

absl::Status BlockIndex::ChooseKernels(const AttentionSpec& layer,
                                       int rotary_dim, ModelBuild& build) {
  const BlockIndexSpec& spec = *layer.block_index;
  BlockIndexerDesc select;
  select.num_heads = layer.num_kv_heads;
  select.head_dim = spec.head_dim;
  select.block = spec.block;
  select.selects = spec.selects;
  select.neighbours = spec.neighbours;
  select.max_keys = build.max_positions;
  select.kv = kv_.dtype;
  select.activation = build.activation;
  INLAY_ASSIGN_OR_RETURN(
      select_,
      build.kernels.Choose("block_indexer", BlockIndexerTable(), select));
  KvWriteDesc write;
  write.num_kv_heads = 1;
  write.head_dim = spec.head_dim;
  write.kv = kv_.dtype;
  write.activation = build.activation;
  write.keys_only = true;
  INLAY_ASSIGN_OR_RETURN(
      kv_write_, build.kernels.Choose("kv_write", KvWriteTable(), write));
  if (rope_ < 0) return absl::OkStatus();
  RopeDesc rope;
  rope.num_heads = 1;
  rope.head_dim = spec.head_dim;
  rope.rotary_dim = rotary_dim;
  rope.style = layer.rope_style;
  rope.activation = build.activation;
  INLAY_ASSIGN_OR_RETURN(key_rope_,
                         build.kernels.Choose("rope", RopeTable(), rope));
  rope.num_heads = layer.num_kv_heads;
  INLAY_ASSIGN_OR_RETURN(query_rope_,
                         build.kernels.Choose("rope", RopeTable(), rope));
  return absl::OkStatus();
}

BlockIndex::Scratch BlockIndex::Place(Arena& arena, int64_t tokens) const {
  const BlockIndexerDesc& desc = select_.desc;
  Scratch scratch;
  scratch.query = arena.TakeMatrix(
      tokens, int64_t{desc.num_heads} * desc.head_dim, activation_);
  scratch.key = arena.TakeMatrix(tokens, desc.head_dim, activation_);
  return scratch;
}

size_t BlockIndex::ScratchBytes(int64_t tokens) const {
  Arena arena(nullptr);
  Place(arena, tokens);
  return arena.used();
}

size_t BlockIndex::SelectionBytes(int64_t tokens) const {
  const BlockIndexerDesc& desc = select_.desc;
  return static_cast<size_t>(tokens * desc.num_heads * desc.selects) *
         sizeof(int32_t);
}

size_t BlockIndex::KernelBytes(int64_t tokens) const {
  if (!present()) return 0;
  return std::max({query_.KernelBytes(tokens), key_.KernelBytes(tokens),
                   select_.WorkspaceBytes(tokens)});
}

void BlockIndex::Describe(AttentionDesc& attention) const {
  if (!present()) return;
  attention.selects = select_.desc.selects * select_.desc.block;
  attention.mix.block = select_.desc.block;
}

absl::Status BlockIndex::Project(const Step& step, const BlockInput& x,
                                 std::byte* scratch_bytes) const {
  Arena arena(scratch_bytes);
  const Scratch scratch = Place(arena, x.hidden.rows());
  INLAY_RETURN_IF_ERROR(query_.Forward(step, x, {scratch.query}));
  return key_.Forward(step, x, {scratch.key});
}

absl::Status BlockIndex::Select(const Step& step, int64_t tokens,
                                std::byte* scratch_bytes,
                                int32_t* selection) const {
  Arena arena(scratch_bytes);
  const Scratch scratch = Place(arena, tokens);
  const int64_t dim = select_.desc.head_dim;
  const TensorView heads =
      MatrixView(scratch.query.data, activation_,
                 tokens * int64_t{select_.desc.num_heads}, dim);
  INLAY_RETURN_IF_ERROR(query_norm_.Forward(heads, heads, step.stream));
  INLAY_RETURN_IF_ERROR(
      key_norm_.Forward(scratch.key, scratch.key, step.stream));
  if (rope_ >= 0) {
    const RopeAngles& angles = step.angles[static_cast<size_t>(rope_)];
    RopeParams rope;
    rope.cos = angles.cos;
    rope.sin = angles.sin;
    rope.x = scratch.query;
    INLAY_RETURN_IF_ERROR(query_rope_.Run(rope, step.stream));
    rope.x = scratch.key;
    INLAY_RETURN_IF_ERROR(key_rope_.Run(rope, step.stream));
  }
  KvLayerView kv = kv_;
  kv.base = step.batch.kv_base;
  KvWriteParams write;
  write.k = scratch.key;
  write.kv = kv;
  write.slots = step.device.SlotsOf(kv_group_);
  INLAY_RETURN_IF_ERROR(kv_write_.Run(write, step.stream));
  BlockIndexerParams params;
  params.q = scratch.query;
  params.kv = kv;
  params.sequences = step.batch.SequencesOf(kv_group_);
  params.selection = selection;
  params.workspace = step.kernel_workspace;
  params.plan = step.device.IndexOf(kv_group_);
  return select_.Run(params, step.stream);
}

}  // namespace inlay
