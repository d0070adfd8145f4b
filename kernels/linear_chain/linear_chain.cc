#include "kernels/linear_chain/linear_chain.h"

#include <algorithm>

#if INLAY_HAS_CUDA
#include "kernels/gemm/quantised/layout.h"
#include "kernels/gemm/tensor_map.h"
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
// that where it is long, nor do large experts whose levels are looked up
// (gpt-oss: a step of two tokens 2.82 ms, 2.56 by the ops apart).
int64_t RowsThatPay(const LinearChainDesc& desc) {
  constexpr int64_t kMostColumns = 8192;
  if (desc.stages.size() == 1) {
    return desc.stages[0].gemm.k > kMostColumns ? 1 : kChainRows;
  }
  for (const LinearChainStage& stage : desc.stages) {
    if (stage.experts == ChainExperts::kOutput &&
        IsBlockFormat(stage.gemm.weight) &&
        stage.gemm.k * desc.routing.top_k > kMostColumns &&
        QuantFormOf(stage.gemm.weight).codes == QuantCodes::kTable4) {
      return 1;
    }
  }
  return kChainRows;
}

int64_t RowsThatFit(const LinearChainDesc& desc, const DeviceInfo& device) {
  ChainShape shape;
  for (int rows = kChainRows; rows > 0; --rows) {
    if (PlaceChain(desc, rows, device.num_sms, shape)) return rows;
  }
  return 0;
}

const char* StageRefuses(const LinearChainStage& stage) {
  const GemmDesc& gemm = stage.gemm;
  if (gemm.permuted) return "takes no permutation of x";
  if (!IsBlockFormat(gemm.weight) && gemm.k % kMapColumns != 0) {
    return "floats must have rows of whole 64 columns";
  }
  if (gemm.batch_invariant) return "another kernel serves more rows";
  if (stage.gated && gemm.n % (2 * kQuantRows) != 0) {
    return "gate and up must be whole tiles of rows";
  }
  if (stage.gated && HasLimit(stage.function) && !(stage.limit > 0.0f)) {
    return "the limit must be positive";
  }
  return nullptr;
}

// What stands against stages of experts, and their place in the chain.
const char* ExpertsRefuse(const LinearChainDesc& desc) {
  const RoutingDesc& routing = desc.routing;
  int inputs = 0;
  for (size_t s = 0; s < desc.stages.size(); ++s) {
    const LinearChainStage& stage = desc.stages[s];
    if (stage.experts == ChainExperts::kOutput &&
        (s == 0 || desc.stages[s - 1].experts != ChainExperts::kInput)) {
      return "outputs of experts follow their inputs";
    }
    if (stage.experts != ChainExperts::kInput) continue;
    ++inputs;
    if (s + 1 == desc.stages.size() ||
        desc.stages[s + 1].experts != ChainExperts::kOutput) {
      return "inputs of experts are followed by their outputs";
    }
    const LinearChainStage& output = desc.stages[s + 1];
    if (!stage.normalised || !stage.gated || stage.same_x || !output.adds ||
        output.gemm.n != stage.gemm.k || stage.gemm.n != 2 * output.gemm.k) {
      return "experts are a gated MLP of what is normalised";
    }
    if (output.gemm.k % kQuantRows != 0 || output.gemm.n % kQuantRows != 0 ||
        desc.shared_width % kQuantColumns != 0) {
      return "experts' widths must be whole tiles, a shared one's whole units";
    }
    if (desc.router != DType::kF32 && desc.router != stage.gemm.activation) {
      return "the router's weights must be f32 or of activations' type";
    }
  }
  if (inputs == 0) return nullptr;
  if (inputs > 1) return "has one mixture of experts at most";
  if (routing.num_experts > kChainThreads ||
      routing.top_k > std::min(kMostChainExperts, routing.num_experts)) {
    return "takes 512 experts, 16 of them a token's, at most";
  }
  if (desc.shared_width < 0 || (desc.shared_gated && desc.shared_width == 0)) {
    return "the gate is of a shared expert";
  }
  // With softmax logits stand for their scores, of which the largest does.
  const bool has_groups = routing.top_groups < routing.num_groups;
  if (has_groups && (routing.num_groups > kMostChainGroups ||
                     (routing.score == RoutingScore::kSoftmax &&
                      routing.group_score == GroupScore::kTopTwo))) {
    return "takes 32 groups of experts at most, of softmax scores by the best";
  }
  const bool is_plain = !routing.scales_experts && !routing.hashed &&
                        routing.score != RoutingScore::kSqrtSoftplus &&
                        routing.score != RoutingScore::kSparseMixer &&
                        routing.score != RoutingScore::kLogitSigmoid;
  return is_plain ? nullptr : "chooses experts by their scores alone";
}

// Of a stage, what gives it x: null where that fits.
const char* InputRefuses(const LinearChainDesc& desc, size_t s,
                         int64_t handed_on, int64_t added) {
  const LinearChainStage& stage = desc.stages[s];
  if (stage.same_x) {
    if (s == 0) return "the first stage has no x of a stage before";
    const LinearChainStage& before = desc.stages[s - 1];
    const bool fits = !before.adds && !before.gated && !stage.adds &&
                      !stage.gated && stage.normalised == before.normalised &&
                      stage.gemm.k == before.gemm.k;
    return fits ? nullptr : "stages of one x give columns of one matrix";
  }
  if (!stage.normalised && handed_on != stage.gemm.k) {
    return "a stage without a norm reads what the one before hands on";
  }
  if (stage.normalised && added != 0 && added != stage.gemm.k) {
    return "what is normalised has the width of what is added";
  }
  return nullptr;
}

const char* Sm90Refuses(const LinearChainDesc& desc, const DeviceInfo& device) {
  if (device.sm != 90) return "written for compute capability 9.0";
  if (desc.stages.empty() || desc.stages.size() > kMostChainStages) {
    return "takes one to six stages";
  }
  const GemmDesc& first = desc.stages.front().gemm;
  if (first.activation != DType::kF16 && first.activation != DType::kBF16) {
    return "activations must be f16 or bf16";
  }
  for (const LinearChainStage& stage : desc.stages) {
    if (!IsBlockFormat(stage.gemm.weight) &&
        stage.gemm.weight != first.activation) {
      return "weights must be quantised, or floats of activations' type";
    }
  }
  ChainFormPair forms;
  if (!FormsOfChain(desc, forms)) {
    return "has no code for weights that are packed so, or so together";
  }
  if (forms.is_plain && std::none_of(desc.stages.begin(), desc.stages.end(),
                                     [](const LinearChainStage& stage) {
                                       return stage.experts !=
                                              ChainExperts::kNone;
                                     })) {
    return "other kernels read floats as fast, but for experts'";
  }
  if (const char* reason = ExpertsRefuse(desc)) return reason;
  int64_t added = 0;
  int64_t handed_on = first.k;  // what comes before the stage gives; 0: nothing
  for (size_t s = 0; s < desc.stages.size(); ++s) {
    const LinearChainStage& stage = desc.stages[s];
    if (const char* reason = InputRefuses(desc, s, handed_on, added)) {
      return reason;
    }
    handed_on = stage.adds || stage.same_x ? 0
                : stage.gated              ? stage.gemm.n / 2
                                           : stage.gemm.n;
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
        (stage.gated || s + 1 != desc.stages.size())) {
      return "what is handed on must be an activation";
    }
    if (const char* reason = StageRefuses(stage)) return reason;
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
