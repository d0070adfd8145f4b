// Parts of a decoder whose place in the cache takes more than a line.
#include <vector>

#include "core/model/decoder_impl.h"
#include "core/model/layers/attention_experts.h"
#include "core/model/layers/compressed_attention.h"
#include "core/model/layers/latent_attention.h"
#include "core/model/layers/shared_transformer.h"
#include "memory/status.h"

namespace inlay {

absl::StatusOr<std::unique_ptr<Sublayer>> Decoder::BuildLatent(
    const LatentAttentionSpec& spec, ModelBuild& build) {
  INLAY_DCHECK(spec.selects == 0 || spec.selection_width() == selects_);
  INLAY_DCHECK(spec.kv_source < next_kv_layer_);
  const auto place_of = [&](int layer) -> KvPlace {
    return {kv_layout_.LayerView(layer, nullptr), kv_layout_.group_of(layer)};
  };
  const KvPlace rows =
      place_of(spec.kv_source >= 0 ? spec.kv_source : next_kv_layer_++);
  std::vector<KvPlace> index;
  if (spec.indexer.has_value()) {
    for (size_t i = 0; i < Indexer::KvLayers(*spec.indexer, 0).size(); ++i) {
      index.push_back(place_of(next_kv_layer_++));
      indexed_groups_.resize(kv_layout_.num_groups(), 0);
      indexed_groups_[index.back().group] = 1;
    }
    // What it selects are places of keys, which are taken for those of rows.
    INLAY_DCHECK(index.back().group == rows.group &&
                 index.back().view.block_size * spec.select_block ==
                     rows.view.block_size);
  }
  return LatentAttention::Create(spec, rows, index, build);
}

absl::StatusOr<std::unique_ptr<Sublayer>> Decoder::BuildCompressed(
    const CompressedAttentionSpec& spec, ModelBuild& build) {
  std::vector<KvPlace> places;
  for (size_t i = 0; i < CompressedAttention::KvLayers(spec, 0).size(); ++i) {
    const int layer = next_kv_layer_++;
    const size_t group = kv_layout_.group_of(layer);
    places.push_back({kv_layout_.LayerView(layer, nullptr), group});
    indexed_groups_.resize(kv_layout_.num_groups(), 0);
    if (spec.compressor.has_value()) indexed_groups_[group] = 1;
  }
  return CompressedAttention::Create(spec, places, build);
}

KvLayerView Decoder::PlaceBlockIndex() {
  const int layer = next_kv_layer_++;
  const size_t group = kv_layout_.group_of(layer);
  INLAY_DCHECK(group == kv_layout_.group_of(layer - 1));
  indexed_groups_.resize(kv_layout_.num_groups(), 0);
  indexed_groups_[group] = 1;
  return kv_layout_.LayerView(layer, nullptr);
}

absl::StatusOr<std::unique_ptr<Sublayer>> Decoder::BuildShared(
    const SharedTransformerSpec& spec, const std::vector<RopeSpec>& ropes,
    ModelBuild& build) {
  const int layer = next_kv_layer_++;
  const int rope = spec.attention.rope;
  return SharedTransformer::Create(
      spec,
      {kv_layout_.LayerView(layer, nullptr), SummariesOf(layer),
       kv_layout_.group_of(layer),
       rope < 0 ? 0 : ropes[static_cast<size_t>(rope)].rotary_dim},
      build);
}

absl::StatusOr<std::unique_ptr<Sublayer>> Decoder::BuildAttentionExperts(
    const AttentionExpertsSpec& spec, const std::vector<RopeSpec>& ropes,
    ModelBuild& build) {
  const int layer = next_kv_layer_++;
  return AttentionExperts::Create(
      spec, kv_layout_.LayerView(layer, nullptr), kv_layout_.group_of(layer),
      ropes[static_cast<size_t>(spec.rope)].rotary_dim, build);
}

absl::Status Decoder::BuildClassifier(const ClassifierSpec& spec,
                                      ModelBuild& build) {
  INLAY_ASSIGN_OR_RETURN(
      before_head_,
      RowHead::Create(spec.layers, LinearOutput::kActivation, build));
  INLAY_ASSIGN_OR_RETURN(
      head_, Linear::Create(spec.output, LinearOutput::kFloat, build));
  return absl::OkStatus();
}

}  // namespace inlay
