// DeBERTa, v2 and v3 (He et al., arXiv:2006.03654 and arXiv:2111.09543): BERT's
// network with disentangled attention, whose scores add up the products of
// content with content, of content with relative positions (c2p) and of these
// with content (p2c). Of heads the classifier of sequences is loaded. Source:
// transformers 5.24, and published config.json files.
#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "core/model/arch.h"
#include "core/model/arch/bert_style.h"
#include "core/model/decoder.h"
#include "core/model/hf_config.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

constexpr char kEncoder[] = "deberta.encoder.";

// The first DeBERTa differs by its names, by keys without biases, and has
// neither buckets nor a norm of positions. Its q, k and v are one tensor in
// files (core/formats/head_source.h).
struct DebertaVersion {
  BertLayerNames names;
  const char* position_key;
  const char* position_query;
  bool is_first = false;
};
constexpr DebertaVersion kFirstDeberta = {{.query = "attention.self.q_proj",
                                           .key = "attention.self.k_proj",
                                           .value = "attention.self.v_proj"},
                                          "pos_proj",
                                          "pos_q_proj",
                                          true};
constexpr DebertaVersion kSecondDeberta = {
    {.query = "attention.self.query_proj",
     .key = "attention.self.key_proj",
     .value = "attention.self.value_proj"},
    "pos_key_proj",
    "pos_query_proj"};

// Of relative positions on one side: published models have 256 and 512. Every
// layer keeps rows for both sides.
constexpr int64_t kMostSpan = 4096;

// How relative positions become rows of the embeddings.
struct DebertaSpan {
  int64_t buckets = 0;  // 0: every distance has a row
  int64_t reach = 0;    // max_relative_positions
  int64_t size() const { return buckets > 0 ? buckets : reach; }
};

// Distances up to half the buckets have buckets of their own, those beyond as
// wide ones in logarithms, up to reach - 1. In float32, as transformers
// computes them.
int64_t BucketOfDistance(const DebertaSpan& span, int64_t distance) {
  const int64_t middle = span.buckets / 2;
  const int64_t size = std::abs(distance);
  if (span.buckets == 0 || size <= middle) return distance;
  const auto half = static_cast<float>(middle);
  const float whole = std::log(static_cast<float>(
      static_cast<double>(span.reach - 1) / static_cast<double>(middle)));
  const float part = std::log(static_cast<float>(size) / half) / whole;
  const auto bucket =
      static_cast<int64_t>(std::ceil(part * (half - 1.0f)) + half);
  return distance < 0 ? -bucket : bucket;
}

// Rows of query - key = -reach .. reach. What is as far as `span` says, or
// further, has the last row on its side.
std::vector<int32_t> RowsOfDistances(const DebertaSpan& span,
                                     int64_t positions) {
  const int64_t reach = std::min(positions - 1, span.reach);
  std::vector<int32_t> rows;
  rows.reserve(static_cast<size_t>(2 * reach + 1));
  for (int64_t distance = -reach; distance <= reach; ++distance) {
    rows.push_back(static_cast<int32_t>(
        std::clamp(BucketOfDistance(span, distance) + span.size(), int64_t{0},
                   2 * span.size() - 1)));
  }
  return rows;
}

absl::StatusOr<DebertaSpan> ReadSpan(const Json& json, int64_t positions) {
  DebertaSpan span;
  INLAY_ASSIGN_OR_RETURN(span.buckets,
                         JsonInt(json, "position_buckets", -1, -1, kMostSpan));
  span.buckets = std::max(span.buckets, int64_t{0});
  INLAY_ASSIGN_OR_RETURN(
      span.reach, JsonInt(json, "max_relative_positions", -1, -1, kMaxHidden));
  if (span.reach < 1) span.reach = positions;
  if (span.reach > kMostSpan) {
    return absl::UnimplementedError(FormattedString(
        "config.json: max_relative_positions (max_position_embeddings where it "
        "is absent or -1) is %d; supported are at most %d",
        span.reach, kMostSpan));
  }
  if (span.buckets == 0) return span;
  if (span.buckets % 2 != 0) {
    return absl::UnimplementedError(
        FormattedString("config.json: position_buckets is %d; supported are -1 "
                        "and even numbers",
                        span.buckets));
  }
  // Fewer positions leave logarithms nothing to divide by.
  if (span.reach - 1 <= span.buckets / 2) {
    return absl::InvalidArgumentError(FormattedString(
        "config.json: position_buckets is %d with max_relative_positions %d; "
        "half of them must be fewer than those positions less one",
        span.buckets, span.reach));
  }
  return span;
}

// Of "a | B": a, b.
std::vector<std::string> NamesIn(const std::string& text) {
  std::vector<std::string> names;
  for (const absl::string_view part : absl::StrSplit(text, '|')) {
    std::string name = absl::AsciiStrToLower(absl::StripAsciiWhitespace(part));
    if (!name.empty()) names.push_back(std::move(name));
  }
  return names;
}

// Which products there are besides that of content with content.
struct DebertaTerms {
  bool c2p = false;
  bool p2c = false;
  int count() const { return 1 + (c2p ? 1 : 0) + (p2c ? 1 : 0); }
};

absl::StatusOr<DebertaTerms> ReadTerms(const Json& json) {
  constexpr char kKey[] = "pos_att_type";
  DebertaTerms terms;
  const Json* value = JsonFind(json, kKey);
  if (value == nullptr) return terms;
  std::vector<std::string> names;
  if (value->is_array()) {
    for (const Json& name : *value) {
      names.push_back(name.is_string() ? name.get<std::string>()
                                       : ShownJson(name));
    }
  } else {
    INLAY_ASSIGN_OR_RETURN(const std::string text, JsonString(json, kKey, ""));
    names = NamesIn(text);
  }
  for (const std::string& name : names) {
    if (name != "c2p" && name != "p2c") {
      return absl::UnimplementedError(FormattedString(
          "config.json: %s has \"%s\", supported: c2p, p2c", kKey, name));
    }
    (name == "c2p" ? terms.c2p : terms.p2c) = true;
  }
  return terms;
}

absl::StatusOr<NormSpec> ReadRelativeNorm(const Json& json, float epsilon) {
  NormSpec norm;
  INLAY_ASSIGN_OR_RETURN(const std::string text,
                         JsonString(json, "norm_rel_ebd", "none"));
  for (const std::string& name : NamesIn(text)) {
    if (name == "layer_norm") {
      norm = {NormKind::kLayer, absl::StrCat(kEncoder, "LayerNorm"), epsilon};
    } else if (name != "none") {
      return absl::UnimplementedError(FormattedString(
          "config.json: norm_rel_ebd is \"%s\", supported: none, layer_norm",
          text));
    }
  }
  return norm;
}

// UNIMPLEMENTED, naming the key, where the config has another width there than
// `known`.
absl::Status ExpectWidth(const Json& json, const char* key, int64_t known) {
  INLAY_ASSIGN_OR_RETURN(const int64_t width,
                         JsonInt(json, key, known, 1, kMaxHidden));
  if (width == known) return absl::OkStatus();
  return absl::UnimplementedError(
      FormattedString("config.json: %s is %d; supported is %d, as "
                      "hidden_size and num_attention_heads have it",
                      key, width, known));
}

absl::Status AddRelativePositions(const Json& json, const BertConfig& config,
                                  const DebertaTerms& terms,
                                  const DebertaVersion& version,
                                  DecoderSpec* spec) {
  INLAY_ASSIGN_OR_RETURN(const DebertaSpan span,
                         ReadSpan(json, config.positions));
  RelativePositionsSpec relative;
  relative.table = absl::StrCat(kEncoder, "rel_embeddings.weight");
  relative.rows = 2 * span.size();
  relative.width = config.hidden;
  INLAY_ASSIGN_OR_RETURN(relative.norm, ReadRelativeNorm(json, config.epsilon));
  relative.row_of = DistanceRows(RowsOfDistances(span, config.positions));
  relative.with_keys = terms.c2p;
  relative.with_queries = terms.p2c;
  INLAY_ASSIGN_OR_RETURN(const bool shares,
                         JsonBool(json, "share_att_key", false));
  for (int64_t i = 0; i < config.layers; ++i) {
    auto& attention = std::get<AttentionSpec>(
        spec->layers[static_cast<size_t>(i)].blocks[0].part);
    attention.relative = relative;
    if (shares) continue;
    const auto own = [&](const char* name, bool bias) {
      return LinearSpec{
          absl::StrCat(kEncoder, "layer.", i, ".attention.self.", name),
          config.hidden, config.hidden, bias};
    };
    if (terms.c2p) {
      attention.relative->key = own(version.position_key, !version.is_first);
    }
    if (terms.p2c) {
      attention.relative->query = own(version.position_query, true);
    }
  }
  return absl::OkStatus();
}

// UNIMPLEMENTED for what no file of the first DeBERTa has.
absl::Status CheckFirst(const Json& json) {
  INLAY_ASSIGN_OR_RETURN(const int64_t buckets,
                         JsonInt(json, "position_buckets", -1, -1, kMostSpan));
  if (buckets > 0) {
    return absl::UnimplementedError(FormattedString(
        "config.json: position_buckets is %d, supported of model_type deberta: "
        "-1",
        buckets));
  }
  INLAY_ASSIGN_OR_RETURN(const std::string norm,
                         JsonString(json, "norm_rel_ebd", "none"));
  if (norm != "none") {
    return absl::UnimplementedError(FormattedString(
        "config.json: norm_rel_ebd is \"%s\", supported of model_type deberta: "
        "none",
        norm));
  }
  for (const char* key : {"share_att_key", "talking_head"}) {
    INLAY_ASSIGN_OR_RETURN(const bool has, JsonBool(json, key, false));
    if (!has) continue;
    return absl::UnimplementedError(FormattedString(
        "config.json: %s is true, supported of model_type deberta: false",
        key));
  }
  return absl::OkStatus();
}

absl::StatusOr<DecoderSpec> DebertaSpec(const Json& json,
                                        const DebertaVersion& version) {
  const bool is_first = version.is_first;
  INLAY_ASSIGN_OR_RETURN(
      BertConfig config,
      ReadBertConfig(WithDefaults(
          json, Json::object({{"vocab_size", is_first ? 50265 : 128100},
                              {"hidden_size", is_first ? 768 : 1536},
                              {"num_hidden_layers", is_first ? 12 : 24},
                              {"num_attention_heads", is_first ? 12 : 24},
                              {"intermediate_size", is_first ? 3072 : 6144},
                              {"type_vocab_size", 0},
                              {"layer_norm_eps", 1e-7}}))));
  if (is_first) INLAY_RETURN_IF_ERROR(CheckFirst(json));
  INLAY_RETURN_IF_ERROR(
      ExpectWidth(json, "attention_head_size", config.head_dim()));
  INLAY_RETURN_IF_ERROR(ExpectWidth(json, "embedding_size", config.hidden));
  // A convolution of tokens beside the first layer, DeBERTa v2's.
  INLAY_ASSIGN_OR_RETURN(const int64_t taps,
                         JsonInt(json, "conv_kernel_size", 0, 0, kMaxHidden));
  if (taps > 0) {
    return absl::UnimplementedError(FormattedString(
        "config.json: conv_kernel_size is %d, supported: 0", taps));
  }
  INLAY_ASSIGN_OR_RETURN(const DebertaTerms terms, ReadTerms(json));
  INLAY_ASSIGN_OR_RETURN(const bool is_relative,
                         JsonBool(json, "relative_attention", false));
  INLAY_ASSIGN_OR_RETURN(const bool has_positions,
                         JsonBool(json, "position_biased_input", true));
  DecoderSpec spec =
      BertStyleSpec(config, 0, "deberta.", "encoder.layer.", version.names);
  if (!has_positions) spec.position_embedding.clear();
  for (LayerSpec& layer : spec.layers) {
    auto& attention = std::get<AttentionSpec>(layer.blocks[0].part);
    attention.scale =
        1.0f / std::sqrt(static_cast<float>(config.head_dim() * terms.count()));
    attention.qkv[1].bias = !is_first;
  }
  if (is_relative && terms.count() > 1) {
    INLAY_RETURN_IF_ERROR(
        AddRelativePositions(json, config, terms, version, &spec));
  }
  return spec;
}

// The pooler, whose function config.json names, then the classifier.
absl::StatusOr<ClassifierSpec> DebertaClassifier(const Json& json,
                                                 int64_t hidden) {
  INLAY_RETURN_IF_ERROR(ExpectWidth(json, "pooler_hidden_size", hidden));
  constexpr char kKey[] = "pooler_hidden_act";
  INLAY_ASSIGN_OR_RETURN(const std::string function,
                         JsonString(json, kKey, "gelu"));
  HeadLayerSpec dense;
  dense.linear = {"pooler.dense", hidden, hidden, true};
  dense.tanh = function == "tanh";
  if (!dense.tanh) {
    INLAY_ASSIGN_OR_RETURN(dense.activation,
                           ReadActivation(json, kKey, "gelu"));
  }
  return BertStyleClassifier(json, std::move(dense), "classifier");
}

absl::StatusOr<std::unique_ptr<Model>> BuildDeberta(
    const Json& json, const DebertaVersion& version, ModelBuild& build) {
  INLAY_ASSIGN_OR_RETURN(DecoderSpec spec, DebertaSpec(json, version));
  if (HasLabels(build)) {
    INLAY_ASSIGN_OR_RETURN(spec.classifier,
                           DebertaClassifier(json, spec.hidden_size));
  }
  return BuildDecoder(spec, build);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> MakeDeberta(const Json& json,
                                                   ModelBuild& build) {
  return BuildDeberta(json, kFirstDeberta, build);
}

absl::StatusOr<std::unique_ptr<Model>> MakeDebertaV2(const Json& json,
                                                     ModelBuild& build) {
  return BuildDeberta(json, kSecondDeberta, build);
}

}  // namespace inlay
