#include "core/formats/gguf_deci.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "core/formats/nas_blocks.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

constexpr char kDeciHeads[] = "attention.head_count";
constexpr char kDeciKvHeads[] = "attention.head_count_kv";
constexpr char kDeciWidth[] = "feed_forward_length";
constexpr char kHeadsOfLayers[] = "num_key_value_heads_per_layer";

// Of each layer; 0: it lacks the part.
struct DeciLayers {
  std::vector<int64_t> heads;
  std::vector<int64_t> kv_heads;
  std::vector<int64_t> widths;
};

absl::StatusOr<DeciLayers> ReadDeciLayers(const GgufArchKeys& keys,
                                          int64_t layers) {
  const auto list = [&](const char* key) {
    return keys.LayerInts(key, layers, 0, kMaxGgufSize);
  };
  DeciLayers all;
  INLAY_ASSIGN_OR_RETURN(all.heads, list(kDeciHeads));
  INLAY_ASSIGN_OR_RETURN(all.kv_heads, list(kDeciKvHeads));
  INLAY_ASSIGN_OR_RETURN(all.widths, list(kDeciWidth));
  return all;
}

// Layers with queries have `most` heads of them.
absl::Status CheckDeciHeads(const GgufArchKeys& keys, int64_t heads,
                            int64_t kv_heads, int64_t most) {
  if (heads != 0 && heads != most) {
    return absl::UnimplementedError(
        FormattedString("%s has %d, allowed: 0 or the %d of other layers",
                        keys.Name(kDeciHeads), heads, most));
  }
  if (heads != 0 && kv_heads == 0) {
    return absl::UnimplementedError(FormattedString(
        "%s is 0 where %s is %d (linear attention), allowed: 0 in both",
        keys.Name(kDeciKvHeads), keys.Name(kDeciHeads), heads));
  }
  if (kv_heads == 0 || (heads != 0 && heads % kv_heads == 0)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(FormattedString(
      "%s has %d, allowed: what divides the layer's heads of queries, %d",
      keys.Name(kDeciKvHeads), kv_heads, heads));
}

absl::StatusOr<DeciLayers> DeciBlocks(const GgufKeyWriter& keys,
                                      int64_t heads) {
  INLAY_ASSIGN_OR_RETURN(const int64_t layers, keys.Size("num_hidden_layers"));
  INLAY_ASSIGN_OR_RETURN(const int64_t hidden, keys.Size("hidden_size"));
  INLAY_ASSIGN_OR_RETURN(const std::vector<NasLayer> blocks,
                         ReadNasBlocks(keys.config(), layers, heads, hidden));
  DeciLayers all;
  for (const NasLayer& block : blocks) {
    all.heads.push_back(block.num_kv_heads != 0 ? heads : 0);
    all.kv_heads.push_back(block.num_kv_heads);
    all.widths.push_back(block.width);
  }
  return all;
}

absl::Status SetDeciList(GgufKeyWriter& keys, const char* key,
                         const std::vector<int64_t>& values) {
  return keys.SetU32s(key, std::vector<uint32_t>(values.begin(), values.end()));
}

// DeciLM 7B's: all layers have both parts.
absl::Status SetDeciHeads(GgufKeyWriter& keys, int64_t heads) {
  INLAY_RETURN_IF_ERROR(keys.SetU32(kDeciHeads, heads));
  INLAY_RETURN_IF_ERROR(
      keys.CopySize("intermediate_size", kDeciWidth).status());
  const Json* list = JsonFind(keys.config(), kHeadsOfLayers);
  if (list == nullptr) {
    return keys.CopySize("num_key_value_heads", kDeciKvHeads, heads).status();
  }
  std::vector<int64_t> kv_heads;
  for (const Json& own : *list) {
    const Json one = {{kHeadsOfLayers, own}};
    INLAY_ASSIGN_OR_RETURN(kv_heads.emplace_back(),
                           NeededGgufSize(one, kHeadsOfLayers));
  }
  return SetDeciList(keys, kDeciKvHeads, kv_heads);
}

}  // namespace

absl::Status ReadGgufDeciSizes(const GgufArchKeys& keys, GgufSizes* sizes) {
  INLAY_ASSIGN_OR_RETURN(const DeciLayers all,
                         ReadDeciLayers(keys, sizes->layers));
  const auto most = [](const std::vector<int64_t>& list) {
    return std::max<int64_t>(*std::max_element(list.begin(), list.end()), 1);
  };
  sizes->heads = most(all.heads);
  sizes->kv_heads = most(all.kv_heads);
  sizes->inner = most(all.widths);
  return absl::OkStatus();
}

absl::Status ReadGgufDeci(const GgufFiles& files, const GgufArchKeys& keys,
                          const GgufSizes& sizes, Json* config) {
  INLAY_ASSIGN_OR_RETURN(const DeciLayers all,
                         ReadDeciLayers(keys, sizes.layers));
  bool has_bias = false, has_mlp_bias = false, are_alike = true;
  for (size_t i = 0; i < all.heads.size(); ++i) {
    const auto has = [&](const char* tensor) {
      return files.FindTensor(FormattedString("blk.%d.%s.bias", i, tensor)) !=
             nullptr;
    };
    INLAY_RETURN_IF_ERROR(
        CheckDeciHeads(keys, all.heads[i], all.kv_heads[i], sizes.heads));
    has_bias |= has("attn_output");
    has_mlp_bias |= has("ffn_gate");
    are_alike &= all.heads[i] != 0 && all.widths[i] == sizes.inner;
  }
  (*config)["attention_bias"] = has_bias;
  (*config)["mlp_bias"] = has_mlp_bias;
  if (are_alike) {
    (*config)[kHeadsOfLayers] = all.kv_heads;
    return absl::OkStatus();
  }
  Json blocks = Json::array();
  for (size_t i = 0; i < all.heads.size(); ++i) {
    Json attention = {{"no_op", true}};
    if (all.heads[i] != 0) {
      attention = {{"n_heads_in_group", all.heads[i] / all.kv_heads[i]}};
    }
    Json ffn = {{"no_op", true}};
    if (all.widths[i] != 0) ffn = NasMlp(all.widths[i], sizes.hidden);
    blocks.push_back({{"attention", attention}, {"ffn", ffn}});
  }
  (*config)[kNasBlocks] = std::move(blocks);
  return absl::OkStatus();
}

absl::StatusOr<GgufHeads> SetGgufDeciLayers(GgufKeyWriter& keys) {
  INLAY_ASSIGN_OR_RETURN(const int64_t heads, keys.Size("num_attention_heads"));
  INLAY_ASSIGN_OR_RETURN(const int64_t hidden, keys.Size("hidden_size"));
  INLAY_ASSIGN_OR_RETURN(
      const int64_t head_dim,
      keys.Size("head_dim", std::max<int64_t>(hidden / heads, 1)));
  const GgufHeads all = {heads, heads, head_dim};
  if (JsonFind(keys.config(), kNasBlocks) == nullptr) {
    INLAY_RETURN_IF_ERROR(SetDeciHeads(keys, heads));
    return all;
  }
  INLAY_ASSIGN_OR_RETURN(const DeciLayers layers, DeciBlocks(keys, heads));
  INLAY_RETURN_IF_ERROR(SetDeciList(keys, kDeciHeads, layers.heads));
  INLAY_RETURN_IF_ERROR(SetDeciList(keys, kDeciKvHeads, layers.kv_heads));
  INLAY_RETURN_IF_ERROR(SetDeciList(keys, kDeciWidth, layers.widths));
  return all;
}

}  // namespace inlay
