// AttentionBlock, as it is built: weights, and the kernels chosen for them.
#include <utility>
#include <vector>

#include "core/model/layers/attention_block.h"
#include "core/model/layers/distance_bias.h"
#include "kernels/attention/attention_mask.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {

absl::StatusOr<std::unique_ptr<Sublayer>> AttentionBlock::Create(
    const AttentionSpec& spec, const Norm& norm, const KvLayerView& kv,
    const KvLayerView& summaries, size_t kv_group, int rotary_dim,
    ModelBuild& build) {
  auto block = std::make_unique<AttentionBlock>();
  block->q_width_ = int64_t{spec.num_heads} * spec.head_dim;
  block->kv_width_ = int64_t{spec.num_kv_heads} * spec.head_dim;
  block->head_dim_ = spec.head_dim;
  block->rope_index_ = spec.rope;
  block->activation_ = build.activation;
  block->on_cpu_ = build.on_cpu();
  block->kv_ = kv;
  block->kv_group_ = kv_group;
  block->reads_other_kv_ = spec.kv_source >= 0;
  block->keys_as_values_ = spec.keys_as_values;
  INLAY_DCHECK(!spec.keys_as_values || spec.v_norm.kind != NormKind::kNone);
  if (!build.on_cpu()) block->ChooseRopeKv(spec, rotary_dim, build);
  INLAY_RETURN_IF_ERROR(block->LoadProjections(spec, norm, build));
  block->joint_norms_ = spec.joint_norms;
  block->norms_after_rope_ = spec.norms_after_rope;
  block->limit_ = spec.clip;
  INLAY_DCHECK(!spec.norms_after_rope || spec.clip == 0.0f);
  block->chunk_ = spec.chunk;
  block->query_factor_ = spec.query_factor;
  block->has_pattern_ = build.attention_pattern.any() && spec.window == 0 &&
                        spec.chunk == 0 && !spec.block_index.has_value();
  build.has_pattern = build.has_pattern || block->has_pattern_;
  if (!spec.causal && spec.window > 0 && spec.window < build.max_positions) {
    block->reach_ = build.AddReach(spec.window);
  }
  if (spec.chunk % kv.block_size != 0) {
    return absl::InvalidArgumentError(FormattedString(
        "attention is cut into chunks of %d positions with KV blocks of %d "
        "tokens; chunks must be whole blocks",
        spec.chunk, kv.block_size));
  }
  const auto norm_of = [&](const NormSpec& norm_spec, int64_t all_heads) {
    return Norm::Create(norm_spec, spec.joint_norms ? all_heads : spec.head_dim,
                        build.activation, build.activation, build);
  };
  INLAY_ASSIGN_OR_RETURN(block->q_norm_, norm_of(spec.q_norm, block->q_width_));
  INLAY_ASSIGN_OR_RETURN(block->k_norm_,
                         norm_of(spec.k_norm, block->kv_width_));
  INLAY_ASSIGN_OR_RETURN(block->v_norm_,
                         norm_of(spec.v_norm, block->kv_width_));
  INLAY_ASSIGN_OR_RETURN(
      block->output_norm_,
      Norm::Create(spec.output_norm, spec.output.k, build.activation,
                   build.activation, build));
  INLAY_ASSIGN_OR_RETURN(block->query_channels_,
                         Norm::Channels(spec.query_channels, block->q_width_,
                                        build.activation, build));
  INLAY_DCHECK(spec.gate_channels.name.empty() ||
               (spec.gate_apart && !spec.head_gates));
  INLAY_ASSIGN_OR_RETURN(block->gate_channels_,
                         Norm::Channels(spec.gate_channels, block->q_width_,
                                        build.activation, build));
  if (!spec.sinks.empty()) {
    INLAY_ASSIGN_OR_RETURN(
        block->sinks_,
        build.weights.Vector(spec.sinks, spec.num_heads, VectorKind::kBias));
  }
  if (spec.alibi_scale != 0.0f) {
    block->has_bias_ = true;
    std::vector<float> slopes(static_cast<size_t>(spec.num_heads));
    FillAlibiSlopes(spec.num_heads, slopes.data());
    for (float& slope : slopes) slope *= spec.alibi_scale;
    INLAY_ASSIGN_OR_RETURN(block->alibi_slopes_,
                           build.weights.Constants(slopes));
  }
  if (spec.distance_bias.has_value()) {
    block->has_bias_ = true;
    INLAY_ASSIGN_OR_RETURN(
        block->bias_,
        LoadDistanceBias(*spec.distance_bias, spec.num_heads, build));
  }
  if (spec.relative.has_value()) {
    INLAY_DCHECK(!block->has_bias_ && spec.rope < 0 && spec.kv_source < 0);
    block->has_bias_ = true;
    INLAY_ASSIGN_OR_RETURN(block->relative_,
                           RelativePositions::Create(spec, block->qkv_, build));
  }
  if (build.block_selection.any() && CanSelectBlocks(spec)) {
    INLAY_ASSIGN_OR_RETURN(
        block->selector_,
        BlockSelector::Create(spec, kv, summaries, kv_group, build));
  }
  if (spec.block_index.has_value()) {
    INLAY_DCHECK(spec.causal && spec.window == 0 && spec.chunk == 0 &&
                 !block->has_bias_ && spec.kv_source < 0);
    INLAY_ASSIGN_OR_RETURN(
        block->index_,
        BlockIndex::Create(spec, norm, summaries, kv_group, rotary_dim, build));
  }
  INLAY_RETURN_IF_ERROR(block->ChooseKernels(spec, rotary_dim, build));
  INLAY_ASSIGN_OR_RETURN(block->gate_, OutputGate::Create(spec, build));
  INLAY_ASSIGN_OR_RETURN(block->values_, NarrowValues::Create(spec, build));
  if (!build.on_cpu()) {
    block->ChooseDecodeAttention(build);
    block->AddCut(build);
  }
  return std::unique_ptr<Sublayer>(std::move(block));
}

void AttentionBlock::ChooseRopeKv(const AttentionSpec& spec, int rotary_dim,
                                  const ModelBuild& build) {
  for (const char* op : {"rms_norm", "rope", "kv_write"}) {
    if (!build.fused || build.kernels.IsForced(op)) return;
  }
  if (spec.v_norm.kind != NormKind::kNone || reads_other_kv_) return;
  // The pass has norms before rope, and nothing between.
  if (spec.norms_after_rope || spec.clip > 0.0f) return;
  // RMS norms, of heads.
  for (const NormSpec* norm : {&spec.q_norm, &spec.k_norm}) {
    if (norm->kind != NormKind::kNone &&
        (spec.joint_norms || (norm->kind != NormKind::kRms &&
                              norm->kind != NormKind::kRmsZeroCentred))) {
      return;
    }
  }
  RopeKvDesc desc;
  desc.num_heads = spec.num_heads;
  desc.num_kv_heads = spec.num_kv_heads;
  desc.head_dim = spec.head_dim;
  desc.rotary_dim = spec.rope >= 0 ? rotary_dim : 0;
  desc.style = spec.rope_style;
  desc.q_norm = spec.q_norm.kind != NormKind::kNone;
  desc.k_norm = spec.k_norm.kind != NormKind::kNone;
  desc.kv = kv_.dtype;
  desc.activation = build.activation;
  auto op = build.kernels.Choose("rope_kv", RopeKvTable(), desc);
  if (op.ok()) rope_kv_ = *op;
}

absl::Status AttentionBlock::LoadProjections(const AttentionSpec& spec,
                                             const Norm& norm,
                                             ModelBuild& build) {
  const bool head_norms =
      !spec.joint_norms && (spec.q_norm.kind != NormKind::kNone ||
                            spec.k_norm.kind != NormKind::kNone);
  const bool plain = !reads_other_kv_ && spec.v_norm.kind == NormKind::kNone;
  // Norms of heads want heads side by side, but where they are of the pass.
  const bool may_stack = plain && (!head_norms || rope_kv_.row != nullptr);
  if (may_stack) {
    INLAY_ASSIGN_OR_RETURN(qkv_,
                           InputLinear::Create(spec.qkv, norm, nullptr, build));
  } else {
    std::vector<Linear> layers;
    for (const LinearSpec& linear : spec.qkv) {
      INLAY_ASSIGN_OR_RETURN(
          layers.emplace_back(),
          Linear::Create(linear, LinearOutput::kActivation, build));
    }
    qkv_ = InputLinear::Over(std::move(layers));
  }
  side_by_side_ = (qkv_.is_one() && !reads_other_kv_) || may_stack;
  if (!side_by_side_) rope_kv_.row = nullptr;
  INLAY_ASSIGN_OR_RETURN(
      output_, Linear::Create(spec.output, LinearOutput::kFloat, build));
  return absl::OkStatus();
}

absl::Status AttentionBlock::ChooseKernels(const AttentionSpec& spec,
                                           int rotary_dim, ModelBuild& build) {
  if (spec.rope >= 0) {
    RopeDesc desc;
    // Side by side, heads of q and of k are turned in one go.
    desc.num_heads = spec.num_heads + (side_by_side_ ? spec.num_kv_heads : 0);
    desc.head_dim = spec.head_dim;
    desc.rotary_dim = rotary_dim;
    desc.style = spec.rope_style;
    desc.activation = build.activation;
    INLAY_ASSIGN_OR_RETURN(q_rope_,
                           build.kernels.Choose("rope", RopeTable(), desc));
    desc.num_heads = spec.num_kv_heads;
    INLAY_ASSIGN_OR_RETURN(k_rope_,
                           build.kernels.Choose("rope", RopeTable(), desc));
  }
  if (spec.clip > 0.0f) {
    const auto clip = [&](int64_t width) {
      return build.kernels.Choose(
          "elementwise", ElementwiseTable(),
          ElementwiseDesc{Elementwise::kClamp, width, build.activation});
    };
    INLAY_ASSIGN_OR_RETURN(clip_qkv_, clip(q_width_ + 2 * kv_width_));
    INLAY_ASSIGN_OR_RETURN(clip_q_, clip(q_width_));
    INLAY_ASSIGN_OR_RETURN(clip_kv_, clip(kv_width_));
  }
  if (spec.query_factor >= 0) {
    INLAY_ASSIGN_OR_RETURN(scale_queries_, RowScale::Create(q_width_, build));
  }
  KvWriteDesc write;
  write.num_kv_heads = spec.num_kv_heads;
  write.head_dim = spec.head_dim;
  write.kv = kv_.dtype;
  write.activation = build.activation;
  INLAY_ASSIGN_OR_RETURN(
      kv_write_, build.kernels.Choose("kv_write", KvWriteTable(), write));
  AttentionDesc attention;
  attention.num_heads = spec.num_heads;
  attention.num_kv_heads = spec.num_kv_heads;
  attention.head_dim = spec.head_dim;
  attention.kv = kv_.dtype;
  attention.activation = build.activation;
  attention.scale = spec.scale;
  attention.softcap = spec.softcap;
  attention.window = spec.causal ? spec.window : 0;
  attention.causal = spec.causal;
  selector_.Describe(attention);
  index_.Describe(attention);
  INLAY_ASSIGN_OR_RETURN(
      attention_,
      build.kernels.Choose("attention", AttentionTable(), attention));
  if (spec.distance_bias.has_value()) {
    INLAY_DCHECK(spec.alibi_scale == 0.0f);
    INLAY_ASSIGN_OR_RETURN(
        biased_attention_,
        build.kernels.Choose("biased_attention", BiasedAttentionTable(),
                             attention));
  }
  if (spec.relative.has_value()) {
    INLAY_ASSIGN_OR_RETURN(
        disentangled_attention_,
        build.kernels.Choose("disentangled_attention",
                             DisentangledAttentionTable(), attention));
  }
  return absl::OkStatus();
}

void AttentionBlock::ChooseDecodeAttention(const ModelBuild& build) {
  if (rope_kv_.row == nullptr || build.batch_invariant ||
      build.kernels.IsForced("attention") ||
      build.kernels.IsForced("rope_kv") || has_pattern_ || reach_ >= 0 ||
      chunk_ > 0 || query_factor_ >= 0 || query_channels_.present() ||
      selects() || has_bias_) {
    return;
  }
  auto op = build.kernels.Choose("decode_attention", DecodeAttentionTable(),
                                 {rope_kv_.desc, attention_.desc});
  if (op.ok()) decode_attention_ = *std::move(op);
}

void AttentionBlock::AddCut(ModelBuild& build) {
  const int num_sms = build.kernels.device().num_sms;
  const AttentionDesc& desc = attention_.desc;
  if (disentangled_attention_.row != nullptr) {
    cut_shape_ = MakeDisentangledAttentionPlanShape(
        *disentangled_attention_.row, desc, kv_.block_size, num_sms);
  } else if (biased_attention_.row != nullptr) {
    cut_shape_ = MakeBiasedAttentionPlanShape(*biased_attention_.row, desc,
                                              kv_.block_size, num_sms);
  } else {
    cut_shape_ =
        MakeAttentionPlanShape(*attention_.row, desc, kv_.block_size, num_sms);
  }
  if (decode_attention_.row != nullptr) {
    cut_shape_.few =
        DecodeAttentionLimits(decode_attention_.desc, build.kernels.device());
  }
  // What is shared has neither.
  if (has_pattern_ || reach_ >= 0 || has_bias_) cut_shape_.prefix_units = 0;
  cut_ = build.AddCut(cut());
  cut_shape_ = build.cuts[cut_].shape;
}

}  // namespace inlay
