// Apertus (arXiv:2509.14233): an MLP of xIELU without a gate, whose numbers are
// each layer's, norms of q and k of each head, norms by other names.
// Apertus 1.5 has tokens of images and sounds behind those of text, which its
// head may lack: those are no tokens here.
#include <string>
#include <variant>
#include <vector>

#include "core/model/arch.h"
#include "core/model/arch/deepseek_style.h"
#include "core/model/arch/llama_style.h"
#include "core/model/decoder.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

// `list` of the numbers that gguf_xielu.h leaves in config.json.
absl::StatusOr<float> ReadNumber(const Json& numbers, const char* list,
                                 int layer) {
  const Json* all = JsonFind(numbers, list);
  const auto place = static_cast<size_t>(layer);
  const bool is_there = all != nullptr && all->is_array() &&
                        place < all->size() && (*all)[place].is_number();
  if (is_there) return (*all)[place].get<float>();
  return absl::InvalidArgumentError(FormattedString(
      "config.json: xielu.%s has no number for layer %d", list, layer));
}

absl::StatusOr<XieluSpec> ReadXielu(const Json& json, const std::string& prefix,
                                    int layer) {
  XieluSpec spec;
  const Json* numbers = JsonFind(json, "xielu");
  if (numbers == nullptr) {
    spec.name = prefix + "mlp.act_fn";
    return spec;
  }
  INLAY_ASSIGN_OR_RETURN(spec.stored.alpha_p,
                         ReadNumber(*numbers, "alpha_p", layer));
  INLAY_ASSIGN_OR_RETURN(spec.stored.alpha_n,
                         ReadNumber(*numbers, "alpha_n", layer));
  INLAY_ASSIGN_OR_RETURN(spec.stored.beta, ReadNumber(*numbers, "beta", layer));
  INLAY_ASSIGN_OR_RETURN(spec.stored.eps, ReadNumber(*numbers, "eps", layer));
  return spec;
}

absl::StatusOr<DecoderSpec> ApertusSpec(const Json& json, int64_t vocab_size) {
  DecoderDefaults defaults;
  defaults.vocab_size = vocab_size;
  defaults.intermediate_size = 14336;
  defaults.max_positions = 65536;
  defaults.norm_epsilon = 1e-5;
  INLAY_ASSIGN_OR_RETURN(const std::string activation,
                         JsonString(json, "hidden_act", "xielu"));
  INLAY_ASSIGN_OR_RETURN(Json usual, WithLlama3Rope(json, 8.0));
  if (activation == "xielu") usual["hidden_act"] = "silu";
  INLAY_ASSIGN_OR_RETURN(const DecoderConfig config,
                         ReadDecoderConfig(usual, defaults));
  // Keys of published files that change nothing.
  INLAY_RETURN_IF_ERROR(ExpectFlag(json, "mlp_bias", false));
  INLAY_RETURN_IF_ERROR(ExpectFlag(json, "post_norm", false));
  INLAY_RETURN_IF_ERROR(ExpectFlag(json, "qk_norm", true));
  INLAY_ASSIGN_OR_RETURN(DecoderSpec spec,
                         LlamaStyleSpec(usual, config,
                                        {.make_mlp = LlamaStylePlainMlp,
                                         .rope = {.theta = 12e6}}));
  for (int i = 0; i < config.num_layers; ++i) {
    const std::string prefix = LayerPrefix(i);
    std::vector<BlockSpec>& blocks = spec.layers[static_cast<size_t>(i)].blocks;
    blocks[0].pre_norm.name = prefix + "attention_layernorm";
    blocks[1].pre_norm.name = prefix + "feedforward_layernorm";
    AddHeadNorms(config, prefix, NormKind::kRms,
                 &std::get<AttentionSpec>(blocks[0].part));
    if (activation != "xielu") continue;
    INLAY_ASSIGN_OR_RETURN(std::get<MlpSpec>(blocks[1].part).xielu,
                           ReadXielu(json, prefix, i));
  }
  return spec;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> MakeApertus(const Json& config,
                                                   ModelBuild& build) {
  INLAY_ASSIGN_OR_RETURN(const DecoderSpec spec, ApertusSpec(config, 131072));
  return BuildDecoder(spec, build);
}

absl::StatusOr<std::unique_ptr<Model>> MakeApertus15(const Json& config,
                                                     ModelBuild& build) {
  INLAY_ASSIGN_OR_RETURN(DecoderSpec spec, ApertusSpec(config, 266752));
  const int64_t all = spec.vocab_size;
  INLAY_ASSIGN_OR_RETURN(spec.vocab_size,
                         JsonInt(config, "output_vocab_size", all, 1, all));
  if (spec.vocab_size < all) {
    if (spec.head.empty()) {
      return absl::UnimplementedError(
          "config.json: tie_word_embeddings is true with output_vocab_size; "
          "supported here is a head of its own");
    }
    spec.embedding_rows = all;
  }
  return BuildDecoder(spec, build);
}

}  // namespace inlay
