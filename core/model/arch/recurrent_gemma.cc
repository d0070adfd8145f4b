// RecurrentGemma (arXiv:2404.07839), after Griffin (arXiv:2402.19427): two of
// three layers have a linear recurrence in attention's place, the third one
// attends within a window. Source of names, defaults and what is computed:
// transformers' RecurrentGemmaConfig and its modules. (google-deepmind/
// recurrentgemma sees one key more in a window.)
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "core/model/arch.h"
#include "core/model/arch/deepseek_style.h"
#include "core/model/arch/gemma_style.h"
#include "core/model/decoder.h"
#include "kernels/linear_attention/short_conv.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

// config.json does not say: neither recurrences nor windows have a length.
// Lists of blocks are as long as this asks for.
constexpr int64_t kGriffinPositions = int64_t{1} << 17;
// Each has two matrices a layer.
constexpr int64_t kMostGriffinHeads = int64_t{1} << 15;

struct GriffinConfig {
  DecoderConfig decoder;
  RopeSpec rope;
  int64_t lru_width = 0;
  int num_taps = 0;
  int window = 0;
  bool bias = false;
  float softcap = 0.0f;
  std::vector<bool> recurrent;  // [num_layers]
};

// The pattern of block_types, over and over; older files call it _block_types.
absl::StatusOr<std::vector<bool>> ReadGriffinBlocks(const Json& json,
                                                    int num_layers) {
  std::string_view key = "block_types";
  const Json* types = JsonFind(json, key);
  if (types == nullptr) types = JsonFind(json, key = "_block_types");
  std::vector<bool> pattern;
  const auto fits = [&](const Json& list) {
    for (const Json& type : list) {
      pattern.push_back(type == "recurrent");
      if (!pattern.back() && type != "attention") return false;
    }
    return !pattern.empty();
  };
  if (types == nullptr) {
    pattern = {true, true, false};
  } else if (!types->is_array() || !fits(*types)) {
    return absl::InvalidArgumentError(FormattedString(
        "config.json: %s is %s; it must be an array of \"recurrent\" and "
        "\"attention\"",
        key, ShownJson(*types)));
  }
  std::vector<bool> recurrent;
  for (size_t i = 0; i < static_cast<size_t>(num_layers); ++i) {
    recurrent.push_back(pattern[i % pattern.size()]);
  }
  return recurrent;
}

absl::StatusOr<DecoderConfig> ReadGriffinSizes(const Json& json) {
  DecoderDefaults defaults;
  defaults.vocab_size = 256000;
  defaults.hidden_size = 2560;
  defaults.intermediate_size = 7680;
  defaults.num_layers = 26;
  defaults.num_heads = 10;
  defaults.max_positions = kGriffinPositions;
  defaults.activation = "gelu_pytorch_tanh";
  defaults.tie_embeddings = true;
  INLAY_ASSIGN_OR_RETURN(DecoderConfig config, ReadGemmaConfig(json, defaults));
  if (config.intermediate_size < 2) {
    return absl::InvalidArgumentError(FormattedString(
        "config.json: intermediate_size is %d, allowed: 2 at least, as it is "
        "of gate and up together",
        config.intermediate_size));
  }
  config.intermediate_size /= 2;
  if (int64_t{config.num_heads} * config.num_layers > kMostGriffinHeads) {
    return absl::InvalidArgumentError(FormattedString(
        "config.json: num_attention_heads is %d in each of %d layers, allowed: "
        "%d together",
        config.num_heads, config.num_layers, kMostGriffinHeads));
  }
  return config;
}

absl::StatusOr<int64_t> ReadLruWidth(const Json& json,
                                     const DecoderConfig& config) {
  INLAY_ASSIGN_OR_RETURN(
      const int64_t width,
      JsonInt(json, "lru_width", config.hidden_size, 1, kMaxHidden));
  if (width % config.num_heads == 0) return width;
  return absl::InvalidArgumentError(
      FormattedString("config.json: lru_width is %d, allowed: a multiple of "
                      "num_attention_heads, %d",
                      width, config.num_heads));
}

absl::StatusOr<GriffinConfig> ReadGriffinConfig(const Json& json) {
  // What no published file has.
  INLAY_RETURN_IF_ERROR(
      ExpectName(json, "hidden_activation", "gelu_pytorch_tanh"));
  INLAY_RETURN_IF_ERROR(ExpectFlag(json, "embeddings_scale_by_sqrt_dim", true));
  GriffinConfig config;
  INLAY_ASSIGN_OR_RETURN(config.decoder, ReadGriffinSizes(json));
  INLAY_ASSIGN_OR_RETURN(config.rope,
                         ReadRope(json, config.decoder, {.partial = 0.5}));
  if (config.rope.scaling != RopeScaling::kNone) {
    return absl::UnimplementedError(
        "config.json: rope_scaling (or rope_parameters) asks for a scaling; "
        "supported here is \"default\"");
  }
  INLAY_ASSIGN_OR_RETURN(config.lru_width, ReadLruWidth(json, config.decoder));
  INLAY_ASSIGN_OR_RETURN(const int64_t taps,
                         JsonInt(json, "conv1d_width", 4, 2, kMaxConvTaps));
  config.num_taps = static_cast<int>(taps);
  INLAY_ASSIGN_OR_RETURN(
      const int64_t own_name,
      JsonInt(json, "attention_window_size", 2048, 1, kMaxPositions));
  // transformers' other name of it wins.
  INLAY_ASSIGN_OR_RETURN(
      const int64_t window,
      JsonInt(json, "sliding_window", own_name, 1, kMaxPositions));
  config.window = static_cast<int>(window);
  INLAY_ASSIGN_OR_RETURN(config.bias, JsonBool(json, "attention_bias", false));
  INLAY_ASSIGN_OR_RETURN(const double softcap,
                         JsonNumber(json, "logits_soft_cap", 30.0, 1e-6, 1e9));
  config.softcap = static_cast<float>(softcap);
  INLAY_ASSIGN_OR_RETURN(config.recurrent,
                         ReadGriffinBlocks(json, config.decoder.num_layers));
  return config;
}

// Of each head, as PresentGroups() has them.
std::vector<LinearSpec> GriffinGates(const LruSpec& lru,
                                     const std::string& name) {
  const int64_t width = lru.width / lru.num_heads;
  std::vector<LinearSpec> gates;
  for (int head = 0; head < lru.num_heads; ++head) {
    gates.push_back({FormattedString("%s.%d", name, head), width, width, true});
  }
  return gates;
}

LruSpec GriffinRecurrence(const GriffinConfig& config,
                          const std::string& name) {
  const int64_t hidden = config.decoder.hidden_size, width = config.lru_width;
  LruSpec lru;
  lru.width = width;
  lru.num_heads = config.decoder.num_heads;
  lru.num_taps = config.num_taps;
  lru.input = {name + "linear_x", width, hidden, true};
  lru.gate = {name + "linear_y", width, hidden, true};
  lru.conv = name + "conv_1d";
  lru.input_gates = GriffinGates(lru, name + "rg_lru.input_gate");
  lru.recurrence_gates = GriffinGates(lru, name + "rg_lru.recurrent_gate");
  lru.rates = name + "rg_lru.recurrent_param";
  lru.output = {name + "linear_out", hidden, width, true};
  return lru;
}

AttentionSpec GriffinAttention(const GriffinConfig& config,
                               const std::string& name) {
  AttentionSpec attention =
      LlamaStyleAttention(config.decoder, "", config.bias, true);
  attention.window = config.window;
  attention.qkv[0].name = name + "q_proj";
  attention.qkv[1].name = name + "k_proj";
  attention.qkv[2].name = name + "v_proj";
  attention.output.name = name + "o_proj";
  return attention;
}

MlpSpec GriffinMlp(const DecoderConfig& config, const std::string& name) {
  MlpSpec mlp = LlamaStyleMlp(config, "", true);
  mlp.input[0].name = name + "gate_proj";
  mlp.input[1].name = name + "up_proj";
  mlp.output.name = name + "down_proj";
  return mlp;
}

// sqrt(width) as transformers keeps it: in bf16, rounded to nearest even.
float GriffinEmbeddingScale(int64_t width) {
  const double exact = std::sqrt(static_cast<double>(width));
  int exponent = 0;
  const double mantissa = std::frexp(exact, &exponent);
  return static_cast<float>(
      std::ldexp(std::nearbyint(std::ldexp(mantissa, 8)), exponent - 8));
}

absl::StatusOr<DecoderSpec> GriffinSpec(const Json& json) {
  INLAY_ASSIGN_OR_RETURN(const GriffinConfig config, ReadGriffinConfig(json));
  const DecoderConfig& decoder = config.decoder;
  DecoderSpec spec = GemmaStyleDecoder(decoder);
  spec.embedding_scale = GriffinEmbeddingScale(decoder.hidden_size);
  spec.final_norm.name = "model.final_norm";
  spec.final_softcap = config.softcap;
  spec.ropes.push_back(config.rope);
  const auto norm = [&](const std::string& name) {
    return NormSpec{NormKind::kRmsZeroCentred, name, decoder.norm_epsilon};
  };
  for (int i = 0; i < decoder.num_layers; ++i) {
    const std::string prefix = LayerPrefix(i);
    const std::string name = prefix + "temporal_block.";
    PartSpec part = GriffinRecurrence(config, name);
    if (!config.recurrent[static_cast<size_t>(i)]) {
      part = GriffinAttention(config, name);
    }
    LayerSpec& layer = spec.layers.emplace_back();
    layer.blocks.push_back({.pre_norm = norm(prefix + "temporal_pre_norm"),
                            .part = std::move(part)});
    layer.blocks.push_back(
        {.pre_norm = norm(prefix + "channel_pre_norm"),
         .part = GriffinMlp(decoder, prefix + "mlp_block.")});
  }
  return spec;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> MakeRecurrentGemma(const Json& config,
                                                          ModelBuild& build) {
  INLAY_ASSIGN_OR_RETURN(const DecoderSpec spec, GriffinSpec(config));
  return BuildDecoder(spec, build);
}

}  // namespace inlay
