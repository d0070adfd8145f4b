// Parts of a decoder whose place in the cache takes more than a line.
#include <vector>

#include "core/model/decoder_impl.h"
#include "core/model/layers/attention_experts.h"
#include "core/model/layers/compressed_attention.h"
#include "core/model/layers/shared_transformer.h"
#include "memory/status.h"

namespace inlay {

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
