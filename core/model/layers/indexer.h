// Indexer: which keys the queries of latent attention see (DeepSeek sparse
// attention, arXiv:2512.02556). Its own queries, of the latent queries, meet
// its own keys, one a token, which the cache keeps as a layer of their own; or
// one of several tokens (KvCompressor), and what is selected are these tokens.
#ifndef INLAY_CORE_MODEL_LAYERS_INDEXER_H_
#define INLAY_CORE_MODEL_LAYERS_INDEXER_H_

#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/model/layers/head_scale.h"
#include "core/model/layers/kv_compressor.h"
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
  // Its layers in the cache: what tokens give to keys of several, if they are
  // that; keys.
  static std::vector<KvLayerShape> KvLayers(const IndexerSpec& spec,
                                            int64_t max_positions);
  // Of a layer whose spec has one; `places`: where those layers are.
  static absl::StatusOr<Indexer> Create(const LatentAttentionSpec& spec,
                                        absl::Span<const KvPlace> places,
                                        ModelBuild& build);

  // As Sublayer has them.
  size_t ScratchBytes(int64_t tokens) const;
  size_t KernelBytes(int64_t tokens) const;
  // Writes the tokens' keys and then Step::selection. `x`: what the layer
  // reads, normalised; `low_query`: its queries of low rank, normalised, where
  // the indexer's are made of these.
  absl::Status Forward(const Step& step, const TensorView& x,
                       const TensorView& low_query, std::byte* scratch) const;

 private:
  // Views into the scratch.
  struct Scratch {
    TensorView input;  // of query_, where that has a norm; empty without
    TensorView query;
    TensorView key;  // empty where compressor_ makes them
    TensorView weights;
    std::byte* compressor = nullptr;  // KvCompressor::ScratchBytes
  };

  absl::Status ChooseKernels(const LatentAttentionSpec& spec,
                             ModelBuild& build);
  absl::Status LoadKeys(const LatentAttentionSpec& spec,
                        absl::Span<const KvPlace> places, ModelBuild& build);
  Scratch Place(Arena& arena, int64_t tokens) const;
  absl::Status WriteKeys(const Step& step, const TensorView& x,
                         const Scratch& scratch) const;

  int rope_ = -1;
  DType activation_ = DType::kF32;
  KvPlace keys_;
  Norm query_norm_;
  int64_t query_inputs_ = 0;
  Linear query_;
  HeadScale scale_queries_;
  std::optional<KvCompressor> compressor_;
  Linear key_;  // where there is none
  Norm key_norm_;
  Linear weights_;
  Op<RopeDesc, RopeParams> query_rope_;
  Op<RopeDesc, RopeParams> key_rope_;
  Op<KvWriteDesc, KvWriteParams> kv_write_;
  Op<IndexerDesc, IndexerParams> select_;
};

}  // namespace inlay

#endif  // INLAY_CORE_MODEL_LAYERS_INDEXER_H_
