#include "core/formats/gguf_latent_writer.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "core/formats/gguf_rope_writer.h"
#include "memory/status.h"

namespace inlay {
namespace {

// Which layers select keys for themselves; absent: all.
absl::Status SetSelectingLayers(GgufKeyWriter& keys) {
  constexpr char kTypes[] = "attention.indexer.types";
  const Json& config = keys.config();
  INLAY_ASSIGN_OR_RETURN(const int64_t layers, keys.Size("num_hidden_layers"));
  const auto count = static_cast<size_t>(layers);
  std::vector<bool> full(count);
  const Json* types = JsonFind(config, "indexer_types");
  const Json* pattern = JsonFind(config, "index_topk_pattern");
  if (types == nullptr && pattern != nullptr) types = pattern;
  INLAY_ASSIGN_OR_RETURN(const int64_t every,
                         JsonInt(config, "index_topk_freq", 1, 0, layers));
  INLAY_ASSIGN_OR_RETURN(
      const int64_t offset,
      JsonInt(config, "index_skip_topk_offset", 2, 0, layers));
  for (size_t i = 0; i < count; ++i) {
    if (types == nullptr) {
      full[i] = std::max<int64_t>(static_cast<int64_t>(i) - offset + 1, 0) %
                    std::max<int64_t>(every, 1) ==
                0;
    } else if (types->is_string()) {
      const auto& letters = types->get_ref<const std::string&>();
      full[i] = i < letters.size() && letters[i] == 'F';
    } else {
      full[i] = types->is_array() && i < types->size() && (*types)[i] == "full";
    }
  }
  return keys.SetBools(kTypes, full);
}

// MiniCPM 3's may be what heads share of the residual stream.
absl::StatusOr<int64_t> ValueSize(const GgufKeyWriter& keys) {
  if (keys.arch() != "minicpm3" || keys.Has("v_head_dim")) {
    return keys.Size("v_head_dim");
  }
  INLAY_ASSIGN_OR_RETURN(const int64_t hidden, keys.Size("hidden_size"));
  INLAY_ASSIGN_OR_RETURN(const int64_t heads, keys.Size("num_attention_heads"));
  return std::max<int64_t>(hidden / heads, 1);
}

// Queries are scaled by their position.
absl::Status SetTemperature(GgufKeyWriter& keys) {
  const Json* rope = JsonFind(keys.config(), "rope_parameters");
  if (rope == nullptr) rope = JsonFind(keys.config(), "rope_scaling");
  if (rope == nullptr) return keys.Size("rope_parameters").status();
  INLAY_ASSIGN_OR_RETURN(
      const double beta,
      JsonNumber(*rope, "llama_4_scaling_beta", 0.0, -1e6, 1e6));
  return keys.SetF32("attention.temperature_scale", beta);
}

}  // namespace

absl::Status SetGgufLatent(GgufKeyWriter& keys, int64_t positions,
                           GgufConfigTensors* tensors) {
  INLAY_RETURN_IF_ERROR(keys.Expect("attention_bias", false));
  const bool is_plain = keys.arch() == "minicpm3" || keys.arch() == "plm";
  if (is_plain) {
    INLAY_RETURN_IF_ERROR(keys.Expect("mlp_bias", false));
  } else {
    INLAY_RETURN_IF_ERROR(keys.Expect("rope_interleave", true));
  }
  INLAY_ASSIGN_OR_RETURN(
      const int64_t rank,
      keys.CopySize("kv_lora_rank", "attention.kv_lora_rank"));
  if (keys.Has("q_lora_rank")) {
    INLAY_RETURN_IF_ERROR(
        keys.CopySize("q_lora_rank", "attention.q_lora_rank").status());
  } else if (!keys.IsNull("q_lora_rank") && keys.arch() != "kimi-linear" &&
             keys.arch() != "plm") {
    return keys.Size("q_lora_rank").status();
  }
  INLAY_ASSIGN_OR_RETURN(const int64_t key, keys.Size("qk_nope_head_dim"));
  INLAY_ASSIGN_OR_RETURN(const int64_t rope, keys.Size("qk_rope_head_dim"));
  INLAY_ASSIGN_OR_RETURN(const int64_t value, ValueSize(keys));
  if (is_plain) {
    INLAY_RETURN_IF_ERROR(keys.SetU32("attention.key_length", key + rope));
    INLAY_RETURN_IF_ERROR(keys.SetU32("attention.value_length", value));
    GgufRopeShape own{rope, positions};
    if (keys.arch() == "plm") own.theta = 1e5;  // as the family has it
    return SetGgufRope(keys.config(), std::string(keys.arch()), own,
                       &keys.writer(), tensors);
  }
  for (const auto& [name, size] :
       {std::pair{"attention.key_length", rank + rope},
        std::pair{"attention.value_length", rank},
        std::pair{"attention.key_length_mla", key + rope},
        std::pair{"attention.value_length_mla", value}}) {
    INLAY_RETURN_IF_ERROR(keys.SetU32(name, size));
  }
  if (keys.arch() == "mistral4") {
    INLAY_RETURN_IF_ERROR(SetTemperature(keys));
  }
  GgufRopeShape shape{rope, positions};
  shape.is_latent = true;
  return SetGgufRope(keys.config(), std::string(keys.arch()), shape,
                     &keys.writer(), tensors);
}

absl::Status SetGgufIndexer(GgufKeyWriter& keys) {
  for (const auto& [from, to] :
       {std::pair{"index_n_heads", "attention.indexer.head_count"},
        std::pair{"index_head_dim", "attention.indexer.key_length"},
        std::pair{"index_topk", "attention.indexer.top_k"}}) {
    INLAY_RETURN_IF_ERROR(keys.CopySize(from, to).status());
  }
  const bool is_glm = keys.arch() == "glm-dsa";
  INLAY_RETURN_IF_ERROR(keys.Expect("indexer_rope_interleave", is_glm));
  return is_glm ? SetSelectingLayers(keys) : absl::OkStatus();
}

}  // namespace inlay
