#include "core/formats/nas_blocks.h"

#include <initializer_list>
#include <string>

#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

constexpr int64_t kNasMultiple = 256;
constexpr int64_t kMaxNasWidth = int64_t{1} << 20;

// One of a layer's parts; null where the layer lacks it.
absl::StatusOr<const Json*> FindPart(
    const Json& block, const std::string& place, const char* name,
    std::initializer_list<const char*> unknown) {
  const Json* part = JsonFind(block, name);
  if (part == nullptr || !part->is_object()) {
    return absl::InvalidArgumentError(FormattedString(
        "config.json: %s's %s is %s; it must be an object, with no_op where "
        "the layer has none",
        place, name, part == nullptr ? "not there" : ShownJson(*part)));
  }
  INLAY_ASSIGN_OR_RETURN(const bool none, JsonBool(*part, "no_op", false));
  if (none) return nullptr;
  for (const char* key : unknown) {
    const Json* value = JsonFind(*part, key);
    if (value == nullptr || *value == Json(false)) continue;
    return absl::UnimplementedError(
        FormattedString("config.json: %s's %s.%s is %s; supported here is null",
                        place, name, key, ShownJson(*value)));
  }
  return part;
}

absl::Status NotThere(const std::string& place, const char* keys) {
  return absl::InvalidArgumentError(
      FormattedString("config.json: %s has neither no_op nor %s", place, keys));
}

// Of how many heads of queries each shares keys, where there is attention.
absl::StatusOr<int64_t> ReadKvHeads(const Json& block, const std::string& place,
                                    int64_t num_heads) {
  INLAY_ASSIGN_OR_RETURN(
      const Json* attention,
      FindPart(block, place, "attention",
               {"replace_with_linear", "window_length", "sparsify",
                "num_sink_tokens", "use_prefill_window_in_sink_attention",
                "unshifted_sink", "mamba", "llama4"}));
  if (attention == nullptr) return 0;
  constexpr char kGroup[] = "n_heads_in_group";
  if (JsonFind(*attention, kGroup) == nullptr) {
    return NotThere(place + "'s attention", kGroup);
  }
  INLAY_ASSIGN_OR_RETURN(const int64_t group,
                         JsonInt(*attention, kGroup, 1, 1, num_heads));
  if (num_heads % group == 0) return num_heads / group;
  return absl::InvalidArgumentError(
      FormattedString("config.json: %s's attention.%s is %d; it must divide "
                      "num_attention_heads, %d",
                      place, kGroup, group, num_heads));
}

absl::StatusOr<int64_t> ReadWidth(const Json& config, const Json& block,
                                  const std::string& place,
                                  int64_t hidden_size) {
  INLAY_ASSIGN_OR_RETURN(const Json* ffn,
                         FindPart(block, place, "ffn",
                                  {"replace_with_linear", "sparsify", "moe"}));
  if (ffn == nullptr) return 0;
  constexpr char kAct[] = "hidden_act";
  INLAY_ASSIGN_OR_RETURN(const std::string common,
                         JsonString(config, kAct, "silu"));
  INLAY_ASSIGN_OR_RETURN(const std::string own, JsonString(*ffn, kAct, common));
  if (own != common) {
    return absl::UnimplementedError(FormattedString(
        "config.json: %s's ffn.%s is %s; supported here is that of all, %s",
        place, kAct, ShownJson(own), ShownJson(common)));
  }
  constexpr char kFactor[] = "ffn_mult";
  constexpr char kWidth[] = "intermediate_size";
  if (JsonFind(*ffn, kFactor) == nullptr) {
    if (JsonFind(*ffn, kWidth) != nullptr) {
      return JsonInt(*ffn, kWidth, 1, 1, kMaxNasWidth);
    }
    return NotThere(place + "'s ffn", "ffn_mult or intermediate_size");
  }
  INLAY_ASSIGN_OR_RETURN(const double factor,
                         JsonNumber(*ffn, kFactor, 1.0, 1e-6, 1e3));
  const auto width = static_cast<int64_t>(
      2.0 * factor * static_cast<double>(hidden_size) / 3.0);
  const int64_t rounded =
      (width + kNasMultiple - 1) / kNasMultiple * kNasMultiple;
  if (rounded <= kMaxNasWidth) return rounded;
  return absl::InvalidArgumentError(FormattedString(
      "config.json: %s's ffn.%s is %g, which makes an MLP %d wide; it may be "
      "%d",
      place, kFactor, factor, rounded, kMaxNasWidth));
}

}  // namespace

absl::StatusOr<std::vector<NasLayer>> ReadNasBlocks(const Json& config,
                                                    int64_t num_layers,
                                                    int64_t num_heads,
                                                    int64_t hidden_size) {
  const Json* blocks = JsonFind(config, kNasBlocks);
  if (blocks == nullptr || !blocks->is_array() ||
      static_cast<int64_t>(blocks->size()) != num_layers) {
    return absl::InvalidArgumentError(FormattedString(
        "config.json: %s is %s; it must have %d entries", kNasBlocks,
        blocks == nullptr     ? "not there"
        : !blocks->is_array() ? blocks->type_name()
                              : "a list of another length",
        num_layers));
  }
  std::vector<NasLayer> layers;
  for (const Json& block : *blocks) {
    const std::string place =
        FormattedString("%s[%d]", kNasBlocks, layers.size());
    NasLayer layer;
    INLAY_ASSIGN_OR_RETURN(layer.num_kv_heads,
                           ReadKvHeads(block, place, num_heads));
    INLAY_ASSIGN_OR_RETURN(layer.width,
                           ReadWidth(config, block, place, hidden_size));
    layers.push_back(layer);
  }
  return layers;
}

Json NasMlp(int64_t width, int64_t hidden_size) {
  if (width % kNasMultiple != 0) return {{"intermediate_size", width}};
  // The middle of what is rounded up to it.
  return {{"ffn_mult", 1.5 * static_cast<double>(width - kNasMultiple / 2) /
                           static_cast<double>(hidden_size)}};
}

}  // namespace inlay
