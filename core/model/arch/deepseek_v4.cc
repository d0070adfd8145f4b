// DeepSeek-V4: several residual streams (manifold-constrained
// hyper-connections, arXiv:2512.24880), windows with sinks, keys compressed by
// 4 (overlapping, chosen by an indexer) or by 128, experts chosen by the
// token's id in some layers. Sources: names, defaults and the older spelling of
// fields as transformers' configuration_deepseek_v4; tensors as the published
// files name them.
#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "core/model/arch.h"
#include "core/model/arch/deepseek_style.h"
#include "core/model/arch/llama_style.h"
#include "core/model/arch/streams_style.h"
#include "core/model/decoder.h"
#include "kernels/indexer/indexer.h"
#include "kernels/kv_compress/kv_compress.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

// Places in DecoderSpec::ropes.
enum Rope : int {
  kMain,  // layers without compressed keys
  kMainBack,
  kCompress,
  kCompressBack,
  kCompressedKeys,  // and one for each number of tokens a key
};

enum class Keys : uint8_t { kWindow, kSparse, kHeavy };
constexpr std::string_view kKeyNames[] = {"sliding_attention",
                                          "compressed_sparse_attention",
                                          "heavily_compressed_attention"};

struct V4Config {
  DecoderConfig decoder;
  MoeConfig moe;
  std::vector<Keys> keys;     // by layer
  std::vector<bool> hashed;   // likewise: experts by the token's id
  int64_t sparse_tokens = 0;  // tokens a compressed key
  int64_t heavy_tokens = 0;
  int64_t query_rank = 0;
  int rope_dim = 0;
  int window = 0;
  int64_t num_groups = 0;
  int64_t group_rank = 0;
  int64_t index_heads = 0;
  int64_t index_dim = 0;
  int64_t top_k = 0;
  int64_t num_shared = 0;
  float limit = 0.0f;
  StreamsSpec streams;
};

DecoderDefaults V4Defaults() {
  DecoderDefaults defaults;
  defaults.vocab_size = 129280;
  defaults.hidden_size = 4096;
  defaults.intermediate_size = 2048;
  defaults.intermediate_key = "moe_intermediate_size";
  defaults.num_layers = 43;
  defaults.num_heads = 64;
  defaults.num_kv_heads = 1;
  defaults.head_dim = 512;
  defaults.max_positions = 1048576;
  return defaults;
}

absl::Status WrongList(std::string_view key, const Json& list,
                       std::string_view allowed) {
  return absl::InvalidArgumentError(FormattedString(
      "config.json: %s is %s; it must be an array with %s for every layer", key,
      ShownJson(list), allowed));
}

// The first num_layers entries of a list, which may have more (of layers that
// predict further tokens), through `parse`: entry to a value, or nothing.
template <typename T, typename Parse>
absl::StatusOr<std::vector<T>> ReadList(const Json& list, std::string_view key,
                                        int num_layers,
                                        std::string_view allowed,
                                        const Parse& parse) {
  if (!list.is_array() || list.size() < static_cast<size_t>(num_layers)) {
    return WrongList(key, list, allowed);
  }
  std::vector<T> values;
  for (int i = 0; i < num_layers; ++i) {
    const std::optional<T> value = parse(list[static_cast<size_t>(i)]);
    if (!value.has_value()) return WrongList(key, list, allowed);
    values.push_back(*value);
  }
  return values;
}

// layer_types; or compress_ratios, which names them by their tokens a key; or
// two heavy layers and then sparse and heavy ones in turns.
absl::StatusOr<std::vector<Keys>> ReadKeys(const Json& json, int num_layers) {
  if (const Json* types = JsonFind(json, "layer_types")) {
    return ReadList<Keys>(
        *types, "layer_types", num_layers,
        "\"sliding_attention\", \"compressed_sparse_attention\" or "
        "\"heavily_compressed_attention\"",
        [](const Json& entry) -> std::optional<Keys> {
          for (const Keys keys : {Keys::kWindow, Keys::kSparse, Keys::kHeavy}) {
            if (entry == kKeyNames[static_cast<size_t>(keys)]) return keys;
          }
          return std::nullopt;
        });
  }
  if (const Json* ratios = JsonFind(json, "compress_ratios")) {
    return ReadList<Keys>(*ratios, "compress_ratios", num_layers, "0, 4 or 128",
                          [](const Json& entry) -> std::optional<Keys> {
                            if (entry == 0) return Keys::kWindow;
                            if (entry == 4) return Keys::kSparse;
                            if (entry == 128) return Keys::kHeavy;
                            return std::nullopt;
                          });
  }
  std::vector<Keys> keys;
  for (int i = 0; i < num_layers; ++i) {
    keys.push_back(i >= 2 && i % 2 == 1 ? Keys::kSparse : Keys::kHeavy);
  }
  return keys;
}

// mlp_layer_types, or the first num_hash_layers.
absl::StatusOr<std::vector<bool>> ReadHashed(const Json& json, int num_layers) {
  if (const Json* types = JsonFind(json, "mlp_layer_types")) {
    return ReadList<bool>(*types, "mlp_layer_types", num_layers,
                          "\"hash_moe\" or \"moe\"",
                          [](const Json& entry) -> std::optional<bool> {
                            if (entry == "hash_moe") return true;
                            if (entry == "moe") return false;
                            return std::nullopt;
                          });
  }
  INLAY_ASSIGN_OR_RETURN(const int64_t count,
                         JsonInt(json, "num_hash_layers", 3, 0, kMaxLayers));
  std::vector<bool> hashed;
  for (int i = 0; i < num_layers; ++i) hashed.push_back(i < count);
  return hashed;
}

// Tokens a key: of compress_rates, or of `key`.
absl::StatusOr<int64_t> ReadRate(const Json& json, Keys keys,
                                 std::string_view key, int64_t fallback) {
  const Json none = Json::object();
  const Json* rates = JsonFind(json, "compress_rates");
  if (rates == nullptr) rates = &none;
  if (!rates->is_object()) {
    return absl::InvalidArgumentError(
        FormattedString("config.json: compress_rates is %s; it must be an "
                        "object",
                        rates->type_name()));
  }
  INLAY_ASSIGN_OR_RETURN(const int64_t outer,
                         JsonInt(json, key, fallback, 1, kMaxPositions));
  const std::string_view name = kKeyNames[static_cast<size_t>(keys)];
  INLAY_ASSIGN_OR_RETURN(const int64_t rate,
                         JsonInt(*rates, name, outer, 1, kMaxPositions));
  if (rate >= 2 && rate <= kMaxRowTokens &&
      std::has_single_bit(static_cast<uint64_t>(rate))) {
    return rate;
  }
  return absl::UnimplementedError(FormattedString(
      "config.json: %s compresses %d tokens into a key; supported here are "
      "powers of two from 2 to %d",
      name, rate, kMaxRowTokens));
}

absl::Status ReadHeads(const Json& json, V4Config* config) {
  const DecoderConfig& decoder = config->decoder;
  if (decoder.num_kv_heads != 1) {
    return absl::UnimplementedError(FormattedString(
        "config.json: num_key_value_heads is %d; supported here is 1",
        decoder.num_kv_heads));
  }
  if (decoder.head_dim > kMaxAttentionHeadDim) {
    return absl::UnimplementedError(
        FormattedString("config.json: head_dim is %d; supported here are up to "
                        "%d",
                        decoder.head_dim, kMaxAttentionHeadDim));
  }
  INLAY_ASSIGN_OR_RETURN(
      const double partial,
      JsonNumber(json, "partial_rotary_factor", 64.0 / 512.0, 0.0, 1.0));
  INLAY_ASSIGN_OR_RETURN(
      const int64_t rope_dim,
      JsonInt(json, "qk_rope_head_dim",
              static_cast<int64_t>(decoder.head_dim * partial), 2,
              decoder.head_dim));
  if (rope_dim % 2 != 0) {
    return absl::InvalidArgumentError(FormattedString(
        "config.json: %d dimensions are rotated (qk_rope_head_dim, or head_dim "
        "times partial_rotary_factor); the number must be even",
        rope_dim));
  }
  config->rope_dim = static_cast<int>(rope_dim);
  INLAY_ASSIGN_OR_RETURN(config->query_rank,
                         JsonInt(json, "q_lora_rank", 1024, 1, kMaxHidden));
  INLAY_ASSIGN_OR_RETURN(
      config->num_groups,
      JsonInt(json, "o_groups", std::min(8, decoder.num_heads), 1,
              decoder.num_heads));
  INLAY_ASSIGN_OR_RETURN(config->group_rank,
                         JsonInt(json, "o_lora_rank", 1024, 1, kMaxHidden));
  INLAY_RETURN_IF_ERROR(ExpectFlag(json, "attention_bias", false));
  INLAY_RETURN_IF_ERROR(ExpectFlag(json, "mlp_bias", false));
  if (decoder.num_heads % config->num_groups == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(FormattedString(
      "config.json: %d heads in %d groups (o_groups); groups must be of equal "
      "size",
      decoder.num_heads, config->num_groups));
}

absl::Status ReadIndex(const Json& json, V4Config* config) {
  INLAY_ASSIGN_OR_RETURN(config->index_heads,
                         JsonInt(json, "index_n_heads", 64, 1, kMaxIndexHeads));
  INLAY_ASSIGN_OR_RETURN(
      config->index_dim,
      JsonInt(json, "index_head_dim", 128, config->rope_dim, kMaxIndexHeadDim));
  INLAY_ASSIGN_OR_RETURN(config->top_k,
                         JsonInt(json, "index_topk", 512, 1, kMaxPositions));
  const int64_t most = config->decoder.max_positions / config->sparse_tokens;
  config->top_k = std::max<int64_t>(1, std::min(config->top_k, most));
  if (config->top_k <= kMaxIndexTopK) return absl::OkStatus();
  return absl::UnimplementedError(
      FormattedString("config.json: index_topk is %d; supported here are up to "
                      "%d",
                      config->top_k, kMaxIndexTopK));
}

absl::Status ReadExperts(const Json& json, V4Config* config) {
  INLAY_RETURN_IF_ERROR(ExpectName(json, "scoring_func", "sqrtsoftplus"));
  INLAY_RETURN_IF_ERROR(ExpectName(json, "topk_method", "noaux_tc"));
  INLAY_ASSIGN_OR_RETURN(
      config->moe,
      ReadMoeConfig(json, "moe_intermediate_size", {256, 6, 2048, true}));
  RoutingDesc& routing = config->moe.routing;
  routing.score = RoutingScore::kSqrtSoftplus;
  routing.normalised = true;  // the published code asks for nothing
  INLAY_ASSIGN_OR_RETURN(
      const double scale,
      JsonNumber(json, "routed_scaling_factor", 1.5, 0.0, 1e6));
  routing.scale = static_cast<float>(scale);
  INLAY_ASSIGN_OR_RETURN(config->num_shared,
                         JsonInt(json, "n_shared_experts", 1, 0, 64));
  INLAY_ASSIGN_OR_RETURN(const double limit,
                         JsonNumber(json, "swiglu_limit", 10.0, 1e-6, 1e6));
  config->limit = static_cast<float>(limit);
  if (config->decoder.activation != Activation::kSilu) {
    return absl::UnimplementedError(
        "config.json: hidden_act is not \"silu\", the one supported here");
  }
  config->decoder.activation = Activation::kLimitedSilu;
  return absl::OkStatus();
}

absl::StatusOr<V4Config> ReadV4Config(const Json& json) {
  V4Config config;
  INLAY_ASSIGN_OR_RETURN(config.decoder, ReadDecoderConfig(json, V4Defaults()));
  const int num_layers = config.decoder.num_layers;
  INLAY_ASSIGN_OR_RETURN(config.keys, ReadKeys(json, num_layers));
  INLAY_ASSIGN_OR_RETURN(config.hashed, ReadHashed(json, num_layers));
  INLAY_ASSIGN_OR_RETURN(config.sparse_tokens,
                         ReadRate(json, Keys::kSparse, "compress_rate_csa", 4));
  INLAY_ASSIGN_OR_RETURN(
      config.heavy_tokens,
      ReadRate(json, Keys::kHeavy, "compress_rate_hca", 128));
  INLAY_ASSIGN_OR_RETURN(config.window, ReadWindow(json, 128));
  if (config.window < 1) {
    return absl::InvalidArgumentError(
        "config.json: sliding_window is none; this network has one");
  }
  INLAY_RETURN_IF_ERROR(ReadHeads(json, &config));
  INLAY_RETURN_IF_ERROR(ReadIndex(json, &config));
  INLAY_RETURN_IF_ERROR(ReadExperts(json, &config));
  INLAY_ASSIGN_OR_RETURN(config.streams, ReadStreams(json, config.decoder));
  config.streams.head = "hc_head";
  return config;
}

// rope_parameters.main and .compress; or rope_theta without scaling, and
// compress_rope_theta with that of rope_scaling.
absl::StatusOr<std::vector<RopeSpec>> ReadRopes(const Json& json,
                                                const V4Config& config) {
  constexpr double kMaxTheta = 1e15;
  DecoderConfig rotated = config.decoder;
  const RopeDefaults defaults = {
      .theta = 10000.0,
      .partial = double{static_cast<double>(config.rope_dim)} /
                 config.decoder.head_dim};
  const Json* nested = JsonFind(json, "rope_parameters");
  const auto has = [&](std::string_view kind) {
    return nested != nullptr && nested->is_object() &&
           JsonFind(*nested, kind) != nullptr;
  };
  RopeSpec main;
  if (has("main")) {
    INLAY_ASSIGN_OR_RETURN(main, ReadRope(json, rotated, defaults, "main"));
  } else {
    INLAY_ASSIGN_OR_RETURN(
        main.theta, JsonNumber(json, "rope_theta", 10000.0, 1.0001, kMaxTheta));
  }
  INLAY_ASSIGN_OR_RETURN(RopeSpec compress,
                         ReadRope(json, rotated, defaults, "compress"));
  if (!has("compress")) {
    INLAY_ASSIGN_OR_RETURN(
        compress.theta,
        JsonNumber(json, "compress_rope_theta", 160000.0, 1.0001, kMaxTheta));
  }
  main.rotary_dim = compress.rotary_dim = config.rope_dim;
  for (RopeSpec* rope : {&main, &compress}) {
    if (rope->scaling != RopeScaling::kNone &&
        rope->scaling != RopeScaling::kYarn) {
      return absl::UnimplementedError(
          "config.json: the rope type is neither \"default\" nor \"yarn\", "
          "those supported here");
    }
    // The published code scales no sines.
    if (!rope->attention_factor) rope->attention_factor = 1.0;
  }
  std::vector<RopeSpec> ropes = {main, main, compress, compress};
  ropes[kMainBack].reversed = ropes[kCompressBack].reversed = true;
  for (const int64_t tokens : {config.sparse_tokens, config.heavy_tokens}) {
    ropes.push_back(compress);
    ropes.back().position_step = static_cast<int32_t>(tokens);
  }
  return ropes;
}

CompressorSpec Compressor(const V4Config& config, const std::string& name,
                          int64_t head_dim, int64_t row_tokens, bool overlaps) {
  const int64_t hidden = config.decoder.hidden_size;
  CompressorSpec spec;
  spec.head_dim = static_cast<int>(head_dim);
  spec.row_tokens = static_cast<int>(row_tokens);
  spec.overlaps = overlaps;
  const int64_t width = spec.num_heads() * head_dim;
  spec.values = {name + "wkv", width, hidden};
  spec.gates = {name + "wgate", width, hidden};
  spec.bias = name + "ape";
  spec.norm = {NormKind::kRms, name + "norm", config.decoder.norm_epsilon};
  return spec;
}

void AddCompressedKeys(const V4Config& config, Keys keys,
                       const std::string& name, int64_t max_positions,
                       CompressedAttentionSpec* spec) {
  const bool is_sparse = keys == Keys::kSparse;
  const int64_t tokens = is_sparse ? config.sparse_tokens : config.heavy_tokens;
  const int64_t max_keys = std::max<int64_t>(1, max_positions / tokens);
  spec->rope = kCompress;
  spec->rope_back = kCompressBack;
  spec->compressed_rope = kCompressedKeys + (is_sparse ? 0 : 1);
  spec->compressor = Compressor(config, name + "compressor.", spec->head_dim,
                                tokens, is_sparse);
  spec->most = static_cast<int>(is_sparse ? config.top_k : max_keys);
  if (!is_sparse) return;
  const std::string indexer = name + "indexer.";
  CompressedIndexSpec& index = spec->index.emplace();
  index.num_heads = static_cast<int>(config.index_heads);
  index.max_keys = max_keys;
  index.compressor = Compressor(config, indexer + "compressor.",
                                config.index_dim, tokens, true);
  index.query = {indexer + "wq_b", config.index_heads * config.index_dim,
                 config.query_rank};
  index.weights = {indexer + "weights_proj", config.index_heads,
                   config.decoder.hidden_size};
}

CompressedAttentionSpec Attention(const V4Config& config, Keys keys,
                                  const std::string& prefix,
                                  int64_t max_positions) {
  const DecoderConfig& decoder = config.decoder;
  const int64_t hidden = decoder.hidden_size;
  const int64_t width = int64_t{decoder.num_heads} * decoder.head_dim;
  const std::string name = prefix + "attn.";
  const auto norm = [&](const char* which) -> NormSpec {
    return {NormKind::kRms, *which == '\0' ? "" : name + which,
            decoder.norm_epsilon};
  };
  CompressedAttentionSpec spec;
  spec.num_heads = decoder.num_heads;
  spec.head_dim = decoder.head_dim;
  spec.rope_dim = config.rope_dim;
  spec.window = config.window;
  spec.low_query = {name + "wq_a", config.query_rank, hidden};
  spec.low_query_norm = norm("q_norm");
  spec.query = {name + "wq_b", width, config.query_rank};
  spec.query_norm = norm("");
  spec.key = {name + "wkv", decoder.head_dim, hidden};
  spec.key_norm = norm("kv_norm");
  spec.rope = kMain;
  spec.rope_back = kMainBack;
  spec.scale = 1.0f / std::sqrt(static_cast<float>(decoder.head_dim));
  spec.sinks = name + "attn_sink";
  for (int64_t g = 0; g < config.num_groups; ++g) {
    spec.group_outputs.push_back({FormattedString("%swo_a.%d", name, g),
                                  config.group_rank,
                                  width / config.num_groups});
  }
  spec.output = {name + "wo_b", hidden, config.num_groups * config.group_rank};
  if (keys != Keys::kWindow) {
    AddCompressedKeys(config, keys, name, max_positions, &spec);
  }
  return spec;
}

MoeSpec Experts(const V4Config& config, bool hashed,
                const std::string& prefix) {
  const ExpertNames names = {"w1", "w3", "w2"};
  const std::string name = prefix + "ffn.";
  MoeSpec spec =
      LlamaStyleMoe(config.decoder, config.moe, name, "gate", false, names);
  spec.routing.hashed = hashed;
  if (hashed) {
    spec.table = name + "gate.tid2eid";
    spec.table_rows = config.decoder.vocab_size;
  } else {
    spec.correction = name + "gate.bias";
  }
  if (config.num_shared > 0) {
    spec.shared = SharedExpert(config.decoder, name + "shared_experts.",
                               config.moe.width * config.num_shared, names);
    spec.shared->limit = config.limit;
  }
  for (MlpSpec& expert : spec.experts) expert.limit = config.limit;
  return spec;
}

absl::StatusOr<DecoderSpec> V4Spec(const Json& json) {
  INLAY_ASSIGN_OR_RETURN(const V4Config config, ReadV4Config(json));
  const DecoderConfig& decoder = config.decoder;
  DecoderSpec spec = LlamaStyleDecoder(decoder, NormKind::kRms);
  spec.optional_prefix = "";
  spec.embedding = "embed.weight";
  spec.final_norm.name = "norm";
  (spec.head.empty() ? spec.tied_head : spec.head) = "head";
  spec.streams = config.streams;
  INLAY_ASSIGN_OR_RETURN(spec.ropes, ReadRopes(json, config));
  for (int i = 0; i < decoder.num_layers; ++i) {
    const std::string prefix = FormattedString("layers.%d.", i);
    const auto at = static_cast<size_t>(i);
    LayerSpec& layer = spec.layers.emplace_back();
    layer.blocks.resize(2);
    const auto fill = [&](BlockSpec& block, const char* name, PartSpec part) {
      block.pre_norm = {NormKind::kRms, prefix + name + "_norm",
                        decoder.norm_epsilon};
      block.hyper = prefix + "hc_" + name;
      block.part = std::move(part);
    };
    fill(layer.blocks[0], "attn",
         Attention(config, config.keys[at], prefix, spec.max_positions));
    fill(layer.blocks[1], "ffn", Experts(config, config.hashed[at], prefix));
  }
  return spec;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> MakeDeepseekV4(const Json& json,
                                                      ModelBuild& build) {
  INLAY_ASSIGN_OR_RETURN(const DecoderSpec spec, V4Spec(json));
  return BuildDecoder(spec, build);
}

}  // namespace inlay
