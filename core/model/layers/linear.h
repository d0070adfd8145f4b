// Linear: a weight matrix, its bias and the GEMM kernel chosen for them.
#ifndef INLAY_CORE_MODEL_LAYERS_LINEAR_H_
#define INLAY_CORE_MODEL_LAYERS_LINEAR_H_

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "core/model/decoder_spec.h"
#include "core/model/model_build.h"
#include "kernels/activation/activation.h"
#include "kernels/gemm/gemm.h"
#include "kernels/linear_chain/linear_chain.h"
#include "kernels/rounding/rounding.h"

namespace inlay {

// What comes out of a layer: activations for the next, or a part of the
// residual stream or logits, which are float32.
enum class LinearOutput : uint8_t { kActivation, kFloat };

// How the loader packs weights as a kernel's `packing` wants them. `desc`: of
// the product, which the loader adds to: good while it is where it is.
WeightLoader::Packing LoaderPacking(const WeightPacking<GemmDesc>& packing,
                                    GemmDesc* desc);

class Linear {
 public:
  Linear() = default;
  static absl::StatusOr<Linear> Create(const LinearSpec& spec,
                                       LinearOutput output, ModelBuild& build);
  // Layers that read the same x, one after another in y: neighbours as one
  // where they can be and the device has more of that than of separate ones.
  static absl::StatusOr<std::vector<Linear>> CreateSideBySide(
      absl::Span<const LinearSpec> specs, ModelBuild& build);
  // Over a matrix [n, k] that is loaded already (tied embeddings). `bias`:
  // tensor [n], or "".
  static absl::StatusOr<Linear> Over(const TensorView& weight,
                                     LinearOutput output, ModelBuild& build,
                                     const std::string& bias = "");

  // gemm's, and expert_linear's, whose packed weights linear_chain and
  // fused_linear read.
  static constexpr std::string_view kFusedGemmRow = "cuda_quantised";
  // Those whose weights are floats, as linear_chain reads them.
  static constexpr std::string_view kFloatRow = "cuda";
  // Those that round their inputs as a checkpoint may ask for; empty: it does
  // not. Weights lie as kFusedGemmRow's.
  static std::string_view RoundingRow(InputCodes codes);
  static bool IsRoundingRow(std::string_view row);
  // kFusedGemmRow, or one of those, whose weights lie alike.
  static bool IsFusedRow(std::string_view row);

  int64_t outputs() const { return op_.desc.n; }
  const GemmDesc& desc() const { return op_.desc; }
  // Whether linear_chain and fused_linear read packed weights as this layer's
  // lie. They serve rows of x that Forward does not round (RoundingOf), as one
  // and two, a chain's, never are.
  bool may_fuse() const;
  // Whether linear_chain reads the weights, packed or not.
  bool may_chain() const;
  // Whether it reads weights of its own, not those it was made over.
  bool is_packed() const { return packing() != nullptr; }
  size_t KernelBytes(int64_t tokens) const {
    return op_.WorkspaceBytes(tokens);
  }
  // How Forward rounds so many rows of x; ForwardRounded takes these.
  RowRounding RoundingOf(int64_t rows) const {
    return observer_ != nullptr ? RowRounding::kNone
                                : GemmRounding(*op_.row, op_.desc, rows);
  }
  // Of a product without scratch.
  GemmParams Params(const TensorView& x, const TensorView& residual,
                    const TensorView& y) const;
  // y = x w^T + bias + residual; `residual` may be empty or y itself.
  absl::Status Forward(const TensorView& x, const TensorView& residual,
                       const TensorView& y, void* workspace,
                       Stream& stream) const;
  absl::Status ForwardRounded(const RoundedRows& x, const TensorView& residual,
                              const TensorView& y, void* workspace,
                              Stream& stream) const;

 private:
  // Chooses the kernel; the weights come after.
  static absl::StatusOr<Linear> Choose(int64_t n, int64_t k, DType weight,
                                       bool permuted, InputCodes input_codes,
                                       LinearOutput output,
                                       const ModelBuild& build);
  // Another one where the matrix `name` has no more precision than that takes.
  absl::Status ChooseByValues(const std::string& name, const ModelBuild& build);
  // A chain of this layer alone, for few rows, where there is one.
  void ChooseAlone(const ModelBuild& build);
  // Whether that serves such a call.
  bool RunsAlone(const TensorView& x, const TensorView& residual,
                 const TensorView& y) const;
  absl::Status RunAlone(const TensorView& x, const TensorView& residual,
                        const TensorView& y, Stream& stream) const;
  // Whether such layers may become one.
  static bool CanStack(absl::Span<const LinearSpec> specs,
                       const ModelBuild& build);
  // None where the kernel wants the matrices cut at other rows.
  static absl::StatusOr<std::optional<Linear>> Stack(
      absl::Span<const LinearSpec> specs, ModelBuild& build);
  // Null: the kernel takes weights as they lie in the file.
  const WeightPacking<GemmDesc>* packing() const {
    return op_.row->packing == nullptr ? nullptr : op_.row->packing(op_.desc);
  }
  // Good while this object is where it is.
  WeightLoader::Packing PackingForLoader() {
    return LoaderPacking(*packing(), &op_.desc);
  }

  // Has Forward tell of its input, where the model is built for that.
  void ObserveAs(const std::string& name, const ModelBuild& build);

  Op<GemmDesc, GemmParams> op_;
  Op<LinearChainDesc, LinearChainParams> alone_;
  int64_t alone_rows_ = 0;
  TensorView weight_;
  const float* bias_ = nullptr;
  const int32_t* permutation_ = nullptr;
  InputObserver* observer_ = nullptr;
  std::string name_;  // for observer_
};

// A gated activation that writes the codes which a layer after it rounds its
// input to. No row where none serves, or where another way to activate is asked
// for to be seen.
Op<RoundingDesc, RoundingParams> ChooseRoundedActivation(
    const ActivationDesc& activation, const ModelBuild& build);

}  // namespace inlay

#endif  // INLAY_CORE_MODEL_LAYERS_LINEAR_H_
