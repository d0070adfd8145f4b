// RoFormer (Su et al., arXiv:2104.09864): BERT whose queries and keys are
// rotated by neighbours, in place of positions that are added; embeddings may
// be narrower than the network. Of heads the classifier of sequences is loaded.
// Files store the rotations' sines and cosines, which are computed here: they
// are not read. Source: transformers 5.24.
#include <string>
#include <utility>

#include "core/model/arch.h"
#include "core/model/arch/bert_style.h"
#include "core/model/decoder.h"
#include "core/model/hf_config.h"
#include "memory/status.h"

namespace inlay {
namespace {

constexpr char kPrefix[] = "roformer.";

absl::StatusOr<DecoderSpec> RoFormerSpec(const Json& json,
                                         const BertConfig& config) {
  INLAY_ASSIGN_OR_RETURN(const bool turns_values,
                         JsonBool(json, "rotary_value", false));
  if (turns_values) {
    return absl::UnimplementedError(
        "config.json: rotary_value is true; supported here is false");
  }
  DecoderConfig decoder;
  decoder.head_dim = static_cast<int>(config.head_dim());
  decoder.max_positions = config.positions;
  // No key of config.json says another base.
  INLAY_ASSIGN_OR_RETURN(const RopeSpec rope,
                         ReadRope(Json::object(), decoder, {}));
  DecoderSpec spec = BertStyleSpec(config, 0, kPrefix);
  spec.position_embedding.clear();
  spec.ropes = {rope};
  for (LayerSpec& layer : spec.layers) {
    auto& attention = std::get<AttentionSpec>(layer.blocks[0].part);
    attention.rope = 0;
    attention.rope_style = RopeStyle::kInterleaved;
  }
  INLAY_RETURN_IF_ERROR(ReadNarrowEmbedding(
      json, {"embedding_size", config.hidden},
      std::string(kPrefix) + "embeddings_project", false, &spec));
  return spec;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> MakeRoFormer(const Json& json,
                                                    ModelBuild& build) {
  INLAY_ASSIGN_OR_RETURN(
      const BertConfig config,
      ReadBertConfig(WithDefaults(
          json, {{"vocab_size", 50000}, {"max_position_embeddings", 1536}})));
  INLAY_ASSIGN_OR_RETURN(DecoderSpec spec, RoFormerSpec(json, config));
  if (HasLabels(build)) {
    HeadLayerSpec dense;
    dense.linear = {"classifier.dense", spec.hidden_size, spec.hidden_size,
                    true};
    dense.activation = config.activation;
    INLAY_ASSIGN_OR_RETURN(
        spec.classifier,
        BertStyleClassifier(json, std::move(dense), "classifier.out_proj"));
  }
  return BuildDecoder(spec, build);
}

}  // namespace inlay
