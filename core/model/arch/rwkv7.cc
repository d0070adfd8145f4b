// RWKV-7 "Goose" (arXiv:2503.14456), as fla-hub's and RWKV's checkpoints have
// it: no attention, a state of fixed size. Source of names, defaults and what
// is computed: fla's RWKV7Config and RWKV7Attention (fla-org/
// flash-linear-attention), BlinkDL/RWKV-LM's rwkv_v7_demo.py.
#include <algorithm>

#include "core/model/arch.h"
#include "core/model/arch/deepseek_style.h"
#include "core/model/arch/llama_style.h"
#include "core/model/decoder.h"
#include "kernels/linear_attention/wkv7.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

// The recurrence has no length; max_position_embeddings is what it was trained
// with.
constexpr int64_t kRwkvPositions = int64_t{1} << 20;

struct RwkvSizes {
  int64_t hidden = 0;
  int64_t inner = 0;  // of the channel mix
  int64_t head_dim = 0;
  int64_t decay_rank = 0;
  int64_t rate_rank = 0;
  int64_t mix_rank = 0;
  int64_t gate_rank = 0;
  float epsilon = 0.0f;

  int heads() const { return static_cast<int>(hidden / head_dim); }
};

absl::StatusOr<int64_t> ReadRwkvHeadDim(const Json& config, int64_t hidden) {
  const bool counted = JsonFind(config, "head_dim") == nullptr &&
                       JsonFind(config, "num_heads") != nullptr;
  INLAY_ASSIGN_OR_RETURN(int64_t dim,
                         JsonInt(config, "head_dim", 64, 1, kMaxHidden));
  INLAY_ASSIGN_OR_RETURN(
      const int64_t heads,
      JsonInt(config, "num_heads", std::max<int64_t>(hidden / dim, 1), 1,
              kMaxHidden));
  if (counted) dim = hidden / heads;
  if (!IsWkvHeadDim(dim)) {
    return absl::InvalidArgumentError(FormattedString(
        "config.json: head_dim is %d, allowed: 16, 32, 64 or 128", dim));
  }
  if (heads * dim == hidden) return dim;
  return absl::InvalidArgumentError(FormattedString(
      "config.json: hidden_size is %d, allowed with %d heads (num_heads) of %d "
      "(head_dim): their product",
      hidden, heads, dim));
}

absl::StatusOr<int64_t> ReadRwkvInner(const Json& config, int64_t hidden) {
  constexpr double kMostRatio = 256.0;
  INLAY_ASSIGN_OR_RETURN(const double ratio, JsonNumber(config, "hidden_ratio",
                                                        4.0, 0.0, kMostRatio));
  const auto stated = static_cast<int64_t>(static_cast<double>(hidden) * ratio);
  const int64_t inner = (stated + 31) / 32 * 32;
  return JsonInt(config, "intermediate_size",
                 std::min<int64_t>(std::max<int64_t>(inner, 1), kMaxHidden), 1,
                 kMaxHidden);
}

// One number, or one a layer: of every layer the width.
absl::Status ExpectValueDim(const Json& config, int64_t hidden) {
  const Json* value = JsonFind(config, "value_dim");
  if (value == nullptr) return absl::OkStatus();
  bool is_width = *value == hidden;
  if (value->is_array()) {
    is_width = std::all_of(value->begin(), value->end(),
                           [&](const Json& dim) { return dim == hidden; });
  }
  if (is_width) return absl::OkStatus();
  return absl::UnimplementedError(FormattedString(
      "config.json: value_dim is not %d, the hidden_size, in every layer, "
      "which this family's published files have",
      hidden));
}

// What no published file has.
absl::Status RefuseRwkvKeys(const Json& config) {
  if (JsonFind(config, "attn") != nullptr) {
    return absl::UnimplementedError(
        "config.json: attn asks for layers with attention; allowed: null");
  }
  INLAY_RETURN_IF_ERROR(ExpectName(config, "hidden_act", {"sqrelu"}));
  INLAY_RETURN_IF_ERROR(ExpectFlag(config, "norm_first", true));
  INLAY_RETURN_IF_ERROR(ExpectFlag(config, "norm_bias", true));
  return ExpectFlag(config, "tie_word_embeddings", false);
}

absl::StatusOr<RwkvSizes> ReadRwkvSizes(const Json& config) {
  RwkvSizes sizes;
  INLAY_ASSIGN_OR_RETURN(sizes.hidden,
                         JsonInt(config, "hidden_size", 2048, 1, kMaxHidden));
  INLAY_ASSIGN_OR_RETURN(sizes.head_dim, ReadRwkvHeadDim(config, sizes.hidden));
  INLAY_ASSIGN_OR_RETURN(sizes.inner, ReadRwkvInner(config, sizes.hidden));
  INLAY_RETURN_IF_ERROR(ExpectValueDim(config, sizes.hidden));
  const struct {
    const char* key;
    int64_t usual;
    int64_t* to;
  } ranks[] = {{"decay_low_rank_dim", 64, &sizes.decay_rank},
               {"a_low_rank_dim", 64, &sizes.rate_rank},
               {"v_low_rank_dim", 16, &sizes.mix_rank},
               {"gate_low_rank_dim", 128, &sizes.gate_rank}};
  for (const auto& rank : ranks) {
    INLAY_ASSIGN_OR_RETURN(
        *rank.to, JsonInt(config, rank.key, rank.usual, 1, kMaxHidden));
  }
  INLAY_ASSIGN_OR_RETURN(const double epsilon,
                         JsonNumber(config, "norm_eps", 1e-5, 0.0, 1.0));
  sizes.epsilon = static_cast<float>(epsilon);
  return sizes;
}

std::vector<LinearSpec> LowRankLayers(const std::string& prefix, int64_t width,
                                      int64_t rank, bool bias) {
  return {{prefix + ".lora.0", rank, width},
          {prefix + ".lora.2", width, rank, bias}};
}

TimeMixSpec TimeMixOf(const RwkvSizes& sizes, const std::string& prefix,
                      bool first) {
  const int64_t width = sizes.hidden;
  TimeMixSpec mix;
  mix.num_heads = sizes.heads();
  mix.head_dim = static_cast<int>(sizes.head_dim);
  mix.first = first;
  mix.prefix = prefix;
  mix.r = {prefix + ".r_proj", width, width};
  mix.k = {prefix + ".k_proj", width, width};
  mix.v = {prefix + ".v_proj", width, width};
  mix.decay = LowRankLayers(prefix + ".w_lora", width, sizes.decay_rank, true);
  mix.rate = LowRankLayers(prefix + ".a_lora", width, sizes.rate_rank, true);
  // Some files have one in the first layer, too, and nothing reads it.
  if (!first) {
    mix.mix = LowRankLayers(prefix + ".v_lora", width, sizes.mix_rank, true);
  }
  mix.gate = LowRankLayers(prefix + ".g_lora", width, sizes.gate_rank, false);
  mix.output = {prefix + ".o_proj", width, width};
  mix.epsilon = static_cast<float>(sizes.head_dim) * sizes.epsilon;
  return mix;
}

ShiftedMlpSpec ChannelMixOf(const RwkvSizes& sizes, const std::string& prefix) {
  ShiftedMlpSpec mix;
  mix.mix = prefix + ".x_k";
  mix.mlp.width = sizes.inner;
  mix.mlp.activation = Activation::kReluSquared;
  mix.mlp.input = {{prefix + ".key", sizes.inner, sizes.hidden}};
  mix.mlp.output = {prefix + ".value", sizes.hidden, sizes.inner};
  return mix;
}

absl::StatusOr<DecoderSpec> Rwkv7Spec(const Json& config) {
  INLAY_RETURN_IF_ERROR(RefuseRwkvKeys(config));
  INLAY_ASSIGN_OR_RETURN(const RwkvSizes sizes, ReadRwkvSizes(config));
  INLAY_ASSIGN_OR_RETURN(
      const int64_t layers,
      JsonInt(config, "num_hidden_layers", 24, 1, kMaxLayers));
  DecoderSpec spec;
  INLAY_ASSIGN_OR_RETURN(spec.vocab_size,
                         JsonInt(config, "vocab_size", 32000, 1, kMaxVocab));
  spec.optional_prefix = "model.";
  spec.hidden_size = sizes.hidden;
  spec.max_positions = kRwkvPositions;
  spec.embedding = "model.embeddings.weight";
  spec.embedding_norm = {NormKind::kLayer, "model.layers.0.pre_norm",
                         sizes.epsilon};
  spec.final_norm = {NormKind::kLayer, "model.norm", sizes.epsilon};
  spec.head = "lm_head";
  for (int64_t i = 0; i < layers; ++i) {
    const std::string prefix = LayerPrefix(static_cast<int>(i));
    LayerSpec& layer = spec.layers.emplace_back();
    layer.blocks.push_back(
        {.pre_norm =
             NormSpec{NormKind::kLayer, prefix + "attn_norm", sizes.epsilon},
         .part = TimeMixOf(sizes, prefix + "attn", i == 0)});
    layer.blocks.push_back(
        {.pre_norm =
             NormSpec{NormKind::kLayer, prefix + "ffn_norm", sizes.epsilon},
         .part = ChannelMixOf(sizes, prefix + "ffn")});
  }
  return spec;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> MakeRwkv7(const Json& config,
                                                 ModelBuild& build) {
  INLAY_ASSIGN_OR_RETURN(const DecoderSpec spec, Rwkv7Spec(config));
  return BuildDecoder(spec, build);
}

}  // namespace inlay
