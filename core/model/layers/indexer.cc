#include "core/model/layers/indexer.h"

#include <algorithm>

#include "memory/status.h"

namespace inlay {

std::vector<KvLayerShape> Indexer::KvLayers(const IndexerSpec& spec,
                                            int64_t max_positions) {
  if (!spec.compressor.has_value()) {
    return {{1, spec.head_dim, 0, spec.head_dim}};
  }
  return {KvCompressor::TokenLayer(*spec.compressor, max_positions),
          KvCompressor::KeyLayer(*spec.compressor, false)};
}

absl::StatusOr<Indexer> Indexer::Create(const LatentAttentionSpec& layer,
                                        absl::Span<const KvPlace> places,
                                        ModelBuild& build) {
  const IndexerSpec& spec = *layer.indexer;
  Indexer indexer;
  indexer.rope_ = layer.rope;
  indexer.activation_ = build.activation;
  indexer.keys_ = places.back();
  INLAY_RETURN_IF_ERROR(indexer.ChooseKernels(layer, build));
  indexer.query_inputs_ = spec.query.k;
  INLAY_ASSIGN_OR_RETURN(
      indexer.query_norm_,
      Norm::Create(spec.query_norm, spec.query.k, build.activation,
                   build.activation, build));
  INLAY_ASSIGN_OR_RETURN(
      indexer.scale_queries_,
      HeadScale::Create(spec.head_scale, spec.num_heads, spec.head_dim, build));
  INLAY_ASSIGN_OR_RETURN(
      indexer.query_,
      Linear::Create(spec.query, LinearOutput::kActivation, build));
  INLAY_RETURN_IF_ERROR(indexer.LoadKeys(layer, places, build));
  INLAY_ASSIGN_OR_RETURN(
      indexer.weights_,
      Linear::Create(spec.weights, LinearOutput::kFloat, build));
  return indexer;
}

absl::Status Indexer::LoadKeys(const LatentAttentionSpec& layer,
                               absl::Span<const KvPlace> places,
                               ModelBuild& build) {
  const IndexerSpec& spec = *layer.indexer;
  if (spec.compressor.has_value()) {
    INLAY_DCHECK(layer.rope < 0 &&
                 layer.select_block == spec.compressor->row_tokens);
    INLAY_ASSIGN_OR_RETURN(compressor_,
                           KvCompressor::Create(*spec.compressor, places[0],
                                                places[1], -1, 0, build));
    return absl::OkStatus();
  }
  INLAY_ASSIGN_OR_RETURN(
      key_, Linear::Create(spec.key, LinearOutput::kActivation, build));
  INLAY_ASSIGN_OR_RETURN(
      key_norm_, Norm::Create(spec.key_norm, spec.head_dim, build.activation,
                              build.activation, build));
  return absl::OkStatus();
}

absl::Status Indexer::ChooseKernels(const LatentAttentionSpec& layer,
                                    ModelBuild& build) {
  const IndexerSpec& spec = *layer.indexer;
  IndexerDesc select;
  select.num_heads = spec.num_heads;
  select.head_dim = spec.head_dim;
  select.max_keys = spec.max_keys;
  select.kv = keys_.view.dtype;
  select.activation = build.activation;
  select.key_tokens = layer.select_block;
  select.adds_partial = layer.select_block > 1;
  select.top_k = layer.selection_width() - (select.adds_partial ? 1 : 0);
  INLAY_RETURN_IF_ERROR(ValidateIndexer(select));
  INLAY_ASSIGN_OR_RETURN(
      select_, build.kernels.Choose("indexer", IndexerTable(), select));
  KvWriteDesc write;
  write.num_kv_heads = 1;
  write.head_dim = spec.head_dim;
  write.kv = keys_.view.dtype;
  write.activation = build.activation;
  write.keys_only = true;
  INLAY_ASSIGN_OR_RETURN(
      kv_write_, build.kernels.Choose("kv_write", KvWriteTable(), write));
  if (rope_ < 0) return absl::OkStatus();
  RopeDesc rope;
  rope.num_heads = 1;
  rope.head_dim = spec.head_dim;
  rope.rotary_dim = layer.rope_dim;
  if (spec.rotates_last) rope.first = spec.head_dim - layer.rope_dim;
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
  if (query_norm_.present()) {
    scratch.input = arena.TakeMatrix(tokens, query_inputs_, activation_);
  }
  scratch.query = arena.TakeMatrix(tokens, query_.outputs(), activation_);
  scratch.weights = arena.TakeMatrix(tokens, weights_.outputs(), DType::kF32);
  if (compressor_.has_value()) {
    scratch.compressor = arena.Take(compressor_->ScratchBytes(tokens));
  } else {
    scratch.key = arena.TakeMatrix(tokens, key_.outputs(), activation_);
  }
  return scratch;
}

size_t Indexer::ScratchBytes(int64_t tokens) const {
  Arena arena(nullptr);
  Place(arena, tokens);
  return arena.used();
}

size_t Indexer::KernelBytes(int64_t tokens) const {
  return std::max({query_.KernelBytes(tokens), weights_.KernelBytes(tokens),
                   select_.WorkspaceBytes(tokens),
                   compressor_.has_value() ? compressor_->KernelBytes(tokens)
                                           : key_.KernelBytes(tokens)});
}

absl::Status Indexer::WriteKeys(const Step& step, const TensorView& x,
                                const Scratch& scratch) const {
  if (compressor_.has_value()) {
    return compressor_->Forward(step, x, scratch.compressor);
  }
  INLAY_RETURN_IF_ERROR(
      key_.Forward(x, {}, scratch.key, step.kernel_workspace, step.stream));
  INLAY_RETURN_IF_ERROR(
      key_norm_.Forward(scratch.key, scratch.key, step.stream));
  if (rope_ >= 0) {
    RopeParams rope;
    rope.cos = step.angles[static_cast<size_t>(rope_)].cos;
    rope.sin = step.angles[static_cast<size_t>(rope_)].sin;
    rope.x = scratch.key;
    INLAY_RETURN_IF_ERROR(key_rope_.Run(rope, step.stream));
  }
  KvWriteParams write;
  write.k = scratch.key;
  write.kv = keys_.view;
  write.kv.base = step.batch.kv_base;
  write.slots = step.device.SlotsOf(keys_.group);
  return kv_write_.Run(write, step.stream);
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
  const bool normalises = query_norm_.present();
  if (normalises) {
    INLAY_RETURN_IF_ERROR(query_norm_.Forward(x, scratch.input, step.stream));
  }
  INLAY_RETURN_IF_ERROR(
      run(query_, normalises ? scratch.input : low_query, scratch.query));
  INLAY_RETURN_IF_ERROR(run(weights_, x, scratch.weights));
  INLAY_RETURN_IF_ERROR(scale_queries_.Forward(step, scratch.query));
  if (rope_ >= 0) {
    RopeParams rope;
    rope.cos = step.angles[static_cast<size_t>(rope_)].cos;
    rope.sin = step.angles[static_cast<size_t>(rope_)].sin;
    rope.x = scratch.query;
    INLAY_RETURN_IF_ERROR(query_rope_.Run(rope, step.stream));
  }
  INLAY_RETURN_IF_ERROR(WriteKeys(step, x, scratch));
  IndexerParams params;
  params.q = scratch.query;
  params.weights = scratch.weights;
  params.kv = keys_.view;
  params.kv.base = step.batch.kv_base;
  params.sequences = step.batch.SequencesOf(keys_.group);
  params.selection = step.selection;
  params.workspace = step.kernel_workspace;
  params.plan = step.device.IndexOf(keys_.group);
  return select_.Run(params, step.stream);
}

}  // namespace inlay
