// Decoder: the Model that BuildDecoder makes. decoder_build.cc and
// decoder_ends.cc fill it, decoder.cc runs it, decoder_narrowed.cc its last
// layer for a few rows.
#ifndef INLAY_CORE_MODEL_DECODER_IMPL_H_
#define INLAY_CORE_MODEL_DECODER_IMPL_H_

#include <memory>
#include <optional>
#include <vector>

#include "absl/functional/function_ref.h"
#include "core/model/decoder_spec.h"
#include "core/model/layers/altup.h"
#include "core/model/layers/attention_block.h"
#include "core/model/layers/chained_mlp.h"
#include "core/model/layers/hyper_connection.h"
#include "core/model/layers/laurel.h"
#include "core/model/layers/layer_chain.h"
#include "core/model/layers/linear.h"
#include "core/model/layers/norm.h"
#include "core/model/layers/per_layer.h"
#include "core/model/layers/rope_tables.h"
#include "core/model/layers/row_head.h"
#include "core/model/layers/step.h"
#include "core/model/model.h"
#include "core/model/model_build.h"
#include "core/model/weights.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/embedding/embedding.h"

namespace inlay {

// A residual block with its weights and kernels.
struct DecoderBlock {
  Norm pre_norm;
  Norm post_norm;
  Norm stream_norm;
  Norm sum_norm;
  bool post_norm_of_sum = false;  // BlockSpec
  float scale = 1.0f;
  bool deferred = false;  // BlockSpec
  bool aside = false;     // the same
  HyperConnection hyper;  // where the residual stream is several
  Laurel laurel;
  std::unique_ptr<Sublayer> part;

  // `part`, where it is one of these.
  const AttentionBlock* attention = nullptr;
  const TokenMixer* mixer = nullptr;
  const ChainedMlp* mlp = nullptr;

  // Whether something is done to the output before it is added.
  bool finishes() const { return post_norm.present() || scale != 1.0f; }
  // hidden += part(pre_norm(hidden)), and no more.
  bool is_plain() const {
    return !finishes() && !sum_norm.present() && !laurel.present() &&
           !hyper.present() && !deferred && !aside;
  }
};

struct DecoderLayer {
  std::vector<DecoderBlock> blocks;
  bool parallel = false;
  bool defers = false;  // one of the blocks is deferred
  Norm loop_norm;       // LayerSpec
  bool begins_loop = false;
  bool keeps_input = false;  // MoeSpec::routes_ahead of one of the blocks
  Norm pre_norm;             // of all blocks, where parallel ones share it
  float scale = 1.0f;        // of the residual stream after the blocks
  AltUpLayer altup;
  // What follows the first block's mixer, where that is all of the layer.
  LayerChain chain;

  // A mixer, then an MLP or a mixture of them, and no more.
  bool is_plain() const {
    return !parallel && scale == 1.0f && !altup.present() &&
           !loop_norm.present() && blocks.size() == 2 && blocks[0].is_plain() &&
           blocks[0].mixer != nullptr && blocks[1].is_plain() &&
           blocks[1].mlp != nullptr;
  }
};

class Decoder : public Model {
 public:
  static absl::StatusOr<std::unique_ptr<Model>> Build(const DecoderSpec& spec,
                                                      ModelBuild& build);

  const ModelInfo& info() const override { return info_; }
  const KvLayout& kv_layout() const override { return kv_layout_; }
  using Model::WorkspaceBytes;
  size_t WorkspaceBytes(int64_t max_tokens, int64_t max_logit_rows,
                        int64_t max_sequences) const override;
  absl::Status Prepare(Stream& stream) const override;
  size_t BatchImageBytes(const BatchLimits& limits) const override;
  absl::StatusOr<DeviceBatch> PackBatch(const ForwardBatch& batch,
                                        const BatchLimits& limits,
                                        std::byte* image,
                                        std::byte* device) const override;
  size_t ExchangeBytes() const override;
  bool CanBeFixed() const override;
  absl::Status Forward(const ForwardBatch& batch,
                       absl::Span<std::byte> workspace,
                       Stream& stream) const override;
  absl::Status Logits(TensorView hidden, TensorView logits,
                      absl::Span<std::byte> workspace,
                      Stream& stream) const override;
  absl::Status Pooled(TensorView hidden, TensorView y,
                      absl::Span<std::byte> workspace,
                      Stream& stream) const override;
  bool LeaveSomePages(uint64_t* at) const override;
  absl::StatusOr<ExpertFetchCounts> ReadExpertCounts(
      Stream& stream) const override;

 private:
  struct Workspace {
    TensorView hidden;  // the residual stream, or all of them side by side
    // What a hyper-connection mixes of several, or AltUp's active one; hidden
    // itself of one.
    TensorView mixed;
    HyperConnection::Scratch hyper;
    TensorView branch;  // a block's input after its norm
    // Rows of hidden; in branch's place, or where there are few in front of it.
    TensorView selected;
    // A block's output before it is finished; or what parallel blocks before
    // the last add up to.
    TensorView output;
    // What a layer adds at its end, or what its next block reads.
    TensorView deferred;
    TensorView kept;          // LayerSpec::loop_norm
    TensorView layer_input;   // Step
    TensorView first_values;  // Step
    TensorView per_layer;
    int32_t* selection = nullptr;  // [tokens, selects_]; null where that is 0
    RopeTables::Angles angles;
    std::byte* scratch = nullptr;
    std::byte* kernel = nullptr;
  };

  // What the last layer needs for some of its rows alone.
  struct Few {
    Workspace space;
    TensorView context;  // of attention; empty where that runs in Forward
    AttentionSequence* queries = nullptr;
  };

  Workspace Place(Arena& arena, int64_t tokens, int64_t sequences) const;
  // What pattern_ shows to the batch's tokens.
  absl::StatusOr<AttentionMask> CompilePattern(const ForwardBatch& batch) const;
  // What reaches_ show to them.
  absl::StatusOr<std::vector<AttentionMask>> CompileReaches(
      const ForwardBatch& batch) const;
  absl::Status ForwardLayers(const Step& step, const Workspace& space) const;
  absl::Status ForwardLayer(size_t index, const Step& step,
                            const Workspace& space) const;
  // Whether the layer's chain serves the step.
  bool Chains(const DecoderLayer& layer, const Step& step) const;
  void BuildChains(const ModelBuild& build);
  bool CanNarrow(const ModelBuild& build) const;
  absl::Status BuildNarrowed(ModelBuild& build);
  absl::Status BuildLayers(const DecoderSpec& spec, ModelBuild& build);
  absl::StatusOr<DecoderBlock> BuildBlock(const DecoderSpec& spec,
                                          const BlockSpec& block_spec,
                                          const Norm* shared,
                                          ModelBuild& build);
  // The keys of part `spec`, of layers from next_kv_layer_ on.
  absl::StatusOr<std::unique_ptr<Sublayer>> BuildShared(
      const SharedTransformerSpec& spec, const std::vector<RopeSpec>& ropes,
      ModelBuild& build);
  absl::StatusOr<std::unique_ptr<Sublayer>> BuildLatent(
      const LatentAttentionSpec& spec, ModelBuild& build);
  absl::StatusOr<std::unique_ptr<Sublayer>> BuildCompressed(
      const CompressedAttentionSpec& spec, ModelBuild& build);
  absl::StatusOr<std::unique_ptr<Sublayer>> BuildAttentionExperts(
      const AttentionExpertsSpec& spec, const std::vector<RopeSpec>& ropes,
      ModelBuild& build);
  absl::Status AddTable(TensorView table, int64_t width, bool by_segment,
                        ModelBuild& build);
  absl::Status BuildEmbeddings(const DecoderSpec& spec, ModelBuild& build);
  absl::Status BuildHead(const DecoderSpec& spec, ModelBuild& build);
  absl::Status BuildClassifier(const ClassifierSpec& spec, ModelBuild& build);
  absl::Status BuildEnds(const DecoderSpec& spec, ModelBuild& build);
  // Computes what layers make of weights alone.
  absl::Status FillTables() const;
  void DescribeLayout(const DecoderSpec& spec, const ModelBuild& build);
  void AddSummaries(const DecoderSpec& spec, const ModelBuild& build);
  // Of the next KV layer: of the keys of a layer's block index.
  KvLayerView PlaceBlockIndex();
  // Of the KV layer's blocks; none where nothing selects them.
  KvLayerView SummariesOf(int kv_layer) const;
  // The tokens' rows of the embedding, through its projection.
  absl::Status ProjectEmbedding(const TensorView& narrow,
                                const TensorView& hidden,
                                const Workspace& space, Stream& stream) const;
  absl::Status EmbedTokens(const DeviceBatch& batch, const TensorView& hidden,
                           const Workspace& space, Stream& stream) const;
  absl::Status Embed(const DeviceBatch& batch, const TensorView& hidden,
                     const Workspace& space, Stream& stream) const;
  // Into every stream.
  absl::Status EmbedAll(const DeviceBatch& batch, const Workspace& space,
                        Stream& stream) const;
  AltUpEnds::Scratch AltUpScratch(const Workspace& space) const;
  // Into the streams that AltUp makes of them; they stay in space.mixed.
  absl::Status EmbedAltUp(const DeviceBatch& batch, const Workspace& space,
                          Stream& stream) const;
  // Of the whole network or, `embeds` being false, for some of its layers.
  absl::Status Begin(const DeviceBatch& batch, bool embeds,
                     const Workspace& space, Stream& stream) const;
  absl::Status Observe(int layer, const Step& step,
                       const TensorView& hidden) const;
  static BlockInput InputOf(const Norm& norm, const Workspace& space);
  // hidden += the block's part as it is finished; `part(residual, y)` is y =
  // residual + the part's output, as Sublayer::Forward.
  absl::Status AddPart(
      const DecoderBlock& block, const Step& step, const Workspace& space,
      absl::FunctionRef<absl::Status(const TensorView&, const TensorView&)>
          part) const;
  absl::Status ForwardBlock(const DecoderBlock& block, const Step& step,
                            const Workspace& space) const;
  absl::Status ForwardStreams(const DecoderBlock& block, const Step& step,
                              const Workspace& space) const;
  absl::Status ForwardLaurel(const DecoderBlock& block, const Step& step,
                             const Workspace& space) const;
  absl::Status ForwardAltUp(const DecoderLayer& layer, const Step& step,
                            const Workspace& space) const;
  // What comes before the blocks of a layer; of one with a loop_norm.
  absl::Status BeginLayer(const DecoderLayer& layer, const Step& step,
                          const Workspace& space) const;
  absl::Status GoRound(const DecoderLayer& layer, const Step& step,
                       const Workspace& space) const;
  static absl::Status NormaliseSum(const DecoderBlock& block, const Step& step,
                                   const Workspace& space);
  absl::Status ForwardParallel(const DecoderLayer& layer, const Step& step,
                               const Workspace& space) const;
  absl::Status SelectRows(const Step& step, const Workspace& space) const;
  // `space` for some of its rows, in the place of a branch of all.
  Few PlaceFew(Arena& arena, int64_t rows, const Workspace& space) const;
  // Whether the step's last block need not see all of its tokens.
  bool Narrows(const Step& step, const Workspace& space) const;
  // The last layer and what is behind it: but for keys and values only for the
  // rows whose logits are wanted, as far as its parts let it.
  absl::Status ForwardNarrowed(const DecoderLayer& layer, const Step& step,
                               const Workspace& space) const;
  // The wanted rows of `all`, [tokens, select.desc.width]: where they are, or
  // in `room` where they do not lie side by side there.
  absl::StatusOr<TensorView> WantedRows(
      const Step& step, const Op<EmbeddingDesc, EmbeddingParams>& select,
      const TensorView& all, const TensorView& room) const;
  // The last layer's attention before its output projection.
  absl::Status AttendWanted(const Step& step, const Workspace& space,
                            const Few& few) const;
  // What comes after the layer's blocks.
  absl::Status FinishLayer(const DecoderLayer& layer, const Step& step,
                           const Workspace& space) const;

  ModelInfo info_;
  KvLayout kv_layout_;
  Device* device_ = nullptr;
  DType activation_ = DType::kF32;
  std::vector<AttentionCut> cuts_;  // none on CPU
  AttentionPattern pattern_;
  std::vector<int32_t> reaches_;  // ModelBuild
  WeightStorage storage_;
  TensorView embedding_;
  Norm convert_embedding_;  // to what its projection reads
  std::optional<Linear> embedding_projection_;
  bool projects_last_ = false;  // EmbeddingProjectionSpec::comes_last
  // Rows by position or segment, added to the tokens' own.
  struct Added {
    TensorView table;
    bool by_segment = false;
    Op<EmbeddingDesc, EmbeddingParams> op;
  };
  std::vector<Added> added_;
  Norm embedding_norm_;
  float embedding_scale_ = 1.0f;
  PerLayerInputs per_layer_inputs_;
  Norm logit_channels_;
  float logit_scale_ = 1.0f;
  float final_softcap_ = 0.0f;
  bool needs_output_ = false;  // Workspace::output
  bool defers_ = false;        // some layer does
  bool loops_ = false;         // some layer has a loop_norm
  bool keeps_inputs_ = false;  // some layer does
  Norm keep_input_;            // copies
  bool narrows_ = false;       // ForwardNarrowed serves the last layer
  // The last layer's, where it leaves out rows, too.
  const AttentionBlock* narrowed_attention_ = nullptr;
  size_t wanted_cut_ = 0;  // of DeviceBatch::plans, for its queries
  int next_kv_layer_ = 0;  // while building
  // Of tables that a decode step reads a row of, not the whole.
  size_t sparse_bytes_ = 0;
  int next_state_layer_ = 0;         // likewise
  int selects_ = 0;                  // selection_width() of any layer
  std::vector<int> summary_layers_;  // by KV layer with keys; -1: none
  // Not 0 for KV groups that DeviceBatch::index is of; empty: none.
  absl::InlinedVector<uint8_t, 4> indexed_groups_;
  HyperConnection hyper_head_;  // before the final norm, of several streams
  AltUpEnds altup_;
  RopeTables ropes_;
  std::vector<DecoderLayer> layers_;
  std::vector<const ExpertFetchCounts*> expert_counts_;  // on the device
  Norm final_norm_;
  // Of Logits and Pooled, for so many rows.
  struct HeadScratch {
    TensorView inner;  // what before_head_ gives
    std::byte* rows = nullptr;
    void* kernel = nullptr;
  };
  HeadScratch PlaceHead(Arena& arena, int64_t rows) const;

  RowHead before_head_;  // what the head does before its last product
  RowHead pooled_;
  Linear head_;
  Op<EmbeddingDesc, EmbeddingParams> embed_;
  Op<EmbeddingDesc, EmbeddingParams> select_rows_;
  Op<EmbeddingDesc, EmbeddingParams> select_context_;  // of narrowed_attention_
  Op<ElementwiseDesc, ElementwiseParams> add_;
  Op<ElementwiseDesc, ElementwiseParams> scale_;
  Op<ElementwiseDesc, ElementwiseParams> scale_logits_;
  Op<ElementwiseDesc, ElementwiseParams> softcap_;
};

}  // namespace inlay

#endif  // INLAY_CORE_MODEL_DECODER_IMPL_H_
