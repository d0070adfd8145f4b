#include "core/model/layers/kv_compressor.h"

#include <algorithm>

#include "memory/status.h"

namespace inlay {

KvLayerShape KvCompressor::TokenLayer(const CompressorSpec& spec,
                                      int64_t max_positions) {
  const int64_t reach = int64_t{spec.num_heads()} * spec.row_tokens;
  return {spec.num_heads(), spec.head_dim, reach < max_positions ? reach : 0};
}

KvLayerShape KvCompressor::KeyLayer(const CompressorSpec& spec,
                                    bool counts_rows) {
  return {1, spec.head_dim, 0, spec.head_dim, spec.row_tokens, counts_rows};
}

absl::StatusOr<KvCompressor> KvCompressor::Create(const CompressorSpec& spec,
                                                  const KvPlace& tokens,
                                                  const KvPlace& keys, int rope,
                                                  int rope_dim,
                                                  ModelBuild& build) {
  KvCompressor compressor;
  compressor.rope_ = rope;
  compressor.tokens_ = tokens;
  compressor.keys_ = keys;
  KvCompressDesc& desc = compressor.compress_.desc;
  desc.head_dim = spec.head_dim;
  desc.row_tokens = spec.row_tokens;
  desc.overlaps = spec.overlaps;
  desc.kv = tokens.view.dtype;
  desc.activation = build.activation;
  INLAY_RETURN_IF_ERROR(compressor.ChooseKernels(rope_dim, build));
  INLAY_ASSIGN_OR_RETURN(
      compressor.values_,
      Linear::Create(spec.values, LinearOutput::kActivation, build));
  INLAY_ASSIGN_OR_RETURN(
      compressor.gates_,
      Linear::Create(spec.gates, LinearOutput::kActivation, build));
  INLAY_ASSIGN_OR_RETURN(
      compressor.bias_,
      build.weights.Floats(spec.bias, spec.row_tokens,
                           int64_t{spec.num_heads()} * spec.head_dim,
                           VectorKind::kBias));
  INLAY_DCHECK(spec.value_norm.kind == NormKind::kNone || !spec.overlaps);
  INLAY_ASSIGN_OR_RETURN(
      compressor.value_norm_,
      Norm::Create(spec.value_norm, spec.head_dim, build.activation,
                   build.activation, build));
  INLAY_ASSIGN_OR_RETURN(
      compressor.norm_, Norm::Create(spec.norm, spec.head_dim, build.activation,
                                     build.activation, build));
  return compressor;
}

absl::Status KvCompressor::ChooseKernels(int rope_dim, ModelBuild& build) {
  const KvCompressDesc desc = compress_.desc;
  INLAY_RETURN_IF_ERROR(ValidateKvCompress(desc));
  INLAY_ASSIGN_OR_RETURN(
      compress_, build.kernels.Choose("kv_compress", KvCompressTable(), desc));
  KvWriteDesc write;
  write.num_kv_heads = desc.num_heads();
  write.head_dim = desc.head_dim;
  write.kv = desc.kv;
  write.activation = build.activation;
  INLAY_ASSIGN_OR_RETURN(
      write_tokens_, build.kernels.Choose("kv_write", KvWriteTable(), write));
  write.num_kv_heads = 1;
  write.keys_only = true;
  write.row_tokens = desc.row_tokens;
  INLAY_ASSIGN_OR_RETURN(
      write_keys_, build.kernels.Choose("kv_write", KvWriteTable(), write));
  if (rope_ < 0) return absl::OkStatus();
  RopeDesc rope;
  rope.num_heads = 1;
  rope.head_dim = desc.head_dim;
  rope.rotary_dim = rope_dim;
  rope.first = desc.head_dim - rope_dim;
  rope.style = RopeStyle::kInterleaved;
  rope.activation = build.activation;
  INLAY_ASSIGN_OR_RETURN(rotate_,
                         build.kernels.Choose("rope", RopeTable(), rope));
  return absl::OkStatus();
}

KvCompressor::Scratch KvCompressor::Place(Arena& arena, int64_t tokens) const {
  const KvCompressDesc& desc = compress_.desc;
  const auto take = [&](int64_t width) {
    return arena.TakeMatrix(tokens, width, desc.activation);
  };
  Scratch scratch;
  scratch.values = take(values_.outputs());
  scratch.gates = take(gates_.outputs());
  scratch.keys = take(desc.head_dim);
  return scratch;
}

size_t KvCompressor::ScratchBytes(int64_t tokens) const {
  Arena arena(nullptr);
  Place(arena, tokens);
  return arena.used();
}

size_t KvCompressor::KernelBytes(int64_t tokens) const {
  return std::max(values_.KernelBytes(tokens), gates_.KernelBytes(tokens));
}

absl::Status KvCompressor::Forward(const Step& step, const TensorView& x,
                                   std::byte* scratch_bytes) const {
  Arena arena(scratch_bytes);
  const Scratch scratch = Place(arena, x.rows());
  INLAY_RETURN_IF_ERROR(values_.Forward(x, {}, scratch.values,
                                        step.kernel_workspace, step.stream));
  INLAY_RETURN_IF_ERROR(
      gates_.Forward(x, {}, scratch.gates, step.kernel_workspace, step.stream));
  if (value_norm_.present()) {
    INLAY_RETURN_IF_ERROR(
        value_norm_.Forward(scratch.values, scratch.values, step.stream));
  }
  KvWriteParams write;
  write.k = scratch.values;
  write.v = scratch.gates;
  write.kv = tokens_.view;
  write.kv.base = step.batch.kv_base;
  write.slots = step.device.SlotsOf(tokens_.group);
  INLAY_RETURN_IF_ERROR(write_tokens_.Run(write, step.stream));

  KvCompressParams compress;
  compress.kv = write.kv;
  compress.bias = bias_;
  compress.sequences = step.batch.SequencesOf(tokens_.group);
  compress.y = scratch.keys;
  compress.plan = step.device.IndexOf(tokens_.group);
  INLAY_RETURN_IF_ERROR(compress_.Run(compress, step.stream));
  if (norm_.present()) {
    INLAY_RETURN_IF_ERROR(
        norm_.Forward(scratch.keys, scratch.keys, step.stream));
  }
  if (rope_ >= 0) {
    RopeParams rope;
    rope.x = scratch.keys;
    rope.cos = step.angles[static_cast<size_t>(rope_)].cos;
    rope.sin = step.angles[static_cast<size_t>(rope_)].sin;
    INLAY_RETURN_IF_ERROR(rotate_.Run(rope, step.stream));
  }
  write.k = scratch.keys;
  write.v = {};
  write.kv = keys_.view;
  write.kv.base = step.batch.kv_base;
  write.slots = step.device.SlotsOf(keys_.group);
  return write_keys_.Run(write, step.stream);
}

}  // namespace inlay
