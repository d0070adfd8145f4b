#include "core/model/layers/moe.h"

#include <algorithm>
#include <utility>

#include "core/model/layers/mlp.h"
#include "memory/status.h"

namespace inlay {
namespace {

template <typename T>
T* TakeArray(Arena& arena, int64_t count) {
  return reinterpret_cast<T*>(
      arena.Take(static_cast<size_t>(count) * sizeof(T)));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Sublayer>> Moe::Create(const MoeSpec& spec,
                                                      int64_t hidden_size,
                                                      ModelBuild& build) {
  auto moe = std::make_unique<Moe>();
  moe->hidden_ = hidden_size;
  INLAY_RETURN_IF_ERROR(moe->CreateRouter(spec, hidden_size, build));
  if (spec.latent_down.has_value()) {
    INLAY_ASSIGN_OR_RETURN(moe->latents_, ExpertLatents::Create(spec, build));
  }
  INLAY_RETURN_IF_ERROR(moe->CreateExperts(spec, build));
  INLAY_RETURN_IF_ERROR(moe->CreateShared(spec, build));
  if (!spec.bias.empty()) {
    INLAY_DCHECK(!spec.shared.has_value() && !spec.latent_down.has_value());
    moe->has_bias_ = true;
    INLAY_ASSIGN_OR_RETURN(
        moe->bias_,
        build.weights.Vector(spec.bias, hidden_size, VectorKind::kBias));
  }
  MoeCombineDesc combine;
  const bool is_latent = moe->latents_.present();
  combine.width = is_latent ? moe->latents_.width() : hidden_size;
  combine.top_k = spec.routing.top_k;
  // A bias is a shared part that is the same for all tokens.
  combine.shared = (spec.shared.has_value() && !is_latent) || moe->has_bias_;
  combine.gated = spec.shared_gate.has_value();
  INLAY_ASSIGN_OR_RETURN(
      moe->combine_,
      build.kernels.Choose("moe_combine", MoeCombineTable(), combine));
  INLAY_RETURN_IF_ERROR(moe->ChooseIdentity(build));
  moe->ChooseAlone(build);
  return std::unique_ptr<Sublayer>(std::move(moe));
}

absl::Status Moe::ChooseIdentity(const ModelBuild& build) {
  if (num_experts_ == routing_.desc.num_experts) return absl::OkStatus();
  INLAY_DCHECK(!latents_.present() && input_weights_ < 0);
  MoeIdentityDesc desc;
  desc.width = hidden_;
  desc.top_k = routing_.desc.top_k;
  desc.num_experts = num_experts_;
  desc.activation = build.activation;
  INLAY_ASSIGN_OR_RETURN(
      identity_,
      build.kernels.Choose("moe_identity", MoeIdentityTable(), desc));
  return absl::OkStatus();
}

void Moe::ChooseAlone(const ModelBuild& build) {
  LinearChainDesc desc;
  if (!MayChain(build) || !Describe(&desc)) return;
  auto op = build.kernels.Choose("linear_chain", LinearChainTable(), desc);
  if (!op.ok()) return;
  alone_ = *std::move(op);
  alone_rows_ = LinearChainRows(alone_.desc, build.kernels.device());
}

bool Moe::RunsAlone(const BlockInput& x, const TensorView& residual,
                    const TensorView& y) const {
  return x.hidden.rows() > 0 && x.hidden.rows() <= alone_rows_ &&
         x.norm.is_rms() && residual.data == y.data && x.hidden.data == y.data;
}

absl::Status Moe::CreateRouter(const MoeSpec& spec, int64_t hidden_size,
                               ModelBuild& build) {
  INLAY_RETURN_IF_ERROR(ValidateRouting(spec.routing));
  const int num_experts = spec.routing.num_experts;
  if (spec.router_norm.kind != NormKind::kNone) {
    INLAY_ASSIGN_OR_RETURN(
        router_norm_, Norm::Create(spec.router_norm, hidden_size, DType::kF32,
                                   build.activation, build));
  }
  routes_ahead_ = spec.routes_ahead;
  if (routes_ahead_) {
    INLAY_DCHECK(!router_norm_.present());
    INLAY_ASSIGN_OR_RETURN(router_norm_, Norm::Copy(hidden_size, DType::kF32,
                                                    build.activation, build));
  }
  INLAY_ASSIGN_OR_RETURN(
      router_, Linear::Create(spec.router, LinearOutput::kFloat, build));
  router_scale_ = spec.router_scale;
  if (router_scale_ != 1.0f) {
    ElementwiseDesc desc;
    desc.function = Elementwise::kScale;
    desc.width = num_experts;
    INLAY_ASSIGN_OR_RETURN(
        scale_logits_,
        build.kernels.Choose("elementwise", ElementwiseTable(), desc));
  }
  router_softcap_ = spec.router_softcap;
  if (router_softcap_ != 0.0f) {
    ElementwiseDesc desc;
    desc.function = Elementwise::kSoftcap;
    desc.width = num_experts;
    INLAY_ASSIGN_OR_RETURN(
        cap_logits_,
        build.kernels.Choose("elementwise", ElementwiseTable(), desc));
  }
  if (!spec.correction.empty()) {
    INLAY_ASSIGN_OR_RETURN(
        correction_,
        build.weights.Vector(spec.correction, num_experts, VectorKind::kBias));
  }
  if (spec.routing.hashed) {
    INLAY_ASSIGN_OR_RETURN(
        table_, build.weights.IndexTable(spec.table, spec.table_rows,
                                         spec.routing.top_k, num_experts));
  }
  INLAY_DCHECK(spec.routing.scales_experts == !spec.expert_scales.empty());
  if (spec.routing.scales_experts) {
    INLAY_ASSIGN_OR_RETURN(expert_scales_,
                           build.weights.Vector(spec.expert_scales, num_experts,
                                                VectorKind::kScale));
  }
  INLAY_ASSIGN_OR_RETURN(
      routing_,
      build.kernels.Choose("moe_routing", RoutingTable(), spec.routing));
  ChooseRouter(hidden_size, build);
  return absl::OkStatus();
}

void Moe::ChooseRouter(int64_t hidden_size, const ModelBuild& build) {
  const bool corrects_logits =
      correction_ != nullptr && routing_.desc.score == RoutingScore::kSoftmax;
  const bool plain = !router_norm_.present() && scores_plain_logits() &&
                     !router_.is_packed() && !corrects_logits;
  if (!plain || build.batch_invariant || !MayChain(build)) return;
  MoeRouterDesc desc;
  desc.routing = routing_.desc;
  desc.width = hidden_size;
  desc.weight = router_.desc().weight;
  desc.activation = build.activation;
  auto op = build.kernels.Choose("moe_router", MoeRouterTable(), desc);
  if (!op.ok()) return;
  fused_router_ = *std::move(op);
  fused_router_rows_ = build.kernels.IsForced("moe_router")
                           ? MoeRouterTokens(fused_router_.desc)
                           : MoeRouterTokensThatPay(fused_router_.desc);
}

absl::Status Moe::CreateExperts(const MoeSpec& spec, ModelBuild& build) {
  const MlpSpec& first = spec.experts.front();
  num_experts_ = static_cast<int>(spec.experts.size());
  ActivationDesc desc;
  desc.function = first.activation;
  desc.gated = first.gated;
  desc.width = first.width;
  desc.activation = build.activation;
  desc.limit = first.limit;
  INLAY_ASSIGN_OR_RETURN(
      activation_, build.kernels.Choose("activation", ActivationTable(), desc));

  const int top_k = spec.routing.top_k;
  input_weights_ = spec.input_weights;
  const bool weighs = input_weights_ >= 0;
  if (weighs) {
    INLAY_DCHECK(top_k == 1 && !first.input.front().bias);
    INLAY_ASSIGN_OR_RETURN(weigh_inputs_,
                           RowScale::Create(2 * first.width, build));
  }
  std::vector<ExpertLinear::Experts> inputs(1);
  ExpertLinear::Experts outputs;
  for (const MlpSpec& expert : spec.experts) {
    inputs.front().push_back(expert.input);
    outputs.push_back({expert.output});
  }
  INLAY_ASSIGN_OR_RETURN(const bool stacks,
                         ExpertLinear::CanStack(inputs.front(), build));
  if (first.input.size() > 1 && !stacks) {
    inputs.assign(first.input.size(), {});
    for (const MlpSpec& expert : spec.experts) {
      for (size_t i = 0; i < inputs.size(); ++i) {
        inputs[i].push_back({expert.input[i]});
      }
    }
  }
  const bool keeps_some = !build.on_cpu() && build.expert_slots > 0 &&
                          build.expert_slots < num_experts_;
  const ExpertPlace place =
      keeps_some ? ExpertPlace::kHost : ExpertPlace::kDevice;
  // What becomes of gates and ups is the product's where they are one.
  const bool makes_both = !weighs && inputs.size() == 1;
  for (const ExpertLinear::Experts& input : inputs) {
    INLAY_ASSIGN_OR_RETURN(
        input_.emplace_back(),
        ExpertLinear::Create(input, top_k, false, LinearOutput::kActivation,
                             build, place, makes_both ? &desc : nullptr));
  }
  INLAY_ASSIGN_OR_RETURN(
      output_, ExpertLinear::Create(outputs, top_k, true, LinearOutput::kFloat,
                                    build, place));
  if (output_.may_round()) {
    rounded_ = ChooseRoundedActivation(activation_.desc, build);
  }
  return PlaceExperts(place, build);
}

absl::Status Moe::PlaceExperts(ExpertPlace place, ModelBuild& build) {
  std::vector<ExpertLinear*> matrices;
  for (ExpertLinear& input : input_) matrices.push_back(&input);
  matrices.push_back(&output_);
  ExpertMemory& memory = build.experts;
  uint64_t bytes = 0;
  for (const ExpertLinear* matrix : matrices) {
    const size_t rounded = (matrix->expert_bytes() + kExpertAlignment - 1) /
                           kExpertAlignment * kExpertAlignment;
    memory.slot_bytes += rounded;
    bytes += matrix->expert_bytes() * static_cast<uint64_t>(num_experts_);
  }
  memory.bytes += bytes;
  memory.least_slots =
      std::max(memory.least_slots, std::min(routing_.desc.top_k, num_experts_));
  if (place == ExpertPlace::kDevice) {
    memory.device_bytes += bytes;
    return absl::OkStatus();
  }
  INLAY_ASSIGN_OR_RETURN(
      cache_,
      ExpertCache::Create(matrices, num_experts_, build.expert_slots, build));
  build.expert_counts.push_back(cache_.counts());
  memory.slots = build.expert_slots;
  memory.device_bytes += cache_.device_bytes();
  memory.host_bytes += cache_.host_bytes();
  return absl::OkStatus();
}

absl::Status Moe::CreateShared(const MoeSpec& spec, ModelBuild& build) {
  if (!spec.shared.has_value()) return absl::OkStatus();
  INLAY_ASSIGN_OR_RETURN(shared_,
                         Mlp::Create(*spec.shared, Norm::None(), build));
  const bool has_bias =
      spec.shared->input.front().bias || spec.shared->output.bias ||
      (spec.shared_gate.has_value() && spec.shared_gate->bias);
  if (!has_bias) shared_chained_ = static_cast<const Mlp*>(shared_.get());
  if (!spec.shared_gate.has_value()) return absl::OkStatus();
  shared_gated_ = true;
  INLAY_ASSIGN_OR_RETURN(
      shared_gate_,
      Linear::Create(*spec.shared_gate, LinearOutput::kFloat, build));
  return absl::OkStatus();
}

Moe::Scratch Moe::Place(Arena& arena, int64_t tokens) const {
  Scratch scratch;
  const int64_t num_experts = routing_.desc.num_experts;
  const int64_t slots = tokens * routing_.desc.top_k;
  if (router_norm_.present()) {
    scratch.routed_by =
        arena.TakeMatrix(tokens, hidden_, activation_.desc.activation);
  }
  scratch.logits = arena.TakeMatrix(tokens, num_experts, DType::kF32);
  scratch.routed.logits = scratch.logits;
  scratch.routed.correction = correction_;
  scratch.routed.expert_scales = expert_scales_;
  scratch.routed.table = table_;
  scratch.routed.experts = TakeArray<int32_t>(arena, slots);
  scratch.routed.weights = TakeArray<float>(arena, slots);
  scratch.routed.offsets = TakeArray<int32_t>(arena, num_experts + 1);
  scratch.routed.slots = TakeArray<int32_t>(arena, slots);
  scratch.latents = latents_.Place(arena, tokens);
  scratch.output = arena.TakeMatrix(slots, combine_.desc.width, DType::kF32);
  scratch.inner = arena.TakeMatrix(
      slots, (activation_.desc.gated ? 2 : 1) * activation_.desc.width,
      activation_.desc.activation);
  if (rounded_.row != nullptr) {
    scratch.inner_scales = TakeArray<float>(
        arena, std::max(slots, RoundingScales(RowRounding::kFp8Groups, slots,
                                              rounded_.desc.width)));
  }
  if (alone_.row != nullptr) {
    const int64_t columns =
        alone_rows_ * routing_.desc.top_k * activation_.desc.width +
        alone_.desc.shared_width;
    scratch.chained =
        arena.TakeMatrix(alone_rows_, columns, activation_.desc.activation);
  }
  if (shared_ == nullptr) return scratch;
  scratch.shared = arena.TakeMatrix(tokens, hidden_, DType::kF32);
  if (shared_gated_) {
    scratch.gate = arena.TakeMatrix(tokens, 1, DType::kF32);
  }
  scratch.rest = arena.Take(shared_->ScratchBytes(tokens));
  return scratch;
}

size_t Moe::ScratchBytes(int64_t tokens) const {
  Arena arena(nullptr);
  Place(arena, tokens);
  return arena.used();
}

size_t Moe::KernelBytes(int64_t tokens, int64_t sequences) const {
  size_t bytes =
      std::max({router_.KernelBytes(tokens), output_.KernelBytes(tokens),
                latents_.KernelBytes(tokens)});
  for (const ExpertLinear& input : input_) {
    bytes = std::max(bytes, input.KernelBytes(tokens));
  }
  if (shared_ == nullptr) return bytes;
  if (shared_gated_) bytes = std::max(bytes, shared_gate_.KernelBytes(tokens));
  return std::max(bytes, shared_->KernelBytes(tokens, sequences));
}

absl::Status Moe::Route(const Step& step, const BlockInput& x,
                        const Scratch& scratch) const {
  if (fused_router_.row != nullptr && x.norm.is_rms() &&
      x.hidden.rows() <= fused_router_rows_) {
    const GemmParams router = router_.Params({}, {}, {});
    MoeRouterParams params;
    params.hidden = x.hidden;
    params.norm = x.norm.weight();
    params.epsilon = x.norm.epsilon();
    params.normalised = x.normalised;
    params.w = router.w;
    params.bias = router.bias;
    params.routed = scratch.routed;
    return fused_router_.Run(params, step.stream);
  }
  INLAY_RETURN_IF_ERROR(x.Normalise(step.stream));
  TensorView input = x.normalised;
  if (router_norm_.present()) {
    input = scratch.routed_by;
    INLAY_RETURN_IF_ERROR(router_norm_.Forward(
        routes_ahead_ ? step.layer_input : x.hidden, input, step.stream));
  }
  INLAY_RETURN_IF_ERROR(router_.Forward(input, {}, scratch.logits,
                                        step.kernel_workspace, step.stream));
  if (router_scale_ != 1.0f) {
    ElementwiseParams scale;
    scale.y = scratch.logits;
    scale.value = router_scale_;
    INLAY_RETURN_IF_ERROR(scale_logits_.Run(scale, step.stream));
  }
  if (router_softcap_ != 0.0f) {
    ElementwiseParams cap;
    cap.y = scratch.logits;
    cap.value = router_softcap_;
    INLAY_RETURN_IF_ERROR(cap_logits_.Run(cap, step.stream));
  }
  RoutingParams routed = scratch.routed;
  routed.ids = step.device.ids;
  return routing_.Run(routed, step.stream);
}

absl::Status Moe::RunExperts(const Step& step, const TensorView& x,
                             const Scratch& scratch) const {
  if (cache_.present()) {
    INLAY_RETURN_IF_ERROR(cache_.Fetch(scratch.routed, step.stream));
  }
  const RowRounding rounding = rounded_.row == nullptr
                                   ? RowRounding::kNone
                                   : output_.RoundingOf(scratch.inner.rows());
  int64_t column = 0;
  for (const ExpertLinear& input : input_) {
    INLAY_RETURN_IF_ERROR(input.Forward(
        x, scratch.routed, ColumnSlice(scratch.inner, column, input.outputs()),
        step.kernel_workspace, step.stream, rounding == RowRounding::kNone));
    column += input.outputs();
  }
  // Gate and up are linear: their outputs instead of their input.
  if (input_weights_ >= 0) {
    const RopeAngles& unit = step.angles[static_cast<size_t>(input_weights_)];
    INLAY_RETURN_IF_ERROR(weigh_inputs_.Forward(
        scratch.inner, scratch.routed.weights, unit.sin, step.stream));
  }
  return RunOutputs(step, scratch, rounding);
}

absl::Status Moe::RunOutputs(const Step& step, const Scratch& scratch,
                             RowRounding rounding) const {
  if (rounding != RowRounding::kNone) {
    RoundingParams round;
    round.rounding = rounding;
    round.x = round.codes = scratch.inner;
    round.codes.dtype = RoundingDType(rounding);
    round.codes.dims[1] = rounded_.desc.width;
    round.scales = scratch.inner_scales;
    INLAY_RETURN_IF_ERROR(rounded_.Run(round, step.stream));
    return output_.ForwardRounded({round.codes, round.scales}, scratch.routed,
                                  scratch.output, step.kernel_workspace,
                                  step.stream);
  }
  ActivationParams activate;
  activate.x = scratch.inner;
  activate.y = ColumnSlice(scratch.inner, 0, activation_.desc.width);
  if (!input_.front().gated()) {
    INLAY_RETURN_IF_ERROR(activation_.Run(activate, step.stream));
  }
  return output_.Forward(activate.y, scratch.routed, scratch.output,
                         step.kernel_workspace, step.stream);
}

const float* Moe::OutputWeights(const Step& step,
                                const Scratch& scratch) const {
  if (input_weights_ < 0) return scratch.routed.weights;
  return step.angles[static_cast<size_t>(input_weights_)].cos;
}

absl::Status Moe::RunShared(const Step& step, const TensorView& x,
                            const Scratch& scratch) const {
  if (shared_gated_) {
    INLAY_RETURN_IF_ERROR(shared_gate_.Forward(
        x, {}, scratch.gate, step.kernel_workspace, step.stream));
  }
  Step inner = step;
  inner.scratch = scratch.rest;
  return shared_->Forward(inner, {Norm::None(), x, x}, {}, scratch.shared);
}

bool Moe::Describe(LinearChainDesc* desc) const {
  const bool routes_plainly =
      !router_norm_.present() && scores_plain_logits() && table_ == nullptr &&
      !router_.is_packed() &&
      (correction_ == nullptr || routing_.desc.score == RoutingScore::kSigmoid);
  if (identity_.row != nullptr || !routes_plainly || cache_.present() ||
      latents_.present() || has_bias_ || input_weights_ >= 0 ||
      !activation_.desc.gated || input_.size() != 1 ||
      !input_.front().may_chain() || !output_.may_chain()) {
    return false;
  }
  desc->routing = routing_.desc;
  desc->router = router_.desc().weight;
  LinearChainStage& input = desc->stages.emplace_back();
  input.gemm = input_.front().desc();
  input.experts = ChainExperts::kInput;
  input.normalised = true;
  input.gated = true;
  input.function = activation_.desc.function;
  input.limit = activation_.desc.limit;
  LinearChainStage& output = desc->stages.emplace_back();
  output.gemm = output_.desc();
  output.experts = ChainExperts::kOutput;
  desc->outputs_biased = output_.bias() != nullptr;
  output.adds = true;
  return shared_ == nullptr || DescribeShared(desc);
}

bool Moe::DescribeShared(LinearChainDesc* desc) const {
  LinearChainDesc own;
  if (shared_chained_ == nullptr || !shared_chained_->Describe(&own)) {
    return false;
  }
  const LinearChainStage& input = own.stages[0];
  const GemmDesc& output = own.stages[1].gemm;
  const size_t first = desc->stages.size() - 2;
  desc->shared_width = output.k;
  desc->shared_gated = shared_gated_;
  return !input.gemm.permuted && !output.permuted &&
         input.gemm.weight == desc->stages[first].gemm.weight &&
         output.weight == desc->stages[first + 1].gemm.weight &&
         input.function == desc->stages[first].function &&
         input.limit == desc->stages[first].limit &&
         input.gemm.n == 2 * output.k &&
         (!shared_gated_ || (!shared_gate_.is_packed() &&
                             shared_gate_.desc().weight == desc->router));
}

void Moe::FillShared(const Step& step, LinearChainParams* params) const {
  LinearChainParams own;
  shared_chained_->Fill(step, 1, Norm::None(), &own);
  params->shared_input = own.stages[0].w;
  params->shared_output = own.stages[1].w;
  if (shared_gated_) params->shared_gate = shared_gate_.Params({}, {}, {}).w;
}

void Moe::Fill(const Step& step, int64_t tokens, const Norm& norm,
               LinearChainParams* params) const {
  const GemmParams router = router_.Params({}, {}, {});
  params->router = router.w;
  params->router_bias = router.bias;
  params->correction = correction_;
  if (shared_ != nullptr) FillShared(step, params);
  Arena arena(step.scratch);
  const TensorView inner = Place(arena, tokens).chained;
  LinearChainParams::Stage& input = params->stages.emplace_back();
  input.w = input_.front().matrices();
  input.bias = input_.front().bias();
  input.y = MatrixView(inner.data, inner.dtype, tokens,
                       tokens * routing_.desc.top_k * activation_.desc.width +
                           alone_.desc.shared_width);
  SetNorm(norm, &input);
  LinearChainParams::Stage& output = params->stages.emplace_back();
  output.w = output_.matrices();
  output.bias = output_.bias();
}

absl::Status Moe::ForwardLatents(const Step& step, const TensorView& x,
                                 const TensorView& residual,
                                 const TensorView& y,
                                 const Scratch& scratch) const {
  INLAY_RETURN_IF_ERROR(latents_.Down(step, x, scratch.latents));
  // Last of all that reads x, which y may be.
  if (shared_ != nullptr) {
    Step inner = step;
    inner.scratch = scratch.rest;
    INLAY_RETURN_IF_ERROR(
        shared_->Forward(inner, {Norm::None(), x, x}, residual, y));
  }
  INLAY_RETURN_IF_ERROR(RunExperts(step, scratch.latents.narrow, scratch));
  MoeCombineParams combine;
  combine.x = scratch.output;
  combine.weights = OutputWeights(step, scratch);
  combine.y = scratch.latents.sum;
  INLAY_RETURN_IF_ERROR(combine_.Run(combine, step.stream));
  return latents_.Up(step, scratch.latents, shared_ == nullptr ? residual : y,
                     y);
}

absl::Status Moe::Forward(const Step& step, const BlockInput& x,
                          const TensorView& residual,
                          const TensorView& y) const {
  if (RunsAlone(x, residual, y)) {
    LinearChainParams params;
    params.hidden = y;
    params.exchange = step.device.exchange;
    Fill(step, y.rows(), x.norm, &params);
    return alone_.Run(params, step.stream);
  }
  Arena arena(step.scratch);
  const Scratch scratch = Place(arena, x.hidden.rows());
  INLAY_RETURN_IF_ERROR(Route(step, x, scratch));
  if (latents_.present()) {
    return ForwardLatents(step, x.normalised, residual, y, scratch);
  }
  if (shared_ != nullptr) {
    INLAY_RETURN_IF_ERROR(RunShared(step, x.normalised, scratch));
  }
  INLAY_RETURN_IF_ERROR(RunExperts(step, x.normalised, scratch));
  if (identity_.row != nullptr) {
    INLAY_RETURN_IF_ERROR(identity_.Run(
        {x.normalised, scratch.routed.experts, scratch.output}, step.stream));
  }
  MoeCombineParams combine;
  combine.x = scratch.output;
  combine.weights = OutputWeights(step, scratch);
  combine.shared = scratch.shared;
  if (has_bias_) {
    combine.shared = MatrixView(const_cast<float*>(bias_), DType::kF32,
                                y.rows(), combine_.desc.width);
    combine.shared.row_stride_bytes = 0;
  }
  combine.gate = scratch.gate;
  combine.residual = residual;
  combine.y = y;
  return combine_.Run(combine, step.stream);
}

}  // namespace inlay
