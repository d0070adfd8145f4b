// AttentionBlock: projections, norms of q and k, rotation, the KV write,
// attention over the paged cache, the output projection.
#ifndef INLAY_CORE_MODEL_LAYERS_ATTENTION_BLOCK_H_
#define INLAY_CORE_MODEL_LAYERS_ATTENTION_BLOCK_H_

#include <memory>

#include "absl/status/statusor.h"
#include "core/model/layers/block_index.h"
#include "core/model/layers/block_selector.h"
#include "core/model/layers/input_linear.h"
#include "core/model/layers/linear.h"
#include "core/model/layers/narrow_values.h"
#include "core/model/layers/norm.h"
#include "core/model/layers/output_gate.h"
#include "core/model/layers/relative_positions.h"
#include "core/model/layers/row_scale.h"
#include "core/model/layers/step.h"
#include "core/model/layers/token_mixer.h"
#include "kernels/attention/attention.h"
#include "kernels/attention/biased_attention.h"
#include "kernels/attention/disentangled_attention.h"
#include "kernels/decode_attention/decode_attention.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/kv_write/kv_write.h"
#include "kernels/rope/rope.h"
#include "kernels/rope_kv/rope_kv.h"

namespace inlay {

class AttentionBlock : public Sublayer, public TokenMixer {
 public:
  // `norm`: of the inputs to come. `kv` with a null base: the layer's place in
  // a block of `kv_group`. `summaries`: the same of its blocks' summaries,
  // where it selects some (CanSelectBlocks), or of the keys of its block index.
  // `rotary_dim`: of spec.rope; unused when that is -1.
  static absl::StatusOr<std::unique_ptr<Sublayer>> Create(
      const AttentionSpec& spec, const Norm& norm, const KvLayerView& kv,
      const KvLayerView& summaries, size_t kv_group, int rotary_dim,
      ModelBuild& build);

  size_t ScratchBytes(int64_t tokens) const override;
  size_t KernelBytes(int64_t tokens, int64_t sequences) const override;
  absl::Status Forward(const Step& step, const BlockInput& x,
                       const TensorView& residual,
                       const TensorView& y) const override;

  // A block index reads the layer's input besides.
  const TokenMixer* mixer() const override {
    return index_.present() ? nullptr : this;
  }
  absl::Span<const Linear> inputs() const override {
    return side_by_side_ ? qkv_.layers() : absl::Span<const Linear>();
  }
  const Linear& output() const override { return output_; }
  TensorView InputsOf(const Step& step, int64_t tokens) const override;
  TensorView MixedOf(const Step& step, int64_t tokens) const override;
  absl::Status Begin(const Step& step, const BlockInput& x) const override;
  absl::Status Mix(const Step& step, int64_t tokens) const override;

  // Whether queries may be left out: each sees what is before it, whatever else
  // is in the step.
  bool may_leave_out() const {
    return attention_.desc.causal && !has_pattern_ && !selects();
  }
  // How a plan of all the step's queries is made.
  AttentionCut cut() const {
    return {cut_shape_, kv_group_, chunk_, has_pattern_, reach_, has_bias_};
  }
  // Queries that are there, of KV group cut().kv_group; on other devices than a
  // CPU they are in the plan.
  struct Queries {
    absl::Span<const AttentionSequence> sequences;
    const AttentionPlan* plan = nullptr;
  };
  // Mix for these: other rows of MixedOf() are undefined.
  absl::Status Attend(const Step& step, int64_t tokens,
                      const Queries& queries) const;
  // Scratch for FillTables; 0: there are none.
  size_t TableScratchBytes() const {
    return relative_.present() ? relative_.ScratchBytes(qkv_) : 0;
  }
  // Queues the computing of what follows from the weights, which are there.
  absl::Status FillTables(std::byte* scratch, Stream& stream) const {
    return relative_.Fill(qkv_, scratch, stream);
  }
  // Of Forward what later steps need: the step's keys and values.
  absl::Status WriteKv(const Step& step, const BlockInput& x) const;

 private:
  // Views into the scratch. q, k and v are columns of one matrix where
  // side_by_side_, otherwise dense; k and v are empty where they are another
  // block's, q and its gate where nobody asks anything.
  struct Scratch {
    AttentionSequence* chunks = nullptr;
    int32_t* selection = nullptr;
    std::byte* index = nullptr;  // BlockIndex::ScratchBytes
    TensorView fused;
    TensorView q_and_gate;  // empty without gates; side_by_side_: k, v, too
    TensorView narrow;      // narrow values; side_by_side_: behind q and k
    TensorView ordered;     // side_by_side_ with gates: q, k, v, gates
    TensorView gate;
    TensorView q;
    TensorView k;
    TensorView v;
    TensorView context;
    TensorView mixed;  // what the output projection reads
  };

  // Queries see selected blocks of keys.
  bool selects() const { return selector_.present() || index_.present(); }
  absl::Status LoadProjections(const AttentionSpec& spec, const Norm& norm,
                               ModelBuild& build);
  absl::Status ChooseKernels(const AttentionSpec& spec, int rotary_dim,
                             ModelBuild& build);
  // One pass over the fused row, where a kernel serves.
  void ChooseRopeKv(const AttentionSpec& spec, int rotary_dim,
                    const ModelBuild& build);
  // Finish and attention in one pass for few tokens, where a kernel serves.
  void ChooseDecodeAttention(const ModelBuild& build);
  // The block's place in build.cuts, which gets its way to cut attention.
  void AddCut(ModelBuild& build);
  Scratch Place(Arena& arena, int64_t tokens) const;
  // What the layers give lies in.
  const TensorView& Projected(const Scratch& scratch) const {
    if (values_.present()) return scratch.narrow;
    return gate_.splits() ? scratch.q_and_gate : scratch.fused;
  }
  absl::Status Project(const Step& step, const BlockInput& x,
                       const Scratch& scratch) const;
  // Where they are side by side, gates apart from q, k and v, values as wide as
  // keys.
  absl::Status Order(const Step& step, const Scratch& scratch) const;
  // The layer's place in the step's cache.
  KvLayerView KvOf(const Step& step) const;
  // Norms of heads, rotation and the KV write, in one pass or one after the
  // other.
  absl::Status Finish(const Step& step, const KvLayerView& kv,
                      const Scratch& scratch) const;
  // What rope_kv_ reads.
  RopeKvParams FusedParams(const Step& step, const KvLayerView& kv,
                           const Scratch& scratch) const;
  absl::Status NormaliseHeads(const Step& step, const Scratch& scratch) const;
  absl::Status Clip(const Step& step, const Scratch& scratch) const;
  absl::Status Rotate(const Step& step, const Scratch& scratch) const;
  // Attention, or an op with more in its scores.
  absl::Status RunAttention(const AttentionParams& params,
                            Stream& stream) const;
  // From what attention gave to what the output projection reads.
  absl::Status GiveBack(const Step& step, const Scratch& scratch) const;
  // As attention sees them on CPU.
  absl::Span<const AttentionSequence> Sequences(
      absl::Span<const AttentionSequence> all, const Scratch& scratch) const;

  int64_t q_width_ = 0;
  int64_t kv_width_ = 0;
  int head_dim_ = 0;
  int rope_index_ = -1;
  DType activation_ = DType::kF32;
  KvLayerView kv_;
  size_t kv_group_ = 0;
  size_t cut_ = 0;  // of DeviceBatch::plans; unused on CPU
  AttentionPlanShape cut_shape_;
  bool on_cpu_ = true;
  // q, k and v are one matrix's columns: where one layer makes them, and on
  // GPUs, whose fused passes want that, otherwise too.
  bool side_by_side_ = false;
  bool reads_other_kv_ = false;  // AttentionSpec::kv_source
  bool keys_as_values_ = false;
  InputLinear qkv_;
  Linear output_;
  const float* sinks_ = nullptr;
  bool has_bias_ = false;  // ALiBi, or that of distances, or relative rows
  const float* alibi_slopes_ = nullptr;  // null when planning, too
  OutputGate gate_;
  NarrowValues values_;
  bool joint_norms_ = false;
  Norm q_norm_;
  Norm k_norm_;
  Norm v_norm_;
  Norm output_norm_;
  bool norms_after_rope_ = false;
  float limit_ = 0.0f;  // AttentionSpec::clip
  Op<ElementwiseDesc, ElementwiseParams> clip_qkv_;
  Op<ElementwiseDesc, ElementwiseParams> clip_q_;
  Op<ElementwiseDesc, ElementwiseParams> clip_kv_;
  Op<RopeKvDesc, RopeKvParams> rope_kv_;  // no row: the ops after it instead
  Op<RopeDesc, RopeParams> q_rope_;
  Op<RopeDesc, RopeParams> k_rope_;
  Op<KvWriteDesc, KvWriteParams> kv_write_;
  int chunk_ = 0;
  bool has_pattern_ = false;
  int reach_ = -1;  // AttentionCut
  Norm query_channels_;
  Norm gate_channels_;
  int query_factor_ = -1;
  RowScale scale_queries_;
  BlockSelector selector_;
  BlockIndex index_;
  Op<AttentionDesc, AttentionParams> attention_;
  // Instead of it, with what it adds to scores; no row: there is nothing.
  Op<AttentionDesc, BiasedAttentionParams> biased_attention_;
  ScoreBias bias_;
  Op<AttentionDesc, DisentangledAttentionParams> disentangled_attention_;
  RelativePositions relative_;
  // No row: attention_ for any step.
  Op<DecodeAttentionDesc, DecodeAttentionParams> decode_attention_;
};

}  // namespace inlay

#endif  // INLAY_CORE_MODEL_LAYERS_ATTENTION_BLOCK_H_
