// GroupedLinear: linear layers alike over parts of their input: the first reads
// the first columns of x and gives the first of y, and so on (block-diagonal).
#ifndef INLAY_CORE_MODEL_LAYERS_GROUPED_LINEAR_H_
#define INLAY_CORE_MODEL_LAYERS_GROUPED_LINEAR_H_

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/model/layers/expert_linear.h"
#include "core/model/layers/step.h"

namespace inlay {

class GroupedLinear {
 public:
  GroupedLinear() = default;
  // Of equal shapes, one a group.
  static absl::StatusOr<GroupedLinear> Create(
      absl::Span<const LinearSpec> groups, LinearOutput output,
      ModelBuild& build);

  int64_t outputs() const { return num_groups_ * layer_.outputs(); }
  size_t ScratchBytes(int64_t tokens) const;
  size_t KernelBytes(int64_t tokens) const {
    return layer_.KernelBytes(tokens);
  }
  // x: [tokens, all inputs], y: [tokens, outputs()] as `output` has it, both
  // dense; `scratch`: ScratchBytes of so many tokens.
  absl::Status Forward(const TensorView& x, const TensorView& y,
                       std::byte* scratch, const Step& step) const;

 private:
  RoutingParams Place(Arena& arena, int64_t tokens) const;

  bool on_cpu_ = true;
  int64_t num_groups_ = 0;
  ExpertLinear layer_;  // a group is an expert that every token goes to
};

}  // namespace inlay

#endif  // INLAY_CORE_MODEL_LAYERS_GROUPED_LINEAR_H_
