// ExpertLinear: a layer of every expert of a mixture: weight matrices alike,
// their biases and the kernel chosen for them.
#ifndef INLAY_CORE_MODEL_LAYERS_EXPERT_LINEAR_H_
#define INLAY_CORE_MODEL_LAYERS_EXPERT_LINEAR_H_

#include <vector>

#include "absl/status/statusor.h"
#include "core/model/layers/linear.h"
#include "core/model/model_build.h"
#include "kernels/moe/expert_linear.h"
#include "kernels/moe/routing.h"

namespace inlay {

class ExpertLinear {
 public:
  // For each expert the layers that read one x, their outputs side by side.
  using Experts = std::vector<std::vector<LinearSpec>>;

  ExpertLinear() = default;
  // UNIMPLEMENTED naming the tensor where experts differ in their format.
  // `row_a_slot`: see ExpertLinearDesc.
  static absl::StatusOr<ExpertLinear> Create(const Experts& experts, int top_k,
                                             bool row_a_slot,
                                             LinearOutput output,
                                             ModelBuild& build);

  int64_t outputs() const { return op_.desc.gemm.n; }
  size_t KernelBytes(int64_t tokens) const {
    return op_.WorkspaceBytes(tokens);
  }
  // `routed`: what routing gave.
  absl::Status Forward(const TensorView& x, const RoutingParams& routed,
                       const TensorView& y, void* workspace,
                       Stream& stream) const;

 private:
  absl::Status Load(const Experts& experts, ModelBuild& build);
  // The bytes of one expert.
  absl::StatusOr<size_t> LoadApart(const Experts& experts, ModelBuild& build);
  absl::StatusOr<size_t> LoadStacked(const Experts& experts, ModelBuild& build);
  absl::Status LoadBiases(const Experts& experts, ModelBuild& build);

  Op<ExpertLinearDesc, ExpertLinearParams> op_;
  std::vector<const std::byte*> each_;  // on CPU
  ExpertMatrices stacked_;              // elsewhere
  const float* bias_ = nullptr;
};

}  // namespace inlay

#endif  // INLAY_CORE_MODEL_LAYERS_EXPERT_LINEAR_H_
