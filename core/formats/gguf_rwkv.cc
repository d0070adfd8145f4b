#include "core/formats/gguf_rwkv.h"

#include <cmath>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_join.h"
#include "core/formats/describe.h"
#include "core/formats/sliced_source.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

// What llama.cpp's converter writes of a family without a length.
constexpr int64_t kRwkvContext = 1 << 20;
constexpr char kRwkvHeadSize[] = "wkv.head_size";
constexpr char kRwkvEpsilon[] = "attention.layer_norm_epsilon";
// Of heads' norms; published heads are of 64 and norms of 1e-5.
constexpr double kRwkvHeadEpsilon = 64e-5;

struct RwkvRank {
  const char* key;
  const char* published;
  int64_t usual;  // fla's RWKV7Config
};
constexpr RwkvRank kRwkvRanks[] = {
    {"attention.decay_lora_rank", "decay_low_rank_dim", 64},
    {"attention.iclr_lora_rank", "a_low_rank_dim", 64},
    {"attention.value_residual_mix_lora_rank", "v_low_rank_dim", 16},
    {"attention.gate_lora_rank", "gate_low_rank_dim", 128},
};

bool IsRwkvHeadEpsilon(int64_t head_dim, double epsilon) {
  // Files have float32.
  return std::fabs(static_cast<double>(head_dim) * epsilon - kRwkvHeadEpsilon) <
         1e-6 * kRwkvHeadEpsilon;
}

// Of a row and the one before it, in the order that files have them in.
constexpr std::string_view kRwkvMixes = "rwkvag";
constexpr std::string_view kRwkvAllMixes = ".attn.x_x";
constexpr std::string_view kRwkvBonus = ".attn.r_k";
constexpr std::string_view kRwkvUnread = "model.layers.0.attn.v_lora.";

absl::Status WrongRwkvShape(const WeightInfo& info, std::string_view allowed) {
  return absl::InvalidArgumentError(FormattedString(
      "tensor %s has shape [%s] of type %s, allowed: %s, not in blocks",
      Quoted(info.name), absl::StrJoin(info.shape, ", "), DTypeName(info.dtype),
      allowed));
}

SlicedTensor& AddRwkvSlice(const WeightInfo& info,
                           std::vector<SlicedTensor>* entries) {
  SlicedTensor& entry = entries->emplace_back();
  entry.info = info;
  entry.is_slice = true;
  entry.slice.stored = &info;
  return entry;
}

absl::Status AddRwkvMixes(const WeightInfo& info,
                          std::vector<SlicedTensor>* entries) {
  const auto ways = static_cast<int64_t>(kRwkvMixes.size());
  if (info.shape.size() < 2 || info.shape.front() != ways || info.bytes == 0 ||
      info.bytes !=
          static_cast<uint64_t>(ways) *
              RowBytes(info.dtype, static_cast<size_t>(info.shape.back()))) {
    return WrongRwkvShape(info, "six rows");
  }
  for (int64_t i = 0; i < ways; ++i) {
    SlicedTensor& entry = AddRwkvSlice(info, entries);
    entry.info.name.back() = kRwkvMixes[static_cast<size_t>(i)];
    entry.info.shape = {1, 1, info.shape.back()};
    entry.info.bytes = info.bytes / static_cast<uint64_t>(ways);
    entry.slice.first = i;
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::shared_ptr<const WeightSource>> PresentGgufRwkv7(
    const Json& config, std::shared_ptr<const WeightSource> stored) {
  INLAY_ASSIGN_OR_RETURN(const int64_t head_dim,
                         JsonInt(config, "head_dim", 64, 1, kMaxGgufSize));
  std::vector<SlicedTensor> entries;
  for (const WeightInfo& info : stored->weights()) {
    const bool has_blocks = GetFormatInfo(info.dtype).block_elements != 1;
    if (info.name.starts_with(kRwkvUnread)) continue;
    if (info.name.ends_with(kRwkvAllMixes)) {
      if (has_blocks) return WrongRwkvShape(info, "six rows");
      INLAY_RETURN_IF_ERROR(AddRwkvMixes(info, &entries));
    } else if (info.name.ends_with(kRwkvBonus)) {
      if (has_blocks || info.shape.size() != 1 || info.shape[0] == 0 ||
          info.shape[0] % head_dim != 0) {
        return WrongRwkvShape(info, "as many numbers as heads have channels");
      }
      AddRwkvSlice(info, &entries).info.shape = {info.shape[0] / head_dim,
                                                 head_dim};
    } else {
      entries.push_back({info});
    }
  }
  return MakeSlicedSource(std::move(stored), std::move(entries));
}

absl::Status ReadGgufRwkv7(const GgufArchKeys& keys, const GgufSizes& sizes,
                           Json* config) {
  (*config)["num_hidden_layers"] = sizes.layers;
  (*config)["hidden_size"] = sizes.hidden;
  (*config)["max_position_embeddings"] = sizes.context;
  // The network's own; without a head of its own the tensor is missed.
  (*config)["tie_word_embeddings"] = false;
  constexpr char kInner[] = "feed_forward_length";
  INLAY_ASSIGN_OR_RETURN(
      (*config)["intermediate_size"],
      keys.Required(kInner, keys.Int(kInner, 1, kMaxGgufSize)));
  INLAY_ASSIGN_OR_RETURN(
      const int64_t head_dim,
      keys.Required(kRwkvHeadSize, keys.Int(kRwkvHeadSize, 1, kMaxGgufSize)));
  (*config)["head_dim"] = head_dim;
  for (const RwkvRank& rank : kRwkvRanks) {
    INLAY_ASSIGN_OR_RETURN(
        (*config)[rank.published],
        keys.Required(rank.key, keys.Int(rank.key, 1, kMaxGgufSize)));
  }
  INLAY_ASSIGN_OR_RETURN(const auto epsilon, keys.Number(kRwkvEpsilon));
  if (!epsilon.has_value()) {
    return absl::InvalidArgumentError(
        FormattedString("key \"%s\" is missing", keys.Name(kRwkvEpsilon)));
  }
  if (!IsRwkvHeadEpsilon(head_dim, *epsilon)) {
    return absl::UnimplementedError(FormattedString(
        "%s is %g with heads of %d (%s), allowed: 64e-5 divided by these, as "
        "heads' norms have 64e-5",
        keys.Name(kRwkvEpsilon), *epsilon, head_dim, keys.Name(kRwkvHeadSize)));
  }
  (*config)["norm_eps"] = *epsilon;
  return absl::OkStatus();
}

absl::Status SetGgufRwkv7(GgufKeyWriter& keys) {
  INLAY_RETURN_IF_ERROR(keys.CheckActivation("hidden_act", {"sqrelu"}));
  INLAY_RETURN_IF_ERROR(keys.Expect("norm_first", true));
  INLAY_RETURN_IF_ERROR(keys.Expect("norm_bias", true));
  INLAY_RETURN_IF_ERROR(keys.Expect("tie_word_embeddings", false));
  INLAY_RETURN_IF_ERROR(keys.Expect("attn", Json()));
  INLAY_RETURN_IF_ERROR(
      keys.CopySize("num_hidden_layers", "block_count", 24).status());
  INLAY_ASSIGN_OR_RETURN(
      const int64_t hidden,
      keys.CopySize("hidden_size", "embedding_length", 2048));
  INLAY_RETURN_IF_ERROR(keys.SetU32("context_length", kRwkvContext));
  INLAY_ASSIGN_OR_RETURN(
      const double ratio,
      JsonNumber(keys.config(), "hidden_ratio", 4.0, 0.0, 256.0));
  const auto inner = static_cast<int64_t>(static_cast<double>(hidden) * ratio);
  INLAY_RETURN_IF_ERROR(keys.CopySize("intermediate_size",
                                      "feed_forward_length",
                                      (inner + 31) / 32 * 32)
                            .status());
  // llama.cpp wants it and does not use it.
  INLAY_RETURN_IF_ERROR(keys.SetU32("attention.head_count", 0));
  int64_t usual = 64;
  if (!keys.Has("head_dim") && keys.Has("num_heads")) {
    INLAY_ASSIGN_OR_RETURN(const int64_t heads, keys.Size("num_heads"));
    usual = hidden / heads;
  }
  INLAY_ASSIGN_OR_RETURN(const int64_t head_dim,
                         keys.CopySize("head_dim", kRwkvHeadSize, usual));
  for (const RwkvRank& rank : kRwkvRanks) {
    INLAY_RETURN_IF_ERROR(
        keys.CopySize(rank.published, rank.key, rank.usual).status());
  }
  INLAY_ASSIGN_OR_RETURN(const double epsilon,
                         JsonNumber(keys.config(), "norm_eps", 1e-5, 0.0, 1.0));
  if (!IsRwkvHeadEpsilon(head_dim, epsilon)) {
    return absl::UnimplementedError(FormattedString(
        "config.json: norm_eps is %g with a head_dim of %d; files of rwkv7 say "
        "64e-5 divided by head_dim",
        epsilon, head_dim));
  }
  return keys.CopyNumber("norm_eps", kRwkvEpsilon, 1e-5);
}

}  // namespace inlay
