// What the Gemma families share beyond Llama's parts.
#ifndef INLAY_CORE_MODEL_ARCH_GEMMA_STYLE_H_
#define INLAY_CORE_MODEL_ARCH_GEMMA_STYLE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/model/arch/llama_style.h"

namespace inlay {

// ReadDecoderConfig with the activation as Gemma means it: hidden_activation,
// and where that is missing the tanh form of gelu even if an old file's
// hidden_act says "gelu".
absl::StatusOr<DecoderConfig> ReadGemmaConfig(const Json& json,
                                              const DecoderDefaults& defaults);

// UNIMPLEMENTED for use_bidirectional_attention.
absl::Status ExpectOneWay(const Json& json);

// Embeddings scaled by sqrt(hidden_size), zero-centred norms.
DecoderSpec GemmaStyleDecoder(const DecoderConfig& config);

// Norms before and after attention and MLP (Gemma 2 on).
LayerSpec SandwichLayer(const DecoderConfig& config, const std::string& prefix,
                        AttentionSpec attention, MlpSpec mlp);

// What Gemma 2 and 3 read alike.
struct GemmaAttention {
  float scale = 1.0f;              // query_pre_attn_scalar^-1/2
  float attention_softcap = 0.0f;  // 0: none
  float final_softcap = 0.0f;      // 0: none
  int window = 0;                  // of the sliding layers
  bool bias = false;
  std::vector<bool> sliding;  // [num_layers]
};

// `pattern`: every pattern-th layer is full where layer_types is absent.
// `softcaps`: what absent softcaps mean, attention's and the final one.
struct GemmaAttentionDefaults {
  int64_t pattern = 2;
  std::optional<double> attention_softcap;
  std::optional<double> final_softcap;
};
absl::StatusOr<GemmaAttention> ReadGemmaAttention(
    const Json& json, int num_layers, const GemmaAttentionDefaults& defaults);

// num_kv_shared_layers, where it is absent `fallback`: so many last layers have
// the keys and values of the last one of their type before them. [layers],
// AttentionSpec::kv_source.
absl::StatusOr<std::vector<int>> ReadKvSources(const Json& json,
                                               const std::vector<bool>& sliding,
                                               int64_t fallback);

// What Gemma 3n and 4 have of inputs per layer: those of all layers, and the
// part that reads layer `index`'s.
PerLayerInputsSpec GemmaPerLayerInputs(const DecoderConfig& config,
                                       int64_t width);
PerLayerSpec GemmaPerLayer(const DecoderConfig& config, int64_t width,
                           int index, const std::string& prefix);

}  // namespace inlay

#endif  // INLAY_CORE_MODEL_ARCH_GEMMA_STYLE_H_
