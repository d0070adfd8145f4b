// gated_norm: y = norm(x) f(z), or norm(x f(z)): RMS norm over groups of a row,
// with a gate after or before it; the gate alone where nothing is to be
// normalised. What recurrent layers (Mamba 2, arXiv:2405.21060; gated DeltaNet,
// arXiv:2412.06464) and gated attention (arXiv:2505.06708; gates of whole
// heads, of softplus: Poolside's Laguna) end with.
#ifndef INLAY_KERNELS_GATED_NORM_GATED_NORM_H_
#define INLAY_KERNELS_GATED_NORM_GATED_NORM_H_

#include <cstdint>

#include "kernels/dispatch.h"
#include "memory/tensor.h"

namespace inlay {

enum class GateFunction : uint8_t { kNone, kSilu, kSigmoid, kSoftplus };

struct GatedNormDesc {
  int64_t width = 0;  // of a group
  int64_t groups = 1;
  bool normalise = true;
  GateFunction gate = GateFunction::kSilu;
  float gate_scale = 1.0f;     // f(gate_scale z)
  bool gate_first = false;     // the gate before the norm
  bool group_gates = false;    // one gate for all of a group
  bool shared_weight = false;  // one weight [width] for all groups
  DType activation = DType::kF32;
};

// Views are [rows, groups * width], rows may be strided.
struct GatedNormParams {
  TensorView x;
  // [rows, groups] where desc.group_gates; unused without a gate.
  TensorView z;
  const float* weight = nullptr;  // [groups * width] or [width]; null: 1
  float epsilon = 0.0f;
  TensorView y;  // may be x itself
};

using GatedNormRow = KernelRow<GatedNormDesc, GatedNormParams>;
absl::Span<const GatedNormRow> GatedNormTable();

}  // namespace inlay

#endif  // INLAY_KERNELS_GATED_NORM_GATED_NORM_H_
