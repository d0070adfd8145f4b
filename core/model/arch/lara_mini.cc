// Lara Mini (Translated, 2026): Qwen 3.5's gated DeltaNet in two layers of
// five, windows with rope in two, attention to all tokens without in one,
// experts by softmax beside a shared one in all; norms as Llama's. What linear
// attention reads is one matrix in files, which core/formats/head_source.h
// takes apart. Source of names and defaults: transformers' LaraMiniConfig.
#include <algorithm>
#include <array>
#include <string_view>
#include <utility>
#include <vector>

#include "core/model/arch.h"
#include "core/model/arch/llama_style.h"
#include "core/model/arch/qwen_hybrid_style.h"
#include "core/model/decoder.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

enum class LaraMixer : uint8_t { kLinear, kWindow, kFull };

struct LaraConfig {
  DecoderConfig decoder;
  QwenExperts experts;
  std::vector<LaraMixer> mixers;
  DeltaSpec delta;  // sizes, no names
  int window = 0;
  bool bias = false;
  RopeSpec rope;
};

absl::StatusOr<DecoderConfig> ReadLaraDecoder(const Json& json) {
  DecoderDefaults defaults;
  defaults.vocab_size = 151936;
  defaults.hidden_size = 1024;
  defaults.num_layers = 34;
  defaults.num_heads = 16;
  defaults.num_kv_heads = 4;
  defaults.head_dim = 128;
  defaults.max_positions = 131072;
  defaults.tie_embeddings = true;
  return ReadDecoderConfig(json, defaults);
}

absl::StatusOr<std::vector<LaraMixer>> ReadLaraMixers(const Json& json,
                                                      int num_layers) {
  using enum LaraMixer;
  constexpr std::array kPublished = {kLinear, kWindow, kLinear, kFull, kWindow};
  std::vector<LaraMixer> mixers;
  for (int i = 0; i < num_layers; ++i) {
    mixers.push_back(kPublished[static_cast<size_t>(i) % kPublished.size()]);
  }
  const Json* types = JsonFind(json, "layer_types");
  if (types == nullptr) return mixers;
  constexpr std::pair<std::string_view, LaraMixer> kNames[] = {
      {"linear_attention", kLinear},
      {"sliding_attention", kWindow},
      {"full_attention", kFull}};
  bool is_known = types->is_array() && types->size() == mixers.size();
  for (size_t i = 0; is_known && i < mixers.size(); ++i) {
    const auto* name = std::find_if(
        std::begin(kNames), std::end(kNames),
        [&](const auto& known) { return (*types)[i] == known.first; });
    is_known = name != std::end(kNames);
    if (is_known) mixers[i] = name->second;
  }
  if (is_known) return mixers;
  return absl::InvalidArgumentError(FormattedString(
      "config.json: layer_types is %s; it must be an array of %d times "
      "\"linear_attention\", \"sliding_attention\" or \"full_attention\"",
      ShownJson(*types), num_layers));
}

absl::StatusOr<LaraConfig> ReadLaraConfig(const Json& json) {
  LaraConfig config;
  INLAY_ASSIGN_OR_RETURN(config.decoder, ReadLaraDecoder(json));
  INLAY_ASSIGN_OR_RETURN(config.experts,
                         ReadQwenExperts(json, {128, 4, 512, true}));
  INLAY_ASSIGN_OR_RETURN(config.mixers,
                         ReadLaraMixers(json, config.decoder.num_layers));
  INLAY_ASSIGN_OR_RETURN(config.delta, ReadQwenDeltaSizes(json, 8, 16));
  INLAY_RETURN_IF_ERROR(ExpectSilu(json, "hidden_act"));
  INLAY_ASSIGN_OR_RETURN(config.window, ReadWindow(json, 512));
  if (config.window == 0) {
    return absl::UnimplementedError(
        "config.json: sliding_window is null; supported here is a number");
  }
  INLAY_ASSIGN_OR_RETURN(config.bias, JsonBool(json, "attention_bias", false));
  INLAY_ASSIGN_OR_RETURN(config.rope, ReadRope(json, config.decoder, {}));
  return config;
}

PartSpec LaraDelta(const LaraConfig& config, const std::string& prefix) {
  const std::string name = prefix + "linear_attn.";
  DeltaSpec delta = config.delta;
  NameQwenDelta(config.decoder, name, &delta);
  NameQwenDeltaInputs(config.decoder, name, &delta);
  delta.norm.name = name + "out_norm";
  return delta;
}

PartSpec LaraAttention(const LaraConfig& config, const std::string& prefix,
                       bool slides) {
  AttentionSpec attention =
      LlamaStyleAttention(config.decoder, prefix, config.bias, config.bias);
  AddHeadNorms(config.decoder, prefix, NormKind::kRms, &attention);
  attention.window = slides ? config.window : 0;
  if (!slides) attention.rope = -1;
  return attention;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> MakeLaraMini(const Json& json,
                                                    ModelBuild& build) {
  INLAY_ASSIGN_OR_RETURN(const LaraConfig config, ReadLaraConfig(json));
  const DecoderConfig& decoder = config.decoder;
  DecoderSpec spec = LlamaStyleDecoder(decoder, NormKind::kRms);
  spec.max_positions = UsablePositions(decoder.max_positions, config.rope);
  spec.ropes.push_back(config.rope);
  for (int i = 0; i < decoder.num_layers; ++i) {
    const std::string prefix = LayerPrefix(i);
    const LaraMixer mixer = config.mixers[static_cast<size_t>(i)];
    MoeSpec moe = QwenExpertsPart(decoder, config.experts, prefix);
    moe.shared_gate.reset();
    spec.layers.push_back(LlamaStyleLayer(
        decoder, prefix, NormKind::kRms,
        mixer == LaraMixer::kLinear
            ? LaraDelta(config, prefix)
            : LaraAttention(config, prefix, mixer == LaraMixer::kWindow),
        std::move(moe)));
  }
  return BuildDecoder(spec, build);
}

}  // namespace inlay
