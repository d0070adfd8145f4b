#include "core/formats/gguf_linear_writer.h"

#include <algorithm>
#include <string>
#include <utility>

#include "core/formats/gguf_selective.h"
#include "core/formats/gguf_sizes.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

// What config.json calls a mixer's sizes.
struct MixerKeys {
  const char* heads;
  const char* head_dim;
  const char* groups;
  const char* state;
  const char* taps;
};
constexpr MixerKeys kMambaKeys = {"mamba_n_heads", "mamba_d_head",
                                  "mamba_n_groups", "mamba_d_state",
                                  "mamba_d_conv"};
constexpr MixerKeys kNemotronKeys = {"mamba_num_heads", "mamba_head_dim",
                                     "n_groups", "ssm_state_size",
                                     "conv_kernel"};
constexpr MixerKeys kMamba2Keys = {"num_heads", "head_dim", "n_groups",
                                   "state_size", "conv_kernel"};

// Of Granite's mixers, and of Falcon H1's that do not say how wide they are.
absl::StatusOr<int64_t> ExpandedWidth(const Json& config) {
  INLAY_ASSIGN_OR_RETURN(const int64_t expand,
                         JsonInt(config, "mamba_expand", 2, 1, 64));
  INLAY_ASSIGN_OR_RETURN(const int64_t hidden,
                         NeededGgufSize(config, "hidden_size"));
  return expand * hidden;
}

absl::StatusOr<int64_t> MixerWidth(const MixerKeys& names, int64_t heads,
                                   const GgufKeyWriter& keys) {
  const Json* dim = JsonFind(keys.config(), names.head_dim);
  const bool is_auto = dim != nullptr && *dim == "auto";
  if (is_auto && keys.arch() == "falcon-h1") {
    return FalconMixerWidth(keys.config());
  }
  if (is_auto && keys.arch() == "granitehybrid") {
    return ExpandedWidth(keys.config());
  }
  INLAY_ASSIGN_OR_RETURN(const int64_t head_dim, keys.Size(names.head_dim));
  return heads * head_dim;
}

// Steps of any length; Nemotron's are at least 1e-3 long.
absl::Status CheckSteps(const GgufKeyWriter& keys) {
  if (keys.arch().starts_with("nemotron_h")) {
    return keys.Expect("time_step_min", 0.001);
  }
  const Json any =
      Json::array({0.0, Json::object({{"__float__", "Infinity"}})});
  return keys.Expect("time_step_limit", any);
}

absl::Status SetMixerKeys(const MixerKeys& names, GgufKeyWriter& keys) {
  INLAY_RETURN_IF_ERROR(CheckSteps(keys));
  INLAY_ASSIGN_OR_RETURN(const int64_t heads,
                         keys.CopySize(names.heads, "ssm.time_step_rank"));
  INLAY_ASSIGN_OR_RETURN(const int64_t width, MixerWidth(names, heads, keys));
  INLAY_RETURN_IF_ERROR(keys.SetU32("ssm.inner_size", width));
  INLAY_RETURN_IF_ERROR(
      keys.CopySize(names.groups, "ssm.group_count").status());
  INLAY_RETURN_IF_ERROR(keys.CopySize(names.state, "ssm.state_size").status());
  return keys.CopySize(names.taps, "ssm.conv_kernel").status();
}

std::vector<bool> KimiLayers(const Json& config, size_t layers) {
  std::vector<bool> attends(layers, false);
  const Json* linear = JsonFind(config, "linear_attn_config");
  const Json* list =
      linear == nullptr ? nullptr : JsonFind(*linear, "full_attn_layers");
  if (list == nullptr || !list->is_array()) return attends;
  for (const Json& layer : *list) {  // counted from 1
    if (!layer.is_number_integer()) continue;
    const auto i = layer.get<int64_t>();
    if (i >= 1 && i <= static_cast<int64_t>(layers)) {
      attends[static_cast<size_t>(i) - 1] = true;
    }
  }
  return attends;
}

// Qwen 3 Next and 3.5: a bool for each layer, or every which layer attends.
absl::Status SetQwenLayers(GgufKeyWriter& keys) {
  INLAY_RETURN_IF_ERROR(
      keys.CopySize("full_attention_interval", "full_attention_interval", 4)
          .status());
  const Json* types = JsonFind(keys.config(), "layer_types");
  if (types == nullptr || !types->is_array()) return absl::OkStatus();
  std::vector<bool> recurrent;
  for (const Json& type : *types) {
    recurrent.push_back(type == "linear_attention");
  }
  return keys.SetBools("attention.recurrent_layers", recurrent);
}

absl::StatusOr<std::vector<int32_t>> ReadSections(const Json& list) {
  constexpr uint64_t kMost = 65536;
  std::vector<int32_t> sections;
  uint64_t sum = 0;
  bool is_known = list.is_array() && list.size() <= 4;
  for (size_t i = 0; is_known && i < list.size(); ++i) {
    is_known = list[i].is_number_unsigned() && list[i].get<uint64_t>() <= kMost;
    if (!is_known) break;
    sections.push_back(list[i].get<int32_t>());
    sum += list[i].get<uint64_t>();
  }
  if (is_known && sum > 0) return sections;
  return absl::InvalidArgumentError(FormattedString(
      "config.json: mrope_section is %s, allowed: up to 4 integers from 0 to "
      "%d, not all 0",
      ShownJson(list), kMost));
}

// Which rotary pairs turn with time, height and width; of text all are alike.
absl::Status SetSections(GgufKeyWriter& keys, int64_t head_dim) {
  const Json* rope = JsonFind(keys.config(), "rope_parameters");
  const Json* list =
      rope == nullptr ? nullptr : JsonFind(*rope, "mrope_section");
  const auto pairs = static_cast<int32_t>(head_dim / 8);  // a quarter rotates
  std::vector<int32_t> sections = {(pairs + 2) / 3, (pairs + 1) / 3, pairs / 3};
  if (list != nullptr) {
    INLAY_ASSIGN_OR_RETURN(sections, ReadSections(*list));
  }
  sections.resize(4, 0);
  return keys.writer().SetI32s(keys.Name("rope.dimension_sections"), sections);
}

absl::Status SetQwenLinear(GgufKeyWriter& keys, int64_t head_dim) {
  INLAY_RETURN_IF_ERROR(keys.Expect("attention_bias", false));
  INLAY_RETURN_IF_ERROR(keys.Expect("attn_output_gate", true));
  for (const auto& [from, to] :
       {std::pair{"linear_conv_kernel_dim", "ssm.conv_kernel"},
        std::pair{"linear_key_head_dim", "ssm.state_size"},
        std::pair{"linear_num_key_heads", "ssm.group_count"}}) {
    INLAY_RETURN_IF_ERROR(keys.CopySize(from, to).status());
  }
  INLAY_ASSIGN_OR_RETURN(
      const int64_t heads,
      keys.CopySize("linear_num_value_heads", "ssm.time_step_rank"));
  INLAY_ASSIGN_OR_RETURN(const int64_t dim, keys.Size("linear_value_head_dim"));
  INLAY_RETURN_IF_ERROR(keys.SetU32("ssm.inner_size", heads * dim));
  if (keys.arch() != "qwen3next") {
    INLAY_RETURN_IF_ERROR(SetSections(keys, head_dim));
  }
  return SetQwenLayers(keys);
}

absl::Status SetKimi(GgufKeyWriter& keys) {
  const Json* linear = JsonFind(keys.config(), "linear_attn_config");
  if (linear == nullptr || !linear->is_object()) {
    return keys.Size("linear_attn_config").status();
  }
  INLAY_RETURN_IF_ERROR(keys.Expect("mla_use_nope", true));
  for (const auto& [from, to] :
       {std::pair{"short_conv_kernel_size", "ssm.conv_kernel"},
        std::pair{"head_dim", "kda.head_dim"}}) {
    INLAY_ASSIGN_OR_RETURN(const int64_t size,
                           JsonInt(*linear, from, 0, 1, kMaxGgufSize));
    if (size == 0) {
      return absl::InvalidArgumentError(FormattedString(
          "config.json: linear_attn_config.%s is missing: a GGUF file needs it",
          from));
    }
    INLAY_RETURN_IF_ERROR(keys.SetU32(to, size));
  }
  return absl::OkStatus();
}

absl::Status SetGranite(GgufKeyWriter& keys) {
  const Json* types = JsonFind(keys.config(), "layer_types");
  const bool has_mixers =
      types != nullptr &&
      std::any_of(types->begin(), types->end(), [](const Json& type) {
        return type == "mamba" || type == "linear_attention";
      });
  INLAY_ASSIGN_OR_RETURN(
      const std::string positions,
      keys.model_type() == "granitemoehybrid"
          ? JsonString(keys.config(), "position_embedding_type", "nope")
          : absl::StatusOr<std::string>("rope"));
  // llama.cpp rotates where there are no mixers, whatever the file says.
  if (keys.arch() == "granitemoe" && positions != "rope") {
    return keys.NotSaid("position_embedding_type", positions);
  }
  INLAY_RETURN_IF_ERROR(
      keys.SetBool("rope.scaling.finetuned", positions == "rope"));
  return has_mixers ? SetMixerKeys(kMambaKeys, keys) : absl::OkStatus();
}

absl::Status SetFalcon(GgufKeyWriter& keys) {
  // They would be multiplied otherwise than the weights.
  for (const char* key :
       {"attention_bias", "mlp_bias", "projectors_bias", "mamba_proj_bias"}) {
    INLAY_RETURN_IF_ERROR(keys.Expect(key, false));
  }
  // Absent: true, which files cannot say.
  INLAY_ASSIGN_OR_RETURN(
      const bool before,
      JsonBool(keys.config(), "mamba_norm_before_gate", true));
  INLAY_ASSIGN_OR_RETURN(const bool has_norm,
                         JsonBool(keys.config(), "mamba_rms_norm", false));
  if (has_norm && before) {
    return absl::UnimplementedError(
        "config.json: mamba_norm_before_gate is true, which a GGUF file of "
        "\"falcon-h1\" cannot say");
  }
  return SetMixerKeys(kMambaKeys, keys);
}

// The width of each layer's MLP or experts, 0 of others.
absl::Status SetNemotron(GgufKeyWriter& keys) {
  INLAY_RETURN_IF_ERROR(SetMixerKeys(kNemotronKeys, keys));
  // llama.cpp wants both.
  INLAY_RETURN_IF_ERROR(keys.CopyNumber("layer_norm_epsilon",
                                        "attention.layer_norm_epsilon", 1e-5));
  if (keys.Has("moe_latent_size")) {
    INLAY_RETURN_IF_ERROR(
        keys.CopySize("moe_latent_size", "moe_latent_size").status());
  }
  std::vector<uint32_t> widths;
  for (const char kind : NemotronPattern(keys.config())) {
    int64_t width = 0;
    if (kind == '-' || kind == 'E') {
      INLAY_ASSIGN_OR_RETURN(width,
                             keys.Size(kind == 'E' ? "moe_intermediate_size"
                                                   : "intermediate_size"));
    }
    widths.push_back(static_cast<uint32_t>(width));
  }
  return keys.SetU32s("feed_forward_length", widths);
}

}  // namespace

absl::StatusOr<int64_t> FalconMixerWidth(const Json& config) {
  const auto own = config.find("mamba_d_ssm");
  if (own != config.end() && own->is_null()) return ExpandedWidth(config);
  constexpr int64_t kUsual = 1024;
  return JsonInt(config, "mamba_d_ssm", kUsual, 1, kMaxGgufSize);
}

absl::StatusOr<std::vector<bool>> GgufAttendingLayers(
    const GgufKeyWriter& keys) {
  const Json& config = keys.config();
  const std::string_view arch = keys.arch();
  INLAY_ASSIGN_OR_RETURN(const int64_t count, keys.Size("num_hidden_layers"));
  const auto layers = static_cast<size_t>(count);
  if (arch == "kimi-linear") return KimiLayers(config, layers);
  if (arch == "jamba") return JambaAttendingLayers(keys);
  if (arch.starts_with("nemotron_h")) {
    const std::string pattern = NemotronPattern(config);
    std::vector<bool> attends;
    for (const char kind : pattern) attends.push_back(kind == '*');
    if (attends.size() == layers) return attends;
    return absl::InvalidArgumentError(FormattedString(
        "config.json: hybrid_override_pattern is \"%s\", allowed: a letter for "
        "each of %d layers",
        pattern, layers));
  }
  if (!arch.starts_with("lfm2") && arch != "granitehybrid") {
    return std::vector<bool>();
  }
  const Json* types = JsonFind(config, "layer_types");
  if (types == nullptr || !types->is_array() || types->size() != layers) {
    return absl::InvalidArgumentError(FormattedString(
        "config.json: layer_types is missing, or not of %d layers: a GGUF file "
        "needs it",
        layers));
  }
  std::vector<bool> attends;
  for (const Json& type : *types) {
    attends.push_back(type == "attention" || type == "full_attention");
  }
  return attends;
}

absl::Status SetGgufRecurrent(GgufKeyWriter& keys, int64_t head_dim) {
  const std::string_view arch = keys.arch();
  if (arch == "qwen3next" || arch.starts_with("qwen35")) {
    return SetQwenLinear(keys, head_dim);
  }
  if (arch == "kimi-linear") return SetKimi(keys);
  if (arch.starts_with("lfm2")) {
    return keys.CopySize("conv_L_cache", "shortconv.l_cache", 3).status();
  }
  if (arch == "jamba") return SetGgufJamba(keys);
  if (arch == "falcon-h1") return SetFalcon(keys);
  if (arch.starts_with("nemotron_h")) return SetNemotron(keys);
  return arch == "granitehybrid" || arch == "granitemoe" ? SetGranite(keys)
                                                         : absl::OkStatus();
}

absl::Status SetGgufMamba2(GgufKeyWriter& keys) {
  INLAY_RETURN_IF_ERROR(
      keys.CopySize("num_hidden_layers", "block_count").status());
  INLAY_RETURN_IF_ERROR(
      keys.CopySize("hidden_size", "embedding_length").status());
  // Of no meaning, but wanted.
  constexpr int64_t kAnyContext = 1 << 20;
  INLAY_RETURN_IF_ERROR(keys.SetU32("context_length", kAnyContext));
  INLAY_RETURN_IF_ERROR(keys.SetU32("feed_forward_length", 0));
  INLAY_RETURN_IF_ERROR(keys.SetU32("attention.head_count", 0));
  INLAY_RETURN_IF_ERROR(keys.CopyNumber(
      "layer_norm_epsilon", "attention.layer_norm_rms_epsilon", 1e-5));
  return SetMixerKeys(kMamba2Keys, keys);
}

}  // namespace inlay
