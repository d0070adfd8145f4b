// OutputGate: what some attention has between its heads' outputs and the
// output projection: a gate a channel that the query projection gives besides,
// or a layer of its own (arXiv:2505.06708), which may be of heads, a factor.
#ifndef INLAY_CORE_MODEL_LAYERS_OUTPUT_GATE_H_
#define INLAY_CORE_MODEL_LAYERS_OUTPUT_GATE_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "core/model/decoder_spec.h"
#include "core/model/model_build.h"
#include "kernels/columns/columns.h"
#include "kernels/elementwise/elementwise.h"

namespace inlay {

// What is copied where, of layers of one shape: a run or two a head.
struct GateRuns {
  int32_t runs = 0;     // of queries, and as many of gates behind each
  int32_t q_width = 0;  // of one
  int32_t gate_width = 0;
  int32_t kv_width = 0;  // of keys and values together
  std::vector<ColumnRun> q;
  std::vector<ColumnRun> gate;
  std::vector<ColumnRun> order;
};

class OutputGate {
 public:
  OutputGate() = default;
  // Layers of one shape share their runs, by `build`.
  static absl::StatusOr<OutputGate> Create(const AttentionSpec& spec,
                                           ModelBuild& build);

  const GateRuns* runs() const { return runs_.get(); }
  // Whether there are gates.
  bool splits() const { return gate_.row != nullptr; }
  int64_t width() const { return width_; }  // of a token's gates
  // Whether a layer of their own gives them, and not the query projection.
  bool is_apart() const { return is_apart_; }
  // Takes queries and gates, side by side in each head, apart.
  absl::Status Split(const TensorView& both, const TensorView& q,
                     const TensorView& gate, Stream& stream) const;
  // Of those with keys and values behind them: queries, what was behind, gates.
  absl::Status Order(const TensorView& raw, const TensorView& ordered,
                     Stream& stream) const;
  absl::Status Apply(const TensorView& context, const TensorView& gate,
                     Stream& stream) const;

 private:
  bool is_apart_ = false;
  int64_t width_ = 0;
  std::shared_ptr<const GateRuns> runs_;
  float scale_ = 1.0f;
  Op<ColumnsDesc, ColumnsParams> columns_;
  Op<GatedNormDesc, GatedNormParams> gate_;
  Op<ElementwiseDesc, ElementwiseParams> multiply_;
};

}  // namespace inlay

#endif  // INLAY_CORE_MODEL_LAYERS_OUTPUT_GATE_H_
