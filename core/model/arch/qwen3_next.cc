// Qwen 3 Next: gated DeltaNet in most layers, gated attention in every fourth,
// mixtures of experts with a shared one. Source of names and defaults:
// transformers' Qwen3NextConfig.
#include <vector>

#include "core/model/arch.h"
#include "core/model/arch/llama_style.h"
#include "core/model/arch/moe_style.h"
#include "core/model/arch/qwen_hybrid_style.h"
#include "core/model/decoder.h"
#include "memory/status.h"

namespace inlay {
namespace {

// in_proj_qkvz and in_proj_ba give for each key head its q, k, then the v and
// then the z of its value heads; and their b, then their a.
void OrderQwen3NextHeads(DeltaSpec& delta) {
  const int heads = delta.num_heads / delta.num_key_heads;  // a key head
  const int values = heads * delta.value_dim;
  const int stride = 2 * delta.key_dim + 2 * values;
  const auto add = [&](std::vector<ColumnRun>& order, int of, int first,
                       int count) {
    for (int head = 0; head < delta.num_key_heads; ++head) {
      order.push_back({head * of + first, count});
    }
  };
  add(delta.qkvz_order, stride, 0, delta.key_dim);
  add(delta.qkvz_order, stride, delta.key_dim, delta.key_dim);
  add(delta.qkvz_order, stride, 2 * delta.key_dim, values);
  add(delta.qkvz_order, stride, 2 * delta.key_dim + values, values);
  add(delta.ba_order, 2 * heads, 0, heads);
  add(delta.ba_order, 2 * heads, heads, heads);
}

absl::StatusOr<DecoderSpec> Qwen3NextSpec(const Json& json) {
  DecoderDefaults defaults;
  defaults.vocab_size = 151936;
  defaults.hidden_size = 2048;
  defaults.intermediate_size = 5632;
  defaults.num_layers = 48;
  defaults.num_heads = 16;
  defaults.num_kv_heads = 2;
  defaults.head_dim = 256;
  defaults.max_positions = 32768;
  INLAY_ASSIGN_OR_RETURN(const DecoderConfig config,
                         ReadDecoderConfig(json, defaults));
  INLAY_ASSIGN_OR_RETURN(const QwenExperts experts,
                         ReadQwenExperts(json, {512, 10, 512, true}));
  INLAY_ASSIGN_OR_RETURN(const std::vector<bool> sparse,
                         ReadSparseLayers(json, config.num_layers));
  QwenHybridParts parts;
  parts.projections = [&](const std::string& name, DeltaSpec* delta) {
    const int64_t hidden = config.hidden_size;
    delta->qkvz = {{name + "in_proj_qkvz",
                    2 * delta->key_width() + 2 * delta->value_width(), hidden}};
    delta->ba = {{name + "in_proj_ba", int64_t{2} * delta->num_heads, hidden}};
    OrderQwen3NextHeads(*delta);
  };
  parts.feed_forward = [&](int layer, const std::string& prefix) -> PartSpec {
    if (!sparse[static_cast<size_t>(layer)]) {
      return LlamaStyleMlp(config, prefix, false);
    }
    return QwenExpertsPart(config, experts, prefix);
  };
  return QwenHybridSpec(json, config, parts);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> MakeQwen3Next(const Json& config,
                                                     ModelBuild& build) {
  INLAY_ASSIGN_OR_RETURN(const DecoderSpec spec, Qwen3NextSpec(config));
  return BuildDecoder(spec, build);
}

}  // namespace inlay
