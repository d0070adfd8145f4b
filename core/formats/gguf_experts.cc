#include "core/formats/gguf_experts.h"

#include <optional>
#include <string_view>

#include "absl/strings/str_format.h"
#include "memory/status.h"

namespace inlay {
namespace {

struct ExpertsRow {
  std::string_view arch;
  const char* width;  // config.json's name for the experts' width
  bool normalised;
};

constexpr ExpertsRow kExpertArchs[] = {
    {"llama", "intermediate_size", true},
    {"qwen2moe", "moe_intermediate_size", false},
    {"qwen3moe", "moe_intermediate_size", true},
    {"gpt-oss", "intermediate_size", true},
};

}  // namespace

absl::Status ReadGgufExperts(const GgufArchKeys& keys, const GgufSizes& sizes,
                             Json* config) {
  constexpr char kExperts[] = "expert_count";
  INLAY_ASSIGN_OR_RETURN(const auto experts,
                         keys.Int(kExperts, 0, kMaxGgufSize));
  if (experts.value_or(0) == 0) return absl::OkStatus();
  const ExpertsRow* found = nullptr;
  for (const ExpertsRow& row : kExpertArchs) {
    if (row.arch == keys.arch()) found = &row;
  }
  if (found == nullptr) {
    return absl::UnimplementedError(absl::StrFormat(
        "%s is %d: experts load in the architectures llama, qwen2moe, "
        "qwen3moe and gpt-oss",
        keys.Name(kExperts), *experts));
  }
  constexpr char kUsed[] = "expert_used_count";
  INLAY_ASSIGN_OR_RETURN(const int64_t used,
                         keys.Required(kUsed, keys.Int(kUsed, 1, *experts)));
  INLAY_ASSIGN_OR_RETURN(
      const auto width,
      keys.Int("expert_feed_forward_length", 1, kMaxGgufSize));
  (*config)["num_local_experts"] = *experts;
  (*config)["num_experts_per_tok"] = used;
  (*config)["norm_topk_prob"] = found->normalised;
  (*config)[found->width] = width.value_or(sizes.inner);
  if (keys.arch() == "llama") {
    (*config)["architectures"] = {"MixtralForCausalLM"};
    (*config)["model_type"] = "mixtral";
  }
  if (keys.arch() == "gpt-oss") {
    // As published; the format has no key for it.
    Json& scaling = (*config)["rope_scaling"];
    if (scaling.is_object()) scaling["truncate"] = false;
  }
  if (keys.arch() != "qwen2moe") return absl::OkStatus();
  constexpr char kShared[] = "expert_shared_feed_forward_length";
  INLAY_ASSIGN_OR_RETURN(
      const int64_t shared,
      keys.Required(kShared, keys.Int(kShared, 1, kMaxGgufSize)));
  (*config)["shared_expert_intermediate_size"] = shared;
  return absl::OkStatus();
}

}  // namespace inlay
