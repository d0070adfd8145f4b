// What attention layers of Granite's families see and how they rotate: all of
// them alike, or each its own way (Granite SWA: windows on three layers of
// four, rotary bases of layers, sinks). Source of names and defaults:
// transformers' GraniteSWAConfig and GraniteMoeSWAConfig (5.24).
#ifndef INLAY_CORE_MODEL_ARCH_GRANITE_STYLE_H_
#define INLAY_CORE_MODEL_ARCH_GRANITE_STYLE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "core/model/decoder_spec.h"
#include "core/model/hf_config.h"

namespace inlay {

struct GraniteSight {
  std::vector<RopeSpec> ropes;  // DecoderSpec's
  std::vector<int> rope_of;     // a layer each: index into ropes, or -1
  std::vector<int> windows;     // a layer each; 0: none
  bool sinks = false;           // tensors PREFIX.self_attn.sinks
  int64_t max_positions = 0;    // DecoderSpec's

  // Of layer `layer`, whose tensors are `prefix`'s.
  void Apply(int layer, const std::string& prefix,
             AttentionSpec* attention) const;
};

// One rotary embedding for all layers; without `rotates`, none.
absl::StatusOr<GraniteSight> ReadGraniteSight(const Json& json,
                                              const DecoderConfig& config,
                                              bool rotates = true);

// sliding_window, layer_types and layer_rope_theta, whose 0 is a layer without
// rope.
absl::StatusOr<GraniteSight> ReadGraniteWindows(const Json& json,
                                                const DecoderConfig& config);

}  // namespace inlay

#endif  // INLAY_CORE_MODEL_ARCH_GRANITE_STYLE_H_
