// What BERT's kin share: learned positions, norms after the sums, biases
// everywhere, under names of a family's own.
#ifndef INLAY_CORE_MODEL_ARCH_BERT_STYLE_H_
#define INLAY_CORE_MODEL_ARCH_BERT_STYLE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/json/json.h"
#include "core/model/decoder_spec.h"

namespace inlay {

struct BertConfig {
  int64_t vocab_size = 0;
  int64_t hidden = 0;
  int64_t layers = 0;
  int64_t heads = 0;
  int64_t inner = 0;
  int64_t positions = 0;  // rows of the table
  int64_t segments = 0;   // 0: the family has none
  float epsilon = 0.0f;
  Activation activation = Activation::kGelu;

  int64_t head_dim() const { return hidden / heads; }
};

// BERT's keys. UNIMPLEMENTED for decoders and for other positions than learned
// ones.
absl::StatusOr<BertConfig> ReadBertConfig(const Json& json);

// Row of the first position in RoBERTa's table: positions begin behind the
// padding id. INVALID_ARGUMENT where none is left.
absl::StatusOr<int64_t> RobertaOffset(const Json& json,
                                      const BertConfig& config);

// `json` with those of `defaults` that it does not have.
Json WithDefaults(const Json& json, const Json& defaults);

// INVALID_ARGUMENT unless heads make up the width, each of a size that is
// possible.
absl::Status CheckBertHeads(const BertConfig& config);

// Tensors of a layer, behind its prefix.
struct BertLayerNames {
  const char* query = "attention.self.query";
  const char* key = "attention.self.key";
  const char* value = "attention.self.value";
  const char* attention_output = "attention.output.dense";
  const char* attention_norm = "attention.output.LayerNorm";
  const char* inner = "intermediate.dense";
  const char* output = "output.dense";
  const char* output_norm = "output.LayerNorm";
};

LayerSpec BertLayer(const BertConfig& config, const std::string& prefix,
                    const BertLayerNames& names = {});

// Embeddings "PREFIXembeddings.", layers "PREFIX" + `layers` + "N.". `offset`:
// of the first position's row.
DecoderSpec BertStyleSpec(const BertConfig& config, int64_t offset,
                          const std::string& prefix,
                          const char* layers = "encoder.layer.",
                          const BertLayerNames& names = {});

// The key that says how wide embeddings are, and what that is where config.json
// is silent.
struct EmbeddingWidthKey {
  const char* name;
  int64_t fallback;
};

// Embeddings at most as wide as the network, and the layer `linear` behind
// their norm, which is there `always` or where they are narrower.
// UNIMPLEMENTED for wider ones.
absl::Status ReadNarrowEmbedding(const Json& json, const EmbeddingWidthKey& key,
                                 std::string linear, bool always,
                                 DecoderSpec* spec);

// `labels` of config.json, as ClassificationDefaults has them, of the first
// token's state: through `dense`, then `output`.
absl::StatusOr<ClassifierSpec> BertStyleClassifier(const Json& json,
                                                   HeadLayerSpec dense,
                                                   std::string output);

}  // namespace inlay

#endif  // INLAY_CORE_MODEL_ARCH_BERT_STYLE_H_
