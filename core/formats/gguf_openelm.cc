#include "core/formats/gguf_openelm.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "core/formats/openelm_config.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

constexpr char kElmHeads[] = "attention.head_count";
constexpr char kElmKvHeads[] = "attention.head_count_kv";
constexpr char kElmWidth[] = "feed_forward_length";

absl::StatusOr<OpenElmLayers> ReadElmLists(const GgufArchKeys& keys,
                                           int64_t layers) {
  const auto list = [&](const char* key) {
    return keys.LayerInts(key, layers, 1, kMaxGgufSize);
  };
  OpenElmLayers all;
  INLAY_ASSIGN_OR_RETURN(all.heads, list(kElmHeads));
  INLAY_ASSIGN_OR_RETURN(all.kv_heads, list(kElmKvHeads));
  INLAY_ASSIGN_OR_RETURN(all.widths, list(kElmWidth));
  return all;
}

absl::Status SetElmList(GgufKeyWriter& keys, const char* key,
                        const std::vector<int64_t>& values) {
  return keys.SetU32s(key, std::vector<uint32_t>(values.begin(), values.end()));
}

}  // namespace

absl::Status ReadGgufOpenElmSizes(const GgufArchKeys& keys, GgufSizes* sizes) {
  INLAY_ASSIGN_OR_RETURN(const OpenElmLayers all,
                         ReadElmLists(keys, sizes->layers));
  const auto most = [](const std::vector<int64_t>& list) {
    return *std::max_element(list.begin(), list.end());
  };
  sizes->heads = most(all.heads);
  sizes->kv_heads = most(all.kv_heads);
  sizes->inner = most(all.widths);
  return absl::OkStatus();
}

absl::Status ReadGgufOpenElm(const GgufFiles& files, const GgufArchKeys& keys,
                             const GgufSizes& sizes, Json* config) {
  INLAY_ASSIGN_OR_RETURN(const OpenElmLayers all,
                         ReadElmLists(keys, sizes.layers));
  Json factors = Json::array();
  for (const int64_t width : all.widths) {
    factors.push_back(static_cast<double>(width) /
                      static_cast<double>(sizes.hidden));
  }
  (*config)["num_query_heads"] = all.heads;
  (*config)["num_kv_heads"] = all.kv_heads;
  (*config)["ffn_multipliers"] = std::move(factors);
  (*config)["ffn_dim_divisor"] = 1;
  (*config)["normalize_qk_projections"] =
      files.FindTensor("blk.0.attn_q_norm.weight") != nullptr;
  return absl::OkStatus();
}

absl::StatusOr<GgufHeads> SetGgufOpenElmLayers(GgufKeyWriter& keys) {
  // llama.cpp has no others.
  INLAY_RETURN_IF_ERROR(keys.Expect("tie_word_embeddings", true));
  INLAY_RETURN_IF_ERROR(keys.Expect("ffn_with_glu", true));
  constexpr char kNorms[] = "normalize_qk_projections";
  INLAY_ASSIGN_OR_RETURN(const bool head_norms,
                         JsonFlag(keys.config(), kNorms, false));
  if (!head_norms) return keys.NotSaid(kNorms, false);
  INLAY_ASSIGN_OR_RETURN(const OpenElmLayers all,
                         ReadOpenElmLayers(keys.config()));
  INLAY_ASSIGN_OR_RETURN(const int64_t heads, keys.Size("num_attention_heads"));
  INLAY_RETURN_IF_ERROR(SetElmList(keys, kElmHeads, all.heads));
  INLAY_RETURN_IF_ERROR(SetElmList(keys, kElmKvHeads, all.kv_heads));
  INLAY_RETURN_IF_ERROR(SetElmList(keys, kElmWidth, all.widths));
  return GgufHeads{heads, heads};
}

}  // namespace inlay
