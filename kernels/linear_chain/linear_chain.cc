#include "kernels/linear_chain/linear_chain.h"

#include <algorithm>

#if INLAY_HAS_CUDA
#include "kernels/gemm/quantised/layout.h"
#include "kernels/linear_chain/chain_shape.h"
#endif

namespace inlay {

#if INLAY_HAS_CUDA
// linear_chain_cuda.cc
absl::Status RunLinearChainSm90(const LinearChainDesc& desc,
                                const LinearChainParams& params,
                                Stream& stream);

namespace {

// Of two rows each block converts both, all of K: one stage does not pay for
// that where it is long.
int64_t RowsThatPay(const LinearChainDesc& desc) {
  constexpr int64_t kMostColumns = 8192;
  const bool is_long =
      desc.stages.size() == 1 && desc.stages[0].gemm.k > kMostColumns;
  return is_long ? 1 : kChainRows;
}

int64_t RowsThatFit(const LinearChainDesc& desc, const DeviceInfo& device) {
  ChainShape shape;
  for (int rows = kChainRows; rows > 0; --rows) {
    if (PlaceChain(desc, rows, device.num_sms, shape)) return rows;
  }
  return 0;
}

const char* StageRefuses(const LinearChainStage& stage, const QuantForm& form) {
  const GemmDesc& gemm = stage.gemm;
  if (!IsBlockFormat(gemm.weight)) return "weights must be quantised";
  const QuantForm own = QuantFormOf(gemm.weight);
  if (own.codes != form.codes || own.group != form.group ||
      own.has_min != form.has_min) {
    return "all weights must be packed alike";
  }
  if (gemm.permuted) return "takes no permutation of x";
  if (gemm.batch_invariant) return "another kernel serves more rows";
  if (stage.gated && gemm.n % (2 * kQuantRows) != 0) {
    return "gate and up must be whole tiles of rows";
  }
  if (stage.gated && HasLimit(stage.function)) {
    return "takes no clamped SiLU";
  }
  return nullptr;
}

const char* Sm90Refuses(const LinearChainDesc& desc, const DeviceInfo& device) {
  if (device.sm != 90) return "written for compute capability 9.0";
  if (desc.stages.empty() || desc.stages.size() > kMostChainStages) {
    return "takes one to four stages";
  }
  const GemmDesc& first = desc.stages.front().gemm;
  if (first.activation != DType::kF16 && first.activation != DType::kBF16) {
    return "activations must be f16 or bf16";
  }
  if (!IsBlockFormat(first.weight)) return "weights must be quantised";
  const QuantForm form = QuantFormOf(first.weight);
  if (form.codes != QuantCodes::kInt8 &&
      (form.codes != QuantCodes::kLinear4 || form.group == 16)) {
    return "has no code for weights that are packed so";
  }
  int64_t added = 0;
  int64_t handed_on = first.k;  // what comes before the stage gives; 0: nothing
  for (const LinearChainStage& stage : desc.stages) {
    if (!stage.normalised && handed_on != stage.gemm.k) {
      return "a stage without a norm reads what the one before hands on";
    }
    if (stage.normalised && added != 0 && added != stage.gemm.k) {
      return "what is normalised has the width of what is added";
    }
    handed_on = stage.adds ? 0 : stage.gated ? stage.gemm.n / 2 : stage.gemm.n;
    if (stage.adds) {
      if (added != 0 && stage.gemm.n != added) {
        return "all that is added has the same width";
      }
      added = stage.gemm.n;
    }
    if (stage.gemm.activation != first.activation) {
      return "activations must be of one type";
    }
    if (!stage.adds && stage.gemm.output != first.activation &&
        (stage.gated || &stage != &desc.stages.back())) {
      return "what is handed on must be an activation";
    }
    if (const char* reason = StageRefuses(stage, form)) return reason;
  }
  return RowsThatFit(desc, device) > 0 ? nullptr : "a row of x does not fit";
}

constexpr LinearChainRow kRows[] = {{"cuda_sm90", DeviceKind::kCuda, 90,
                                     Sm90Refuses, nullptr, RunLinearChainSm90}};

}  // namespace

absl::Span<const LinearChainRow> LinearChainTable() { return kRows; }

int64_t LinearChainRows(const LinearChainDesc& desc, const DeviceInfo& device) {
  return std::min(RowsThatPay(desc), RowsThatFit(desc, device));
}
#else
absl::Span<const LinearChainRow> LinearChainTable() { return {}; }
int64_t LinearChainRows(const LinearChainDesc&, const DeviceInfo&) { return 0; }
size_t LinearChainExchangeBytes(const LinearChainDesc&) { return 0; }
#endif

}  // namespace inlay
