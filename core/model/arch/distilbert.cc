// DistilBERT (Sanh et al., arXiv:1910.01108): BERT without token types and
// pooler, under names and keys of its own. Of heads the classifier of
// sequences is loaded.
#include <string>
#include <utility>

#include "core/model/arch.h"
#include "core/model/arch/bert_style.h"
#include "core/model/decoder.h"
#include "core/model/hf_config.h"
#include "memory/status.h"

namespace inlay {
namespace {

constexpr BertLayerNames kDistilbertNames = {
    "attention.q_lin",   "attention.k_lin",  "attention.v_lin",
    "attention.out_lin", "sa_layer_norm",    "ffn.lin1",
    "ffn.lin2",          "output_layer_norm"};

absl::StatusOr<DecoderSpec> DistilBertSpec(const Json& json) {
  // transformers takes these by both names.
  const Json usual = WithUsualNames(json, {{"dim", "hidden_size"},
                                           {"n_layers", "num_hidden_layers"},
                                           {"n_heads", "num_attention_heads"}});
  BertConfig config;
  INLAY_ASSIGN_OR_RETURN(config.vocab_size,
                         JsonInt(json, "vocab_size", 30522, 1, kMaxVocab));
  INLAY_ASSIGN_OR_RETURN(config.hidden,
                         JsonInt(usual, "hidden_size", 768, 1, kMaxHidden));
  INLAY_ASSIGN_OR_RETURN(config.layers,
                         JsonInt(usual, "num_hidden_layers", 6, 1, kMaxLayers));
  INLAY_ASSIGN_OR_RETURN(
      config.heads, JsonInt(usual, "num_attention_heads", 12, 1, kMaxHeads));
  INLAY_ASSIGN_OR_RETURN(config.inner,
                         JsonInt(json, "hidden_dim", 3072, 1, 4 * kMaxHidden));
  // Sines too are stored (sinusoidal_pos_embds).
  INLAY_ASSIGN_OR_RETURN(
      config.positions,
      JsonInt(json, "max_position_embeddings", 512, 1, kMaxHidden));
  INLAY_ASSIGN_OR_RETURN(config.activation,
                         ReadActivation(json, "activation", "gelu"));
  config.epsilon = 1e-12f;
  INLAY_RETURN_IF_ERROR(CheckBertHeads(config));
  return BertStyleSpec(config, 0, "distilbert.", "transformer.layer.",
                       kDistilbertNames);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> MakeDistilBert(const Json& json,
                                                      ModelBuild& build) {
  INLAY_ASSIGN_OR_RETURN(DecoderSpec spec, DistilBertSpec(json));
  if (HasLabels(build)) {
    HeadLayerSpec dense;
    dense.linear = {"pre_classifier", spec.hidden_size, spec.hidden_size, true};
    dense.activation = Activation::kRelu;
    INLAY_ASSIGN_OR_RETURN(
        spec.classifier,
        BertStyleClassifier(json, std::move(dense), "classifier"));
  }
  return BuildDecoder(spec, build);
}

}  // namespace inlay
