#include "core/formats/smallthinker_config.h"

#include <utility>

namespace inlay {

Json WithUsualSmallThinkerNames(const Json& config) {
  constexpr std::pair<const char*, const char*> kNames[] = {
      {"moe_num_primary_experts", "num_experts"},
      {"moe_num_active_primary_experts", "num_experts_per_tok"},
      {"moe_ffn_hidden_size", "moe_intermediate_size"},
      {"moe_ffn_hidden_size", "intermediate_size"},
      {"sliding_window_size", "sliding_window"}};
  Json usual = config;
  for (const auto& [own, name] : kNames) {
    const Json* value = JsonFind(config, own);
    if (value != nullptr) usual[name] = *value;
  }
  return usual;
}

}  // namespace inlay
