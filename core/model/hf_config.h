// Typed, range-checked access to config.json in both spellings: the published
// one (rope_theta, rope_scaling, torch_dtype) and the newer one
// (rope_parameters, dtype, layer_types). Owns the caps on every size, so that
// nothing is allocated on an unvalidated number. Knows no architectures: their
// defaults come as arguments. Source: transformers' configuration classes.
#ifndef INLAY_CORE_MODEL_HF_CONFIG_H_
#define INLAY_CORE_MODEL_HF_CONFIG_H_

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/json/json.h"
#include "core/model/rope_scaling.h"
#include "kernels/activation/activation.h"

namespace inlay {

inline constexpr int64_t kMaxLayers = 4096;
inline constexpr int64_t kMaxHidden = int64_t{1} << 20;
inline constexpr int64_t kMaxVocab = int64_t{1} << 24;
inline constexpr int64_t kMaxHeads = int64_t{1} << 13;
inline constexpr int64_t kMaxHeadDim = int64_t{1} << 12;
inline constexpr int64_t kMaxPositions = int64_t{1} << 28;

// What a family assumes where config.json is silent. 0 for num_kv_heads: as
// many as heads; 0 for head_dim: hidden_size / heads.
struct DecoderDefaults {
  int64_t vocab_size = 32000;
  int64_t hidden_size = 4096;
  int64_t intermediate_size = 11008;
  int64_t num_layers = 32;
  int64_t num_heads = 32;
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;
  int64_t max_positions = 2048;
  double norm_epsilon = 1e-6;
  std::string_view activation = "silu";
  bool tie_embeddings = false;
  // What the family calls these.
  std::string_view heads_key = "num_attention_heads";
  std::string_view intermediate_key = "intermediate_size";
  std::string_view epsilon_key = "rms_norm_eps";
  std::string_view activation_key = "hidden_act";
};

// The numbers every decoder has. All are in range, heads is a multiple of
// kv_heads, and no product of two of them overflows int64_t.
struct DecoderConfig {
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int num_layers = 0;
  int num_heads = 0;
  int num_kv_heads = 0;
  int head_dim = 0;
  int64_t max_positions = 0;
  float norm_epsilon = 0.0f;
  Activation activation = Activation::kSilu;
  bool tie_embeddings = false;
};

// The keys hidden_size, num_hidden_layers, ..., rms_norm_eps, hidden_act.
absl::StatusOr<DecoderConfig> ReadDecoderConfig(
    const Json& config, const DecoderDefaults& defaults);

// `fallback`, but 0 where the config has `key` as null: where null leaves a
// number to others and its absence does not.
int64_t UnlessNull(const Json& config, std::string_view key, int64_t fallback);

// `config` with what stands under a family's own names under the usual ones,
// too, where it is not null.
struct KeyAlias {
  std::string_view own;
  std::string_view usual;
};
Json WithUsualNames(const Json& config,
                    std::initializer_list<KeyAlias> aliases);

// INVALID_ARGUMENT unless heads is a multiple of kv_heads.
absl::Status CheckHeads(int64_t heads, int64_t kv_heads);

// UNIMPLEMENTED naming `key` and the name when there is no such activation.
absl::StatusOr<Activation> ReadActivation(const Json& config,
                                          std::string_view key,
                                          std::string_view fallback);

// A number that may be switched off by null: absent gives `fallback`, null
// gives nothing.
absl::StatusOr<std::optional<double>> ReadOptionalNumber(
    const Json& config, std::string_view key, std::optional<double> fallback,
    double min, double max);

// A sliding window in tokens; 0 where it is null (or absent with no fallback).
absl::StatusOr<int> ReadWindow(const Json& config,
                               std::optional<int64_t> fallback);

// `key` as a flag a layer: true for `yes`, false for `no`. Empty when the key
// is absent. UNIMPLEMENTED for another name, INVALID_ARGUMENT for another
// length.
absl::StatusOr<std::vector<bool>> ReadLayerKinds(const Json& config,
                                                 std::string_view key,
                                                 int num_layers,
                                                 std::string_view yes,
                                                 std::string_view no);

// The same of layer_types: true for `local`, false for "full_attention".
absl::StatusOr<std::vector<bool>> ReadSlidingLayers(
    const Json& config, int num_layers,
    std::string_view local = "sliding_attention");

// The same where the key may be absent: then every `pattern`-th layer is full,
// the others slide; the config's own sliding_window_pattern comes first.
absl::StatusOr<std::vector<bool>> ReadSlidingPattern(const Json& config,
                                                     int num_layers,
                                                     int64_t pattern);

// no_rope_layers as a flag a layer: 1 for one with rope, 0 for one without; by
// no_rope_layer_interval, 4 if absent, every so many have none where the list
// is absent or empty.
absl::StatusOr<std::vector<bool>> ReadRopeLayers(const Json& config,
                                                 int num_layers);

// What a family assumes about its rotary embedding.
struct RopeDefaults {
  double theta = 10000.0;
  // partial_rotary_factor; nothing: the family rotates whole heads, and another
  // factor than 1 is refused. Proportional ropes always have one.
  std::optional<double> partial;
  bool yarn_is_longrope = false;  // "yarn" is an old name of LongRoPE
};

// The rotary embedding of layers of type `layer_type` (nested rope_parameters),
// or of all layers when that is empty. Checked: rotary_dim is even and in
// [2, head_dim], factors positive, lists of the right length. UNIMPLEMENTED
// names an unknown rope type.
absl::StatusOr<RopeSpec> ReadRope(const Json& config,
                                  const DecoderConfig& decoder,
                                  const RopeDefaults& defaults,
                                  std::string_view layer_type = {});

// The rotary embedding of sliding layers where the scaling is for full layers
// only: rope_parameters.sliding_attention, or a plain one whose base is
// `theta_key`, `theta` where that is absent.
absl::StatusOr<RopeSpec> ReadSlidingRope(const Json& config,
                                         const DecoderConfig& decoder,
                                         std::string_view theta_key,
                                         double theta);

}  // namespace inlay

#endif  // INLAY_CORE_MODEL_HF_CONFIG_H_
