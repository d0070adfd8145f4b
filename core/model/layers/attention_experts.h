// AttentionExperts: a mixture of attention heads (JetMoE, arXiv:2404.07413;
// Zhang et al., arXiv:2210.05144): keys and values are all tokens' alike, the
// queries of a token are made by the experts that its router chooses, and what
// their heads give goes through matrices of the same experts.
#ifndef INLAY_CORE_MODEL_LAYERS_ATTENTION_EXPERTS_H_
#define INLAY_CORE_MODEL_LAYERS_ATTENTION_EXPERTS_H_

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "core/model/decoder_spec.h"
#include "core/model/layers/expert_linear.h"
#include "core/model/layers/linear.h"
#include "core/model/layers/step.h"
#include "core/model/model_build.h"
#include "kernels/attention/attention.h"
#include "kernels/columns/columns.h"
#include "kernels/kv_write/kv_write.h"
#include "kernels/moe/combine.h"
#include "kernels/moe/routing.h"
#include "kernels/rope/rope.h"

namespace inlay {

class AttentionExperts : public Sublayer {
 public:
  // `kv` with a null base: the layer's place in a block of `kv_group`.
  static absl::StatusOr<std::unique_ptr<Sublayer>> Create(
      const AttentionExpertsSpec& spec, const KvLayerView& kv, size_t kv_group,
      int rotary_dim, ModelBuild& build);

  size_t ScratchBytes(int64_t tokens) const override;
  size_t KernelBytes(int64_t tokens, int64_t sequences) const override;
  absl::Status Forward(const Step& step, const BlockInput& x,
                       const TensorView& residual,
                       const TensorView& y) const override;

 private:
  // Views into the scratch. A slot is a token and one of its experts.
  struct Scratch {
    TensorView logits;  // [tokens, experts] f32
    RoutingParams routed;
    TensorView slots;  // [slots, heads of an expert]: queries, then values
    TensorView query;  // the same as attention has heads, token by token
    TensorView key_value;
    TensorView context;
    TensorView output;  // [slots, hidden] f32
  };

  absl::Status ChooseKernels(const AttentionExpertsSpec& spec, int rotary_dim,
                             ModelBuild& build);
  absl::Status Load(const AttentionExpertsSpec& spec, ModelBuild& build);
  Scratch Place(Arena& arena, int64_t tokens) const;
  // Rows of slots as one of each token.
  TensorView OfTokens(const TensorView& slots) const;
  // Queries, keys and values of x, which is normalised.
  absl::Status Project(const Step& step, const TensorView& x,
                       const Scratch& scratch) const;
  absl::Status Rotate(const Step& step, const Scratch& scratch) const;
  absl::Status Attend(const Step& step, const Scratch& scratch) const;

  bool on_cpu_ = true;
  int64_t hidden_ = 0;
  int64_t width_ = 0;  // of an expert's queries, of keys and of values
  int rope_ = -1;
  DType activation_ = DType::kF32;
  KvLayerView kv_;
  size_t kv_group_ = 0;
  size_t cut_ = 0;  // of DeviceBatch::plans; unused on CPU
  AttentionPlanShape cut_shape_;
  Linear router_;
  Linear key_value_;
  ExpertLinear query_;
  ExpertLinear output_;
  const float* bias_ = nullptr;  // null when planning, too
  // From experts' heads, one expert after another, to heads that share keys
  // side by side, and back.
  std::vector<ColumnRun> to_heads_;
  std::vector<ColumnRun> to_slots_;
  Op<RoutingDesc, RoutingParams> routing_;
  Op<ColumnsDesc, ColumnsParams> columns_;
  Op<RopeDesc, RopeParams> query_rope_;
  Op<RopeDesc, RopeParams> key_rope_;
  Op<KvWriteDesc, KvWriteParams> kv_write_;
  Op<AttentionDesc, AttentionParams> attention_;
  Op<MoeCombineDesc, MoeCombineParams> combine_;
};

}  // namespace inlay

#endif  // INLAY_CORE_MODEL_LAYERS_ATTENTION_EXPERTS_H_
