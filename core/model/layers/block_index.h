// BlockIndex: which blocks of keys the queries of an attention block see, in
// networks that were trained for it (kernels/indexer/block_indexer.h). It has
// queries and keys of its own, one key a token, which the cache keeps as a
// layer of their own behind the block's.
#ifndef INLAY_CORE_MODEL_LAYERS_BLOCK_INDEX_H_
#define INLAY_CORE_MODEL_LAYERS_BLOCK_INDEX_H_

#include "absl/status/statusor.h"
#include "core/model/decoder_spec.h"
#include "core/model/layers/input_linear.h"
#include "core/model/layers/norm.h"
#include "core/model/layers/step.h"
#include "core/model/model_build.h"
#include "kernels/indexer/block_indexer.h"
#include "kernels/kv_write/kv_write.h"
#include "kernels/rope/rope.h"

namespace inlay {

class BlockIndex {
 public:
  BlockIndex() = default;
  // Of a layer whose spec has one. `norm` and `rotary_dim` as AttentionBlock
  // has them; `kv` with a null base: the keys' place in a block of `kv_group`.
  static absl::StatusOr<BlockIndex> Create(const AttentionSpec& layer,
                                           const Norm& norm,
                                           const KvLayerView& kv,
                                           size_t kv_group, int rotary_dim,
                                           ModelBuild& build);

  bool present() const { return select_.row != nullptr; }
  // As Sublayer has them; the selection apart.
  size_t ScratchBytes(int64_t tokens) const;
  size_t SelectionBytes(int64_t tokens) const;
  size_t KernelBytes(int64_t tokens) const;
  // What AttentionDesc has of it.
  void Describe(AttentionDesc& attention) const;
  // The tokens' queries and keys, of what the layer reads.
  absl::Status Project(const Step& step, const BlockInput& x,
                       std::byte* scratch) const;
  // Behind Project: writes the keys and then `selection`, as
  // AttentionParams::selection has it.
  absl::Status Select(const Step& step, int64_t tokens, std::byte* scratch,
                      int32_t* selection) const;

 private:
  // Views into the scratch.
  struct Scratch {
    TensorView query;
    TensorView key;
  };

  absl::Status ChooseKernels(const AttentionSpec& layer, int rotary_dim,
                             ModelBuild& build);
  Scratch Place(Arena& arena, int64_t tokens) const;

  int rope_ = -1;
  DType activation_ = DType::kF32;
  KvLayerView kv_;
  size_t kv_group_ = 0;
  InputLinear query_;
  InputLinear key_;
  Norm query_norm_;
  Norm key_norm_;
  Op<RopeDesc, RopeParams> query_rope_;
  Op<RopeDesc, RopeParams> key_rope_;
  Op<KvWriteDesc, KvWriteParams> kv_write_;
  Op<BlockIndexerDesc, BlockIndexerParams> select_;
};

}  // namespace inlay

#endif  // INLAY_CORE_MODEL_LAYERS_BLOCK_INDEX_H_
