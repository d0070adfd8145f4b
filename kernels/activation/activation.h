// activation: y = f(x), or y = f(gate) * up with gate and up side by side in x
// (SwiGLU, GeGLU; Shazeer, arXiv:2002.05202; the clamped ones: the published
// code of gpt-oss and DeepSeek-V4, and transformers' of Step-3.5).
#ifndef INLAY_KERNELS_ACTIVATION_ACTIVATION_H_
#define INLAY_KERNELS_ACTIVATION_ACTIVATION_H_

#include <cstdint>
#include <optional>
#include <string_view>

#include "kernels/dispatch.h"
#include "memory/tensor.h"

namespace inlay {

enum class Activation : uint8_t {
  kSilu,
  kGelu,
  kGeluTanh,
  kRelu,
  kReluSquared,
  // Gated only: g * sigmoid(1.702 g) * (u + 1), where g is the gate cut off
  // above ActivationDesc::limit and u is up cut off beyond +-limit.
  kClampedSilu,
  // Gated only: silu(g) * u of the same g and u (DeepSeek-V4).
  kLimitedSilu,
  // Gated only: silu(gate), cut off above the limit, times u (Step-3.5).
  kCappedSilu,
};

// Those that ActivationDesc::limit is of.
constexpr bool HasLimit(Activation function) {
  return function == Activation::kClampedSilu ||
         function == Activation::kLimitedSilu ||
         function == Activation::kCappedSilu;
}

inline constexpr float kClampedSiluSlope = 1.702f;

// By the names Hugging Face configurations use: silu, swish, gelu, gelu_new,
// gelu_fast, gelu_pytorch_tanh, relu, relu2.
std::optional<Activation> ActivationFromName(std::string_view name);

struct ActivationDesc {
  Activation function = Activation::kSilu;
  bool gated = false;
  int64_t width =
      0;  // columns of y; x has twice as many when gated (gate first)
  DType activation = DType::kF32;
  float limit = 0.0f;  // of functions that have one, > 0
};

struct ActivationParams {
  TensorView x;  // [rows, gated ? 2 * width : width], rows may be strided
  TensorView y;  // [rows, width]; may be x itself (or the gate half of it)
};

using ActivationRow = KernelRow<ActivationDesc, ActivationParams>;
absl::Span<const ActivationRow> ActivationTable();

}  // namespace inlay

#endif  // INLAY_KERNELS_ACTIVATION_ACTIVATION_H_
