#include "core/formats/gguf_sizes.h"

#include <algorithm>
#include <optional>

#include "core/formats/gguf_deci.h"
#include "core/formats/gguf_openelm.h"
#include "memory/formatted_string.h"
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
  sizes->value_dim = value.value_or(sizes->head_dim);
  if (keys.arch() == "mimo2" && sizes->value_dim >= 1) return absl::OkStatus();
  if (sizes->head_dim >= 1 && sizes->value_dim == sizes->head_dim) {
    return absl::OkStatus();
  }
  return absl::UnimplementedError(FormattedString(
      "heads of %d for keys and %d for values, allowed: one size, at least 1",
      sizes->head_dim, sizes->value_dim));
}

// One number, or one for each layer: equal ones, and 0 where `may_lack`.
absl::Status ReadKvHeads(const GgufArchKeys& keys, bool may_lack,
                         GgufSizes* sizes) {
  constexpr char kKvHeads[] = "attention.head_count_kv";
  const GgufValue* value = keys.Find(kKvHeads);
  if (!may_lack || value == nullptr || !value->is_array) {
    INLAY_ASSIGN_OR_RETURN(
        const auto heads,
        keys.LayerInt(kKvHeads, sizes->layers, 1, kMaxGgufSize));
    sizes->kv_heads = heads.value_or(sizes->heads);
    return absl::OkStatus();
  }
  INLAY_ASSIGN_OR_RETURN(const auto found, keys.Ints(kKvHeads));
  const std::vector<int64_t> list = found.value_or(std::vector<int64_t>());
  for (const int64_t heads : list) {
    sizes->attends.push_back(heads != 0);
    sizes->kv_heads = std::max(sizes->kv_heads, heads);
  }
  const bool is_known =
      static_cast<int64_t>(list.size()) == sizes->layers &&
      sizes->kv_heads <= kMaxGgufSize &&
      std::all_of(list.begin(), list.end(), [&](int64_t heads) {
        return heads == 0 || heads == sizes->kv_heads;
      });
  if (!is_known) {
    return absl::UnimplementedError(FormattedString(
        "%s: allowed: 0 or one number of at most %d for each of %d layers",
        keys.Name(kKvHeads), kMaxGgufSize, sizes->layers));
  }
  sizes->kv_heads = std::max<int64_t>(sizes->kv_heads, 1);
  return absl::OkStatus();
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
  // No attention; sizes of what there is are read elsewhere (gguf_selective.h,
  // gguf_linear.h, gguf_rwkv.h).
  const bool is_mamba = keys.arch() == "mamba2" || keys.arch() == "mamba" ||
                        keys.arch() == "rwkv7";
  // Each layer has its own (gguf_gemma.h, gguf_windows.h, gguf_laguna.h,
  // gguf_step.h).
  const bool is_gemma4 = keys.arch() == "gemma4";
  const bool has_own_heads = is_gemma4 || keys.arch() == "mimo2";
  constexpr char kHeads[] = "attention.head_count";
  const bool is_openelm = keys.arch() == "openelm";
  const bool has_lists = keys.arch() == "deci" || is_openelm;
  if (has_lists) {
    INLAY_RETURN_IF_ERROR(is_openelm ? ReadGgufOpenElmSizes(keys, &sizes)
                                     : ReadGgufDeciSizes(keys, &sizes));
  } else if (keys.arch() == "laguna" || keys.arch() == "step35") {
    INLAY_ASSIGN_OR_RETURN(
        const auto heads,
        keys.LayerInts(kHeads, sizes.layers, 1, kMaxGgufSize));
    sizes.heads = heads.front();
  } else if (is_mamba) {
    sizes.heads = sizes.kv_heads = sizes.inner = sizes.head_dim = 1;
  } else {
    INLAY_ASSIGN_OR_RETURN(sizes.heads,
                           keys.Required(kHeads, of_layers(kHeads)));
  }
  const bool is_nemotron = keys.arch().starts_with("nemotron_h");
  const bool may_lack =
      keys.arch().starts_with("lfm2") || keys.arch() == "kimi-linear" ||
      keys.arch() == "jamba" || keys.arch() == "granitehybrid" || is_nemotron;
  if (has_own_heads) {
    sizes.kv_heads = 1;
  } else if (!is_mamba && !has_lists) {
    INLAY_RETURN_IF_ERROR(ReadKvHeads(keys, may_lack, &sizes));
  }
  // Where all layers have experts there may be no other width.
  constexpr char kInner[] = "feed_forward_length";
  constexpr char kExpertInner[] = "expert_feed_forward_length";
  const bool has_inner =
      keys.Find(kInner) != nullptr || keys.Find(kExpertInner) == nullptr;
  const char* inner = has_inner ? kInner : kExpertInner;
  const GgufValue* inners = keys.Find(inner);
  if (is_nemotron && inners != nullptr && inners->is_array) {
    // 0 of other layers; the tensors say the rest (gguf_linear.h).
    sizes.inner = 1;
  } else if (is_gemma4 || keys.arch() == "gemma3n") {
    INLAY_ASSIGN_OR_RETURN(
        const auto widths,
        keys.LayerInts(kInner, sizes.layers, 1, kMaxGgufSize));
    sizes.inner = widths.front();
  } else if (!is_mamba && !has_lists) {
    INLAY_ASSIGN_OR_RETURN(sizes.inner, keys.Required(inner, of_layers(inner)));
  }
  const GgufTensor* embedding = files.FindTensor("token_embd.weight");
  if (embedding == nullptr || embedding->info.shape.size() != 2) {
    return absl::InvalidArgumentError(
        "tensor \"token_embd.weight\" is missing or no matrix");
  }
  sizes.vocab = embedding->info.shape[0];
  if (!is_mamba) INLAY_RETURN_IF_ERROR(ReadHeadDim(keys, &sizes));
  INLAY_ASSIGN_OR_RETURN(const auto predictors,
                         keys.Int("nextn_predict_layers", 0, sizes.layers - 1));
  sizes.layers -= predictors.value_or(0);
  return sizes;
}

}  // namespace inlay
