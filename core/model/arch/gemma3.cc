// Gemma 3, text (arXiv:2503.19786): Gemma 2 with norms on q and k in place of
// softcaps, and two rotary bases: one for full layers, one for sliding ones.
// With use_bidirectional_attention (EmbeddingGemma, arXiv:2509.20354) tokens
// see those after them too, windows half as many before and half behind.
#include "core/model/arch.h"
#include "core/model/arch/gemma_style.h"
#include "core/model/decoder.h"
#include "core/model/embedder.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

constexpr int kFullRope = 0;
constexpr int kSlidingRope = 1;

absl::StatusOr<DecoderSpec> Gemma3Spec(const Json& json) {
  DecoderDefaults defaults;
  defaults.vocab_size = 262208;
  defaults.hidden_size = 2304;
  defaults.intermediate_size = 9216;
  defaults.num_layers = 26;
  defaults.num_heads = 8;
  defaults.num_kv_heads = 4;
  defaults.head_dim = 256;
  defaults.max_positions = 131072;
  defaults.activation = "gelu_pytorch_tanh";
  defaults.tie_embeddings = true;
  INLAY_ASSIGN_OR_RETURN(const DecoderConfig config,
                         ReadGemmaConfig(json, defaults));
  INLAY_ASSIGN_OR_RETURN(
      const GemmaAttention gemma,
      ReadGemmaAttention(json, config.num_layers, {.pattern = 6}));
  if (gemma.attention_softcap != 0.0f) {
    return absl::UnimplementedError(FormattedString(
        "config.json: attn_logit_softcapping is %g; supported here is null: "
        "engines differ in whether they read it",
        gemma.attention_softcap));
  }
  INLAY_ASSIGN_OR_RETURN(
      const RopeSpec full,
      ReadRope(json, config, {.theta = 1e6}, "full_attention"));
  INLAY_ASSIGN_OR_RETURN(
      const RopeSpec sliding,
      ReadSlidingRope(json, config, "rope_local_base_freq", 10000.0));
  INLAY_ASSIGN_OR_RETURN(const bool both_ways,
                         JsonBool(json, "use_bidirectional_attention", false));
  if (both_ways && gemma.window == 1) {
    return absl::UnimplementedError(
        "config.json: sliding_window is 1 with use_bidirectional_attention; "
        "supported are 2 and more");
  }
  DecoderSpec spec = GemmaStyleDecoder(config);
  spec.max_positions = UsablePositions(config.max_positions, full);
  spec.final_softcap = gemma.final_softcap;
  spec.ropes = {full, sliding};
  for (int i = 0; i < config.num_layers; ++i) {
    const std::string prefix = LayerPrefix(i);
    const bool slides = gemma.sliding[static_cast<size_t>(i)];
    AttentionSpec attention =
        LlamaStyleAttention(config, prefix, gemma.bias, gemma.bias);
    attention.scale = gemma.scale;
    const int window = both_ways ? gemma.window / 2 : gemma.window;
    attention.window = slides ? window : 0;
    attention.rope = slides ? kSlidingRope : kFullRope;
    AddHeadNorms(config, prefix, NormKind::kRmsZeroCentred, &attention);
    spec.layers.push_back(SandwichLayer(config, prefix, attention,
                                        LlamaStyleMlp(config, prefix, false)));
  }
  if (both_ways) {
    INLAY_RETURN_IF_ERROR(SeeBothWays("use_bidirectional_attention", &spec));
  }
  return spec;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> MakeGemma3(const Json& config,
                                                  ModelBuild& build) {
  INLAY_ASSIGN_OR_RETURN(const DecoderSpec spec, Gemma3Spec(config));
  return BuildDecoder(spec, build);
}

}  // namespace inlay
