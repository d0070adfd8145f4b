// Nemotron-3 8B and Nemotron-4 (arXiv:2402.16819), and Minitron of them
// (arXiv:2407.14679): LayerNorms whose weights are stored without their 1, an
// MLP of squared ReLUs without a gate, rope on a part of each head.
#include "core/model/arch.h"
#include "core/model/arch/llama_style.h"
#include "core/model/decoder.h"
#include "memory/status.h"

namespace inlay {

absl::StatusOr<std::unique_ptr<Model>> MakeNemotron(const Json& json,
                                                    ModelBuild& build) {
  DecoderDefaults defaults;
  defaults.vocab_size = 256000;
  defaults.hidden_size = 6144;
  defaults.intermediate_size = 24576;
  defaults.num_heads = 48;
  defaults.max_positions = 4096;
  defaults.norm_epsilon = 1e-5;
  defaults.epsilon_key = "norm_eps";
  defaults.activation = "relu2";
  INLAY_ASSIGN_OR_RETURN(const DecoderConfig config,
                         ReadDecoderConfig(json, defaults));
  INLAY_ASSIGN_OR_RETURN(const DecoderSpec spec,
                         LlamaStyleSpec(json, config,
                                        {.norm = NormKind::kLayerZeroCentred,
                                         .make_mlp = LlamaStylePlainMlp,
                                         .rope = {.partial = 0.5}}));
  return BuildDecoder(spec, build);
}

}  // namespace inlay
