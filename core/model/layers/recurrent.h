// Recurrent layers: parts that keep a state of fixed size a sequence. What the
// decoder has to know of them all: how large a state is, where it lies, how to
// build the part.
#ifndef INLAY_CORE_MODEL_LAYERS_RECURRENT_H_
#define INLAY_CORE_MODEL_LAYERS_RECURRENT_H_

#include <cstddef>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "core/model/decoder_spec.h"
#include "core/model/layers/norm.h"
#include "core/model/layers/step.h"
#include "kernels/linear_attention/state_runs.h"
#include "memory/kv/kv_layout.h"

namespace inlay {

// Of the part's state; 0: it keeps none.
size_t StateBytes(const PartSpec& part);

// What of the part is attention over cached keys; null: nothing.
const AttentionSpec* AttentionOf(const PartSpec& part);

// A part's state: the last inputs of its convolution, and behind them the
// matrices of its recurrence.
class LayerState {
 public:
  LayerState() = default;
  // `conv_floats`: of the first.
  LayerState(const KvStateView& view, int64_t conv_floats)
      : view_(view), conv_bytes_(Align(conv_floats)) {}

  static size_t Bytes(int64_t conv_floats, int64_t matrix_floats) {
    return Align(conv_floats) + Align(matrix_floats);
  }
  StateParams Conv(const Step& step) const { return At(step, 0); }
  StateParams Matrices(const Step& step) const {
    return At(step, static_cast<int64_t>(conv_bytes_));
  }

 private:
  static size_t Align(int64_t floats);
  StateParams At(const Step& step, int64_t offset) const;

  KvStateView view_;
  size_t conv_bytes_ = 0;
};

// Where a part's KV and state lie.
struct RecurrentPlace {
  const KvLayout& layout;
  const std::vector<RopeSpec>& ropes;
  int kv_layer = 0;  // if it has attention
  int state_layer = 0;
  KvLayerView summaries = {};  // of the attention's blocks, if it selects some
};

// A part with a state. `norm`: of the inputs to come.
absl::StatusOr<std::unique_ptr<Sublayer>> CreateRecurrent(
    const PartSpec& part, const Norm& norm, const RecurrentPlace& place,
    ModelBuild& build);

}  // namespace inlay

#endif  // INLAY_CORE_MODEL_LAYERS_RECURRENT_H_
