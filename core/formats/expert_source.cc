#include "core/formats/expert_source.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_join.h"
#include "core/formats/describe.h"
#include "core/formats/sliced_source.h"
#include "core/formats/stored_tensor.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

constexpr std::string_view kGateUp = ".experts.gate_up_proj";
constexpr std::string_view kDown = ".experts.down_proj";
constexpr std::string_view kBias = "_bias";
constexpr std::string_view kInverse = "_scale_inv";
constexpr std::string_view kMxBlocks = "_blocks";
constexpr std::string_view kMxScales = "_scales";
constexpr int64_t kMxBlock = 32;
constexpr DType kFloats[] = {DType::kF32, DType::kF16, DType::kBF16};
// What has no blocks.
constexpr DType kElements[] = {DType::kF32, DType::kF16, DType::kBF16,
                               DType::kF8E4M3};
// Safetensors' U8.
constexpr DType kBytes[] = {DType::kU8};

// A tensor that holds something of all experts.
struct Fused {
  std::string prefix;  // "P.experts."
  bool gate_up = false;
  std::string_view suffix;  // kBias, kInverse, kMxBlocks, kMxScales or none
};

// Granite's, and with `part` ".mlp." JetMoE's.
std::optional<Fused> ParseLinears(
    std::string_view name, std::string_view part = ".block_sparse_moe.") {
  const size_t at = name.rfind(part);
  if (at == name.npos) return std::nullopt;
  const std::string_view rest = name.substr(at + part.size());
  const bool gate_up = rest == "input_linear.weight";
  if (!gate_up && rest != "output_linear.weight") return std::nullopt;
  return Fused{std::string(name.substr(0, at + part.size())) + "experts.",
               gate_up, std::string_view()};
}

std::optional<Fused> ParseFused(std::string_view name) {
  if (auto linears = ParseLinears(name)) return linears;
  for (const std::string_view kind : {kGateUp, kDown}) {
    const size_t at = name.rfind(kind);
    if (at == name.npos) continue;
    const std::string_view rest = name.substr(at + kind.size());
    for (const std::string_view suffix :
         {std::string_view(), kBias, kInverse, kMxBlocks, kMxScales}) {
      if (rest != suffix) continue;
      constexpr std::string_view kExperts = ".experts.";
      return Fused{std::string(name.substr(0, at + kExperts.size())),
                   kind == kGateUp, suffix};
    }
  }
  return std::nullopt;
}

// Aria's.
std::optional<Fused> ParseAria(std::string_view name) {
  constexpr std::string_view kExperts = ".experts.";
  const size_t at = name.rfind(kExperts);
  if (at == name.npos) return std::nullopt;
  const std::string_view rest = name.substr(at + kExperts.size());
  if (rest != "fc1.weight" && rest != "fc2.weight") return std::nullopt;
  return Fused{std::string(name.substr(0, at + kExperts.size())),
               rest == "fc1.weight", std::string_view()};
}

// "P.experts." and "NAME.weight" or "NAME.bias" of a stack.
struct Stack {
  std::string prefix;
  std::string rest;
  bool is_bias = false;
};

std::optional<Stack> ParseStack(std::string_view name) {
  std::string_view experts = ".experts.";
  size_t at = name.rfind(experts);
  if (at == name.npos) at = name.rfind(experts = ".chunk_experts.");
  if (at == name.npos) return std::nullopt;
  const std::string_view rest = name.substr(at + experts.size());
  const size_t dot = rest.find('.');
  const std::string_view kind = dot == rest.npos ? "" : rest.substr(dot);
  if (kind != ".weight" && kind != ".bias") return std::nullopt;
  return Stack{std::string(name.substr(0, at + experts.size())),
               std::string(rest), kind == ".bias"};
}

// Step 3.5's, whose matrices have their numbers for blocks of FP8 beside them.
std::optional<Stack> ParseStep(std::string_view name) {
  constexpr std::string_view kMoe = ".moe.";
  const size_t at = name.rfind(kMoe);
  if (at == name.npos) return std::nullopt;
  const std::string_view rest = name.substr(at + kMoe.size());
  for (const char* part : {"gate_proj", "up_proj", "down_proj"}) {
    for (const char* kind : {".weight", ".weight_scale_inv"}) {
      if (rest != std::string(part) + kind) continue;
      return Stack{std::string(name.substr(0, at + kMoe.size())) + "experts.",
                   std::string(rest)};
    }
  }
  return std::nullopt;
}

class ExpertEntries {
 public:
  // `hidden_size`: where it is not 0, matrices may lie either way. `rows`: of a
  // block that has one scale, 0 where config.json does not say.
  // `row_experts`: of tensors whose rows are those of all experts, 0 where
  // there are none.
  ExpertEntries(const WeightSource& stored, std::string_view model_type,
                int64_t hidden_size, int64_t rows, int64_t row_experts)
      : stored_(stored),
        is_gpt_oss_(model_type == "gpt_oss"),
        is_aria_(model_type == "aria_text"),
        is_jetmoe_(model_type == "jetmoe"),
        is_step_(model_type == "step3p5"),
        by_inputs_(is_gpt_oss_ || is_aria_ || model_type == "llama4_text"),
        hidden_size_(hidden_size),
        scale_rows_(rows),
        row_experts_(row_experts) {}

  absl::Status Add(const WeightInfo& info) {
    constexpr std::string_view kMlp = ".experts.mlp.";
    if (const size_t at = info.name.rfind(kMlp);
        row_experts_ > 0 && at != info.name.npos) {
      return AddRowsOfExperts(info, at, info.name.substr(at + kMlp.size()));
    }
    if (is_aria_) {
      const auto own = ParseAria(info.name);
      if (own) return AddMatrices(info, *own);
    }
    auto fused = ParseFused(info.name);
    if (is_jetmoe_ && !fused) fused = ParseLinears(info.name, ".mlp.");
    auto stack = ParseStack(info.name);
    if (is_step_ && !stack) stack = ParseStep(info.name);
    if (stack && info.shape.size() == (stack->is_bias ? 2u : 3u)) {
      return AddStack(info, *stack);
    }
    const bool is_inverse = fused && fused->suffix == kInverse;
    const bool own_suffix =
        is_gpt_oss_ ? !is_inverse
                    : fused && (fused->suffix.empty() || is_inverse);
    if (!fused || !own_suffix) {
      entries_.push_back({info});
      return absl::OkStatus();
    }
    if (is_inverse) return AddScales(info, *fused);
    if (fused->suffix == kMxScales) return CheckBlocksOf(info);
    if (fused->suffix == kBias) return AddBiases(info, *fused);
    if (fused->suffix == kMxBlocks) return AddBlocks(info, *fused);
    return AddMatrices(info, *fused);
  }

  // Of two rows the first.
  void AddFirstRow(const WeightInfo& info) {
    any_ = true;
    SlicedTensor entry;
    entry.is_slice = true;
    entry.slice.stored = &info;
    entry.info = info;
    entry.info.shape[0] = 1;
    entry.info.bytes = info.bytes / 2;
    entries_.push_back(std::move(entry));
  }

  std::vector<SlicedTensor> Take() && { return std::move(entries_); }
  bool any() const { return any_; }

 private:
  absl::Status Check(const WeightInfo& info, absl::Span<const DType> dtypes,
                     size_t rank) const {
    INLAY_RETURN_IF_ERROR(StoredTensor(stored_, info.name, dtypes).status());
    if (info.shape.size() != rank || info.shape[0] > kMaxStoredExperts) {
      return absl::InvalidArgumentError(FormattedString(
          "tensor %s has shape [%s]; allowed: %d dimensions, the first of at "
          "most %d experts",
          Quoted(info.name), absl::StrJoin(info.shape, ", "), rank,
          kMaxStoredExperts));
    }
    return CheckCount(info, info.shape[0]);
  }

  // Of all tensors that there would be.
  absl::Status CheckCount(const WeightInfo& info, int64_t experts) const {
    const size_t tensors = entries_.size() + static_cast<size_t>(experts);
    if (tensors <= kMaxExpertTensors) return absl::OkStatus();
    return absl::ResourceExhaustedError(FormattedString(
        "with the experts of tensor %s there are %d tensors, allowed: %d",
        Quoted(info.name), tensors, kMaxExpertTensors));
  }

  absl::Status CheckEven(const WeightInfo& info, int64_t outputs) const {
    if (outputs % 2 == 0) return absl::OkStatus();
    return absl::InvalidArgumentError(FormattedString(
        "tensor %s has %d outputs; gate and up must be of equal size",
        Quoted(info.name), outputs));
  }

  // Gate and up, or down: each a slice of `outputs` rows or columns.
  template <typename Make>
  absl::Status AddParts(const WeightInfo& info, const Fused& fused,
                        int64_t outputs, std::string_view suffix, Make make) {
    any_ = true;
    if (fused.gate_up) INLAY_RETURN_IF_ERROR(CheckEven(info, outputs));
    const int64_t n = fused.gate_up ? outputs / 2 : outputs;
    const int64_t step = fused.gate_up && is_gpt_oss_ ? 2 : 1;
    for (int64_t e = 0; e < info.shape[0]; ++e) {
      for (int64_t part = 0; part < (fused.gate_up ? 2 : 1); ++part) {
        constexpr std::string_view kParts[] = {"gate_proj", "up_proj"};
        SlicedTensor entry;
        entry.is_slice = true;
        entry.slice.stored = &info;
        entry.slice.expert = e;
        entry.slice.step = step;
        entry.slice.first = part * (step == 2 ? 1 : n);
        entry.info.name =
            FormattedString("%s%d.%s.%s", fused.prefix, e,
                            fused.gate_up ? kParts[part] : "down_proj", suffix);
        entry.info.dtype = info.dtype;
        make(e, n, entry);
        entries_.push_back(std::move(entry));
      }
    }
    return absl::OkStatus();
  }

  // Down's outputs and gate's inputs are hidden_size.
  bool ByInputs(const WeightInfo& info, const Fused& fused) const {
    if (hidden_size_ == 0 || info.shape.size() != 3) return by_inputs_;
    return info.shape[fused.gate_up ? 2 : 1] != hidden_size_;
  }

  absl::Status AddMatrices(const WeightInfo& info, const Fused& fused) {
    const bool by_inputs = ByInputs(info, fused);
    // Rows may be of blocks, columns not.
    INLAY_RETURN_IF_ERROR(Check(info,
                                by_inputs ? absl::MakeConstSpan(kElements)
                                          : absl::MakeConstSpan(&info.dtype, 1),
                                3));
    return AddSlices(info, fused, by_inputs, "weight");
  }

  absl::Status AddSlices(const WeightInfo& info, const Fused& fused,
                         bool by_inputs, std::string_view suffix) {
    const int64_t outputs = info.shape[by_inputs ? 2 : 1];
    const int64_t k = info.shape[by_inputs ? 1 : 2];
    return AddParts(info, fused, outputs, suffix,
                    [&](int64_t e, int64_t n, SlicedTensor& entry) {
                      if (by_inputs) {
                        entry.slice.layout = SliceLayout::kColumns;
                      } else {
                        entry.slice.first += e * outputs;
                      }
                      entry.info.shape = {n, k};
                      entry.info.bytes =
                          RowBytes(info.dtype, static_cast<size_t>(n * k));
                    });
  }

  // FP8's, one for an expert or for each block of it.
  absl::Status AddScales(const WeightInfo& info, const Fused& fused) {
    constexpr DType kCodes[] = {DType::kF8E4M3};
    INLAY_RETURN_IF_ERROR(Check(info, kFloats, 3));
    INLAY_ASSIGN_OR_RETURN(
        const WeightInfo* weight,
        StoredTensor(stored_,
                     info.name.substr(0, info.name.size() - kInverse.size()),
                     kCodes));
    INLAY_RETURN_IF_ERROR(Check(*weight, kCodes, 3));
    INLAY_RETURN_IF_ERROR(
        CheckShape(info, {weight->shape[0], info.shape[1], info.shape[2]}));
    if (info.shape[1] == 1 && info.shape[2] == 1) {
      // Gate and up have the same.
      return AddParts(info, fused, 2, "weight_scale_inv",
                      [&](int64_t e, int64_t, SlicedTensor& entry) {
                        entry.slice.first = e;
                        entry.info.shape = {1, 1};
                        entry.info.bytes = RowBytes(info.dtype, 1);
                      });
    }
    const bool by_inputs = ByInputs(*weight, fused);
    const int64_t outputs = weight->shape[by_inputs ? 2 : 1];
    const int64_t scales = std::max<int64_t>(1, info.shape[by_inputs ? 2 : 1]);
    const int64_t rows =
        scale_rows_ == 0 ? std::max<int64_t>(1, outputs / scales) : scale_rows_;
    if (fused.gate_up && (outputs % 2 != 0 || outputs / 2 % rows != 0)) {
      return absl::InvalidArgumentError(FormattedString(
          "tensor %s has blocks of %d rows that hold some of gate's and of "
          "up's, of %d together; allowed: a multiple of %d",
          Quoted(info.name), rows, outputs, 2 * rows));
    }
    return AddSlices(info, fused, by_inputs, "weight_scale_inv");
  }

  absl::Status AddStack(const WeightInfo& info, const Stack& stack) {
    INLAY_RETURN_IF_ERROR(Check(info, absl::MakeConstSpan(&info.dtype, 1),
                                stack.is_bias ? 2 : 3));
    any_ = true;
    for (int64_t e = 0; e < info.shape[0]; ++e) {
      SlicedTensor entry;
      entry.is_slice = true;
      entry.slice.stored = &info;
      entry.slice.first = e * info.shape[1];
      entry.info.name = FormattedString("%s%d.%s", stack.prefix, e, stack.rest);
      entry.info.dtype = info.dtype;
      entry.info.shape.assign(info.shape.begin() + 1, info.shape.end());
      entry.info.bytes = info.bytes / static_cast<uint64_t>(info.shape[0]);
      entries_.push_back(std::move(entry));
    }
    return absl::OkStatus();
  }

  // DBRX's and nomic's: experts' rows one after another, of w2 inputs by
  // outputs.
  absl::Status AddRowsOfExperts(const WeightInfo& info, size_t at,
                                const std::string& part) {
    INLAY_RETURN_IF_ERROR(StoredTensor(stored_, info.name, kElements).status());
    if (info.shape.size() != 2 || info.bytes == 0 ||
        info.shape[0] % row_experts_ != 0) {
      return absl::InvalidArgumentError(FormattedString(
          "tensor %s has shape [%s]; its rows must be a multiple of the %d "
          "experts",
          Quoted(info.name), absl::StrJoin(info.shape, ", "), row_experts_));
    }
    INLAY_RETURN_IF_ERROR(CheckCount(info, row_experts_));
    any_ = true;
    const int64_t width = info.shape[0] / row_experts_;
    const int64_t hidden = info.shape[1];
    for (int64_t e = 0; e < row_experts_; ++e) {
      SlicedTensor entry;
      entry.is_slice = true;
      entry.slice.stored = &info;
      entry.info.name = FormattedString("%s.experts.%d.%s.weight",
                                        info.name.substr(0, at), e, part);
      entry.info.dtype = info.dtype;
      entry.info.shape = {width, hidden};
      entry.slice.first = e * width;
      if (part == "w2") {
        entry.slice.layout = SliceLayout::kColumns;
        entry.slice.expert = e;
        entry.slice.first = 0;
        entry.info.shape = {hidden, width};
      }
      entry.info.bytes =
          RowBytes(info.dtype, static_cast<size_t>(width * hidden));
      entries_.push_back(std::move(entry));
    }
    return absl::OkStatus();
  }

  absl::Status AddBiases(const WeightInfo& info, const Fused& fused) {
    INLAY_RETURN_IF_ERROR(Check(info, kFloats, 2));
    const int64_t outputs = info.shape[1];
    return AddParts(info, fused, outputs, "bias",
                    [&](int64_t e, int64_t n, SlicedTensor& entry) {
                      entry.slice.first += e * outputs;
                      entry.info.shape = {n};
                      entry.info.bytes =
                          RowBytes(info.dtype, static_cast<size_t>(n));
                    });
  }

  absl::Status AddBlocks(const WeightInfo& info, const Fused& fused) {
    INLAY_RETURN_IF_ERROR(Check(info, kBytes, 4));
    std::string name = info.name;
    name.replace(name.size() - kMxBlocks.size(), kMxBlocks.size(), kMxScales);
    INLAY_ASSIGN_OR_RETURN(const WeightInfo* scales,
                           StoredTensor(stored_, name, kBytes));
    const int64_t outputs = info.shape[1];
    const int64_t blocks = info.shape[2];
    INLAY_RETURN_IF_ERROR(
        CheckShape(info, {info.shape[0], outputs, blocks, kMxBlock / 2}));
    INLAY_RETURN_IF_ERROR(
        CheckShape(*scales, {info.shape[0], outputs, blocks}));
    return AddParts(info, fused, outputs, "weight",
                    [&](int64_t e, int64_t n, SlicedTensor& entry) {
                      const int64_t k = blocks * kMxBlock;
                      entry.slice.layout = SliceLayout::kMxfp4;
                      entry.slice.scales = scales;
                      entry.slice.first += e * outputs;
                      entry.info.dtype = DType::kMXFP4;
                      entry.info.shape = {n, k};
                      entry.info.bytes =
                          RowBytes(DType::kMXFP4, static_cast<size_t>(n * k));
                    });
  }

  // Scales go with their blocks.
  absl::Status CheckBlocksOf(const WeightInfo& info) const {
    std::string name = info.name;
    name.replace(name.size() - kMxScales.size(), kMxScales.size(), kMxBlocks);
    return StoredTensor(stored_, name, kBytes).status();
  }

  const WeightSource& stored_;
  bool is_gpt_oss_;
  bool is_aria_;
  bool is_jetmoe_;
  bool is_step_;
  bool by_inputs_;  // matrices lie as inputs by outputs
  int64_t hidden_size_;
  int64_t scale_rows_;
  int64_t row_experts_;
  bool any_ = false;
  std::vector<SlicedTensor> entries_;
};

// ERNIE 4.5 VL's corrections: text's routers', then those of images.
bool IsOfTwoRouters(const WeightInfo& info) {
  return info.name.ends_with(".moe_statics.e_score_correction_bias") &&
         info.shape.size() == 2 && info.shape[0] == 2;
}

}  // namespace

absl::StatusOr<std::shared_ptr<const WeightSource>> PresentExperts(
    const Json& config, std::shared_ptr<const WeightSource> stored,
    std::string_view text) {
  INLAY_ASSIGN_OR_RETURN(const std::string type,
                         JsonString(config, "model_type", ""));
  int64_t hidden_size = 0;
  if (text == "qwen3_vl_moe_text") {
    INLAY_ASSIGN_OR_RETURN(hidden_size,
                           JsonInt(config, "hidden_size", 2048, 1, INT32_MAX));
  }
  const Json* settings = JsonFind(config, "quantization_config");
  const Json* block =
      settings == nullptr ? nullptr : JsonFind(*settings, "weight_block_size");
  int64_t rows = 0;
  if (block != nullptr && block->is_array() && !block->empty()) {
    // Whatever is wrong with it is said by who reads it (fp8.cc).
    const auto first = JsonInt(Json{{"rows", block->front()}}, "rows", 0, 1,
                               kMaxQuantizedColumns);
    rows = first.value_or(0);
  }
  int64_t row_experts = 0;
  if (type == "nomic_bert") {
    INLAY_ASSIGN_OR_RETURN(
        row_experts, JsonInt(config, "num_experts", 0, 0, kMaxStoredExperts));
  } else if (type == "dbrx") {
    const Json* ffn = JsonFind(config, "ffn_config");
    INLAY_ASSIGN_OR_RETURN(row_experts,
                           JsonInt(ffn == nullptr ? Json::object() : *ffn,
                                   "moe_num_experts", 4, 1, kMaxStoredExperts));
  }
  ExpertEntries entries(*stored, type, hidden_size, rows, row_experts);
  for (const WeightInfo& info : stored->weights()) {
    if (text == "ernie4_5_vl_moe_text" && IsOfTwoRouters(info)) {
      entries.AddFirstRow(info);
      continue;
    }
    INLAY_RETURN_IF_ERROR(entries.Add(info));
  }
  if (!entries.any()) return stored;
  return MakeSlicedSource(std::move(stored), std::move(entries).Take());
}

}  // namespace inlay
