// LatentAttention: multi-head latent attention (arXiv:2405.04434) in its
// absorbed form: every head's query meets the cached rows themselves (latent
// and rotated part, one row a token for all heads), and what comes out, a sum
// of latents, becomes the head's values. Where keys are selected (Indexer), a
// query meets those rows only.
// On CPU, and where batches must not matter, the same for prompts and single
// tokens, so that a token's result does not depend on chunks. Elsewhere on CUDA
// sequences with many queries in a step take the expanded form, where there is
// a kernel for it: heads' keys and values are made of the rows
// (expanded_attention.h). The plan says which.
#ifndef INLAY_CORE_MODEL_LAYERS_LATENT_ATTENTION_H_
#define INLAY_CORE_MODEL_LAYERS_LATENT_ATTENTION_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/model/layers/head_scale.h"
#include "core/model/layers/indexer.h"
#include "core/model/layers/latent_heads.h"
#include "core/model/layers/linear.h"
#include "core/model/layers/norm.h"
#include "core/model/layers/row_scale.h"
#include "core/model/layers/step.h"
#include "kernels/attention/attention.h"
#include "kernels/attention/expanded_attention.h"
#include "kernels/gated_norm/gated_norm.h"
#include "kernels/kv_write/kv_write.h"
#include "kernels/rope/rope.h"

namespace inlay {

class LatentAttention : public Sublayer {
 public:
  // Its own layers in the cache: rows, where it writes some; the indexer's.
  static std::vector<KvLayerShape> KvLayers(const LatentAttentionSpec& spec,
                                            int64_t max_positions);
  // `rows`: where the rows that it reads are; `index`: where the indexer's
  // layers are.
  static absl::StatusOr<std::unique_ptr<Sublayer>> Create(
      const LatentAttentionSpec& spec, const KvPlace& rows,
      absl::Span<const KvPlace> index, ModelBuild& build);

  size_t ScratchBytes(int64_t tokens) const override;
  size_t KernelBytes(int64_t tokens, int64_t sequences) const override;
  absl::Status Forward(const Step& step, const BlockInput& x,
                       const TensorView& residual,
                       const TensorView& y) const override;

 private:
  // Views into the scratch.
  struct Scratch {
    // Of low rank; empty without. Where they are read with what they are made
    // of: that behind them.
    TensorView low_query;
    TensorView query;
    TensorView row;   // what goes to the cache; empty where nothing does
    TensorView head;  // values of all heads
    TensorView gate;  // of heads, or of what they give; empty without
    // Of the tokens of one tile.
    TensorView absorbed;
    TensorView context;
    AttentionSequence* sequences = nullptr;  // null but on CPU
    std::byte* heads = nullptr;              // LatentHeads::ScratchBytes
    std::byte* indexer = nullptr;            // Indexer::ScratchBytes
  };

  absl::Status ChooseKernels(const LatentAttentionSpec& spec,
                             ModelBuild& build);
  absl::Status Load(const LatentAttentionSpec& spec, ModelBuild& build);
  // Queries of so many tokens are a thousand floats a head once absorbed: on
  // CPU a step's are taken a tile of tokens at a time. Elsewhere plans are made
  // for whole steps.
  int64_t TileTokens(int64_t tokens) const;
  Scratch Place(Arena& arena, int64_t tokens) const;
  absl::Status Project(const Step& step, const TensorView& x,
                       const Scratch& scratch) const;
  absl::Status Rotate(const Step& step, const Scratch& scratch) const;
  absl::Status ScaleQueries(const Step& step, const Scratch& scratch) const;
  // Of the model's kernels the one for the expanded form, if it is to be used.
  absl::Status ChooseExpanded(const LatentAttentionSpec& spec,
                              ModelBuild& build);
  // Queries of tokens [first, first + count) to `absorbed`, and what came of
  // them in `context` to values. Both begin with the first of these.
  absl::Status Absorb(const Step& step, int64_t first,
                      const TensorView& absorbed, const Scratch& scratch) const;
  absl::Status MakeValues(const Step& step, int64_t first,
                          const TensorView& context,
                          const Scratch& scratch) const;
  // A step of which the plan expands some sequences.
  absl::Status AttendExpanded(const Step& step, const KvLayerView& kv,
                              const Scratch& scratch) const;
  // Tokens [first, first + count) from queries to values.
  absl::Status Attend(const Step& step, const KvLayerView& kv, int64_t first,
                      int64_t count, const Scratch& scratch) const;

  bool on_cpu_ = true;
  // As LatentAttentionSpec has them.
  int num_heads_ = 0;
  int rank_ = 0;
  int key_dim_ = 0;
  int rope_dim_ = 0;
  int value_dim_ = 0;
  int rope_ = -1;
  int query_factor_ = -1;
  bool reads_other_kv_ = false;  // LatentAttentionSpec::kv_source
  DType activation_ = DType::kF32;
  KvLayerView kv_;
  size_t kv_group_ = 0;
  size_t cut_ = 0;  // of DeviceBatch::plans; unused on CPU
  AttentionPlanShape cut_shape_;
  std::vector<Linear> query_;
  int64_t low_rank_ = 0;     // of queries; 0: they are made at once
  bool reads_both_ = false;  // LatentAttentionSpec
  Norm query_norm_;
  Linear down_;
  Norm norm_;
  std::optional<Indexer> indexer_;
  LatentHeads heads_;
  std::optional<Linear> gate_;
  Op<GatedNormDesc, GatedNormParams> apply_gate_;
  bool has_sinks_ = false;
  const float* sinks_ = nullptr;  // [num_heads]; null when planning
  Linear output_;
  InputObserver* observer_ = nullptr;  // may be null
  std::string up_name_;                // for observer_
  Op<RopeDesc, RopeParams> query_rope_;
  Op<RopeDesc, RopeParams> key_rope_;
  RowScale scale_queries_;  // where there is a query_factor_
  HeadScale scale_heads_;
  Op<KvWriteDesc, KvWriteParams> kv_write_;
  Norm copy_;  // of queries' rotated parts
  Op<AttentionDesc, AttentionParams> attention_;
  // No row: everything is absorbed.
  Op<ExpandedAttentionDesc, ExpandedAttentionParams> expanded_;
};

}  // namespace inlay

#endif  // INLAY_CORE_MODEL_LAYERS_LATENT_ATTENTION_H_
