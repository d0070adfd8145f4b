// CompressedAttention: attention over the keys of a window and compressed ones
// (DeepSeek-V4). Where there are compressed keys, the keys of a query are named
// one by one (kv_select) and one softmax runs over them; all compressed ones,
// or those that the layer's indexer selects.
#ifndef INLAY_CORE_MODEL_LAYERS_COMPRESSED_ATTENTION_H_
#define INLAY_CORE_MODEL_LAYERS_COMPRESSED_ATTENTION_H_

#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "core/model/layers/grouped_linear.h"
#include "core/model/layers/kv_compressor.h"
#include "core/model/layers/linear.h"
#include "core/model/layers/norm.h"
#include "core/model/layers/step.h"
#include "kernels/attention/attention.h"
#include "kernels/indexer/indexer.h"
#include "kernels/kv_compress/kv_select.h"
#include "kernels/kv_write/kv_write.h"
#include "kernels/rope/rope.h"

namespace inlay {

class CompressedAttention : public Sublayer {
 public:
  // The layers of the cache that the part has, in this order: the tokens' keys;
  // of each compressor, the layer's and the indexer's, what tokens give it and
  // its keys.
  static std::vector<KvLayerShape> KvLayers(const CompressedAttentionSpec& spec,
                                            int64_t max_positions);
  static absl::StatusOr<std::unique_ptr<Sublayer>> Create(
      const CompressedAttentionSpec& spec, absl::Span<const KvPlace> places,
      ModelBuild& build);

  size_t ScratchBytes(int64_t tokens) const override;
  size_t KernelBytes(int64_t tokens, int64_t sequences) const override;
  absl::Status Forward(const Step& step, const BlockInput& x,
                       const TensorView& residual,
                       const TensorView& y) const override;

 private:
  // Views into the scratch.
  struct Scratch {
    TensorView low_query;
    TensorView query;
    TensorView key;
    TensorView context;
    TensorView grouped;
    TensorView index_query;
    TensorView index_weights;
    int32_t* chosen = nullptr;        // IndexerParams::selection
    int32_t* selection = nullptr;     // AttentionParams::selection
    std::byte* groups = nullptr;      // GroupedLinear::ScratchBytes
    std::byte* compressor = nullptr;  // KvCompressor::ScratchBytes, of either
  };
  struct Index {
    KvCompressor compressor;
    KvPlace keys;
    Linear query;
    Linear weights;
    Op<RopeDesc, RopeParams> rope;
    Op<IndexerDesc, IndexerParams> select;
  };

  absl::Status ChooseKernels(const CompressedAttentionSpec& spec,
                             ModelBuild& build);
  absl::Status ChooseAttention(const CompressedAttentionSpec& spec,
                               ModelBuild& build);
  absl::Status Load(const CompressedAttentionSpec& spec, ModelBuild& build);
  absl::Status CreateIndex(const CompressedAttentionSpec& spec,
                           absl::Span<const KvPlace> places, ModelBuild& build);
  bool has_keys() const { return select_.row != nullptr; }  // compressed
  Scratch Place(Arena& arena, int64_t tokens) const;
  absl::Status Project(const Step& step, const TensorView& x,
                       const Scratch& scratch) const;
  absl::Status Rotate(const Op<RopeDesc, RopeParams>& op, int rope,
                      const TensorView& x, const Step& step) const;
  absl::Status SelectIndexed(const Step& step, const TensorView& x,
                             const Scratch& scratch) const;
  absl::Status SelectKeys(const Step& step, const TensorView& x,
                          const Scratch& scratch) const;
  absl::Status Attend(const Step& step, const Scratch& scratch) const;

  // As CompressedAttentionSpec has them.
  int num_heads_ = 0;
  int rope_ = 0;
  int rope_back_ = 0;
  DType activation_ = DType::kF32;
  bool on_cpu_ = true;
  KvPlace near_;    // the tokens' keys
  KvPlace far_;     // compressed ones
  size_t cut_ = 0;  // of DeviceBatch::plans; unused on CPU
  AttentionPlanShape cut_shape_;
  Linear low_query_;
  Norm low_query_norm_;
  Linear query_;
  Norm query_norm_;
  Linear key_;
  Norm key_norm_;
  const float* sinks_ = nullptr;
  GroupedLinear groups_;
  Linear output_;
  std::optional<KvCompressor> compressor_;
  std::optional<Index> index_;
  Op<RopeDesc, RopeParams> query_rope_;
  Op<RopeDesc, RopeParams> key_rope_;
  Op<KvWriteDesc, KvWriteParams> kv_write_;
  Op<KvSelectDesc, KvSelectParams> select_;
  Op<AttentionDesc, AttentionParams> attention_;
};

}  // namespace inlay

#endif  // INLAY_CORE_MODEL_LAYERS_COMPRESSED_ATTENTION_H_
