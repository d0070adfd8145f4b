// Inverse frequencies of rotary embeddings and their scalings for long
// contexts. Pure functions, float32 arithmetic as the reference
// implementation's. Knows no configuration files and no kernels. Sources:
// RoFormer arXiv:2104.09864; YaRN arXiv:2309.00071; LongRoPE arXiv:2402.13753;
// Llama 3.1 (frequency ranges) and dynamic NTK as transformers'
// modeling_rope_utils.
//
// Two scalings depend on how long a sequence is. Rotating some keys of a
// sequence by one set of frequencies and some by another is meaningless, so a
// sequence uses one set for its whole life, chosen by the length it is to reach
// (ForwardBatch::final_lengths), never by how much of it has been computed:
//   longrope: short factors up to original_max positions, long ones above;
//   dynamic:  unscaled up to original_max; above, the base for the longest
//             length, original_max * factor. (The reference recomputes the base
//             from the current length at each step, which makes a result depend
//             on how the sequence was fed; the two agree up to original_max
//             and at the longest length.)
#ifndef INLAY_CORE_MODEL_ROPE_SCALING_H_
#define INLAY_CORE_MODEL_ROPE_SCALING_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace inlay {

enum class RopeScaling : uint8_t {
  kNone,
  kLinear,
  kDynamic,
  kYarn,
  kLlama3,
  kLongRope,
  // The frequencies of a whole head for the first rotated_pairs pairs, the
  // others do not turn (Gemma 4).
  kProportional,
  // No rotation: a factor a position, 1 + temperature * log1p(floor((p +
  // temperature_offset) / temperature_span)), as the cosine of one pair (Llama
  // 4's attention temperature; arXiv:2501.19399). In no configuration by this
  // name.
  kFactor
};

// By the names configurations use: default, linear, dynamic, yarn, llama3,
// longrope, su (LongRoPE's first name), proportional.
std::optional<RopeScaling> RopeScalingFromName(std::string_view name);

// Validated by whoever fills it: rotary_dim even and >= 2, theta > 1, factor >=
// 1, original_max >= 1, factor lists of rotary_dim / 2 positive numbers.
struct RopeSpec {
  RopeScaling scaling = RopeScaling::kNone;
  int rotary_dim = 0;
  double theta = 10000.0;
  double factor = 1.0;
  int64_t original_max = 0;  // positions the model was trained on first
  std::optional<double> attention_factor;
  // yarn
  double beta_fast = 32.0;
  double beta_slow = 1.0;
  double mscale = 0.0;          // 0: not given
  double mscale_all_dim = 0.0;  // latent attention has it with any scaling
  bool truncate = true;
  // llama3
  double low_freq_factor = 1.0;
  double high_freq_factor = 4.0;
  // longrope, [rotary_dim / 2] each
  std::vector<double> short_factor;
  std::vector<double> long_factor;
  int rotated_pairs = 0;  // proportional: at most rotary_dim / 2
  // factor
  float temperature = 0.0f;
  int64_t temperature_span = 1;    // >= 1
  int32_t temperature_offset = 1;  // 0 or 1
  // Of any: positions are rounded down to multiples of this, >= 1.
  int32_t position_step = 1;
  bool reversed = false;  // rotates the other way
  // Tensor [rotary_dim / 2]: each frequency is multiplied by e to it (LeRoPE,
  // Mistral Large 4); "": none. Not where there are two lists of frequencies,
  // and not of ComputeRopeFrequencies().
  std::string log_scales;

  bool operator==(const RopeSpec&) const = default;
};

struct RopeFrequencies {
  std::vector<float> inv_freq;  // [rotary_dim / 2]
  // [rotary_dim / 2]: for sequences that are to grow beyond `threshold`
  // positions; empty when there is no such distinction.
  std::vector<float> long_inv_freq;
  int64_t threshold = 0;
  float attention_factor = 1.0f;  // multiplies cosines and sines
  // Of RopeSpec; 0: attention_factor for all.
  float temperature = 0.0f;
  int64_t temperature_span = 1;
  int32_t temperature_offset = 1;
  int32_t position_step = 1;

  float FactorAt(int32_t position) const;
};

// A factor of 1 at every position.
RopeSpec UnitFactor();

RopeFrequencies ComputeRopeFrequencies(const RopeSpec& spec);

// YaRN's factor of queries and keys: 0.1 mscale ln(factor) + 1.
double YarnMagnitude(double factor, double mscale);

}  // namespace inlay

#endif  // INLAY_CORE_MODEL_ROPE_SCALING_H_
