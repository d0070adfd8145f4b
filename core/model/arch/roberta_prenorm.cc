// RoBERTa with norms before a layer's parts and one behind all layers: as
// fairseq has it with encoder.normalize_before (RobertaPreLayerNorm), and XLM-R
// XL and XXL (Goyal et al., arXiv:2105.00572), whose embeddings have no norm;
// and Megatron's BERT (Shoeybi et al., arXiv:1909.08053), which has none
// either, with BERT's positions and pooler.
// Of heads the classifier of sequences is loaded. Source: transformers 5.24.
#include <string>
#include <utility>

#include "core/model/arch.h"
#include "core/model/arch/bert_style.h"
#include "core/model/decoder.h"
#include "core/model/hf_config.h"
#include "memory/status.h"

namespace inlay {
namespace {

// What comes after the sums in BERT's layers, before their parts.
DecoderSpec PrenormSpec(const BertConfig& config, int64_t offset,
                        const std::string& prefix, const BertLayerNames& names,
                        const std::string& final_norm) {
  DecoderSpec spec =
      BertStyleSpec(config, offset, prefix, "encoder.layer.", names);
  for (LayerSpec& layer : spec.layers) {
    for (BlockSpec& block : layer.blocks) {
      block.pre_norm = std::exchange(block.sum_norm, NormSpec());
    }
  }
  spec.final_norm = {NormKind::kLayer, prefix + final_norm, config.epsilon};
  return spec;
}

absl::StatusOr<std::unique_ptr<Model>> Build(
    const Json& json, DecoderSpec spec, ModelBuild& build,
    const char* dense_name = "classifier.dense",
    const char* output_name = "classifier.out_proj") {
  if (HasLabels(build)) {
    HeadLayerSpec dense;
    dense.linear = {dense_name, spec.hidden_size, spec.hidden_size, true};
    dense.tanh = true;
    INLAY_ASSIGN_OR_RETURN(
        spec.classifier,
        BertStyleClassifier(json, std::move(dense), output_name));
  }
  return BuildDecoder(spec, build);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> MakeRobertaPreLayerNorm(
    const Json& json, ModelBuild& build) {
  INLAY_ASSIGN_OR_RETURN(const BertConfig config,
                         ReadBertConfig(WithDefaults(
                             json, Json::object({{"vocab_size", 50265}}))));
  INLAY_ASSIGN_OR_RETURN(const int64_t offset, RobertaOffset(json, config));
  return Build(json,
               PrenormSpec(config, offset, "roberta_prelayernorm.",
                           {.attention_norm = "attention.LayerNorm",
                            .output_norm = "intermediate.LayerNorm"},
                           "LayerNorm"),
               build);
}

absl::StatusOr<std::unique_ptr<Model>> MakeXlmRobertaXl(const Json& json,
                                                        ModelBuild& build) {
  // XLMRobertaXLConfig's.
  INLAY_ASSIGN_OR_RETURN(
      const BertConfig config,
      ReadBertConfig(WithDefaults(json, {{"vocab_size", 250880},
                                         {"hidden_size", 2560},
                                         {"num_hidden_layers", 36},
                                         {"num_attention_heads", 32},
                                         {"intermediate_size", 10240},
                                         {"max_position_embeddings", 514},
                                         {"type_vocab_size", 1},
                                         {"layer_norm_eps", 1e-5}})));
  INLAY_ASSIGN_OR_RETURN(const int64_t offset, RobertaOffset(json, config));
  DecoderSpec spec =
      PrenormSpec(config, offset, "roberta.",
                  {.attention_norm = "attention.self_attn_layer_norm",
                   .output_norm = "LayerNorm"},
                  "encoder.LayerNorm");
  spec.embedding_norm = NormSpec();
  return Build(json, std::move(spec), build);
}

absl::StatusOr<std::unique_ptr<Model>> MakeMegatronBert(const Json& json,
                                                        ModelBuild& build) {
  // MegatronBertConfig's.
  INLAY_ASSIGN_OR_RETURN(
      const BertConfig config,
      ReadBertConfig(WithDefaults(json, {{"vocab_size", 29056},
                                         {"hidden_size", 1024},
                                         {"num_hidden_layers", 24},
                                         {"num_attention_heads", 16},
                                         {"intermediate_size", 4096}})));
  DecoderSpec spec = PrenormSpec(
      config, 0, "bert.",
      {.attention_norm = "attention.ln", .output_norm = "ln"}, "encoder.ln");
  spec.embedding_norm = NormSpec();
  return Build(json, std::move(spec), build, "bert.pooler.dense", "classifier");
}

}  // namespace inlay
