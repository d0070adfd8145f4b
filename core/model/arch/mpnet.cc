// MPNet (Song et al., arXiv:2004.09297): BERT's network without token types,
// whose positions begin after the padding id as RoBERTa's, and whose scores
// grow by a number of each head for the bucket of distances that the key is in
// (T5's buckets, arXiv:1910.10683, of one table for all layers). Of heads the
// classifier of sequences is loaded. Source: transformers 5.24.
#include <string>
#include <utility>
#include <vector>

#include "core/model/arch.h"
#include "core/model/arch/bert_style.h"
#include "core/model/decoder.h"
#include "core/model/hf_config.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

constexpr BertLayerNames kMpnetNames = {
    .query = "attention.attn.q",
    .key = "attention.attn.k",
    .value = "attention.attn.v",
    .attention_output = "attention.attn.o",
    .attention_norm = "attention.LayerNorm"};

// The id of padding, whatever config.json says.
constexpr int64_t kPadding = 1;

// Buckets that are used, whatever the table has; the first half is of keys
// before the query, and of its own.
constexpr int32_t kBuckets = 32;
// Keys that are further away have the last bucket on their side.
constexpr int32_t kReach = 128;

// The first 8 distances of a side have buckets of their own, and the other 8
// buckets are as wide in logarithms up to 128 = 8 * 16: n is in bucket 8 + j
// from n = 8 * 16^(j / 8) on, that is n^2 = 64 * 2^j.
int32_t BucketOf(int32_t distance) {
  constexpr int32_t kExact = kBuckets / 4;
  const int32_t side = distance > 0 ? kBuckets / 2 : 0;
  const int32_t n = distance < 0 ? -distance : distance;
  if (n < kExact) return side + n;
  int32_t j = 0;
  while (j < kExact - 1 && n * n >= kExact * kExact << (j + 1)) ++j;
  return side + kExact + j;
}

absl::StatusOr<DecoderSpec> MpnetSpec(const Json& json) {
  INLAY_ASSIGN_OR_RETURN(BertConfig config,
                         ReadBertConfig(WithDefaults(
                             json, Json::object({{"vocab_size", 30527}}))));
  config.segments = 0;
  if (config.positions <= kPadding + 1) {
    return absl::InvalidArgumentError(FormattedString(
        "config.json: max_position_embeddings is %d; expected more than %d",
        config.positions, kPadding + 1));
  }
  DistanceBiasSpec bias;
  bias.table = "mpnet.encoder.relative_attention_bias.weight";
  INLAY_ASSIGN_OR_RETURN(
      bias.rows,
      JsonInt(json, "relative_attention_num_buckets", kBuckets, 1, kMaxHidden));
  if (bias.rows < kBuckets) {
    return absl::UnimplementedError(FormattedString(
        "config.json: relative_attention_num_buckets is %d; supported are %d "
        "and more",
        bias.rows, kBuckets));
  }
  std::vector<int32_t> rows;
  for (int32_t distance = -kReach; distance <= kReach; ++distance) {
    rows.push_back(BucketOf(distance));
  }
  bias.row_of = DistanceRows(std::move(rows));
  DecoderSpec spec = BertStyleSpec(config, kPadding + 1, "mpnet.",
                                   "encoder.layer.", kMpnetNames);
  for (LayerSpec& layer : spec.layers) {
    std::get<AttentionSpec>(layer.blocks[0].part).distance_bias = bias;
  }
  return spec;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> MakeMpnet(const Json& json,
                                                 ModelBuild& build) {
  INLAY_ASSIGN_OR_RETURN(DecoderSpec spec, MpnetSpec(json));
  if (HasLabels(build)) {
    HeadLayerSpec dense;
    dense.linear = {"classifier.dense", spec.hidden_size, spec.hidden_size,
                    true};
    dense.tanh = true;
    INLAY_ASSIGN_OR_RETURN(
        spec.classifier,
        BertStyleClassifier(json, std::move(dense), "classifier.out_proj"));
  }
  return BuildDecoder(spec, build);
}

}  // namespace inlay
