#include "core/model/arch/granite_style.h"

#include <algorithm>
#include <cstddef>

#include "core/model/arch/llama_style.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

// Every fourth layer sees all, beginning with the first.
constexpr int kGraniteFullEvery = 4;

absl::StatusOr<std::vector<int>> ReadGraniteWindowsOfLayers(const Json& json,
                                                            int num_layers) {
  INLAY_ASSIGN_OR_RETURN(std::vector<bool> sliding,
                         ReadSlidingLayers(json, num_layers));
  for (int i = static_cast<int>(sliding.size()); i < num_layers; ++i) {
    sliding.push_back(i % kGraniteFullEvery != 0);
  }
  INLAY_ASSIGN_OR_RETURN(const int window, ReadWindow(json, 128));
  std::vector<int> windows;
  for (const bool slides : sliding) windows.push_back(slides ? window : 0);
  return windows;
}

absl::Status WrongBases(const Json& bases, int num_layers) {
  return absl::InvalidArgumentError(FormattedString(
      "config.json: layer_rope_theta is %s; it must be an array of %d numbers, "
      "0 or above 1",
      ShownJson(bases), num_layers));
}

// The base of layer `layer`'s rope; 0: it has none.
absl::StatusOr<double> GraniteBase(const Json& bases, int layer,
                                   int num_layers) {
  constexpr double kMostBase = 1e15;
  const Json& base = bases[static_cast<size_t>(layer)];
  if (!base.is_number()) return WrongBases(bases, num_layers);
  const auto value = base.get<double>();
  if (value != 0.0 && !(value > 1.0 && value <= kMostBase)) {
    return WrongBases(bases, num_layers);
  }
  return value;
}

}  // namespace

void GraniteSight::Apply(int layer, const std::string& prefix,
                         AttentionSpec* attention) const {
  const auto i = static_cast<size_t>(layer);
  attention->rope = rope_of[i];
  attention->window = windows[i];
  if (sinks) attention->sinks = prefix + "self_attn.sinks";
}

absl::StatusOr<GraniteSight> ReadGraniteSight(const Json& json,
                                              const DecoderConfig& config,
                                              bool rotates) {
  const auto count = static_cast<size_t>(config.num_layers);
  INLAY_ASSIGN_OR_RETURN(const RopeSpec rope, ReadRope(json, config, {}));
  GraniteSight sight;
  sight.windows.assign(count, 0);
  sight.rope_of.assign(count, rotates ? 0 : -1);
  sight.max_positions = config.max_positions;
  if (rotates) {
    sight.max_positions = UsablePositions(config.max_positions, rope);
    sight.ropes.push_back(rope);
  }
  return sight;
}

absl::StatusOr<GraniteSight> ReadGraniteWindows(const Json& json,
                                                const DecoderConfig& config) {
  INLAY_ASSIGN_OR_RETURN(GraniteSight sight, ReadGraniteSight(json, config));
  INLAY_ASSIGN_OR_RETURN(sight.windows,
                         ReadGraniteWindowsOfLayers(json, config.num_layers));
  sight.sinks = true;
  const Json* bases = JsonFind(json, "layer_rope_theta");
  if (bases == nullptr) return sight;
  if (!bases->is_array() || bases->size() != sight.windows.size()) {
    return WrongBases(*bases, config.num_layers);
  }
  const RopeSpec common = sight.ropes.front();
  sight.ropes.clear();
  for (int i = 0; i < config.num_layers; ++i) {
    INLAY_ASSIGN_OR_RETURN(const double base,
                           GraniteBase(*bases, i, config.num_layers));
    int& rope = sight.rope_of[static_cast<size_t>(i)];
    rope = -1;
    if (base == 0.0) continue;
    const auto same = std::find_if(
        sight.ropes.begin(), sight.ropes.end(),
        [&](const RopeSpec& other) { return other.theta == base; });
    rope = static_cast<int>(same - sight.ropes.begin());
    if (same != sight.ropes.end()) continue;
    sight.ropes.push_back(common);
    sight.ropes.back().theta = base;
  }
  return sight;
}

}  // namespace inlay
