#include "core/formats/baichuan_config.h"

#include <cstdint>
#include <string>

#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {

absl::StatusOr<bool> BaichuanHasAlibi(const Json& config) {
  constexpr char kPositions[] = "position_embedding";
  constexpr int64_t kRotaryWidth = 4096;
  const Json* list = JsonFind(config, "architectures");
  const Json* width = JsonFind(config, "hidden_size");
  const bool is_first = list != nullptr && list->is_array() && !list->empty() &&
                        list->front() == "BaiChuanForCausalLM";
  const bool is_rotary = is_first || width == nullptr || *width == kRotaryWidth;
  INLAY_ASSIGN_OR_RETURN(
      const std::string name,
      JsonString(config, kPositions, is_rotary ? "rope" : "alibi"));
  if (name == "rope" || name == "alibi") return name == "alibi";
  return absl::UnimplementedError(FormattedString(
      "config.json: %s is \"%s\"; supported here are rope and alibi",
      kPositions, name));
}

absl::StatusOr<bool> BaichuanHasNormHead(const Json& config) {
  constexpr int64_t kBaichuan2Tokens = 125696;
  const Json* tokens = JsonFind(config, "vocab_size");
  return JsonBool(config, "norm_head",
                  tokens != nullptr && *tokens == kBaichuan2Tokens);
}

}  // namespace inlay
