#include "core/formats/gguf_gemma_writer.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/formats/gguf_experts_writer.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

// Large enough to leave a pair where it is.
constexpr float kStillFactor = 1e30f;
constexpr int64_t kMostHeads = int64_t{1} << 20;

struct Gemma4Heads {
  int64_t full_dim = 0;
  std::vector<bool> slides;
  std::vector<uint32_t> counts;  // of keys and values
};

// per_layer_config wins over the family's two kinds.
absl::StatusOr<Gemma4Heads> ReadGemma4Heads(const GgufKeyWriter& keys,
                                            size_t layers) {
  const Json& config = keys.config();
  const Json* types = JsonFind(config, "layer_types");
  if (types == nullptr || !types->is_array() || types->size() != layers) {
    return absl::InvalidArgumentError(FormattedString(
        "config.json: layer_types is missing, or not of %d layers: a GGUF file "
        "needs it",
        layers));
  }
  Gemma4Heads heads;
  INLAY_ASSIGN_OR_RETURN(const int64_t window_dim, keys.Size("head_dim", 256));
  INLAY_ASSIGN_OR_RETURN(const int64_t window_heads,
                         keys.Size("num_key_value_heads"));
  INLAY_ASSIGN_OR_RETURN(const bool by_keys,
                         JsonBool(config, "attention_k_eq_v", false));
  const Json* own = JsonFind(config, "per_layer_config");
  int64_t global_dim = window_dim, global_heads = window_heads;
  if (own == nullptr) {
    INLAY_ASSIGN_OR_RETURN(global_dim, keys.Size("global_head_dim", 512));
    INLAY_ASSIGN_OR_RETURN(global_heads,
                           keys.Size(by_keys ? "num_global_key_value_heads"
                                             : "num_key_value_heads",
                                     window_heads));
  }
  for (size_t i = 0; i < layers; ++i) {
    const bool slides = (*types)[i] == "sliding_attention";
    int64_t dim = slides ? window_dim : global_dim;
    int64_t count = slides ? window_heads : global_heads;
    const Json* layer =
        own == nullptr ? nullptr : JsonFind(*own, FormattedString("%d", i));
    if (layer != nullptr) {
      INLAY_ASSIGN_OR_RETURN(dim, JsonInt(*layer, "head_dim", dim, 1, 65536));
      INLAY_ASSIGN_OR_RETURN(
          count, JsonInt(*layer, "num_key_value_heads", count, 1, kMostHeads));
    }
    if (!slides && heads.full_dim == 0) heads.full_dim = dim;
    if (dim != (slides ? window_dim : heads.full_dim)) {
      return absl::UnimplementedError(FormattedString(
          "config.json: layer %d has heads of %d, which a GGUF file of "
          "\"gemma4\" cannot say",
          i, dim));
    }
    heads.slides.push_back(slides);
    heads.counts.push_back(static_cast<uint32_t>(count));
  }
  if (heads.full_dim == 0) heads.full_dim = global_dim;
  return heads;
}

// rope_parameters of a type of layers; without any of its own those of all,
// which may be null.
const Json* FindRope(const Json& config, const char* type) {
  const Json* ropes = JsonFind(config, "rope_parameters");
  const Json* own = ropes == nullptr ? nullptr : JsonFind(*ropes, type);
  return own == nullptr ? ropes : own;
}

absl::StatusOr<std::string> RopeType(const Json& rope) {
  INLAY_ASSIGN_OR_RETURN(const std::string old,
                         JsonString(rope, "type", "default"));
  return JsonString(rope, "rope_type", old);
}

// The rope's own, or the one beside rope_parameters.
absl::StatusOr<double> RopeNumber(const Json& config, const Json& rope,
                                  const char* key, double fallback, double min,
                                  double max) {
  INLAY_ASSIGN_OR_RETURN(const double outer,
                         JsonNumber(config, key, fallback, min, max));
  return JsonNumber(rope, key, outer, min, max);
}
absl::StatusOr<double> RopeBase(const Json& config, const Json& rope,
                                double fallback) {
  return RopeNumber(config, rope, "rope_theta", fallback, 1.0, 1e15);
}
absl::StatusOr<double> RotatingPart(const Json& config, const Json& rope) {
  return RopeNumber(config, rope, "partial_rotary_factor", 1.0, 0.0, 1.0);
}

// Of the layers with a window, whose heads rotate as a whole.
absl::StatusOr<double> WindowBase(const GgufKeyWriter& keys) {
  const Json& config = keys.config();
  constexpr char kSliding[] = "sliding_attention";
  const Json* ropes = JsonFind(config, "rope_parameters");
  if (ropes == nullptr || JsonFind(*ropes, kSliding) == nullptr) {
    return JsonNumber(config, "rope_local_base_freq", 1e4, 1.0, 1e15);
  }
  const Json& rope = *FindRope(config, kSliding);
  INLAY_ASSIGN_OR_RETURN(const std::string type, RopeType(rope));
  INLAY_ASSIGN_OR_RETURN(const double part, RotatingPart(config, rope));
  if (type != "default") {
    return keys.NotSaid("rope_type of layers with a window", type);
  }
  if (part != 1.0) {
    return keys.NotSaid("partial_rotary_factor of layers with a window", part);
  }
  return RopeBase(config, rope, 1e4);
}

// The bases, and the factors that leave most of a full layer's head alone.
absl::Status SetGemma4Ropes(GgufKeyWriter& keys, int64_t full_dim,
                            GgufConfigTensors* tensors) {
  const Json& config = keys.config();
  const Json usual = {{"rope_type", "proportional"},
                      {"partial_rotary_factor", 0.25}};
  const Json* found = FindRope(config, "full_attention");
  const Json& full = found == nullptr ? usual : *found;
  INLAY_ASSIGN_OR_RETURN(const std::string type, RopeType(full));
  INLAY_ASSIGN_OR_RETURN(const double part, RotatingPart(config, full));
  INLAY_ASSIGN_OR_RETURN(const double factor,
                         JsonNumber(full, "factor", 1.0, 0.0, 1e6));
  // Of a whole head they are the same.
  const bool is_whole = type == "default" && part == 1.0;
  if (type != "proportional" && !is_whole) {
    return keys.NotSaid("rope_type of layers without a window", type);
  }
  if (type == "proportional" && factor != 1.0) {
    return keys.NotSaid("rope_parameters' factor", factor);
  }
  INLAY_ASSIGN_OR_RETURN(const double base, RopeBase(config, full, 1e6));
  INLAY_ASSIGN_OR_RETURN(const double window_base, WindowBase(keys));
  INLAY_RETURN_IF_ERROR(keys.SetF32("rope.freq_base", base));
  INLAY_RETURN_IF_ERROR(keys.SetF32("rope.freq_base_swa", window_base));
  const auto pairs = static_cast<size_t>(full_dim / 2);
  const auto turning =
      static_cast<size_t>(static_cast<double>(full_dim) * part / 2.0);
  std::vector<float> factors(pairs, kStillFactor);
  for (size_t i = 0; i < std::min(turning, pairs); ++i) factors[i] = 1.0f;
  tensors->vectors.emplace_back("rope_freqs.weight", std::move(factors));
  return absl::OkStatus();
}

absl::Status SetGemma4Widths(GgufKeyWriter& keys, size_t layers) {
  INLAY_ASSIGN_OR_RETURN(const int64_t width, keys.Size("intermediate_size"));
  INLAY_ASSIGN_OR_RETURN(const int64_t shared,
                         JsonInt(keys.config(), "num_kv_shared_layers", 0, 0,
                                 static_cast<int64_t>(layers)));
  INLAY_ASSIGN_OR_RETURN(const bool doubles,
                         JsonBool(keys.config(), "use_double_wide_mlp", false));
  INLAY_RETURN_IF_ERROR(keys.SetU32("attention.shared_kv_layers", shared));
  if (!doubles) return keys.SetU32("feed_forward_length", width);
  std::vector<uint32_t> widths(layers, static_cast<uint32_t>(width));
  for (size_t i = layers - static_cast<size_t>(shared); i < layers; ++i) {
    widths[i] = static_cast<uint32_t>(2 * width);
  }
  return keys.SetU32s("feed_forward_length", widths);
}

absl::Status SetGemma4Experts(GgufKeyWriter& keys) {
  INLAY_ASSIGN_OR_RETURN(const bool has_experts,
                         JsonBool(keys.config(), "enable_moe_block", false));
  return has_experts ? SetGgufExperts(keys) : absl::OkStatus();
}

}  // namespace

absl::Status SetGgufGemma4(GgufKeyWriter& keys, GgufConfigTensors* tensors) {
  INLAY_RETURN_IF_ERROR(
      keys.CheckActivation("hidden_activation", {"gelu_pytorch_tanh"}));
  INLAY_RETURN_IF_ERROR(keys.Expect("attention_bias", false));
  INLAY_ASSIGN_OR_RETURN(const int64_t count,
                         keys.CopySize("num_hidden_layers", "block_count"));
  const auto layers = static_cast<size_t>(count);
  INLAY_RETURN_IF_ERROR(
      keys.CopySize("hidden_size", "embedding_length").status());
  INLAY_RETURN_IF_ERROR(
      keys.CopySize("max_position_embeddings", "context_length").status());
  INLAY_ASSIGN_OR_RETURN(
      tensors->heads.query,
      keys.CopySize("num_attention_heads", "attention.head_count"));
  INLAY_RETURN_IF_ERROR(keys.CopyNumber(
      "rms_norm_eps", "attention.layer_norm_rms_epsilon", 1e-6));
  INLAY_ASSIGN_OR_RETURN(const Gemma4Heads heads,
                         ReadGemma4Heads(keys, layers));
  INLAY_RETURN_IF_ERROR(keys.SetU32s("attention.head_count_kv", heads.counts));
  INLAY_RETURN_IF_ERROR(
      keys.SetBools("attention.sliding_window_pattern", heads.slides));
  INLAY_ASSIGN_OR_RETURN(const int64_t window_dim, keys.Size("head_dim", 256));
  for (const auto& [name, size] :
       {std::pair{"attention.key_length", heads.full_dim},
        std::pair{"attention.value_length", heads.full_dim},
        std::pair{"attention.key_length_swa", window_dim},
        std::pair{"attention.value_length_swa", window_dim},
        std::pair{"rope.dimension_count", heads.full_dim},
        std::pair{"rope.dimension_count_swa", window_dim}}) {
    INLAY_RETURN_IF_ERROR(keys.SetU32(name, size));
  }
  if (keys.IsNull("sliding_window")) {
    return absl::UnimplementedError(
        "config.json: sliding_window is null, which a GGUF file of \"gemma4\" "
        "cannot say");
  }
  INLAY_RETURN_IF_ERROR(
      keys.CopySize("sliding_window", "attention.sliding_window", 512)
          .status());
  INLAY_ASSIGN_OR_RETURN(const int64_t per_layer,
                         JsonInt(keys.config(), "hidden_size_per_layer_input",
                                 256, 0, kMostHeads));
  INLAY_RETURN_IF_ERROR(
      keys.SetU32("embedding_length_per_layer_input", per_layer));
  if (keys.Has("final_logit_softcapping")) {
    INLAY_RETURN_IF_ERROR(keys.CopyNumber("final_logit_softcapping",
                                          "final_logit_softcapping", 0.0));
  }
  INLAY_RETURN_IF_ERROR(SetGemma4Widths(keys, layers));
  INLAY_RETURN_IF_ERROR(SetGemma4Ropes(keys, heads.full_dim, tensors));
  return SetGemma4Experts(keys);
}

}  // namespace inlay
