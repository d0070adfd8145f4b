// BERT (Devlin et al., arXiv:1810.04805), RoBERTa (Liu et al.,
// arXiv:1907.11692; XLM-R, CamemBERT and data2vec's for text, arXiv:2202.03555,
// are ones), whose learned positions begin after the padding id, ELECTRA (Clark
// et al., arXiv:2003.10555), whose discriminator is BERT's network, RemBERT
// (Chung et al., arXiv:2010.12821), whose embeddings are narrower, and ERNIE
// (Sun et al., arXiv:1907.12412 and 2107.02137), whose tokens may have a task.
// Of heads the classifier of sequences is loaded.
#include <string>
#include <utility>

#include "core/model/arch.h"
#include "core/model/arch/bert_style.h"
#include "core/model/decoder.h"
#include "core/model/hf_config.h"
#include "memory/status.h"

namespace inlay {
namespace {

absl::StatusOr<DecoderSpec> BertSpec(const Json& json) {
  INLAY_ASSIGN_OR_RETURN(const BertConfig config, ReadBertConfig(json));
  return BertStyleSpec(config, 0, "bert.");
}

absl::StatusOr<DecoderSpec> RobertaSpec(const Json& json,
                                        const std::string& prefix) {
  INLAY_ASSIGN_OR_RETURN(const BertConfig config, ReadBertConfig(json));
  INLAY_ASSIGN_OR_RETURN(const int64_t offset, RobertaOffset(json, config));
  return BertStyleSpec(config, offset, prefix);
}

absl::StatusOr<DecoderSpec> ElectraSpec(const Json& json) {
  // ELECTRA-Small's where config.json is silent.
  const Json sized = WithDefaults(json, {{"hidden_size", 256},
                                         {"num_attention_heads", 4},
                                         {"intermediate_size", 1024}});
  INLAY_ASSIGN_OR_RETURN(const BertConfig config, ReadBertConfig(sized));
  DecoderSpec spec = BertStyleSpec(config, 0, "electra.");
  INLAY_RETURN_IF_ERROR(ReadNarrowEmbedding(json, {"embedding_size", 128},
                                            "electra.embeddings_project", false,
                                            &spec));
  return spec;
}

absl::StatusOr<DecoderSpec> RemBertSpec(const Json& json) {
  // RemBertConfig's.
  const Json sized = WithDefaults(json, {{"vocab_size", 250300},
                                         {"hidden_size", 1152},
                                         {"num_hidden_layers", 32},
                                         {"num_attention_heads", 18},
                                         {"intermediate_size", 4608}});
  INLAY_ASSIGN_OR_RETURN(const BertConfig config, ReadBertConfig(sized));
  DecoderSpec spec = BertStyleSpec(config, 0, "rembert.");
  INLAY_RETURN_IF_ERROR(ReadNarrowEmbedding(
      json, {"input_embedding_size", 256},
      "rembert.encoder.embedding_hidden_mapping_in", true, &spec));
  return spec;
}

// Of tokens' tasks all are the first, as where nobody says which.
absl::StatusOr<DecoderSpec> ErnieSpec(const Json& json) {
  INLAY_ASSIGN_OR_RETURN(const BertConfig config, ReadBertConfig(json));
  DecoderSpec spec = BertStyleSpec(config, 0, "ernie.");
  INLAY_ASSIGN_OR_RETURN(const bool has_tasks,
                         JsonBool(json, "use_task_id", false));
  if (!has_tasks) return spec;
  spec.task_embedding = "ernie.embeddings.task_type_embeddings.weight";
  INLAY_ASSIGN_OR_RETURN(
      spec.num_tasks, JsonInt(json, "task_type_vocab_size", 3, 1, kMaxHidden));
  return spec;
}

// A layer as wide as the network.
HeadLayerSpec Dense(const char* name, int64_t hidden) {
  HeadLayerSpec layer;
  layer.linear = {name, hidden, hidden, true};
  return layer;
}

absl::Status AddRobertaClassifier(const Json& json, DecoderSpec* spec) {
  HeadLayerSpec dense = Dense("classifier.dense", spec->hidden_size);
  dense.tanh = true;
  INLAY_ASSIGN_OR_RETURN(
      spec->classifier,
      BertStyleClassifier(json, std::move(dense), "classifier.out_proj"));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> MakeBert(const Json& json,
                                                ModelBuild& build) {
  INLAY_ASSIGN_OR_RETURN(const DecoderSpec spec, BertSpec(json));
  return BuildDecoder(spec, build);
}

// The pooler, then the classifier.
absl::StatusOr<std::unique_ptr<Model>> MakeBertClassifier(const Json& json,
                                                          ModelBuild& build) {
  INLAY_ASSIGN_OR_RETURN(DecoderSpec spec, BertSpec(json));
  HeadLayerSpec dense = Dense("bert.pooler.dense", spec.hidden_size);
  dense.tanh = true;
  INLAY_ASSIGN_OR_RETURN(
      spec.classifier,
      BertStyleClassifier(json, std::move(dense), "classifier"));
  return BuildDecoder(spec, build);
}

absl::StatusOr<std::unique_ptr<Model>> MakeRoberta(const Json& json,
                                                   ModelBuild& build) {
  INLAY_ASSIGN_OR_RETURN(const DecoderSpec spec, RobertaSpec(json, "roberta."));
  return BuildDecoder(spec, build);
}

absl::StatusOr<std::unique_ptr<Model>> MakeRobertaClassifier(
    const Json& json, ModelBuild& build) {
  INLAY_ASSIGN_OR_RETURN(DecoderSpec spec, RobertaSpec(json, "roberta."));
  INLAY_RETURN_IF_ERROR(AddRobertaClassifier(json, &spec));
  return BuildDecoder(spec, build);
}

absl::StatusOr<std::unique_ptr<Model>> MakeData2VecText(const Json& json,
                                                        ModelBuild& build) {
  INLAY_ASSIGN_OR_RETURN(DecoderSpec spec, RobertaSpec(json, "data2vec_text."));
  if (HasLabels(build)) {
    INLAY_RETURN_IF_ERROR(AddRobertaClassifier(json, &spec));
  }
  return BuildDecoder(spec, build);
}

absl::StatusOr<std::unique_ptr<Model>> MakeErnie(const Json& json,
                                                 ModelBuild& build) {
  INLAY_ASSIGN_OR_RETURN(DecoderSpec spec, ErnieSpec(json));
  if (HasLabels(build)) {
    HeadLayerSpec dense = Dense("ernie.pooler.dense", spec.hidden_size);
    dense.tanh = true;
    INLAY_ASSIGN_OR_RETURN(
        spec.classifier,
        BertStyleClassifier(json, std::move(dense), "classifier"));
  }
  return BuildDecoder(spec, build);
}

absl::StatusOr<std::unique_ptr<Model>> MakeRemBert(const Json& json,
                                                   ModelBuild& build) {
  INLAY_ASSIGN_OR_RETURN(DecoderSpec spec, RemBertSpec(json));
  if (HasLabels(build)) {
    HeadLayerSpec dense = Dense("rembert.pooler.dense", spec.hidden_size);
    dense.tanh = true;
    INLAY_ASSIGN_OR_RETURN(
        spec.classifier,
        BertStyleClassifier(json, std::move(dense), "classifier"));
  }
  return BuildDecoder(spec, build);
}

absl::StatusOr<std::unique_ptr<Model>> MakeElectra(const Json& json,
                                                   ModelBuild& build) {
  INLAY_ASSIGN_OR_RETURN(DecoderSpec spec, ElectraSpec(json));
  if (HasLabels(build)) {
    HeadLayerSpec dense = Dense("classifier.dense", spec.hidden_size);
    dense.activation = Activation::kGelu;  // whatever the network's is
    INLAY_ASSIGN_OR_RETURN(
        spec.classifier,
        BertStyleClassifier(json, std::move(dense), "classifier.out_proj"));
  }
  return BuildDecoder(spec, build);
}

}  // namespace inlay
