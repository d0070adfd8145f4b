#include "core/model/layers/recurrent.h"

#include <algorithm>
#include <utility>

#include "core/model/layers/attention_block.h"
#include "core/model/layers/delta_block.h"
#include "core/model/layers/lightning_block.h"
#include "core/model/layers/lru_block.h"
#include "core/model/layers/mamba_block.h"
#include "core/model/layers/selective_block.h"
#include "core/model/layers/shifted_mlp.h"
#include "core/model/layers/short_conv_block.h"
#include "core/model/layers/time_mix_block.h"
#include "memory/status.h"

namespace inlay {
namespace {

// Both read the input as it comes out of the norm.
class AttentionMamba : public Sublayer {
 public:
  AttentionMamba(std::unique_ptr<Sublayer> attention,
                 std::unique_ptr<Sublayer> mamba)
      : attention_(std::move(attention)), mamba_(std::move(mamba)) {}

  size_t ScratchBytes(int64_t tokens) const override {
    return std::max(attention_->ScratchBytes(tokens),
                    mamba_->ScratchBytes(tokens));
  }
  size_t KernelBytes(int64_t tokens, int64_t sequences) const override {
    return std::max(attention_->KernelBytes(tokens, sequences),
                    mamba_->KernelBytes(tokens, sequences));
  }
  absl::Status Forward(const Step& step, const BlockInput& x,
                       const TensorView& residual,
                       const TensorView& y) const override {
    INLAY_RETURN_IF_ERROR(x.Normalise(step.stream));
    const BlockInput both = {none_, x.normalised, x.normalised};
    INLAY_RETURN_IF_ERROR(mamba_->Forward(step, both, residual, y));
    return attention_->Forward(step, both, y, y);
  }

 private:
  const Norm none_;
  std::unique_ptr<Sublayer> attention_;
  std::unique_ptr<Sublayer> mamba_;
};

absl::StatusOr<std::unique_ptr<Sublayer>> CreateBoth(
    const AttentionMambaSpec& spec, const KvStateView& state,
    const RecurrentPlace& place, ModelBuild& build) {
  const Norm none;
  const int rope = spec.attention.rope;
  INLAY_ASSIGN_OR_RETURN(
      auto attention,
      AttentionBlock::Create(
          spec.attention, none, place.layout.LayerView(place.kv_layer, nullptr),
          place.summaries, place.layout.group_of(place.kv_layer),
          rope < 0 ? 0 : place.ropes[static_cast<size_t>(rope)].rotary_dim,
          build));
  INLAY_ASSIGN_OR_RETURN(auto mamba,
                         MambaBlock::Create(spec.mamba, none, state, build));
  return std::make_unique<AttentionMamba>(std::move(attention),
                                          std::move(mamba));
}

}  // namespace

size_t LayerState::Align(int64_t floats) {
  constexpr size_t kLine = 64;
  return (static_cast<size_t>(floats) * sizeof(float) + kLine - 1) / kLine *
         kLine;
}

StateParams LayerState::At(const Step& step, int64_t offset) const {
  StateParams params;
  params.sequences = step.batch.SequencesOf(step.batch.num_groups - 1);
  params.sources = step.batch.state_sources.data();
  params.state = view_;
  params.state.base = step.batch.kv_base;
  params.state.offset_bytes += offset;
  params.plan = &step.device.states;
  return params;
}

const AttentionSpec* AttentionOf(const PartSpec& part) {
  if (const auto* both = std::get_if<AttentionMambaSpec>(&part)) {
    return &both->attention;
  }
  if (const auto* shared = std::get_if<SharedTransformerSpec>(&part)) {
    return &shared->attention;
  }
  return std::get_if<AttentionSpec>(&part);
}

size_t StateBytes(const PartSpec& part) {
  if (const auto* conv = std::get_if<ShortConvSpec>(&part)) {
    return LayerState::Bytes(ShortConvBlock::ConvFloats(*conv), 0);
  }
  if (const auto* delta = std::get_if<DeltaSpec>(&part)) {
    return LayerState::Bytes(DeltaBlock::ConvFloats(*delta),
                             DeltaBlock::MatrixFloats(*delta));
  }
  if (const auto* selective = std::get_if<SelectiveSpec>(&part)) {
    return LayerState::Bytes(SelectiveBlock::ConvFloats(*selective),
                             SelectiveBlock::ScanFloats(*selective));
  }
  if (const auto* lightning = std::get_if<LightningSpec>(&part)) {
    return LayerState::Bytes(0, LightningBlock::MatrixFloats(*lightning));
  }
  if (const auto* mix = std::get_if<TimeMixSpec>(&part)) {
    return LayerState::Bytes(TimeMixBlock::ShiftFloats(*mix),
                             TimeMixBlock::MatrixFloats(*mix));
  }
  if (const auto* shifted = std::get_if<ShiftedMlpSpec>(&part)) {
    return LayerState::Bytes(ShiftedMlp::ShiftFloats(*shifted), 0);
  }
  if (const auto* lru = std::get_if<LruSpec>(&part)) {
    return LayerState::Bytes(LruBlock::ConvFloats(*lru),
                             LruBlock::LruFloats(*lru));
  }
  const auto* mamba = std::get_if<MambaSpec>(&part);
  if (const auto* both = std::get_if<AttentionMambaSpec>(&part)) {
    mamba = &both->mamba;
  }
  if (mamba == nullptr) return 0;
  return LayerState::Bytes(MambaBlock::ConvFloats(*mamba),
                           MambaBlock::MatrixFloats(*mamba));
}

absl::StatusOr<std::unique_ptr<Sublayer>> CreateRecurrent(
    const PartSpec& part, const Norm& norm, const RecurrentPlace& place,
    ModelBuild& build) {
  const KvStateView state = place.layout.StateView(place.state_layer, nullptr);
  if (const auto* conv = std::get_if<ShortConvSpec>(&part)) {
    return ShortConvBlock::Create(*conv, norm, state, build);
  }
  if (const auto* mamba = std::get_if<MambaSpec>(&part)) {
    return MambaBlock::Create(*mamba, norm, state, build);
  }
  if (const auto* selective = std::get_if<SelectiveSpec>(&part)) {
    return SelectiveBlock::Create(*selective, norm, state, build);
  }
  if (const auto* delta = std::get_if<DeltaSpec>(&part)) {
    return DeltaBlock::Create(*delta, norm, state, build);
  }
  if (const auto* lightning = std::get_if<LightningSpec>(&part)) {
    return LightningBlock::Create(*lightning, state, build);
  }
  if (const auto* mix = std::get_if<TimeMixSpec>(&part)) {
    return TimeMixBlock::Create(*mix, state, build);
  }
  if (const auto* shifted = std::get_if<ShiftedMlpSpec>(&part)) {
    return ShiftedMlp::Create(*shifted, state, build);
  }
  if (const auto* lru = std::get_if<LruSpec>(&part)) {
    return LruBlock::Create(*lru, norm, state, build);
  }
  return CreateBoth(std::get<AttentionMambaSpec>(part), state, place, build);
}

}  // namespace inlay
