#include "core/formats/gguf_sizes.h"

#include <optional>

#include "absl/strings/str_format.h"
#include "memory/status.h"

namespace inlay {
namespace {

absl::Status ReadHeadDim(const GgufArchKeys& keys, GgufSizes* sizes) {
  const auto size = [&](const char* key) {
    return keys.LayerInt(key, sizes->layers, 1, kMaxGgufSize);
  };
  INLAY_ASSIGN_OR_RETURN(const auto key, size("attention.key_length"));
  INLAY_ASSIGN_OR_RETURN(const auto value, size("attention.value_length"));
  sizes->head_dim = key.value_or(sizes->hidden / sizes->heads);
  // Latent attention has sizes of its own (gguf_latent.h).
  if (keys.Find("attention.kv_lora_rank") != nullptr) return absl::OkStatus();
  if (sizes->head_dim >= 1 &&
      value.value_or(sizes->head_dim) == sizes->head_dim) {
    return absl::OkStatus();
  }
  return absl::UnimplementedError(absl::StrFormat(
      "heads of %d for keys and %d for values, allowed: one size, at least 1",
      sizes->head_dim, value.value_or(sizes->head_dim)));
}

}  // namespace

absl::StatusOr<GgufSizes> ReadGgufSizes(const GgufFiles& files,
                                        const GgufArchKeys& keys) {
  GgufSizes sizes;
  const auto required = [&](const char* key, int64_t max) {
    return keys.Required(key, keys.Int(key, 1, max));
  };
  INLAY_ASSIGN_OR_RETURN(sizes.layers, required("block_count", kMaxGgufLayers));
  INLAY_ASSIGN_OR_RETURN(sizes.hidden,
                         required("embedding_length", kMaxGgufSize));
  INLAY_ASSIGN_OR_RETURN(sizes.context,
                         required("context_length", kMaxGgufSize));
  const auto of_layers = [&](const char* key) {
    return keys.LayerInt(key, sizes.layers, 1, kMaxGgufSize);
  };
  constexpr char kHeads[] = "attention.head_count";
  INLAY_ASSIGN_OR_RETURN(sizes.heads, keys.Required(kHeads, of_layers(kHeads)));
  INLAY_ASSIGN_OR_RETURN(const auto kv_heads,
                         of_layers("attention.head_count_kv"));
  sizes.kv_heads = kv_heads.value_or(sizes.heads);
  // Where all layers have experts there may be no other width.
  constexpr char kInner[] = "feed_forward_length";
  constexpr char kExpertInner[] = "expert_feed_forward_length";
  const bool has_inner =
      keys.Find(kInner) != nullptr || keys.Find(kExpertInner) == nullptr;
  const char* inner = has_inner ? kInner : kExpertInner;
  INLAY_ASSIGN_OR_RETURN(sizes.inner, keys.Required(inner, of_layers(inner)));
  const GgufTensor* embedding = files.FindTensor("token_embd.weight");
  if (embedding == nullptr || embedding->info.shape.size() != 2) {
    return absl::InvalidArgumentError(
        "tensor \"token_embd.weight\" is missing or no matrix");
  }
  sizes.vocab = embedding->info.shape[0];
  INLAY_RETURN_IF_ERROR(ReadHeadDim(keys, &sizes));
  INLAY_ASSIGN_OR_RETURN(const auto predictors,
                         keys.Int("nextn_predict_layers", 0, sizes.layers - 1));
  sizes.layers -= predictors.value_or(0);
  return sizes;
}

}  // namespace inlay
