#include "core/formats/gguf_family_checks.h"

#include "core/formats/gguf_sizes.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {

// llama.cpp has neither biases nor heads without norms, and wants a head.
absl::Status CheckGgufSarvam(const GgufKeyWriter& keys) {
  INLAY_RETURN_IF_ERROR(keys.Expect("use_qk_norm", true));
  INLAY_RETURN_IF_ERROR(keys.Expect("use_qkv_bias", false));
  INLAY_RETURN_IF_ERROR(keys.Expect("attention_bias", false));
  return keys.Expect("tie_word_embeddings", false);
}

// llama.cpp has no head and no gates.
absl::Status CheckGgufPlm(const GgufKeyWriter& keys) {
  INLAY_RETURN_IF_ERROR(keys.CheckActivation("hidden_act", {"relu2"}));
  return keys.Expect("tie_word_embeddings", true);
}

// As the first, of Ling 1.
absl::Status CheckGgufBailing(const GgufKeyWriter& keys) {
  INLAY_RETURN_IF_ERROR(keys.Expect("use_bias", false));
  INLAY_RETURN_IF_ERROR(keys.Expect("use_qkv_bias", false));
  INLAY_RETURN_IF_ERROR(keys.Expect("attention_bias", false));
  return keys.Expect("tie_word_embeddings", false);
}

// llama.cpp wants a head, and has no other biases.
absl::Status CheckGgufQwen(const GgufKeyWriter& keys) {
  INLAY_RETURN_IF_ERROR(keys.Expect("no_bias", true));
  return keys.Expect("tie_word_embeddings", false);
}

// Files have none of its factors.
absl::Status CheckGgufMiniCpm3(const GgufKeyWriter& keys) {
  for (const char* key : {"scale_depth", "dim_model_base"}) {
    if (!keys.IsNull(key)) continue;
    return absl::UnimplementedError(FormattedString(
        "config.json: %s is null, which a GGUF file of \"minicpm3\" cannot "
        "say",
        key));
  }
  INLAY_RETURN_IF_ERROR(keys.Expect("scale_emb", 12));
  INLAY_RETURN_IF_ERROR(keys.Expect("scale_depth", 1.4));
  return keys.Expect("dim_model_base", 256);
}

// Every fourth layer has no rope, and none a window.
absl::Status CheckGgufSmolLm3(const GgufKeyWriter& keys) {
  INLAY_RETURN_IF_ERROR(keys.Expect("use_sliding_window", false));
  INLAY_ASSIGN_OR_RETURN(
      const int64_t interval,
      JsonInt(keys.config(), "no_rope_layer_interval", 4, 1, kMaxGgufSize));
  const Json* list = JsonFind(keys.config(), "no_rope_layers");
  // An empty one says nothing.
  const bool has_list = list != nullptr && list->is_array() && !list->empty();
  bool is_usual = has_list || interval == 4;
  for (size_t i = 0; has_list && i < list->size(); ++i) {
    is_usual &= (*list)[i] == ((i + 1) % 4 != 0 ? 1 : 0);
  }
  if (is_usual) return absl::OkStatus();
  return absl::UnimplementedError(FormattedString(
      "config.json: %s are not every fourth, which a GGUF file of "
      "\"smollm3\" cannot say",
      has_list ? "no_rope_layers" : "layers by no_rope_layer_interval"));
}

}  // namespace inlay
