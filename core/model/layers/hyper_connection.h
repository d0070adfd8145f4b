// HyperConnection: how a block takes part in a residual stream that is several
// (kernels/hyper_connection), with its weights and kernels; or nothing.
#ifndef INLAY_CORE_MODEL_LAYERS_HYPER_CONNECTION_H_
#define INLAY_CORE_MODEL_LAYERS_HYPER_CONNECTION_H_

#include <string>

#include "absl/status/statusor.h"
#include "core/model/decoder_spec.h"
#include "core/model/layers/step.h"
#include "core/model/model_build.h"
#include "kernels/gemm/gemm.h"
#include "kernels/hyper_connection/hyper_connection.h"

namespace inlay {

class HyperConnection {
 public:
  // Views into a step's workspace: room for any of a model's.
  struct Scratch {
    float* products = nullptr;
    float* weights = nullptr;  // from Mix() to Spread()
  };

  HyperConnection() = default;
  // Tensors NAME_fn, NAME_base and NAME_scale. `only_mixes`: Spread() is not
  // called; then NAME may be "": Mix() gives the mean.
  static absl::StatusOr<HyperConnection> Create(const StreamsSpec& spec,
                                                const std::string& name,
                                                int64_t hidden_size,
                                                bool only_mixes,
                                                ModelBuild& build);

  bool present() const { return mix_.row != nullptr; }
  Scratch Place(Arena& arena, int64_t tokens) const;
  size_t KernelBytes(int64_t tokens) const {
    return product_.row != nullptr ? product_.WorkspaceBytes(tokens) : 0;
  }
  // streams: [tokens, count * hidden_size]; x, y: [tokens, hidden_size]; all
  // float32.
  absl::Status Mix(const TensorView& streams, const TensorView& x,
                   const Scratch& scratch, const Step& step) const;
  absl::Status Spread(const TensorView& y, const TensorView& streams,
                      const Scratch& scratch, const Step& step) const;

 private:
  Op<GemmDesc, GemmParams> product_;
  Op<HyperMixDesc, HyperMixParams> mix_;
  Op<HyperSpreadDesc, HyperSpreadParams> spread_;
  const float* fn_ = nullptr;
  const float* base_ = nullptr;
  const float* scale_ = nullptr;
};

}  // namespace inlay

#endif  // INLAY_CORE_MODEL_LAYERS_HYPER_CONNECTION_H_
