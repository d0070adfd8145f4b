#include <algorithm>
#include <numeric>
#include <utility>

#include "core/model/decoder.h"
#include "core/model/decoder_impl.h"
#include "core/model/embedder.h"
#include "core/model/layers/attention_block.h"
#include "core/model/layers/block_selector.h"
#include "core/model/layers/compressed_attention.h"
#include "core/model/layers/gated_input.h"
#include "core/model/layers/latent_attention.h"
#include "core/model/layers/mlp.h"
#include "core/model/layers/mlp_moe.h"
#include "core/model/layers/moe.h"
#include "core/model/layers/per_layer.h"
#include "core/model/layers/recurrent.h"
#include "memory/status.h"

namespace inlay {
namespace {

// `spec` without tied_head, as the files have it.
absl::StatusOr<DecoderSpec> WithSettledHead(const DecoderSpec& spec,
                                            const WeightLoader& weights) {
  DecoderSpec settled = spec;
  const std::string head = std::exchange(settled.tied_head, {});
  const std::string matrix = head + ".weight";
  if (weights.Has(matrix)) {
    bool is_same = true;
    if (weights.Has(spec.embedding)) {
      INLAY_ASSIGN_OR_RETURN(is_same, weights.AreEqual(spec.embedding, matrix));
    } else {
      settled.embedding = matrix;
    }
    if (!is_same) settled.head = head;
  }
  if (settled.head.empty() && std::exchange(settled.head_bias, false)) {
    settled.tied_bias = head + ".bias";
  }
  return settled;
}

}  // namespace

void Decoder::DescribeLayout(const DecoderSpec& spec, const ModelBuild& build) {
  info_.architecture = build.architecture;
  info_.model_type = build.model_type;
  info_.vocab_size = spec.vocab_size;
  info_.hidden_size = spec.hidden_size;
  info_.stream_width = spec.hidden_size;
  if (spec.streams.has_value()) info_.stream_width *= spec.streams->count;
  if (spec.altup.has_value()) info_.stream_width *= spec.altup->count;
  info_.num_layers = static_cast<int>(spec.layers.size());
  info_.max_positions = spec.max_positions;
  info_.is_encoder = spec.is_encoder;
  info_.is_headless = spec.headless && !spec.is_encoder;
  info_.num_segments = spec.num_segments;
  if (spec.classifier.has_value()) {
    info_.num_labels = spec.classifier->output.n;
    info_.labels_of_mean = spec.classifier->of_mean;
  }
  if (!spec.pooled.empty()) info_.pooled_width = spec.pooled.back().linear.n;
  std::vector<size_t> states;
  int index_block = 1;  // divides the blocks of the cache
  for (const LayerSpec& layer : spec.layers) {
    for (const BlockSpec& block : layer.blocks) {
      const size_t state = StateBytes(block.part);
      if (state > 0) states.push_back(state);
      if (const auto* mix = std::get_if<TimeMixSpec>(&block.part)) {
        INLAY_DCHECK(mix->first == (info_.first_values == 0));
        info_.first_values = mix->width();
      }
      const AttentionSpec* attention = AttentionOf(block.part);
      if (attention != nullptr && attention->kv_source < 0) {
        // A window that no sequence outgrows is none; nor is one both ways,
        // which a step's last tokens see beyond.
        const int64_t reach = attention->chunk > 0 ? attention->chunk
                              : attention->causal  ? attention->window
                                                   : 0;
        const int64_t window = reach < spec.max_positions ? reach : 0;
        info_.kv_layers.push_back(
            {attention->num_kv_heads, attention->head_dim, window});
        if (attention->block_index.has_value()) {
          const int dim = attention->block_index->head_dim;
          info_.kv_layers.push_back({1, dim, 0, dim});
          index_block = std::max(index_block, attention->block_index->block);
        }
      }
      if (const auto* mixed = std::get_if<AttentionExpertsSpec>(&block.part)) {
        info_.kv_layers.push_back({mixed->num_kv_heads, mixed->head_dim});
      }
      if (const auto* latent = std::get_if<LatentAttentionSpec>(&block.part)) {
        for (const KvLayerShape& shape :
             LatentAttention::KvLayers(*latent, spec.max_positions)) {
          info_.kv_layers.push_back(shape);
        }
        selects_ = std::max(selects_, latent->selection_width());
        const bool shares = latent->selects > 0 && !latent->indexer.has_value();
        if (shares) info_.shared_selection = latent->selection_width();
      }
      if (const auto* compressed =
              std::get_if<CompressedAttentionSpec>(&block.part)) {
        for (const KvLayerShape& shape :
             CompressedAttention::KvLayers(*compressed, spec.max_positions)) {
          info_.kv_layers.push_back(shape);
        }
      }
    }
  }
  AddSummaries(spec, build);
  device_ = &build.weights.device();
  activation_ = build.activation;
  info_.hidden_dtype = build.activation;
  kv_layout_ = KvLayout(info_.kv_layers, build.kv_dtype,
                        std::lcm(build.kv_block_size, index_block), states);
  for (size_t layer = 0; layer < summary_layers_.size(); ++layer) {
    if (summary_layers_[layer] < 0) continue;
    indexed_groups_.resize(kv_layout_.num_groups(), 0);
    indexed_groups_[kv_layout_.group_of(static_cast<int>(layer))] = 1;
  }
  ropes_ = RopeTables(spec.ropes);
  info_.rope_threshold = ropes_.threshold();
}

// Summaries of blocks are layers of their own, behind all others.
void Decoder::AddSummaries(const DecoderSpec& spec, const ModelBuild& build) {
  summary_layers_.assign(info_.kv_layers.size(), -1);
  if (!build.block_selection.any()) return;
  size_t kv_layer = 0;
  for (const LayerSpec& layer : spec.layers) {
    for (const BlockSpec& block : layer.blocks) {
      if (std::holds_alternative<AttentionExpertsSpec>(block.part)) ++kv_layer;
      if (const auto* latent = std::get_if<LatentAttentionSpec>(&block.part)) {
        kv_layer += LatentAttention::KvLayers(*latent, 0).size();
      }
      if (const auto* compressed =
              std::get_if<CompressedAttentionSpec>(&block.part)) {
        kv_layer += CompressedAttention::KvLayers(*compressed, 0).size();
      }
      const AttentionSpec* attention = AttentionOf(block.part);
      if (attention == nullptr || attention->kv_source >= 0) continue;
      if (CanSelectBlocks(*attention)) {
        summary_layers_[kv_layer] = static_cast<int>(info_.kv_layers.size());
        info_.kv_layers.push_back(
            BlockSummaryShape(build.block_selection.method,
                              info_.kv_layers[kv_layer], build.kv_dtype));
      }
      kv_layer += attention->block_index.has_value() ? 2 : 1;
    }
  }
}

KvLayerView Decoder::SummariesOf(int kv_layer) const {
  const int layer = summary_layers_[static_cast<size_t>(kv_layer)];
  if (layer < 0) return KvLayerView();
  INLAY_DCHECK(kv_layout_.group_of(layer) == kv_layout_.group_of(kv_layer));
  return kv_layout_.LayerView(layer, nullptr);
}

absl::StatusOr<DecoderBlock> Decoder::BuildBlock(const DecoderSpec& spec,
                                                 const BlockSpec& block_spec,
                                                 const Norm* shared,
                                                 ModelBuild& build) {
  DecoderBlock block;
  if (shared == nullptr) {
    // Laurel adds what it gives, so that wants all of it.
    const DType output =
        block_spec.laurel.has_value() ? DType::kF32 : build.activation;
    INLAY_ASSIGN_OR_RETURN(block.pre_norm,
                           Norm::Create(block_spec.pre_norm, spec.hidden_size,
                                        DType::kF32, output, build));
  }
  INLAY_ASSIGN_OR_RETURN(block.post_norm,
                         Norm::Create(block_spec.post_norm, spec.hidden_size,
                                      DType::kF32, DType::kF32, build));
  INLAY_DCHECK(block_spec.stream_norm.kind == NormKind::kNone ||
               block.post_norm.present());
  INLAY_ASSIGN_OR_RETURN(block.stream_norm,
                         Norm::Create(block_spec.stream_norm, spec.hidden_size,
                                      DType::kF32, DType::kF32, build));
  INLAY_ASSIGN_OR_RETURN(block.sum_norm,
                         Norm::Create(block_spec.sum_norm, spec.hidden_size,
                                      DType::kF32, DType::kF32, build));
  block.post_norm_of_sum = block_spec.post_norm_of_sum;
  INLAY_DCHECK(!block.post_norm_of_sum || block.post_norm.present());
  block.scale = block_spec.scale;
  block.deferred = block_spec.deferred;
  block.aside = block_spec.aside;
  if (spec.streams.has_value()) {
    INLAY_DCHECK(!block.finishes() && !block.sum_norm.present());
    INLAY_ASSIGN_OR_RETURN(
        block.hyper, HyperConnection::Create(*spec.streams, block_spec.hyper,
                                             spec.hidden_size, false, build));
  }
  if (block_spec.laurel.has_value()) {
    INLAY_DCHECK(block.pre_norm.present() && block.post_norm.present() &&
                 block.scale == 1.0f && !block.sum_norm.present());
    INLAY_ASSIGN_OR_RETURN(block.laurel,
                           Laurel::Create(*block_spec.laurel, build));
  }
  const bool is_gated = block_spec.input_gate.has_value();
  INLAY_DCHECK(!is_gated || (shared == nullptr && block.pre_norm.present() &&
                             !block.laurel.present()));
  // What the part's projections can take the norm from.
  const bool is_shared =
      shared != nullptr || block.laurel.present() || is_gated;
  const Norm& norm = is_shared ? Norm::None() : block.pre_norm;
  if (const auto* part = std::get_if<AttentionSpec>(&block_spec.part)) {
    const int rotary_dim =
        part->rope < 0 ? 0
                       : spec.ropes[static_cast<size_t>(part->rope)].rotary_dim;
    INLAY_DCHECK(part->kv_source < next_kv_layer_);
    const int kv_layer =
        part->kv_source >= 0 ? part->kv_source : next_kv_layer_++;
    INLAY_ASSIGN_OR_RETURN(
        block.part, AttentionBlock::Create(
                        *part, norm, kv_layout_.LayerView(kv_layer, nullptr),
                        part->block_index.has_value() ? PlaceBlockIndex()
                                                      : SummariesOf(kv_layer),
                        kv_layout_.group_of(kv_layer), rotary_dim, build));
    block.attention = static_cast<const AttentionBlock*>(block.part.get());
  } else if (const auto* latent =
                 std::get_if<LatentAttentionSpec>(&block_spec.part)) {
    INLAY_ASSIGN_OR_RETURN(block.part, BuildLatent(*latent, build));
  } else if (const auto* compressed =
                 std::get_if<CompressedAttentionSpec>(&block_spec.part)) {
    INLAY_ASSIGN_OR_RETURN(block.part, BuildCompressed(*compressed, build));
  } else if (const auto* whole =
                 std::get_if<SharedTransformerSpec>(&block_spec.part)) {
    INLAY_ASSIGN_OR_RETURN(block.part, BuildShared(*whole, spec.ropes, build));
  } else if (const auto* mixed =
                 std::get_if<AttentionExpertsSpec>(&block_spec.part)) {
    INLAY_ASSIGN_OR_RETURN(block.part,
                           BuildAttentionExperts(*mixed, spec.ropes, build));
  } else if (StateBytes(block_spec.part) > 0) {
    RecurrentPlace place = {kv_layout_, spec.ropes, next_kv_layer_,
                            next_state_layer_++};
    if (AttentionOf(block_spec.part) != nullptr) {
      place.summaries = SummariesOf(next_kv_layer_);
    }
    INLAY_ASSIGN_OR_RETURN(
        block.part, CreateRecurrent(block_spec.part, norm, place, build));
    if (AttentionOf(block_spec.part) != nullptr) ++next_kv_layer_;
  } else if (const auto* moe = std::get_if<MoeSpec>(&block_spec.part)) {
    INLAY_ASSIGN_OR_RETURN(block.part,
                           Moe::Create(*moe, spec.hidden_size, build));
    block.mlp = static_cast<const Moe*>(block.part.get());
  } else if (const auto* both = std::get_if<MlpMoeSpec>(&block_spec.part)) {
    INLAY_DCHECK(block.post_norm.present());
    INLAY_ASSIGN_OR_RETURN(block.part,
                           MlpMoe::Create(*both, spec.hidden_size, build));
  } else if (const auto* slice = std::get_if<PerLayerSpec>(&block_spec.part)) {
    INLAY_ASSIGN_OR_RETURN(block.part, PerLayerBlock::Create(*slice, build));
  } else {
    INLAY_ASSIGN_OR_RETURN(
        block.part,
        Mlp::Create(std::get<MlpSpec>(block_spec.part), norm, build));
    block.mlp = static_cast<const Mlp*>(block.part.get());
  }
  block.mixer = block.part->mixer();
  if (is_gated) {
    block.attention = nullptr;
    block.mixer = nullptr;
    block.mlp = nullptr;
    INLAY_ASSIGN_OR_RETURN(block.part,
                           GatedInput::Create(*block_spec.input_gate,
                                              std::move(block.part), build));
  }
  return block;
}

void Decoder::BuildChains(const ModelBuild& build) {
  for (size_t i = layers_.size(); i-- > 0;) {
    DecoderLayer& layer = layers_[i];
    if (!layer.is_plain()) continue;
    LayerChain::Normalised<TokenMixer> next;
    // Begins only what goes on in a chain itself.
    if (i + 1 < layers_.size() && layers_[i + 1].chain.Serves(1)) {
      const DecoderBlock& block = layers_[i + 1].blocks[0];
      next = {&block.pre_norm, block.mixer};
    }
    layer.chain = LayerChain(*layer.blocks[0].mixer,
                             {&layer.blocks[1].pre_norm, layer.blocks[1].mlp},
                             next, build);
  }
}

bool Decoder::CanNarrow(const ModelBuild& build) const {
  // Who observes inputs wants all of them.
  if (build.input_observer != nullptr || hyper_head_.present() ||
      altup_.present() || !final_norm_.present() || layers_.empty()) {
    return false;
  }
  const DecoderLayer& last = layers_.back();
  return !last.parallel && last.blocks.size() > 1 &&
         !last.blocks.back().hyper.present() &&
         last.blocks.back().part->by_rows();
}

absl::Status Decoder::BuildLayers(const DecoderSpec& spec, ModelBuild& build) {
  for (const LayerSpec& layer_spec : spec.layers) {
    DecoderLayer& layer = layers_.emplace_back();
    layer.parallel = layer_spec.parallel;
    INLAY_ASSIGN_OR_RETURN(layer.loop_norm,
                           Norm::Create(layer_spec.loop_norm, spec.hidden_size,
                                        DType::kF32, DType::kF32, build));
    layer.begins_loop = layer_spec.begins_loop;
    loops_ |= layer.loop_norm.present();
    INLAY_DCHECK(!layer.loop_norm.present() ||
                 !(spec.streams.has_value() || spec.altup.has_value()));
    const bool shares = layer_spec.pre_norm.kind != NormKind::kNone;
    INLAY_DCHECK(!shares || layer.parallel);
    if (shares) {
      INLAY_ASSIGN_OR_RETURN(
          layer.pre_norm, Norm::Create(layer_spec.pre_norm, spec.hidden_size,
                                       DType::kF32, build.activation, build));
    }
    for (const BlockSpec& block_spec : layer_spec.blocks) {
      INLAY_ASSIGN_OR_RETURN(
          DecoderBlock block,
          BuildBlock(spec, block_spec, shares ? &layer.pre_norm : nullptr,
                     build));
      INLAY_DCHECK(!layer.parallel ||
                   !(block.finishes() || block.sum_norm.present()));
      INLAY_DCHECK(!(block.deferred || block.aside) ||
                   !(layer.parallel || layer.defers || block.finishes() ||
                     block.sum_norm.present() || block.laurel.present() ||
                     block.hyper.present()));
      needs_output_ |=
          layer.parallel || block.finishes() || block.hyper.present();
      const auto* moe = std::get_if<MoeSpec>(&block_spec.part);
      layer.keeps_input |= moe != nullptr && moe->routes_ahead;
      layer.defers |= block.deferred;
      defers_ |= block.deferred || block.aside;
      layer.blocks.push_back(std::move(block));
    }
    INLAY_DCHECK(!layer.blocks.back().deferred && !layer.blocks.back().aside);
    INLAY_DCHECK(!layer.keeps_input ||
                 !(layer.parallel || spec.streams.has_value() ||
                   spec.altup.has_value()));
    keeps_inputs_ |= layer.keeps_input;
    if (!layer_spec.scale.empty()) {
      INLAY_ASSIGN_OR_RETURN(layer.scale,
                             build.weights.Scalar(layer_spec.scale));
    }
    if (!spec.altup.has_value()) continue;
    INLAY_DCHECK(!layer.parallel && layer.scale == 1.0f &&
                 layer.blocks.back().post_norm.present());
    INLAY_ASSIGN_OR_RETURN(layer.altup,
                           AltUpLayer::Create(*spec.altup, layer_spec.altup,
                                              spec.hidden_size, build));
  }
  return absl::OkStatus();
}

absl::Status Decoder::FillTables() const {
  std::vector<const AttentionBlock*> blocks;
  size_t bytes = 0;
  for (const DecoderLayer& layer : layers_) {
    for (const DecoderBlock& block : layer.blocks) {
      if (block.attention == nullptr) continue;
      const size_t wanted = block.attention->TableScratchBytes();
      if (wanted > 0) blocks.push_back(block.attention);
      bytes = std::max(bytes, wanted);
    }
  }
  if (blocks.empty()) return absl::OkStatus();
  INLAY_ASSIGN_OR_RETURN(
      const Buffer memory,
      device_->Allocate(bytes + kScratchAlignment, MemoryClass::kWorkspace));
  INLAY_ASSIGN_OR_RETURN(const std::unique_ptr<Stream> stream,
                         device_->CreateStream());
  INLAY_RETURN_IF_ERROR(Prepare(*stream));
  const DeviceScope scope(*device_);
  std::byte* const scratch =
      memory.data() +
      (-reinterpret_cast<uintptr_t>(memory.data())) % kScratchAlignment;
  absl::Status status;
  for (const AttentionBlock* block : blocks) {
    status.Update(block->FillTables(scratch, *stream));
  }
  // Before the scratch is gone, whatever became of the work.
  status.Update(stream->Synchronize());
  return status;
}

absl::StatusOr<std::unique_ptr<Model>> Decoder::Build(const DecoderSpec& spec,
                                                      ModelBuild& build) {
  build.weights.set_optional_prefix(spec.optional_prefix);
  if (spec.shares_layers) build.weights.ShareRepeated();
  if (!spec.tied_head.empty()) {
    INLAY_ASSIGN_OR_RETURN(const DecoderSpec settled,
                           WithSettledHead(spec, build.weights));
    return Build(settled, build);
  }
  if (build.described != nullptr) *build.described = spec;
  auto decoder = std::make_unique<Decoder>();
  build.max_positions = spec.max_positions;
  decoder->DescribeLayout(spec, build);
  INLAY_RETURN_IF_ERROR(decoder->BuildLayers(spec, build));
  decoder->BuildChains(build);
  INLAY_RETURN_IF_ERROR(decoder->BuildEnds(spec, build));
  INLAY_RETURN_IF_ERROR(decoder->BuildNarrowed(build));
  if (build.attention_pattern.any() && !build.has_pattern) {
    return absl::InvalidArgumentError(
        "attention_pattern: no layer of this model sees all tokens before it");
  }
  if (build.block_selection.any() &&
      decoder->info_.kv_layers.size() == decoder->summary_layers_.size()) {
    return absl::UnimplementedError(
        "block_selection: no layer of this model selects blocks; those do that "
        "see all tokens before a token and have keys of their own heads (not "
        "latent attention, encoders, windows or recurrent layers)");
  }
  decoder->pattern_ = build.attention_pattern;
  decoder->reaches_ = build.reaches;
  decoder->cuts_ = build.cuts;
  INLAY_RETURN_IF_ERROR(decoder->ropes_.LoadScales(spec.ropes, build.weights));
  if (!build.on_cpu()) {
    INLAY_RETURN_IF_ERROR(decoder->ropes_.MoveTo(build.weights));
  }
  INLAY_ASSIGN_OR_RETURN(decoder->storage_, build.weights.TakeStorage());
  if (build.weights.mode() == WeightLoader::Mode::kLoad) {
    INLAY_RETURN_IF_ERROR(decoder->FillTables());
  }
  return std::unique_ptr<Model>(std::move(decoder));
}

absl::StatusOr<std::unique_ptr<Model>> BuildDecoder(const DecoderSpec& spec,
                                                    ModelBuild& build) {
  DecoderSpec embedder = spec;
  if (build.sees_both_ways && !spec.is_encoder) {
    INLAY_RETURN_IF_ERROR(SeeBothWays("is_causal", &embedder));
  }
  if (build.is_bare) INLAY_RETURN_IF_ERROR(DropHead(&embedder));
  INLAY_RETURN_IF_ERROR(AddDense(build.dense, &embedder));
  return Decoder::Build(embedder, build);
}

}  // namespace inlay
