#include "core/model/layers/indexer.h"

#include <algorithm>

#include "memory/status.h"

namespace inlay {

absl::StatusOr<Indexer> Indexer::Create(const LatentAttentionSpec& layer,
                                        const KvLayerView& kv, size_t kv_group,
                                        ModelBuild& build) {
  const IndexerSpec& spec = *layer.indexer;
  Indexer indexer;
  indexer.rope_ = layer.rope;
  indexer.activation_ = build.activation;
  indexer.kv_ = kv;
  indexer.kv_group_ = kv_group;
  INLAY_RETURN_IF_ERROR(indexer.ChooseKernels(layer, build));
  const auto linear = [&](const LinearSpec& matrix, LinearOutput output) {
    return Linear::Create(matrix, output, build);
  };
  INLAY_ASSIGN_OR_RETURN(indexer.query_,
                         linear(spec.query, LinearOutput::kActivation));
  INLAY_ASSIGN_OR_RETURN(indexer.key_,
                         linear(spec.key, LinearOutput::kActivation));
  INLAY_ASSIGN_OR_RETURN(
      indexer.key_norm_,
      Norm::Create(spec.key_norm, spec.head_dim, build.activation,
                   build.activation, build));
  INLAY_ASSIGN_OR_RETURN(indexer.weights_,
                         linear(spec.weights, LinearOutput::kFloat));
  return indexer;
}

absl::Status Indexer::ChooseKernels(const LatentAttentionSpec& layer,
                                    ModelBuild& build) {
  const IndexerSpec& spec = *layer.indexer;
  IndexerDesc select;
  select.num_heads = spec.num_heads;
  select.head_dim = spec.head_dim;
  select.top_k = layer.selects;
  select.max_keys = spec.max_keys;
  select.kv = kv_.dtype;
  select.activation = build.activation;
  INLAY_ASSIGN_OR_RETURN(
      select_, build.kernels.Choose("indexer", IndexerTable(), select));
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
  rope.rotary_dim = layer.rope_dim;
  rope.style = spec.rope_style;
  rope.activation = build.activation;
  INLAY_ASSIGN_OR_RETURN(key_rope_,
                         build.kernels.Choose("rope", RopeTable(), rope));
  rope.num_heads = spec.num_heads;
  INLAY_ASSIGN_OR_RETURN(query_rope_,
                         build.kernels.Choose("rope", RopeTable(), rope));
  return absl::OkStatus();
}

Indexer::Scratch Indexer::Place(Arena& arena, int64_t tokens) const {
  Scratch scratch;
  scratch.query = arena.TakeMatrix(tokens, query_.outputs(), activation_);
  scratch.key = arena.TakeMatrix(tokens, key_.outputs(), activation_);
  scratch.weights = arena.TakeMatrix(tokens, weights_.outputs(), DType::kF32);
  return scratch;
}

size_t Indexer::ScratchBytes(int64_t tokens) const {
  Arena arena(nullptr);
  Place(arena, tokens);
  return arena.used();
}

size_t Indexer::KernelBytes(int64_t tokens) const {
  return std::max({query_.KernelBytes(tokens), key_.KernelBytes(tokens),
                   weights_.KernelBytes(tokens),
                   select_.WorkspaceBytes(tokens)});
}

absl::Status Indexer::Forward(const Step& step, const TensorView& x,
                              const TensorView& low_query,
                              std::byte* scratch_bytes) const {
  Arena arena(scratch_bytes);
  const Scratch scratch = Place(arena, x.rows());
  const auto run = [&](const Linear& layer, const TensorView& from,
                       const TensorView& to) {
    return layer.Forward(from, {}, to, step.kernel_workspace, step.stream);
  };
  INLAY_RETURN_IF_ERROR(run(query_, low_query, scratch.query));
  INLAY_RETURN_IF_ERROR(run(key_, x, scratch.key));
  INLAY_RETURN_IF_ERROR(run(weights_, x, scratch.weights));
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
  IndexerParams params;
  params.q = scratch.query;
  params.weights = scratch.weights;
  params.kv = kv;
  params.sequences = step.batch.SequencesOf(kv_group_);
  params.selection = step.selection;
  params.workspace = step.kernel_workspace;
  params.plan = step.device.IndexOf(kv_group_);
  return select_.Run(params, step.stream);
}

}  // namespace inlay
