#include "core/formats/gguf_deepseek4.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/formats/gguf_metadata.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

constexpr char kV4Ratios[] = "attention.compress_ratios";
constexpr char kV4Base[] = "attention.compress_rope_freq_base";
constexpr char kV4Gating[] = "expert_gating_func";
constexpr char kV4Norm[] = "expert_weights_norm";
constexpr char kV4Limits[] = "swiglu_clamp_exp";
constexpr char kV4SharedLimits[] = "swiglu_clamp_shexp";
constexpr char kV4Rotated[] = "rope.dimension_count";
constexpr char kV4Hashed[] = "hash_layer_count";
constexpr char kV4Epsilon[] = "hyper_connection.epsilon";
constexpr int64_t kSqrtSoftplus = 4;
constexpr double kV4CompressBase = 160000.0;

// Tokens a compressed key, and what transformers calls the layers.
struct V4Kind {
  uint32_t tokens;
  const char* name;
  const char* rate;  // config.json's key of the tokens
};
constexpr V4Kind kV4Kinds[] = {
    {0, "sliding_attention", nullptr},
    {4, "compressed_sparse_attention", "compress_rate_csa"},
    {128, "heavily_compressed_attention", "compress_rate_hca"}};

struct V4Size {
  const char* gguf;
  const char* published;
  int64_t fallback;
};
constexpr V4Size kV4Sizes[] = {
    {"attention.q_lora_rank", "q_lora_rank", 1024},
    {"attention.sliding_window", "sliding_window", 128},
    {"attention.indexer.head_count", "index_n_heads", 64},
    {"attention.indexer.key_length", "index_head_dim", 128},
    {"attention.indexer.top_k", "index_topk", 512},
    {"attention.output_lora_rank", "o_lora_rank", 1024},
    {"hyper_connection.count", "hc_mult", 4},
    {"hyper_connection.sinkhorn_iterations", "hc_sinkhorn_iters", 20}};

constexpr char kV4Groups[] = "attention.output_group_count";

// One limit for all layers' experts, and the same for the shared ones.
absl::StatusOr<double> ReadV4Limit(const GgufArchKeys& keys,
                                   const GgufHeader& header, int64_t layers) {
  std::optional<double> limit;
  for (const char* key : {kV4Limits, kV4SharedLimits}) {
    const GgufValue* value = keys.Find(key);
    // Without their own shared experts have the others'.
    if (value == nullptr && limit.has_value()) break;
    std::vector<double> all;
    if (value != nullptr && value->is_array) {
      INLAY_ASSIGN_OR_RETURN(const auto list,
                             GgufNumbers(header, keys.Name(key)));
      all = list.value_or(std::vector<double>());
    } else {
      INLAY_ASSIGN_OR_RETURN(const auto one, keys.Number(key));
      if (one.has_value()) all.push_back(*one);
    }
    const bool is_whole = value == nullptr || !value->is_array ||
                          static_cast<int64_t>(all.size()) >= layers;
    if (!limit.has_value() && !all.empty()) limit = all.front();
    const bool is_one = !all.empty() && is_whole && *limit > 0.0 &&
                        std::all_of(all.begin(), all.end(),
                                    [&](double own) { return own == *limit; });
    if (is_one) continue;
    return absl::UnimplementedError(FormattedString(
        "%s: allowed: one number above 0 for all of %d layers, and in %s and "
        "%s the same",
        keys.Name(key), layers, keys.Name(kV4Limits),
        keys.Name(kV4SharedLimits)));
  }
  return *limit;
}

// Which layers compress keys, by the tokens of one.
absl::StatusOr<std::vector<uint32_t>> V4Ratios(const GgufKeyWriter& keys,
                                               size_t layers) {
  const Json& config = keys.config();
  const Json* rates = JsonFind(config, "compress_rates");
  for (const V4Kind& kind : kV4Kinds) {
    if (kind.rate == nullptr) continue;
    INLAY_RETURN_IF_ERROR(keys.Expect(kind.rate, kind.tokens));
    const Json* own = rates == nullptr ? nullptr : JsonFind(*rates, kind.name);
    if (own != nullptr && *own != kind.tokens) {
      return keys.NotSaid("compress_rates", *rates);
    }
  }
  const Json* types = JsonFind(config, "layer_types");
  const Json* ratios = JsonFind(config, "compress_ratios");
  std::vector<uint32_t> all;
  for (size_t i = 0; i < layers; ++i) {
    // As the family has it where config.json does not say.
    uint32_t tokens = i >= 2 && i % 2 == 1 ? 4 : 128;
    for (const V4Kind& kind : kV4Kinds) {
      if (types != nullptr && types->is_array() && i < types->size()) {
        if ((*types)[i] == kind.name) tokens = kind.tokens;
      } else if (ratios != nullptr && ratios->is_array() &&
                 i < ratios->size()) {
        if ((*ratios)[i] == kind.tokens) tokens = kind.tokens;
      }
    }
    all.push_back(tokens);
  }
  return all;
}

// Layers whose experts go by the token come first.
absl::StatusOr<int64_t> V4HashedLayers(const GgufKeyWriter& keys,
                                       int64_t layers) {
  const Json* types = JsonFind(keys.config(), "mlp_layer_types");
  if (types == nullptr || !types->is_array()) {
    return JsonInt(keys.config(), "num_hash_layers", 3, 0, kMaxGgufLayers);
  }
  int64_t hashed = 0;
  for (size_t i = 0; i < types->size(); ++i) {
    if ((*types)[i] != "hash_moe") continue;
    if (static_cast<int64_t>(i) != hashed) {
      return keys.NotSaid("mlp_layer_types", *types);
    }
    ++hashed;
  }
  return std::min(hashed, layers);
}

absl::StatusOr<double> V4CompressBase(const Json& config) {
  const Json* ropes = JsonFind(config, "rope_parameters");
  const Json* own = ropes == nullptr ? nullptr : JsonFind(*ropes, "compress");
  return own != nullptr ? JsonNumber(*own, "rope_theta", 10000.0, 1.0, 1e15)
                        : JsonNumber(config, "compress_rope_theta",
                                     kV4CompressBase, 1.0, 1e15);
}

}  // namespace

absl::Status ReadGgufDeepseek4(const GgufArchKeys& keys, const GgufSizes& sizes,
                               const GgufHeader& header, Json* config) {
  const auto required = [&](const char* key, int64_t min, int64_t max) {
    return keys.Required(key, keys.Int(key, min, max));
  };
  INLAY_ASSIGN_OR_RETURN(const int64_t gating,
                         required(kV4Gating, 0, INT32_MAX));
  INLAY_ASSIGN_OR_RETURN(const auto normalised, keys.Bool(kV4Norm));
  if (gating != kSqrtSoftplus || !normalised.has_value()) {
    return absl::UnimplementedError(FormattedString(
        "%s is %d and %s is %s, allowed: %d (the root of softplus), and a bool",
        keys.Name(kV4Gating), gating, keys.Name(kV4Norm),
        normalised.has_value() ? "a bool" : "missing", kSqrtSoftplus));
  }
  for (const V4Size& size : kV4Sizes) {
    INLAY_ASSIGN_OR_RETURN((*config)[size.published],
                           required(size.gguf, 1, kMaxGgufSize));
  }
  INLAY_ASSIGN_OR_RETURN((*config)["o_groups"],
                         required(kV4Groups, 1, sizes.heads));
  INLAY_ASSIGN_OR_RETURN(const auto rotated,
                         keys.Int(kV4Rotated, 2, sizes.head_dim));
  (*config)["qk_rope_head_dim"] = rotated.value_or(sizes.head_dim);
  INLAY_ASSIGN_OR_RETURN((*config)["num_hash_layers"],
                         required(kV4Hashed, 0, kMaxGgufLayers));
  INLAY_ASSIGN_OR_RETURN((*config)["swiglu_limit"],
                         ReadV4Limit(keys, header, sizes.layers));
  INLAY_ASSIGN_OR_RETURN(const auto ratios, keys.Ints(kV4Ratios));
  const std::vector<int64_t> list = ratios.value_or(std::vector<int64_t>());
  if (static_cast<int64_t>(list.size()) < sizes.layers) {
    return absl::InvalidArgumentError(
        FormattedString("%s: %d values, allowed: one for each of %d layers",
                        keys.Name(kV4Ratios), list.size(), sizes.layers));
  }
  (*config)["compress_ratios"] =
      std::vector<int64_t>(list.begin(), list.begin() + sizes.layers);
  for (const auto& [key, name] : {std::pair{kV4Base, "compress_rope_theta"},
                                  std::pair{kV4Epsilon, "hc_eps"}}) {
    INLAY_ASSIGN_OR_RETURN(const auto number, keys.Number(key));
    if (!number.has_value()) {
      return absl::InvalidArgumentError(
          FormattedString("key \"%s\" is missing", keys.Name(key)));
    }
    (*config)[name] = *number;
  }
  return absl::OkStatus();
}

absl::Status SetGgufDeepseek4(GgufKeyWriter& keys, int64_t hidden_size) {
  const Json& config = keys.config();
  INLAY_RETURN_IF_ERROR(keys.Expect("scoring_func", "sqrtsoftplus"));
  INLAY_RETURN_IF_ERROR(keys.Expect("tie_word_embeddings", false));
  if (keys.IsNull("sliding_window")) {
    return keys.NotSaid("sliding_window", Json());
  }
  for (const V4Size& size : kV4Sizes) {
    INLAY_RETURN_IF_ERROR(
        keys.CopySize(size.published, size.gguf, size.fallback).status());
  }
  INLAY_ASSIGN_OR_RETURN(const int64_t layers, keys.Size("num_hidden_layers"));
  INLAY_ASSIGN_OR_RETURN(const int64_t heads, keys.Size("num_attention_heads"));
  INLAY_ASSIGN_OR_RETURN(const int64_t streams, keys.Size("hc_mult", 4));
  INLAY_RETURN_IF_ERROR(
      keys.CopySize("o_groups", kV4Groups, std::min<int64_t>(8, heads))
          .status());
  INLAY_RETURN_IF_ERROR(
      keys.SetU32("embedding_length_out", hidden_size * streams));
  INLAY_RETURN_IF_ERROR(keys.CopyNumber("hc_eps", kV4Epsilon, 1e-6));
  INLAY_ASSIGN_OR_RETURN(const int64_t hashed, V4HashedLayers(keys, layers));
  INLAY_RETURN_IF_ERROR(keys.SetU32(kV4Hashed, hashed));
  INLAY_ASSIGN_OR_RETURN(const std::vector<uint32_t> ratios,
                         V4Ratios(keys, static_cast<size_t>(layers)));
  INLAY_RETURN_IF_ERROR(keys.SetU32s(kV4Ratios, ratios));
  INLAY_ASSIGN_OR_RETURN(const double base, V4CompressBase(config));
  INLAY_RETURN_IF_ERROR(keys.SetF32(kV4Base, base));
  INLAY_ASSIGN_OR_RETURN(const double limit,
                         JsonNumber(config, "swiglu_limit", 10.0, 1e-6, 1e6));
  const std::vector<float> limits(static_cast<size_t>(layers),
                                  static_cast<float>(limit));
  for (const char* key : {kV4Limits, kV4SharedLimits}) {
    INLAY_RETURN_IF_ERROR(keys.writer().SetF32s(keys.Name(key), limits));
  }
  INLAY_ASSIGN_OR_RETURN(
      const int64_t shared,
      JsonInt(config, "n_shared_experts", 1, 0, kMaxGgufSize));
  INLAY_RETURN_IF_ERROR(keys.SetU32("expert_shared_count", shared));
  INLAY_RETURN_IF_ERROR(
      keys.CopyNumber("routed_scaling_factor", "expert_weights_scale", 1.5));
  INLAY_ASSIGN_OR_RETURN(const bool normalised,
                         JsonBool(config, "norm_topk_prob", true));
  INLAY_RETURN_IF_ERROR(keys.SetBool(kV4Norm, normalised));
  return keys.SetU32(kV4Gating, kSqrtSoftplus);
}

absl::StatusOr<Json> WithDeepseek4Rope(const Json& config, int64_t head_dim) {
  Json own = config;
  INLAY_ASSIGN_OR_RETURN(
      const double partial,
      JsonNumber(config, "partial_rotary_factor", 64.0 / 512.0, 0.0, 1.0));
  INLAY_ASSIGN_OR_RETURN(
      const int64_t rotated,
      JsonInt(config, "qk_rope_head_dim",
              static_cast<int64_t>(static_cast<double>(head_dim) * partial), 2,
              head_dim));
  const Json* ropes = JsonFind(config, "rope_parameters");
  own.erase("rope_parameters");
  if (ropes != nullptr) {
    const Json* main = JsonFind(*ropes, "main");
    const Json* compress = JsonFind(*ropes, "compress");
    const Json* type = main == nullptr ? nullptr : JsonFind(*main, "rope_type");
    if (type != nullptr && *type != "default") {
      return absl::UnimplementedError(FormattedString(
          "config.json: rope_parameters.main has the rope_type %s, allowed in "
          "a GGUF file of \"deepseek4\": \"default\"",
          ShownJson(*type)));
    }
    if (main != nullptr && JsonFind(*main, "rope_theta") != nullptr) {
      own["rope_theta"] = *JsonFind(*main, "rope_theta");
    }
    if (compress != nullptr) {
      Json& scaling = own["rope_scaling"];
      scaling = *compress;
      if (scaling.is_object()) {
        scaling.erase("rope_theta");
        scaling.erase("partial_rotary_factor");
      }
    }
  }
  // It is multiplied out and cut off again: stay above the integer.
  own["partial_rotary_factor"] = rotated == head_dim
                                     ? 1.0
                                     : (static_cast<double>(rotated) + 0.5) /
                                           static_cast<double>(head_dim);
  return own;
}

}  // namespace inlay
