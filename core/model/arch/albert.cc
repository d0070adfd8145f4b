// ALBERT (Lan et al., arXiv:1909.11942): BERT whose layers share their weights,
// all of them or those of a group, and whose embeddings are narrower than the
// network. Of heads the classifier of sequences is loaded. Source: transformers
// 5.24.
#include <string>
#include <utility>

#include "core/model/arch.h"
#include "core/model/arch/bert_style.h"
#include "core/model/decoder.h"
#include "core/model/hf_config.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

constexpr BertLayerNames kAlbertNames = {
    .query = "attention.query",
    .key = "attention.key",
    .value = "attention.value",
    .attention_output = "attention.dense",
    .attention_norm = "attention.LayerNorm",
    .inner = "ffn",
    .output = "ffn_output",
    .output_norm = "full_layer_layer_norm"};

absl::StatusOr<DecoderSpec> AlbertSpec(const Json& json) {
  // AlbertConfig's.
  INLAY_ASSIGN_OR_RETURN(
      const BertConfig config,
      ReadBertConfig(WithDefaults(json, {{"vocab_size", 30000},
                                         {"hidden_size", 4096},
                                         {"num_attention_heads", 64},
                                         {"intermediate_size", 16384},
                                         {"hidden_act", "gelu_new"}})));
  INLAY_ASSIGN_OR_RETURN(const int64_t groups,
                         JsonInt(json, "num_hidden_groups", 1, 1, kMaxLayers));
  INLAY_ASSIGN_OR_RETURN(
      const int64_t inner,
      JsonInt(json, "inner_group_num", 1, 1, kMaxLayers / config.layers));
  const std::string prefix = "albert.";
  DecoderSpec spec = BertStyleSpec(config, 0, prefix);
  INLAY_RETURN_IF_ERROR(ReadNarrowEmbedding(
      json, {"embedding_size", 128},
      prefix + "encoder.embedding_hidden_mapping_in", true, &spec));
  spec.shares_layers = true;
  spec.layers.clear();
  for (int64_t i = 0; i < config.layers; ++i) {
    // As transformers divides.
    const auto group = static_cast<int64_t>(
        static_cast<double>(i) /
        (static_cast<double>(config.layers) / static_cast<double>(groups)));
    for (int64_t j = 0; j < inner; ++j) {
      spec.layers.push_back(BertLayer(
          config,
          FormattedString("%sencoder.albert_layer_groups.%d.albert_layers.%d.",
                          prefix, group, j),
          kAlbertNames));
    }
  }
  return spec;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> MakeAlbert(const Json& json,
                                                  ModelBuild& build) {
  INLAY_ASSIGN_OR_RETURN(DecoderSpec spec, AlbertSpec(json));
  if (HasLabels(build)) {
    HeadLayerSpec pooler;
    pooler.linear = {"albert.pooler", spec.hidden_size, spec.hidden_size, true};
    pooler.tanh = true;
    INLAY_ASSIGN_OR_RETURN(
        spec.classifier,
        BertStyleClassifier(json, std::move(pooler), "classifier"));
  }
  return BuildDecoder(spec, build);
}

}  // namespace inlay
