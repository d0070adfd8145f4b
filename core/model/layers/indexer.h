// Indexer: which keys the queries of latent attention see (DeepSeek sparse
// attention, arXiv:2512.02556). Its own queries, of the latent queries, meet
// its own keys, one a token, which the cache keeps as a layer of their own.
#ifndef INLAY_CORE_MODEL_LAYERS_INDEXER_H_
#define INLAY_CORE_MODEL_LAYERS_INDEXER_H_

#include "absl/status/statusor.h"
#include "core/model/layers/linear.h"
#include "core/model/layers/norm.h"
#include "core/model/layers/step.h"
#include "kernels/indexer/indexer.h"
#include "kernels/kv_write/kv_write.h"
#include "kernels/rope/rope.h"

namespace inlay {

class Indexer {
 public:
  Indexer() = default;
  // Of a layer whose spec has one. `kv` with a null base: the keys' place in a
  // block of `kv_group`.
  static absl::StatusOr<Indexer> Create(const LatentAttentionSpec& spec,
                                        const KvLayerView& kv, size_t kv_group,
                                        ModelBuild& build);

  // As Sublayer has them.
  size_t ScratchBytes(int64_t tokens) const;
  size_t KernelBytes(int64_t tokens) const;
  // Writes the tokens' keys and then Step::selection. `x`: what the layer
  // reads, normalised; `low_query`: its queries of low rank, normalised.
  absl::Status Forward(const Step& step, const TensorView& x,
                       const TensorView& low_query, std::byte* scratch) const;

 private:
  // Views into the scratch.
  struct Scratch {
    TensorView query;
    TensorView key;
    TensorView weights;
  };

  absl::Status ChooseKernels(const LatentAttentionSpec& spec,
                             ModelBuild& build);
  Scratch Place(Arena& arena, int64_t tokens) const;

  int rope_ = -1;
  DType activation_ = DType::kF32;
  KvLayerView kv_;
  size_t kv_group_ = 0;
  Linear query_;
  Linear key_;
  Norm key_norm_;
  Linear weights_;
  Op<RopeDesc, RopeParams> query_rope_;
  Op<RopeDesc, RopeParams> key_rope_;
  Op<KvWriteDesc, KvWriteParams> kv_write_;
  Op<IndexerDesc, IndexerParams> select_;
};

}  // namespace inlay

#endif  // INLAY_CORE_MODEL_LAYERS_INDEXER_H_
