#include "core/formats/exaone_config.h"

#include <utility>

namespace inlay {

Json WithUsualExaoneNames(const Json& config) {
  constexpr std::pair<const char*, const char*> kNames[] = {
      {"num_layers", "num_hidden_layers"},
      {"layer_norm_epsilon", "rms_norm_eps"},
      {"activation_function", "hidden_act"}};
  Json usual = config;
  for (const auto& [own, name] : kNames) {
    const Json* value = JsonFind(config, own);
    if (value != nullptr) usual[name] = *value;
  }
  return usual;
}

}  // namespace inlay
