#include "core/formats/gguf_config.h"

#include <cmath>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "core/formats/gguf_metadata.h"
#include "memory/status.h"

namespace inlay {
namespace {

constexpr int64_t kMaxLayers = 4096;
constexpr int64_t kMaxSize = int64_t{1} << 28;
// Gemma's largest models, of those with so many layers, scale their queries by
// the width a head would have without a size of its own.
constexpr int64_t kGemma2WideLayers = 46;
constexpr int64_t kGemma3WideLayers = 62;

class ConfigReader {
 public:
  ConfigReader(const GgufFiles& files, const GgufArch& arch)
      : files_(files), header_(files.header()), arch_(arch) {}

  absl::StatusOr<GgufConfig> Read() {
    json_ = Json{{"architectures", {arch_.architecture}},
                 {"model_type", arch_.model_type}};
    INLAY_RETURN_IF_ERROR(RefuseExperts());
    INLAY_RETURN_IF_ERROR(ReadSizes());
    json_["vocab_size"] = vocab_size_;
    json_["tie_word_embeddings"] = !Has("output.weight");
    if (arch_.name == "gpt2") {
      INLAY_RETURN_IF_ERROR(ReadGpt2());
    } else {
      INLAY_RETURN_IF_ERROR(ReadRotary());
      INLAY_RETURN_IF_ERROR(ReadFamily());
    }
    return GgufConfig{std::move(json_), {heads_, kv_heads_}};
  }

 private:
  std::string Key(std::string_view name) const {
    return absl::StrFormat("%s.%s", arch_.name, name);
  }
  bool Has(std::string_view tensor) const {
    return files_.FindTensor(tensor) != nullptr;
  }

  absl::Status Missing(const std::string& key) const {
    return absl::InvalidArgumentError(
        absl::StrFormat("key \"%s\" is missing", key));
  }

  absl::StatusOr<int64_t> Size(std::string_view name, int64_t max) const {
    INLAY_ASSIGN_OR_RETURN(const auto size,
                           GgufInt(header_, Key(name), 1, max));
    if (!size.has_value()) return Missing(Key(name));
    return *size;
  }

  absl::StatusOr<std::optional<int64_t>> LayerSize(
      std::string_view name) const {
    return GgufLayerInt(header_, Key(name), layers_, 1, kMaxSize);
  }

  // Copies a number, where it is there, to `to` of config.json.
  absl::Status Copy(std::string_view name, const char* to, Json* object) const {
    INLAY_ASSIGN_OR_RETURN(const auto number, GgufNumber(header_, Key(name)));
    if (number.has_value()) (*object)[to] = *number;
    return absl::OkStatus();
  }

  absl::Status RefuseExperts() const {
    INLAY_ASSIGN_OR_RETURN(const auto experts,
                           GgufInt(header_, Key("expert_count"), 0, kMaxSize));
    if (experts.value_or(0) == 0) return absl::OkStatus();
    return absl::UnimplementedError(
        absl::StrFormat("%s is %d: mixtures of experts do not load yet",
                        Key("expert_count"), *experts));
  }

  absl::Status ReadSizes() {
    INLAY_ASSIGN_OR_RETURN(layers_, Size("block_count", kMaxLayers));
    INLAY_ASSIGN_OR_RETURN(hidden_, Size("embedding_length", kMaxSize));
    INLAY_ASSIGN_OR_RETURN(context_, Size("context_length", kMaxSize));
    INLAY_ASSIGN_OR_RETURN(const auto heads, LayerSize("attention.head_count"));
    if (!heads.has_value()) return Missing(Key("attention.head_count"));
    heads_ = *heads;
    INLAY_ASSIGN_OR_RETURN(const auto kv_heads,
                           LayerSize("attention.head_count_kv"));
    kv_heads_ = kv_heads.value_or(heads_);
    INLAY_ASSIGN_OR_RETURN(const auto inner, LayerSize("feed_forward_length"));
    if (!inner.has_value()) return Missing(Key("feed_forward_length"));
    inner_ = *inner;
    const GgufTensor* embedding = files_.FindTensor("token_embd.weight");
    if (embedding == nullptr || embedding->info.shape.size() != 2) {
      return absl::InvalidArgumentError(
          "tensor \"token_embd.weight\" is missing or no matrix");
    }
    vocab_size_ = embedding->info.shape[0];
    return absl::OkStatus();
  }

  absl::Status ReadGpt2() {
    json_["n_layer"] = layers_;
    json_["n_embd"] = hidden_;
    json_["n_positions"] = context_;
    json_["n_head"] = heads_;
    json_["n_inner"] = inner_;
    return Copy("attention.layer_norm_epsilon", "layer_norm_epsilon", &json_);
  }

  absl::Status ReadHeadDim() {
    INLAY_ASSIGN_OR_RETURN(const auto key, LayerSize("attention.key_length"));
    INLAY_ASSIGN_OR_RETURN(const auto value,
                           LayerSize("attention.value_length"));
    head_dim_ = key.value_or(hidden_ / heads_);
    if (head_dim_ < 1 || value.value_or(head_dim_) != head_dim_) {
      return absl::UnimplementedError(absl::StrFormat(
          "heads of %d for keys and %d for values, allowed: one size, at least "
          "1",
          head_dim_, value.value_or(head_dim_)));
    }
    json_["head_dim"] = head_dim_;
    return absl::OkStatus();
  }

  absl::Status ReadRotary() {
    json_["num_hidden_layers"] = layers_;
    json_["hidden_size"] = hidden_;
    json_["max_position_embeddings"] = context_;
    json_["num_attention_heads"] = heads_;
    json_["num_key_value_heads"] = kv_heads_;
    json_["intermediate_size"] = inner_;
    INLAY_RETURN_IF_ERROR(
        Copy("attention.layer_norm_rms_epsilon", "rms_norm_eps", &json_));
    INLAY_RETURN_IF_ERROR(ReadHeadDim());
    // What files without a base mean, whatever the family.
    json_["rope_theta"] = 10000.0;
    INLAY_RETURN_IF_ERROR(Copy("rope.freq_base", "rope_theta", &json_));
    INLAY_RETURN_IF_ERROR(ReadRotaryDim());
    return ReadScaling();
  }

  absl::Status ReadRotaryDim() {
    INLAY_ASSIGN_OR_RETURN(
        const auto dim,
        GgufInt(header_, Key("rope.dimension_count"), 2, head_dim_));
    if (!dim.has_value() || *dim == head_dim_) return absl::OkStatus();
    // The fraction is multiplied out and cut off again: stay above the integer.
    json_["partial_rotary_factor"] =
        (static_cast<double>(*dim) + 0.5) / static_cast<double>(head_dim_);
    return absl::OkStatus();
  }

  absl::Status ReadScaling() {
    const std::string key = Key("rope.scaling.type");
    INLAY_ASSIGN_OR_RETURN(const auto named, GgufString(header_, key));
    INLAY_ASSIGN_OR_RETURN(const auto old,
                           GgufNumber(header_, Key("rope.scale_linear")));
    std::string type = named.value_or(old.has_value() ? "linear" : "none");
    Json scaling = Json::object();
    INLAY_ASSIGN_OR_RETURN(const auto factors,
                           files_.ReadVector("rope_freqs.weight"));
    INLAY_ASSIGN_OR_RETURN(const auto longer,
                           files_.ReadVector("rope_factors_long.weight"));
    INLAY_ASSIGN_OR_RETURN(const auto shorter,
                           files_.ReadVector("rope_factors_short.weight"));
    if (longer.has_value() && shorter.has_value()) {
      type = "longrope";
      scaling = Json{{"short_factor", *shorter}, {"long_factor", *longer}};
      INLAY_RETURN_IF_ERROR(
          Copy("rope.scaling.attn_factor", "attention_factor", &scaling));
    } else if (factors.has_value() && type == "none") {
      type = "longrope";
      scaling = Json{{"short_factor", *factors},
                     {"long_factor", *factors},
                     {"factor", 1.0},
                     {"attention_factor", 1.0}};
    } else if (type == "linear") {
      if (old.has_value()) scaling["factor"] = *old;
      INLAY_RETURN_IF_ERROR(Copy("rope.scaling.factor", "factor", &scaling));
    } else if (type == "yarn") {
      INLAY_RETURN_IF_ERROR(ReadYarn(&scaling));
    } else if (type == "none") {
      return absl::OkStatus();
    } else {
      return absl::UnimplementedError(absl::StrFormat(
          "%s is \"%s\"%s, allowed: none, linear, yarn, longrope with its "
          "factors in tensors",
          key, type, factors.has_value() ? " with rope_freqs.weight" : ""));
    }
    scaling["rope_type"] = type;
    INLAY_RETURN_IF_ERROR(ReadOriginalContext(&scaling));
    json_["rope_scaling"] = std::move(scaling);
    return absl::OkStatus();
  }

  absl::Status ReadOriginalContext(Json* scaling) {
    INLAY_ASSIGN_OR_RETURN(
        const auto context,
        GgufInt(header_, Key("rope.scaling.original_context_length"), 0,
                kMaxSize));
    if (context.value_or(0) > 0) {
      (*scaling)["original_max_position_embeddings"] = *context;
    }
    return absl::OkStatus();
  }

  absl::Status ReadYarn(Json* scaling) const {
    const std::string key = Key("rope.scaling.yarn_ext_factor");
    INLAY_ASSIGN_OR_RETURN(const auto extrapolation, GgufNumber(header_, key));
    // Negative: the default, which is 1.
    if (extrapolation.value_or(1.0) >= 0.0 &&
        extrapolation.value_or(1.0) != 1.0) {
      return absl::UnimplementedError(
          absl::StrFormat("%s is %g, allowed: 1", key, *extrapolation));
    }
    INLAY_RETURN_IF_ERROR(Copy("rope.scaling.factor", "factor", scaling));
    INLAY_RETURN_IF_ERROR(
        Copy("rope.scaling.yarn_attn_factor", "attention_factor", scaling));
    INLAY_RETURN_IF_ERROR(
        Copy("rope.scaling.yarn_beta_fast", "beta_fast", scaling));
    return Copy("rope.scaling.yarn_beta_slow", "beta_slow", scaling);
  }

  absl::StatusOr<std::optional<int64_t>> Window() const {
    INLAY_ASSIGN_OR_RETURN(
        const auto window,
        GgufInt(header_, Key("attention.sliding_window"), 0, kMaxSize));
    if (window.value_or(0) == 0) return std::nullopt;
    return window;
  }

  absl::Status ReadFamily() {
    INLAY_ASSIGN_OR_RETURN(const auto window, Window());
    if (arch_.name == "phi3") {
      json_["sliding_window"] = window.has_value() ? Json(*window) : Json();
      return absl::OkStatus();
    }
    if (arch_.name.starts_with("gemma")) return ReadGemma(window);
    if (arch_.name == "llama" && window.has_value()) {
      json_["architectures"] = {"MistralForCausalLM"};
      json_["model_type"] = "mistral";
      json_["sliding_window"] = *window;
      return absl::OkStatus();
    }
    json_["attention_bias"] = Has("blk.0.attn_output.bias");
    json_["mlp_bias"] = Has("blk.0.ffn_gate.bias");
    return absl::OkStatus();
  }

  absl::Status ReadGemma(std::optional<int64_t> window) {
    if (arch_.name == "gemma") return absl::OkStatus();
    const int64_t wide_layers =
        arch_.name == "gemma2" ? kGemma2WideLayers : kGemma3WideLayers;
    json_["query_pre_attn_scalar"] = static_cast<double>(
        layers_ == wide_layers ? hidden_ / heads_ : head_dim_);
    const std::string key = Key("attention.scale");
    INLAY_ASSIGN_OR_RETURN(const auto scale, GgufNumber(header_, key));
    if (scale.value_or(0.0) > 0.0) {
      json_["query_pre_attn_scalar"] = 1.0 / (*scale * *scale);
    }
    if (window.has_value()) json_["sliding_window"] = *window;
    INLAY_RETURN_IF_ERROR(
        Copy("attn_logit_softcapping", "attn_logit_softcapping", &json_));
    INLAY_RETURN_IF_ERROR(
        Copy("final_logit_softcapping", "final_logit_softcapping", &json_));
    INLAY_RETURN_IF_ERROR(
        Copy("rope.freq_base_swa", "rope_local_base_freq", &json_));
    return ReadPattern(arch_.name == "gemma3" && !window.has_value());
  }

  // `all_full`: a file without a window has no layers with one.
  absl::Status ReadPattern(bool all_full) {
    const std::string key = Key("attention.sliding_window_pattern");
    const GgufValue* pattern = header_.Find(key);
    if (pattern == nullptr) {
      if (all_full) json_["sliding_window_pattern"] = 1;
      return absl::OkStatus();
    }
    if (!pattern->is_array) {
      INLAY_ASSIGN_OR_RETURN(const auto every,
                             GgufInt(header_, key, 1, kMaxLayers));
      json_["sliding_window_pattern"] = *every;
      return absl::OkStatus();
    }
    if (pattern->type != GgufType::kBool ||
        pattern->count != static_cast<uint64_t>(layers_)) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "%s: %d values of type %s, allowed: an integer, or a bool for each "
          "of %d layers",
          key, pattern->count, GgufTypeName(pattern->type), layers_));
    }
    Json types = Json::array();
    for (const std::byte slides : pattern->data) {
      types.push_back(slides == std::byte{0} ? "full_attention"
                                             : "sliding_attention");
    }
    json_["layer_types"] = std::move(types);
    return absl::OkStatus();
  }

  const GgufFiles& files_;
  const GgufHeader& header_;
  const GgufArch& arch_;
  Json json_;
  int64_t layers_ = 0;
  int64_t hidden_ = 0;
  int64_t context_ = 0;
  int64_t heads_ = 0;
  int64_t kv_heads_ = 0;
  int64_t inner_ = 0;
  int64_t head_dim_ = 0;
  int64_t vocab_size_ = 0;
};

}  // namespace

absl::StatusOr<GgufConfig> ReadGgufConfig(const GgufFiles& files,
                                          const GgufArch& arch) {
  return ConfigReader(files, arch).Read();
}

}  // namespace inlay
