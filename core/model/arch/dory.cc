// Dory (NVIDIA, 2026): a normalised transformer (nGPT, arXiv:2410.01131) whose
// middle layers run several times. States, queries and keys have length 1; a
// block moves the stream towards what its part gives, each channel at a learned
// rate; gates of attention and of MLPs, queries after rope and logits have
// learned factors. Files store a factor s as s * init / spread. Source of names
// and defaults: transformers' DoryConfig; published files have attention and
// MLP as layers of their own.
#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/model/arch.h"
#include "core/model/arch/deepseek_style.h"
#include "core/model/arch/llama_style.h"
#include "core/model/decoder.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

// Of the squares' sum; the network has it fixed.
constexpr double kLengthEpsilon = 1e-6;

constexpr int kDoryFullRope = 0;
constexpr int kDoryWindowRope = 1;

struct DoryConfig {
  DecoderConfig decoder;
  std::vector<bool> sliding;
  int window = 0;
  bool attention_bias = false;
  bool mlp_bias = false;
  int64_t num_first = 0;   // layers before the loops
  int64_t num_looped = 0;  // layers of a loop
  int64_t num_loops = 0;
  float spread = 0.0f;  // initializer_range
  float rate = 0.0f;    // ngpt_alpha_init
  RopeSpec full_rope;
  RopeSpec window_rope;
};

// x / |x|: an RMS norm times 1 / sqrt(width).
NormSpec LengthNorm(int64_t width) {
  NormSpec norm;
  norm.kind = NormKind::kRms;
  norm.epsilon =
      static_cast<float>(kLengthEpsilon / static_cast<double>(width));
  norm.factor = 1.0f / std::sqrt(static_cast<float>(width));
  return norm;
}

// The config with transformers' layers, of an attention and an MLP each, where
// it lists these one by one.
absl::StatusOr<Json> WithWholeLayers(Json json) {
  const Json* types = JsonFind(json, "layer_types");
  if (types == nullptr || !types->is_array() ||
      std::find(types->begin(), types->end(), Json("mlp")) == types->end()) {
    return json;
  }
  Json whole = Json::array();
  for (size_t i = 0; i < types->size(); i += 2) whole.push_back((*types)[i]);
  json["layer_types"] = std::move(whole);
  constexpr std::pair<const char*, int64_t> kCounts[] = {
      {"num_hidden_layers", 36},
      {"n_input_layers", 8},
      {"n_output_layers", 8},
      {"n_recurrent_layers", 0}};
  for (const auto& [key, fallback] : kCounts) {
    if (fallback == 0 && JsonFind(json, key) == nullptr) continue;
    INLAY_ASSIGN_OR_RETURN(const int64_t count,
                           JsonInt(json, key, fallback, 0, 2 * kMaxLayers));
    json[key] = count / 2;
  }
  return json;
}

absl::Status ReadDoryLoops(const Json& json, DoryConfig* config) {
  const int64_t layers = config->decoder.num_layers;
  INLAY_ASSIGN_OR_RETURN(config->num_first,
                         JsonInt(json, "n_input_layers", 8, 0, kMaxLayers));
  INLAY_ASSIGN_OR_RETURN(const int64_t last,
                         JsonInt(json, "n_output_layers", 8, 0, kMaxLayers));
  const int64_t rest = layers - config->num_first - last;
  INLAY_ASSIGN_OR_RETURN(config->num_looped,
                         JsonInt(json, "n_recurrent_layers",
                                 std::max<int64_t>(rest, 0), 0, kMaxLayers));
  if (rest < 0 || config->num_looped != rest) {
    return absl::InvalidArgumentError(FormattedString(
        "config.json: n_input_layers %d, n_recurrent_layers %d and "
        "n_output_layers %d; together they must be num_hidden_layers, %d",
        config->num_first, config->num_looped, last, layers));
  }
  INLAY_ASSIGN_OR_RETURN(config->num_loops,
                         JsonInt(json, "n_recurrent_loops", 2, 1, kMaxLayers));
  if (layers + (config->num_loops - 1) * rest > kMaxLayers) {
    return absl::InvalidArgumentError(FormattedString(
        "config.json: n_recurrent_loops is %d, of %d layers; all together may "
        "be %d",
        config->num_loops, rest, kMaxLayers));
  }
  // The other mode's results depend on how a prompt was cut.
  return ExpectName(json, "recurrent_kv_cache_mode", "per_loop");
}

absl::StatusOr<DecoderConfig> ReadDoryDecoder(const Json& json) {
  DecoderDefaults defaults;
  defaults.vocab_size = 131072;
  defaults.hidden_size = 2560;
  defaults.intermediate_size = 7168;
  defaults.num_layers = 36;
  defaults.num_heads = 16;
  defaults.num_kv_heads = 4;
  defaults.head_dim = 256;
  defaults.max_positions = 8192;
  return ReadDecoderConfig(json, defaults);
}

absl::StatusOr<DoryConfig> ReadDoryConfig(const Json& published) {
  INLAY_ASSIGN_OR_RETURN(const Json json, WithWholeLayers(published));
  DoryConfig config;
  INLAY_ASSIGN_OR_RETURN(config.decoder, ReadDoryDecoder(json));
  INLAY_RETURN_IF_ERROR(ReadDoryLoops(json, &config));
  const int num_layers = config.decoder.num_layers;
  INLAY_ASSIGN_OR_RETURN(config.sliding, ReadSlidingLayers(json, num_layers));
  for (int i = 0; config.sliding.size() < static_cast<size_t>(num_layers);
       ++i) {
    config.sliding.push_back((i + 1) % 4 != 0);
  }
  INLAY_ASSIGN_OR_RETURN(config.window, ReadWindow(json, 1024));
  if (config.window == 0) {
    return absl::UnimplementedError(
        "config.json: sliding_window is null; supported here is a number");
  }
  INLAY_ASSIGN_OR_RETURN(config.attention_bias,
                         JsonBool(json, "attention_bias", false));
  INLAY_ASSIGN_OR_RETURN(config.mlp_bias, JsonBool(json, "mlp_bias", false));
  INLAY_ASSIGN_OR_RETURN(
      const double spread,
      JsonNumber(json, "initializer_range", 0.0177, 1e-6, 1e6));
  INLAY_ASSIGN_OR_RETURN(const double rate,
                         JsonNumber(json, "ngpt_alpha_init", 0.05, 0.0, 1e6));
  config.spread = static_cast<float>(spread);
  config.rate = static_cast<float>(rate);
  INLAY_ASSIGN_OR_RETURN(
      config.full_rope,
      ReadRope(json, config.decoder, {.theta = 1e7}, "full_attention"));
  INLAY_ASSIGN_OR_RETURN(
      config.window_rope,
      ReadRope(json, config.decoder, {.theta = 1e4}, "sliding_attention"));
  return config;
}

// What the tensors of a file are called.
class DoryNames {
 public:
  explicit DoryNames(const WeightLoader& weights)
      : root_(weights.Has("model.embed_tokens.weight") ? "model."
                                                       : "backbone."),
        whole_(weights.Has(root_ + "layers.0.lambda_1")) {}

  std::string Embedding() const {
    return root_ + (root_ == "model." ? "embed_tokens" : "embeddings") +
           ".weight";
  }
  std::string Attention(int layer) const {
    return Layer(layer, 0) + (whole_ ? "self_attn." : "mixer.");
  }
  std::string Gate() const {
    return root_ == "model." ? "gate_proj" : "g_proj";
  }
  std::string Mlp(int layer) const {
    return Layer(layer, 1) + (whole_ ? "mlp." : "mixer.");
  }
  // Of the attention (0) or the MLP (1).
  std::string Rate(int layer, int part) const {
    if (whole_)
      return Layer(layer, part) + (part == 0 ? "lambda_1" : "lambda_2");
    return Layer(layer, part) + (part == 0 ? "attn_alpha" : "mlp_alpha");
  }

 private:
  std::string Layer(int layer, int part) const {
    return FormattedString("%slayers.%d.", root_,
                           whole_ ? layer : 2 * layer + part);
  }

  std::string root_;
  bool whole_;
};

AttentionSpec DoryAttention(const DoryConfig& config, const DoryNames& names,
                            int layer) {
  const DecoderConfig& decoder = config.decoder;
  const std::string prefix = names.Attention(layer);
  AttentionSpec attention = LlamaStyleAttention(
      decoder, "", config.attention_bias, config.attention_bias);
  constexpr const char* kNames[] = {"q_proj", "k_proj", "v_proj"};
  for (size_t i = 0; i < 3; ++i) attention.qkv[i].name = prefix + kNames[i];
  attention.output.name = prefix + "o_proj";
  attention.gated = attention.gate_apart = true;
  LinearSpec gate = attention.qkv.front();
  gate.name = prefix + names.Gate();
  gate.bias = false;
  attention.qkv.insert(attention.qkv.begin() + 1, std::move(gate));
  attention.q_norm = attention.k_norm = LengthNorm(decoder.head_dim);
  // (sqk * sqrt(head_dim))^2 and (s_gate * hidden_size^(1/4))^2.
  attention.query_channels = {
      prefix + "sqk", WeightMap::kSquare,
      std::sqrt(static_cast<float>(decoder.head_dim)) / config.spread};
  attention.gate_channels = {
      prefix + "s_gate", WeightMap::kSquare,
      std::pow(static_cast<float>(decoder.hidden_size), 0.25f) / config.spread};
  attention.output_norm =
      LengthNorm(int64_t{decoder.num_heads} * decoder.head_dim);
  const bool slides = config.sliding[static_cast<size_t>(layer)];
  attention.window = slides ? config.window : 0;
  attention.rope = slides ? kDoryWindowRope : kDoryFullRope;
  return attention;
}

MlpSpec DoryMlp(const DoryConfig& config, const DoryNames& names, int layer) {
  const DecoderConfig& decoder = config.decoder;
  const std::string prefix = names.Mlp(layer);
  MlpSpec mlp = LlamaStyleMlp(decoder, "", config.mlp_bias);
  mlp.input[0].name = prefix + "gate_proj";
  mlp.input[1].name = prefix + "up_proj";
  mlp.output.name = prefix + "down_proj";
  const float scale = std::sqrt(static_cast<float>(decoder.hidden_size));
  mlp.gate_channels = {prefix + "suv_gate", WeightMap::kScaled, scale};
  mlp.up_channels = {prefix + "suv_up", WeightMap::kScaled, scale};
  mlp.inner_norm = LengthNorm(decoder.intermediate_size);
  return mlp;
}

// h + rate * (|part(|h|)| - |h|), lengths being 1.
BlockSpec DoryBlock(const DoryConfig& config, const std::string& rate,
                    PartSpec part) {
  BlockSpec block;
  block.pre_norm = LengthNorm(config.decoder.hidden_size);
  block.post_norm = block.pre_norm;
  block.post_norm.name = rate;
  block.post_norm.suffix = "";
  block.post_norm.map = WeightMap::kSize;
  block.post_norm.scale = config.rate / config.spread;
  block.stream_norm = block.post_norm;
  block.stream_norm.map = WeightMap::kRest;
  block.part = std::move(part);
  return block;
}

// Which of the config's layers run, one after another.
std::vector<int> DoryOrder(const DoryConfig& config) {
  const int first = static_cast<int>(config.num_first);
  const int end = first + static_cast<int>(config.num_looped);
  std::vector<int> order;
  for (int i = 0; i < first; ++i) order.push_back(i);
  for (int64_t loop = 0; loop < config.num_loops; ++loop) {
    for (int i = first; i < end; ++i) order.push_back(i);
  }
  for (int i = end; i < config.decoder.num_layers; ++i) order.push_back(i);
  return order;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> MakeDory(const Json& json,
                                                ModelBuild& build) {
  INLAY_ASSIGN_OR_RETURN(const DoryConfig config, ReadDoryConfig(json));
  const DecoderConfig& decoder = config.decoder;
  const DoryNames names(build.weights);
  DecoderSpec spec = LlamaStyleDecoder(decoder, NormKind::kRms);
  spec.embedding = names.Embedding();
  spec.final_norm = LengthNorm(decoder.hidden_size);
  spec.logit_channels = {"lm_head.logit_scale", WeightMap::kScaled,
                         1.0f / config.spread};
  spec.max_positions = UsablePositions(decoder.max_positions, config.full_rope);
  spec.ropes = {config.full_rope, config.window_rope};
  spec.shares_layers = config.num_loops > 1 && config.num_looped > 0;
  const int first = static_cast<int>(config.num_first);
  for (const int i : DoryOrder(config)) {
    LayerSpec layer;
    layer.blocks.push_back(
        DoryBlock(config, names.Rate(i, 0), DoryAttention(config, names, i)));
    layer.blocks.push_back(
        DoryBlock(config, names.Rate(i, 1), DoryMlp(config, names, i)));
    if (i == first && config.num_looped > 0) {
      layer.loop_norm = LengthNorm(decoder.hidden_size);
      layer.begins_loop = spec.layers.size() == static_cast<size_t>(first);
    }
    spec.layers.push_back(std::move(layer));
  }
  return BuildDecoder(spec, build);
}

}  // namespace inlay
