// The parts of a decoder that keep a state, as plain data (decoder_spec.h).
#ifndef INLAY_CORE_MODEL_RECURRENT_SPEC_H_
#define INLAY_CORE_MODEL_RECURRENT_SPEC_H_

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "core/model/layer_spec.h"
#include "kernels/activation/activation.h"
#include "kernels/columns/columns.h"
#include "kernels/gated_norm/gated_norm.h"
#include "kernels/linear_attention/linear_attention.h"

namespace inlay {

// y = output(c * conv(b * x)), where `input` gives b, c and x side by side
// (LFM2).
struct ShortConvSpec {
  LinearSpec input;
  LinearSpec output;
  std::string conv;  // tensors CONV.weight [width, 1, num_taps], CONV.bias
  bool conv_bias = false;
  int num_taps = 0;
  int64_t width = 0;
};

// Mamba 2: `input` gives z, x, B, C and dt side by side; x, B and C go through
// the convolution.
struct MambaSpec {
  int num_heads = 0;
  int head_dim = 0;
  int num_groups = 1;  // heads that share B and C are a group
  int state_size = 0;
  int num_taps = 0;
  bool conv_bias = true;
  float least_step = 0.0f;
  float most_step = std::numeric_limits<float>::infinity();
  LinearSpec input;
  LinearSpec output;
  // Tensors PREFIX.conv1d.weight, .A_log, .D and .dt_bias.
  std::string prefix;
  NormSpec norm;  // of kind kNone: the gate alone
  int norm_groups = 1;
  bool gate_first = true;
  // What z, x, B, C and dt are multiplied by before all else, and the output.
  std::array<float, 5> input_scales = {1, 1, 1, 1, 1};
  float output_scale = 1.0f;

  int64_t inner() const { return int64_t{num_heads} * head_dim; }
  int64_t bc_width() const { return int64_t{num_groups} * state_size; }
  int64_t conv_width() const { return inner() + 2 * bc_width(); }
};

// Mamba 1: `input` gives x and z side by side; x goes through the convolution,
// of whose outputs `low` gives dt, of low rank, B and C; `steps` widens dt.
struct SelectiveSpec {
  int64_t width = 0;  // of x and z
  int64_t rank = 0;
  int state_size = 0;
  int num_taps = 0;
  bool conv_bias = true;
  LinearSpec input;
  LinearSpec low;
  LinearSpec steps;
  LinearSpec output;
  // Tensors PREFIX.conv1d.weight, .conv1d.bias, .A_log [width, state_size] and
  // .D [width].
  std::string prefix;
  // RMS norms of one epsilon, or none of the three.
  NormSpec dt_norm;
  NormSpec b_norm;
  NormSpec c_norm;
};

// Gated DeltaNet and Kimi delta attention. q, k and v go through convolutions,
// q and k to length 1.
struct DeltaSpec {
  int num_heads = 0;
  int num_key_heads = 0;
  int key_dim = 0;
  int value_dim = 0;
  int num_taps = 0;
  // Whose outputs side by side, their columns in the order given (empty: as
  // they are), are q, k and v, and z where it is no layer of its own; and b and
  // a.
  std::vector<LinearSpec> qkvz;
  std::vector<ColumnRun> qkvz_order;
  std::vector<LinearSpec> ba;
  std::vector<ColumnRun> ba_order;
  // Of low rank: layer 1 reads what layer 0 gives.
  std::vector<LinearSpec> low_rank_z;
  std::vector<LinearSpec> low_rank_a;
  std::vector<std::string> convs;  // one of q, k and v together, or each
  // Channels of each of several; empty: those of q, k and v.
  std::vector<int64_t> conv_widths;
  float key_length = 1.0f;       // what keys are brought to
  std::string a_log;             // tensor [num_heads]
  std::string dt_bias;           // tensor [num_heads * decay channels]
  bool decays_channels = false;  // a channel of the keys each
  float decay_bound = 0.0f;      // StateGatesDesc::bound
  NormSpec norm;                 // of each head's values
  GateFunction gate = GateFunction::kSilu;
  LinearSpec output;

  int64_t key_width() const { return int64_t{num_key_heads} * key_dim; }
  int64_t value_width() const { return int64_t{num_heads} * value_dim; }
  int64_t conv_width() const { return 2 * key_width() + value_width(); }
  int64_t decay_width() const {
    return int64_t{num_heads} * (decays_channels ? key_dim : 1);
  }
};

// Linear attention with a fixed decay a head or none: lightning attention
// (arXiv:2401.04658; MiniMax-01, arXiv:2501.08313), whose feature map is an
// activation, of q, k and v alike; plain linear attention (Katharopoulos et
// al., arXiv:2006.16236), with a feature map of q and k and a normaliser.
struct LightningSpec {
  int num_heads = 0;
  int head_dim = 0;
  std::optional<Activation> activation;        // of q, k and v alike
  FeatureMap feature_map = FeatureMap::kNone;  // of q and k, after that
  bool normalised = false;
  float normaliser_epsilon = 0.0f;
  // q, k and v, or one layer: head by head its q, k and v.
  std::vector<LinearSpec> qkv;
  std::optional<LinearSpec> gate;  // its sigmoid comes after the norm
  LinearSpec output;
  // Of all heads together, or of each head with one weight [head_dim]; kRms, or
  // kNone: there is none.
  NormSpec norm;
  bool norm_heads = false;
  std::vector<float> decays;  // [num_heads], factors; empty: none

  int64_t width() const { return int64_t{num_heads} * head_dim; }
};

// RWKV-7's time mix (kernels/linear_attention/wkv7.h).
struct TimeMixSpec {
  int num_heads = 0;
  int head_dim = 0;
  // Values of this one are what others mix theirs with; there is no `mix`. It
  // comes before all others.
  bool first = false;
  // Tensors PREFIX.x_r, .x_w, .x_k, .x_v, .x_a, .x_g [width] or PREFIX.x_x [6,
  // width]; PREFIX.k_k, .k_a, .r_k, .g_norm.weight and .g_norm.bias, [width].
  std::string prefix;
  LinearSpec r;
  LinearSpec k;
  LinearSpec v;
  // Of low rank: layer 1 reads layer 0's output or, of decay its tanh, of gate
  // its sigmoid.
  std::vector<LinearSpec> decay;
  std::vector<LinearSpec> rate;
  std::vector<LinearSpec> mix;
  std::vector<LinearSpec> gate;
  LinearSpec output;
  float epsilon = 0.0f;  // of the norm of heads

  int64_t width() const { return int64_t{num_heads} * head_dim; }
};

// Griffin's recurrence (kernels/linear_attention/rg_lru.h): `input` gives x and
// `gate` z; x goes through the convolution, of whose outputs gates are made,
// head by head.
struct LruSpec {
  int64_t width = 0;
  int num_heads = 0;  // divides it
  int num_taps = 0;
  LinearSpec input;
  LinearSpec gate;
  LinearSpec output;
  std::string conv;  // tensors CONV.weight [width, 1, num_taps] and CONV.bias
  // One a head, square: of its channels.
  std::vector<LinearSpec> input_gates;
  std::vector<LinearSpec> recurrence_gates;
  std::string rates;  // tensor [width], of which rates are -8 softplus
};

}  // namespace inlay

#endif  // INLAY_CORE_MODEL_RECURRENT_SPEC_H_
