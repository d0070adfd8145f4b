// TokenMixer: a part of a layer in which a token meets those before it
// (attention, a recurrence), in pieces: for who computes the products before
// and after otherwise (layer_chain.h) or leaves queries out (ForwardNarrowed).
#ifndef INLAY_CORE_MODEL_LAYERS_TOKEN_MIXER_H_
#define INLAY_CORE_MODEL_LAYERS_TOKEN_MIXER_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "core/model/layers/linear.h"
#include "core/model/layers/step.h"
#include "memory/tensor.h"

namespace inlay {

// Its Forward is Begin, Mix, and output() of MixedOf().
class TokenMixer {
 public:
  virtual ~TokenMixer() = default;
  // One or more whose outputs are columns of one matrix, one after another;
  // none where they are not.
  virtual absl::Span<const Linear> inputs() const = 0;
  virtual const Linear& output() const = 0;
  // What inputs() give and what output() reads, in the step's scratch.
  virtual TensorView InputsOf(const Step& step, int64_t tokens) const = 0;
  virtual TensorView MixedOf(const Step& step, int64_t tokens) const = 0;
  // What inputs() do, with the norm before them.
  virtual absl::Status Begin(const Step& step, const BlockInput& x) const = 0;
  virtual absl::Status Mix(const Step& step, int64_t tokens) const = 0;
};

}  // namespace inlay

#endif  // INLAY_CORE_MODEL_LAYERS_TOKEN_MIXER_H_
