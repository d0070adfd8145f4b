// Step: what the layers of one Forward share, and Sublayer, the part of a layer
// between two norms. Knows no architectures.
#ifndef INLAY_CORE_MODEL_LAYERS_STEP_H_
#define INLAY_CORE_MODEL_LAYERS_STEP_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "core/model/layers/norm.h"
#include "core/model/model.h"
#include "memory/tensor.h"

namespace inlay {

struct AttentionMask;
class TokenMixer;

// Cosines and sines of the step's tokens, [tokens, rotary_dim / 2] each.
struct RopeAngles {
  const float* cos = nullptr;
  const float* sin = nullptr;
};

struct Step {
  const ForwardBatch& batch;
  const DeviceBatch& device;
  Stream& stream;
  absl::Span<const RopeAngles> angles;  // one a rotary embedding of the model
  std::byte* scratch = nullptr;         // Sublayer::ScratchBytes, aligned
  void* kernel_workspace = nullptr;     // Sublayer::KernelBytes, aligned
  // ModelLoadOptions::attention_pattern of the batch; null: none, or plans have
  // it.
  const AttentionMask* pattern = nullptr;
  // ModelBuild::reaches of the batch, likewise; empty: none, or plans have
  // them.
  absl::Span<const AttentionMask> reaches;
  TensorView per_layer_inputs;  // PerLayerInputs; empty: none
  // Of models that select keys: AttentionParams::selection, from the layer that
  // has selected to the next one that does.
  int32_t* selection = nullptr;
  // The residual stream as the layer's first block found it, float32, where a
  // mixture is routed by that (MoeSpec::routes_ahead).
  TensorView layer_input;
  // Values of the first time mix (TimeMixSpec), from there on, of
  // ModelBuild::activation.
  TensorView first_values;
};

// What a part reads: the residual stream [tokens, hidden_size], float32,
// through the norm before the part. `normalised`: where the norm goes, of
// ModelBuild::activation; the stream itself where there is no norm.
struct BlockInput {
  const Norm& norm;
  TensorView hidden;
  TensorView normalised;

  // Fills `normalised`.
  absl::Status Normalise(Stream& stream) const {
    if (!norm.present()) return absl::OkStatus();
    return norm.Forward(hidden, normalised, stream);
  }
};

// Immutable after building. A token's output depends on its own input and its
// sequence's KV only.
class Sublayer {
 public:
  virtual ~Sublayer() = default;
  // What Forward needs of Step::scratch and Step::kernel_workspace for at most
  // `tokens` tokens of at most `sequences` sequences.
  virtual size_t ScratchBytes(int64_t tokens) const = 0;
  virtual size_t KernelBytes(int64_t tokens, int64_t sequences) const = 0;
  // What DeviceBatch::exchange has to have for it.
  virtual size_t ExchangeBytes() const { return 0; }
  // y = residual + f(norm(x)), all [tokens, hidden_size] and float32.
  // `residual` may be empty, or y itself. x may be y only when the part reads x
  // before it writes y: all parts here do.
  virtual absl::Status Forward(const Step& step, const BlockInput& x,
                               const TensorView& residual,
                               const TensorView& y) const = 0;
  // Whether Forward takes any number of rows, whatever the step's tokens are,
  // and a row of y follows from the same row of x alone.
  virtual bool by_rows() const { return false; }
  // The part itself, where it is one.
  virtual const TokenMixer* mixer() const { return nullptr; }
};

// What matrix libraries expect of their operands.
inline constexpr size_t kScratchAlignment = 256;

// Hands out aligned pieces of a range; with a null base it only measures.
class Arena {
 public:
  explicit Arena(std::byte* base) : base_(base) {}

  std::byte* Take(size_t bytes) {
    std::byte* piece = base_ == nullptr ? nullptr : base_ + used_;
    used_ +=
        (bytes + kScratchAlignment - 1) / kScratchAlignment * kScratchAlignment;
    return piece;
  }
  TensorView TakeMatrix(int64_t rows, int64_t cols, DType dtype) {
    const TensorView view = MatrixView(nullptr, dtype, rows, cols);
    TensorView placed = view;
    placed.data = Take(view.bytes());
    return placed;
  }
  size_t used() const { return used_; }

 private:
  std::byte* base_;
  size_t used_ = 0;
};

// Columns [first, first + count) of a matrix.
inline TensorView ColumnSlice(const TensorView& matrix, int64_t first,
                              int64_t count) {
  TensorView view = matrix;
  view.dims[1] = count;
  if (view.data != nullptr) {
    view.data += RowBytes(view.dtype, static_cast<size_t>(first));
  }
  return view;
}

}  // namespace inlay

#endif  // INLAY_CORE_MODEL_LAYERS_STEP_H_
