// linear_chain: what a decoder computes of few tokens between two attentions,
// in one launch: linear layers one after another, with the norms in front of
// them, the gated activation, and the residual stream they are added to.
//
//   x_s = rms_norm(hidden), or what stage s - 1 gave
//   y_s = x_s w_s^T + bias, or act(gate) * up of that
//   hidden += y_s, or y_s is handed on
//
// Two stages may be a mixture of experts: the router's product and choice, the
// chosen experts' gates and ups, their outputs weighed and added.
//
// A chain of one stage is a linear layer whose weights are read all the time,
// from before what it waits for has ended.
//
// Why: a kernel begins with nothing on its way and ends with its slowest block.
// Here the weights of the stages to come are on their way while one ends. The
// memory's time is the bound of a token, and this leaves less of it unused.
#ifndef INLAY_KERNELS_LINEAR_CHAIN_LINEAR_CHAIN_H_
#define INLAY_KERNELS_LINEAR_CHAIN_LINEAR_CHAIN_H_

#include <cstdint>

#include "absl/container/inlined_vector.h"
#include "kernels/activation/activation.h"
#include "kernels/dispatch.h"
#include "kernels/gemm/gemm.h"
#include "kernels/moe/routing.h"

namespace inlay {

inline constexpr int kMostChainStages = 6;

// A stage whose matrices are those of the tokens' experts.
enum class ChainExperts : uint8_t {
  kNone,
  kInput,   // gated and normalised; y has all tokens' experts' columns
  kOutput,  // follows it: adds the weighed sum of experts' outputs
};

struct LinearChainStage {
  // Without residual; where gated, w is gate above up. Of experts: of one.
  GemmDesc gemm;
  bool normalised = false;  // x is rms_norm(hidden) of gemm.activation
  // x, and its norm, are those of the stage before, which neither adds nor is
  // gated: columns of one matrix whose weights are of several formats.
  bool same_x = false;
  bool gated = false;  // y has n / 2 columns
  Activation function = Activation::kSilu;
  float limit = 0.0f;  // as ActivationDesc::limit
  bool adds = false;  // y goes into hidden; otherwise it is a matrix of its own
  ChainExperts experts = ChainExperts::kNone;
};

struct LinearChainDesc {
  // What is not normalised reads what the stage before hands on, which must not
  // add; the first stage LinearChainParams::x. Nobody reads what is handed on
  // by a stage with same_x or by the one before it.
  absl::InlinedVector<LinearChainStage, kMostChainStages> stages;
  // Where stages are of experts: how they are chosen, by the router's product
  // with what the kInput stage reads.
  RoutingDesc routing;
  DType router = DType::kF32;   // of the router's weights, or activations' type
  bool outputs_biased = false;  // experts' outputs have biases
  // An expert that all tokens go to: its columns follow the others', its
  // matrices lie as theirs. 0: none.
  int64_t shared_width = 0;
  bool shared_gated = false;  // weighed by the sigmoid of one more logit
};

struct LinearChainParams {
  struct Stage {
    TensorView w;  // as of gemm; of experts, all of them one after another
    // [n] or null; of experts, all of theirs one after another: of outputs
    // only with LinearChainDesc::outputs_biased.
    const float* bias = nullptr;
    const float* norm_weight = nullptr;  // [k], or null for 1
    float epsilon = 0.0f;                // both unused with same_x
    // [m, n or n / 2] of gemm.output; empty where it adds. f32 only where it
    // is the last and not gated, otherwise gemm.activation. Of experts' inputs
    // [m, m * top_k * n / 2 + shared_width]: slot t * top_k + r, token t's
    // expert of rank r, has n / 2 columns, in row t alone.
    TensorView y;
  };
  TensorView x;       // [m, k] of the first stage; empty where normalised
  TensorView hidden;  // [m, width], f32; empty where no stage has to do with it
  absl::InlinedVector<Stage, kMostChainStages> stages;
  // Where blocks hand on what they computed: LinearChainExchangeBytes() of the
  // device's memory, of zeros at first, nobody else's. One for all chains of a
  // stream, as large as the largest asks for. Unused by one stage.
  void* exchange = nullptr;
  // Of experts.
  TensorView router;                   // [num_experts, k], rows dense
  const float* router_bias = nullptr;  // [num_experts] or null
  // As of RoutingParams; with sigmoid scores.
  const float* correction = nullptr;
  TensorView shared_input;   // [2 * shared_width, k]
  TensorView shared_output;  // [n, shared_width]
  TensorView shared_gate;    // [1, k], as `router`
};

using LinearChainRow = KernelRow<LinearChainDesc, LinearChainParams>;
// Rows for GPUs only. Numbers are those of the ops apart, but that normalised
// rows are not rounded to 16 bits and that a product's parts are added up in
// another order; a token's do not depend on the others, but with experts on how
// many there are and its place among them.
absl::Span<const LinearChainRow> LinearChainTable();

// LinearChainParams::exchange.
size_t LinearChainExchangeBytes(const LinearChainDesc& desc);

// The most rows of x that a row serves on such a device, at most as many as
// pay. With fewer multiprocessors each has more to keep.
int64_t LinearChainRows(const LinearChainDesc& desc, const DeviceInfo& device);

}  // namespace inlay

#endif  // INLAY_KERNELS_LINEAR_CHAIN_LINEAR_CHAIN_H_
