// Moe: a mixture of experts: routing, each token's experts, their weighted sum,
// and a shared expert.
#ifndef INLAY_CORE_MODEL_LAYERS_MOE_H_
#define INLAY_CORE_MODEL_LAYERS_MOE_H_

#include <memory>

#include "absl/status/statusor.h"
#include "core/model/layers/chained_mlp.h"
#include "core/model/layers/expert_cache.h"
#include "core/model/layers/expert_latents.h"
#include "core/model/layers/expert_linear.h"
#include "core/model/layers/linear.h"
#include "core/model/layers/norm.h"
#include "core/model/layers/row_scale.h"
#include "core/model/layers/step.h"
#include "kernels/activation/activation.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/moe/combine.h"
#include "kernels/moe/identity.h"
#include "kernels/moe/router.h"
#include "kernels/moe/routing.h"
#include "kernels/rounding/rounding.h"

namespace inlay {

class Moe : public Sublayer, public ChainedMlp {
 public:
  static absl::StatusOr<std::unique_ptr<Sublayer>> Create(const MoeSpec& spec,
                                                          int64_t hidden_size,
                                                          ModelBuild& build);

  size_t ScratchBytes(int64_t tokens) const override;
  size_t KernelBytes(int64_t tokens, int64_t sequences) const override;
  size_t ExchangeBytes() const override {
    return alone_.row == nullptr ? 0 : LinearChainExchangeBytes(alone_.desc);
  }
  absl::Status Forward(const Step& step, const BlockInput& x,
                       const TensorView& residual,
                       const TensorView& y) const override;
  bool by_rows() const override { return table_ == nullptr; }
  bool Describe(LinearChainDesc* desc) const override;
  void Fill(const Step& step, int64_t tokens, const Norm& norm,
            LinearChainParams* params) const override;

 private:
  // All of it in one launch, for a token or two of its own residual stream,
  // where a kernel serves.
  void ChooseAlone(const ModelBuild& build);
  // Of a chain: the shared expert, whose matrices lie as those of `desc`'s
  // experts.
  bool DescribeShared(LinearChainDesc* desc) const;
  void FillShared(const Step& step, LinearChainParams* params) const;
  bool RunsAlone(const BlockInput& x, const TensorView& residual,
                 const TensorView& y) const;

  // Views into the scratch. A slot is a token and one of its experts.
  struct Scratch {
    TensorView routed_by;  // [tokens, hidden]: what the router alone reads
    TensorView logits;     // [tokens, experts] f32
    RoutingParams routed;
    TensorView inner;  // [slots, 2 * width]: gate and up side by side,
                       // or up alone
    float* inner_scales = nullptr;  // where inner becomes codes
    TensorView output;              // [slots, hidden] f32
    TensorView chained;             // what a chain's experts hand on
    ExpertLatents::Scratch latents;
    TensorView shared;          // [tokens, hidden] f32
    TensorView gate;            // [tokens, 1] f32
    std::byte* rest = nullptr;  // for the shared expert
  };

  absl::Status CreateRouter(const MoeSpec& spec, int64_t hidden_size,
                            ModelBuild& build);
  // Norm, router and routing in one launch, where a kernel serves.
  void ChooseRouter(int64_t hidden_size, const ModelBuild& build);
  absl::Status CreateExperts(const MoeSpec& spec, ModelBuild& build);
  // Says what they take, and keeps some on the device where not all are there.
  absl::Status PlaceExperts(ExpertPlace place, ModelBuild& build);
  absl::Status CreateShared(const MoeSpec& spec, ModelBuild& build);
  // Where routing knows more experts than there are.
  absl::Status ChooseIdentity(const ModelBuild& build);
  Scratch Place(Arena& arena, int64_t tokens) const;
  // Whether the router's logits are scored as they are.
  bool scores_plain_logits() const {
    return router_scale_ == 1.0f && router_softcap_ == 0.0f;
  }
  // Fills x.normalised and what is routed.
  absl::Status Route(const Step& step, const BlockInput& x,
                     const Scratch& scratch) const;
  absl::Status RunExperts(const Step& step, const TensorView& x,
                          const Scratch& scratch) const;
  // From gates and ups, or what became of them, on.
  absl::Status RunOutputs(const Step& step, const Scratch& scratch,
                          RowRounding rounding) const;
  // What the combination multiplies outputs by.
  const float* OutputWeights(const Step& step, const Scratch& scratch) const;
  absl::Status RunShared(const Step& step, const TensorView& x,
                         const Scratch& scratch) const;
  // The rest of Forward where experts read latents.
  absl::Status ForwardLatents(const Step& step, const TensorView& x,
                              const TensorView& residual, const TensorView& y,
                              const Scratch& scratch) const;

  Norm router_norm_;           // or what copies, where routes_ahead_
  bool routes_ahead_ = false;  // MoeSpec
  Linear router_;
  float router_scale_ = 1.0f;
  float router_softcap_ = 0.0f;
  Op<ElementwiseDesc, ElementwiseParams> scale_logits_;
  Op<ElementwiseDesc, ElementwiseParams> cap_logits_;
  const float* correction_ = nullptr;
  const float* expert_scales_ = nullptr;
  const int32_t* table_ = nullptr;  // where routing is hashed
  Op<RoutingDesc, RoutingParams> routing_;
  int num_experts_ = 0;  // with matrices
  Op<MoeRouterDesc, MoeRouterParams> fused_router_;
  int64_t fused_router_rows_ = 0;
  // Gate and up, or both as one.
  std::vector<ExpertLinear> input_;
  int input_weights_ = -1;  // MoeSpec
  RowScale weigh_inputs_;
  Op<ActivationDesc, ActivationParams> activation_;
  Op<RoundingDesc, RoundingParams> rounded_;  // activation_, as codes
  ExpertLinear output_;
  ExpertCache cache_;
  int64_t hidden_ = 0;
  ExpertLatents latents_;
  std::unique_ptr<Sublayer> shared_;            // may be null
  const ChainedMlp* shared_chained_ = nullptr;  // itself, if without biases
  bool has_bias_ = false;
  const float* bias_ = nullptr;  // null when planning, too
  bool shared_gated_ = false;
  Linear shared_gate_;
  Op<MoeIdentityDesc, MoeIdentityParams> identity_;  // no row: no such experts
  Op<MoeCombineDesc, MoeCombineParams> combine_;
  Op<LinearChainDesc, LinearChainParams> alone_;
  int64_t alone_rows_ = 0;
};

}  // namespace inlay

#endif  // INLAY_CORE_MODEL_LAYERS_MOE_H_
