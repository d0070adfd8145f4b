// ExpertLinear: a layer of every expert of a mixture: weight matrices alike,
// their biases and the kernel chosen for them.
#ifndef INLAY_CORE_MODEL_LAYERS_EXPERT_LINEAR_H_
#define INLAY_CORE_MODEL_LAYERS_EXPERT_LINEAR_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/model/expert_lender.h"
#include "core/model/layers/linear.h"
#include "core/model/model_build.h"
#include "kernels/moe/expert_columns.h"
#include "kernels/moe/expert_linear.h"
#include "kernels/moe/routing.h"

namespace inlay {

// Where all matrices lie: where the kernels run, or in host memory that they
// read, of which an ExpertCache keeps some on the device.
enum class ExpertPlace : uint8_t { kDevice, kHost };

class ExpertLinear {
 public:
  // For each expert the layers that read one x, their outputs side by side.
  using Experts = std::vector<std::vector<LinearSpec>>;

  ExpertLinear() = default;
  // UNIMPLEMENTED naming the tensor where experts differ in their format.
  // Layers of one expert whose columns have orders of their own have the same
  // (CanStack).
  // `row_a_slot`: see ExpertLinearDesc. kHost is not for CPUs; Forward then
  // wants UseSlots(). `gate`, if not null: what becomes of gates and ups, where
  // one kernel does both (gated()).
  static absl::StatusOr<ExpertLinear> Create(
      const Experts& experts, int top_k, bool row_a_slot, LinearOutput output,
      ModelBuild& build, ExpertPlace place = ExpertPlace::kDevice,
      const ActivationDesc* gate = nullptr);

  // Whether each expert's layers may be one matrix, which is so where their
  // columns have one order and, on CPU, matrices are packed: otherwise the
  // files' own pages are used as they are.
  static absl::StatusOr<bool> CanStack(const Experts& experts,
                                       const ModelBuild& build);

  int64_t outputs() const { return op_.desc.gemm.n; }
  // Whether Forward gives function(gate) * up, in y's first half.
  bool gated() const { return op_.desc.gated; }
  // Of one expert.
  const GemmDesc& desc() const { return op_.desc.gemm; }
  // Whether linear_chain reads weights as these lie.
  bool may_chain() const {
    return (Linear::IsFusedRow(op_.row->name) ||
            op_.row->name == Linear::kFloatRow) &&
           stacked_.table == nullptr && !is_ordered();
  }
  // On the device: all experts', one after another; to be read.
  TensorView matrices() const {
    return MatrixView(const_cast<std::byte*>(stacked_.base),
                      op_.desc.gemm.weight,
                      op_.desc.gemm.n * op_.desc.num_experts, op_.desc.gemm.k);
  }
  const float* bias() const { return bias_; }  // [experts, n] or null
  size_t KernelBytes(int64_t tokens) const {
    return OrderedBytes(tokens) + op_.WorkspaceBytes(tokens);
  }
  // The bytes of one expert.
  size_t expert_bytes() const { return expert_bytes_; }
  // With kHost: expert e at a multiple of kExpertAlignment, as
  // ExpertFetchParams has it; null when planning.
  const std::byte* in_host_memory() const { return host_; }
  // As ExpertMatrices has base and table.
  void UseSlots(const std::byte* base, const int64_t* table) {
    stacked_.base = base;
    stacked_.table = table;
  }
  // Whether it may round x, with enough slots.
  bool may_round() const {
    return Linear::IsRoundingRow(op_.row->name) && !is_ordered();
  }
  // How Forward rounds x where there are so many slots; ForwardRounded takes
  // these.
  RowRounding RoundingOf(int64_t slots) const {
    return observer_ != nullptr || lender_ != nullptr || is_ordered()
               ? RowRounding::kNone
               : ExpertRounding(*op_.row, op_.desc, slots);
  }
  // `routed`: what routing gave. `activates` false: gates and ups as they are,
  // though gated().
  absl::Status Forward(const TensorView& x, const RoutingParams& routed,
                       const TensorView& y, void* workspace, Stream& stream,
                       bool activates = true) const;
  absl::Status ForwardRounded(const RoundedRows& x, const RoutingParams& routed,
                              const TensorView& y, void* workspace,
                              Stream& stream) const;

 private:
  // But for what tokens go to experts.
  static absl::StatusOr<ExpertLinearDesc> Describe(const Experts& experts,
                                                   const ModelBuild& build);
  // Where columns have orders of their own.
  absl::Status LoadOrders(const Experts& experts, const ExpertLinearDesc& desc,
                          ModelBuild& build);
  bool is_ordered() const { return columns_.row != nullptr; }
  // Of what columns_ makes.
  size_t OrderedBytes(int64_t tokens) const;
  absl::Status Choose(ExpertLinearDesc desc, InputCodes input_codes,
                      const ActivationDesc* gate, const ModelBuild& build);
  ExpertLinearParams Params(const TensorView& x, const RoutingParams& routed,
                            const TensorView& y, void* workspace) const;
  absl::Status Load(const Experts& experts, ExpertPlace place,
                    ModelBuild& build);
  // The bytes of one expert.
  absl::StatusOr<size_t> LoadApart(const Experts& experts, ModelBuild& build);
  absl::StatusOr<size_t> LoadStacked(const Experts& experts, ModelBuild& build);
  absl::StatusOr<size_t> LoadInHostMemory(const Experts& experts,
                                          ModelBuild& build);
  // Names and rows, expert by expert; UNIMPLEMENTED naming the tensor where
  // rows cannot be packed so.
  absl::StatusOr<std::vector<std::vector<WeightLoader::Rows>>> Parts(
      const Experts& experts, const ModelBuild& build) const;
  absl::Status LoadBiases(const Experts& experts, ModelBuild& build);
  // Rows of x as the experts' columns have their inputs, a slot each.
  absl::StatusOr<TensorView> Ordered(const TensorView& x,
                                     const RoutingParams& routed, int64_t slots,
                                     void* workspace, Stream& stream) const;
  // One expert after another, so that one matrix is there at a time.
  absl::Status ForwardLent(ExpertLinearParams params, Stream& stream) const;
  void ObserveAs(const Experts& experts, const ModelBuild& build);
  void Observe(const TensorView& x, const RoutingParams& routed) const;

  Op<ExpertLinearDesc, ExpertLinearParams> op_;
  Op<ExpertColumnsDesc, ExpertColumnsParams> columns_;  // no row: as inputs are
  const int32_t* orders_ = nullptr;     // null when planning, too
  std::vector<const std::byte*> each_;  // on CPU
  ExpertMatrices stacked_;              // elsewhere
  const std::byte* host_ = nullptr;
  size_t expert_bytes_ = 0;
  const float* bias_ = nullptr;
  // Of those that are lent, which each_ lacks, by expert; empty: none.
  std::vector<const WeightInfo*> lent_;
  ExpertLender* lender_ = nullptr;
  InputObserver* observer_ = nullptr;
  std::vector<std::string> names_;  // of the experts, for observer_
};

}  // namespace inlay

#endif  // INLAY_CORE_MODEL_LAYERS_EXPERT_LINEAR_H_
