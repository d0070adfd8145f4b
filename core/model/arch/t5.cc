// The encoder of T5 (Raffel et al., arXiv:1910.10683; v1.1 and Flan-T5, with
// gated MLPs), mT5 (Xue et al., arXiv:2010.11934) and UMT5 (Chung et al.,
// arXiv:2304.09151): RMS norms before a layer's parts and behind all, no
// biases, scores that are not scaled and grow by a number of each head for the
// bucket of distances that the key is in, of one table for all layers or (UMT5)
// of one each. Checkpoints with a decoder are their encoder here, as
// sentence-transformers and diffusion models have it: nothing of the decoder is
// read. Source: transformers 5.24.
#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/model/arch.h"
#include "core/model/decoder.h"
#include "core/model/hf_config.h"
#include "kernels/attention/biased_attention.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

constexpr char kProjection[] = "feed_forward_proj";
constexpr char kFunction[] = "dense_act_fn";
constexpr char kNumBuckets[] = "relative_attention_num_buckets";
constexpr char kMaxDistance[] = "relative_attention_max_distance";

// What a model type assumes where config.json is silent.
struct T5Defaults {
  int64_t vocab_size = 250112;
  int64_t inner = 1024;
  int64_t layers = 8;
  int64_t heads = 6;
  const char* projection = "gated-gelu";
};

struct T5Config {
  int64_t vocab_size = 0;
  int64_t hidden = 0;
  int64_t head_dim = 0;
  int64_t inner = 0;
  int64_t layers = 0;
  int64_t heads = 0;
  int64_t buckets = 0;
  int64_t max_distance = 0;
  // Distances have no end: of what it was trained on, as files say.
  int64_t positions = 0;
  float epsilon = 0.0f;
  bool gated = false;
  Activation activation = Activation::kRelu;
};

T5Defaults DefaultsOf(std::string_view model_type) {
  if (model_type != "t5") return {};
  return {32128, 2048, 6, 8, "relu"};
}

// "relu", "gated-gelu" (which is gelu_new), "gated-silu", ...; what
// transformers saves beside it overrides it.
absl::Status ReadMlp(const Json& json, const char* fallback, T5Config* out) {
  INLAY_ASSIGN_OR_RETURN(const std::string projection,
                         JsonString(json, kProjection, fallback));
  const size_t dash = projection.find('-');
  const bool is_pair = dash != std::string::npos;
  const std::string function =
      is_pair ? projection.substr(dash + 1) : projection;
  const bool gated = is_pair && projection.substr(0, dash) == "gated";
  if (is_pair != gated || function.find('-') != std::string::npos) {
    return absl::InvalidArgumentError(FormattedString(
        "config.json: %s is \"%s\"; expected an activation, or \"gated-\" and "
        "one",
        kProjection, projection));
  }
  const char* key =
      JsonFind(json, kFunction) == nullptr ? kProjection : kFunction;
  const std::string meant = projection == "gated-gelu" ? "gelu_new" : function;
  INLAY_ASSIGN_OR_RETURN(const std::string name,
                         JsonString(json, kFunction, meant));
  INLAY_ASSIGN_OR_RETURN(
      out->activation, ReadActivation(Json::object({{key, name}}), key, name));
  INLAY_ASSIGN_OR_RETURN(out->gated, JsonBool(json, "is_gated_act", gated));
  return absl::OkStatus();
}

absl::Status ReadDistances(const Json& json, T5Config* out) {
  INLAY_ASSIGN_OR_RETURN(out->buckets,
                         JsonInt(json, kNumBuckets, 32, 1, kMaxHidden));
  INLAY_ASSIGN_OR_RETURN(out->max_distance,
                         JsonInt(json, kMaxDistance, 128, 1, kMaxPositions));
  if (out->buckets < 4) {
    return absl::UnimplementedError(
        FormattedString("config.json: %s is %d; supported are 4 and more",
                        kNumBuckets, out->buckets));
  }
  if (out->max_distance <= out->buckets / 4) {
    return absl::UnimplementedError(FormattedString(
        "config.json: %s is %d with %s %d; supported are more than a quarter "
        "of the buckets",
        kMaxDistance, out->max_distance, kNumBuckets, out->buckets));
  }
  return absl::OkStatus();
}

absl::StatusOr<T5Config> ReadT5Config(const Json& json,
                                      std::string_view model_type) {
  const T5Defaults defaults = DefaultsOf(model_type);
  // transformers takes these by both names.
  const Json usual = WithUsualNames(json, {{"d_model", "hidden_size"},
                                           {"num_layers", "num_hidden_layers"},
                                           {"num_heads", "num_attention_heads"},
                                           {"d_kv", "head_dim"}});
  T5Config out;
  INLAY_ASSIGN_OR_RETURN(
      out.vocab_size,
      JsonInt(json, "vocab_size", defaults.vocab_size, 1, kMaxVocab));
  INLAY_ASSIGN_OR_RETURN(out.hidden,
                         JsonInt(usual, "hidden_size", 512, 1, kMaxHidden));
  INLAY_ASSIGN_OR_RETURN(out.head_dim,
                         JsonInt(usual, "head_dim", 64, 1, kMaxHeadDim));
  INLAY_ASSIGN_OR_RETURN(
      out.inner, JsonInt(json, "d_ff", defaults.inner, 1, 4 * kMaxHidden));
  INLAY_ASSIGN_OR_RETURN(out.layers, JsonInt(usual, "num_hidden_layers",
                                             defaults.layers, 1, kMaxLayers));
  INLAY_ASSIGN_OR_RETURN(out.heads, JsonInt(usual, "num_attention_heads",
                                            defaults.heads, 1, kMaxHeads));
  INLAY_ASSIGN_OR_RETURN(out.positions,
                         JsonInt(json, "n_positions", 512, 1, kMaxPositions));
  INLAY_ASSIGN_OR_RETURN(
      const double epsilon,
      JsonNumber(json, "layer_norm_epsilon", 1e-6, 0.0, 1.0));
  out.epsilon = static_cast<float>(epsilon);
  INLAY_RETURN_IF_ERROR(ReadMlp(json, defaults.projection, &out));
  INLAY_RETURN_IF_ERROR(ReadDistances(json, &out));
  INLAY_ASSIGN_OR_RETURN(const bool decoder,
                         JsonBool(json, "is_decoder", false));
  if (!decoder) return out;
  return absl::UnimplementedError(
      "config.json: is_decoder is true; only encoders of this family are "
      "supported");
}

// Half of the buckets are of keys behind the query. Of each half, half are of
// one distance, and the others as wide in logarithms up to the largest
// distance; in float32, as transformers divides.
int32_t BucketOf(int64_t distance, int64_t buckets, int64_t max_distance) {
  const int64_t half = buckets / 2;
  const int64_t exact = half / 2;
  const int64_t side = distance > 0 ? half : 0;
  const int64_t n = distance < 0 ? -distance : distance;
  if (n < exact) return static_cast<int32_t>(side + n);
  const auto of_exact = static_cast<float>(exact);
  const auto whole = static_cast<float>(
      std::log(static_cast<double>(max_distance) / static_cast<double>(exact)));
  const float share = std::log(static_cast<float>(n) / of_exact) / whole;
  const auto beyond =
      static_cast<int64_t>(share * static_cast<float>(half - exact));
  return static_cast<int32_t>(side + std::min(exact + beyond, half - 1));
}

// As far as a sequence reaches, or the first distance of the last bucket.
absl::StatusOr<DistanceBiasSpec> BiasOf(const T5Config& config) {
  const auto bucket = [&](int64_t distance) {
    return BucketOf(distance, config.buckets, config.max_distance);
  };
  DistanceBiasSpec bias;
  bias.rows = config.buckets;
  int64_t reach = 0;
  const int64_t most = std::min<int64_t>(config.positions - 1, kMaxBiasReach);
  while (reach < most && bucket(-reach) < config.buckets / 2 - 1) ++reach;
  if (reach == kMaxBiasReach && reach < config.positions - 1 &&
      bucket(-reach) < config.buckets / 2 - 1) {
    return absl::UnimplementedError(FormattedString(
        "config.json: %s is %d with %s %d; supported are those whose last "
        "bucket begins at a distance of at most %d, or n_positions of at most "
        "%d",
        kMaxDistance, config.max_distance, kNumBuckets, config.buckets,
        kMaxBiasReach, kMaxBiasReach + 1));
  }
  std::vector<int32_t> rows;
  for (int64_t distance = -reach; distance <= reach; ++distance) {
    rows.push_back(bucket(distance));
  }
  bias.row_of = DistanceRows(std::move(rows));
  return bias;
}

AttentionSpec T5Attention(const T5Config& config, const std::string& prefix,
                          DistanceBiasSpec bias) {
  const int64_t width = config.heads * config.head_dim;
  AttentionSpec attention;
  attention.num_heads = static_cast<int>(config.heads);
  attention.num_kv_heads = attention.num_heads;
  attention.head_dim = static_cast<int>(config.head_dim);
  attention.qkv = {{prefix + "q", width, config.hidden},
                   {prefix + "k", width, config.hidden},
                   {prefix + "v", width, config.hidden}};
  attention.output = {prefix + "o", config.hidden, width};
  attention.causal = false;
  attention.distance_bias = std::move(bias);
  return attention;
}

// `only`: what the first layer of an MLP without gate is called.
MlpSpec T5Mlp(const T5Config& config, const std::string& prefix,
              const char* only) {
  MlpSpec mlp;
  mlp.width = config.inner;
  mlp.activation = config.activation;
  mlp.gated = config.gated;
  if (config.gated) {
    mlp.input = {{prefix + "wi_0", config.inner, config.hidden},
                 {prefix + "wi_1", config.inner, config.hidden}};
  } else {
    mlp.input = {{prefix + only, config.inner, config.hidden}};
  }
  mlp.output = {prefix + "wo", config.hidden, config.inner};
  return mlp;
}

// Files have the embedding under one of its names, or under several; where they
// differ the encoder's counts, as in transformers.
std::string EmbeddingName(const WeightLoader& weights) {
  constexpr char kUsual[] = "shared.weight";
  for (const char* name :
       {"encoder.embed_tokens.weight", kUsual, "decoder.embed_tokens.weight"}) {
    if (weights.Has(name)) return name;
  }
  return kUsual;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> MakeT5(const Json& json,
                                              ModelBuild& build) {
  INLAY_ASSIGN_OR_RETURN(const T5Config config,
                         ReadT5Config(json, build.model_type));
  INLAY_ASSIGN_OR_RETURN(DistanceBiasSpec bias, BiasOf(config));
  const bool has_tables = build.model_type == "umt5";
  const auto prefix = [](int64_t layer) {
    return absl::StrCat("encoder.block.", layer, ".layer.");
  };
  const auto table = [&](int64_t layer) {
    return prefix(layer) + "0.SelfAttention.relative_attention_bias.weight";
  };
  // GGUF has one name for that and a gated one's second layer.
  const auto has = [&](const char* name) {
    return build.weights.Has(prefix(0) + "1.DenseReluDense." + name);
  };
  const bool is_second = has("wi_1.weight") && !has("wi_0.weight");
  DecoderSpec spec;
  spec.is_encoder = true;
  spec.vocab_size = config.vocab_size;
  spec.hidden_size = config.hidden;
  spec.max_positions = config.positions;
  spec.embedding = EmbeddingName(build.weights);
  for (int64_t i = 0; i < config.layers; ++i) {
    const std::string name = prefix(i);
    bias.table = table(has_tables ? i : 0);
    LayerSpec& layer = spec.layers.emplace_back();
    layer.blocks.resize(2);
    layer.blocks[0].part = T5Attention(config, name + "0.SelfAttention.", bias);
    layer.blocks[0].pre_norm = {NormKind::kRms, name + "0.layer_norm",
                                config.epsilon};
    layer.blocks[1].part =
        T5Mlp(config, name + "1.DenseReluDense.", is_second ? "wi_1" : "wi");
    layer.blocks[1].pre_norm = {NormKind::kRms, name + "1.layer_norm",
                                config.epsilon};
  }
  spec.final_norm = {NormKind::kRms, "encoder.final_layer_norm",
                     config.epsilon};
  return BuildDecoder(spec, build);
}

}  // namespace inlay
