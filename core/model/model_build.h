// What building a model draws on: the weights, the choice of kernels, the KV
// cache's format. Lives as long as the building.
#ifndef INLAY_CORE_MODEL_MODEL_BUILD_H_
#define INLAY_CORE_MODEL_MODEL_BUILD_H_

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "core/formats/embedding_config.h"
#include "core/model/model.h"
#include "core/model/weights.h"
#include "kernels/attention/attention_pattern.h"
#include "kernels/attention/attention_plan.h"
#include "kernels/attention/biased_attention.h"
#include "kernels/block_selection/block_selection.h"
#include "kernels/dispatch.h"
#include "memory/device/device.h"
#include "memory/dtype.h"

namespace inlay {

class ExpertLender;
class InputObserver;
struct DecoderSpec;
struct GateRuns;
struct NarrowRuns;
struct RelativeTable;

// Names of the ops a model calls, as ModelLoadOptions::forced_kernels keys.
inline constexpr std::string_view kOpNames[] = {
    "activation",
    "altup_add",
    "altup_correct",
    "altup_predict",
    "attention",
    "biased_attention",
    "block_indexer",
    "block_selection",
    "block_summary",
    "columns",
    "decode_attention",
    "decode_delta",
    "decode_mamba",
    "disentangled_attention",
    "elementwise",
    "embedding",
    "expanded_attention",
    "expert_columns",
    "expert_fetch",
    "expert_linear",
    "fused_linear",
    "gated_norm",
    "gemm",
    "hyper_mix",
    "hyper_spread",
    "indexer",
    "kv_compress",
    "kv_select",
    "kv_write",
    "layer_norm",
    "linear_attention",
    "linear_chain",
    "match_magnitude",
    "moe_combine",
    "moe_identity",
    "moe_router",
    "moe_routing",
    "rg_lru",
    "rms_norm",
    "rope",
    "rope_kv",
    "rounding",
    "selective_scan",
    "short_conv",
    "sparse_gate",
    "state_gates",
    "wkv7",
    "xielu",
};

// An op with its kernel chosen.
template <typename Desc, typename Params>
struct Op {
  Desc desc;
  const KernelRow<Desc, Params>* row = nullptr;

  absl::Status Run(const Params& params, Stream& stream) const {
    return row->run(desc, params, stream);
  }
  size_t WorkspaceBytes(int64_t max_rows) const {
    return row->workspace_bytes == nullptr
               ? 0
               : row->workspace_bytes(desc, max_rows);
  }
};

class KernelChooser {
 public:
  const DeviceInfo& device() const { return device_; }

  KernelChooser(const DeviceInfo& device,
                std::map<std::string, std::string, std::less<>> forced)
      : device_(device), forced_(std::move(forced)) {}

  bool IsForced(std::string_view op) const { return forced_.contains(op); }

  // `preferred`: the row to take where none is forced; empty: the first.
  template <typename Desc, typename Params>
  absl::StatusOr<Op<Desc, Params>> Choose(
      std::string_view op, absl::Span<const KernelRow<Desc, Params>> table,
      const Desc& desc, std::string_view preferred = {}) const {
    const auto found = forced_.find(op);
    const std::string_view name =
        found == forced_.end() ? preferred : found->second;
    auto row = Select(op, table, desc, device_, name);
    if (!row.ok()) return std::move(row).status();
    return Op<Desc, Params>{desc, *row};
  }

 private:
  DeviceInfo device_;
  std::map<std::string, std::string, std::less<>> forced_;
};

// A way to cut attention, and the KV group whose blocks it is made for.
struct AttentionCut {
  AttentionPlanShape shape;
  size_t kv_group = 0;
  int chunk = 0;         // AttentionSpec::chunk
  bool pattern = false;  // by ModelBuild::attention_pattern
  // Index into ModelBuild::reaches of the window that limits it both ways; -1:
  // none does.
  int reach = -1;
  // ALiBi, or AttentionSpec::distance_bias or relative
  bool bias = false;
  // KeepWantedQueries. Such plans are empty in steps that leave out nothing, or
  // everything.
  bool wanted = false;

  bool operator==(const AttentionCut&) const = default;
};

struct ModelBuild {
  WeightLoader& weights;
  const KernelChooser& kernels;
  // Of what layers hand on inside a block; the residual stream is f32.
  DType activation = DType::kF32;
  DType kv_dtype = DType::kF32;
  int kv_block_size = 16;
  bool fused = true;                   // ModelLoadOptions
  bool batch_invariant = false;        // as ModelLoadOptions
  bool round_inputs = true;            // as ModelLoadOptions
  AttentionPattern attention_pattern;  // as ModelLoadOptions
  bool has_pattern = false;            // an attention block built so far does
  // Windows of attention blocks that are not causal, built so far, each once
  // (AttentionMaskSpec::reach).
  std::vector<int32_t> reaches;
  // Tables of AttentionSpec::distance_bias that attention blocks built so far
  // have, by their tensors' names.
  std::map<std::string, ScoreBias> distance_biases;
  // The same of AttentionSpec::relative.
  std::map<std::string, std::shared_ptr<const RelativeTable>> relative_tables;
  // Of attention blocks built so far whose outputs are gated,
  std::vector<std::shared_ptr<const GateRuns>> gate_runs;
  // ... and whose values are narrower than keys.
  std::vector<std::shared_ptr<const NarrowRuns>> narrow_runs;
  BlockSelectionOptions block_selection;  // as ModelLoadOptions
  int64_t max_positions = 0;              // of the model, once that is known
  // The files say that tokens see those after them, too (embedder.h).
  bool sees_both_ways = false;
  bool is_bare = false;            // IsBareNetwork()
  std::vector<DenseModule> dense;  // EmbeddingDefaults
  // For ModelInfo.
  std::string architecture;
  std::string model_type;
  // Of the attention blocks built so far, each once.
  std::vector<AttentionCut> cuts;
  // Bytes of weights that a decode step at batch 1 leaves alone, so far: of the
  // experts that one token does not go to.
  uint64_t idle_bytes = 0;

  // Of a layer's experts the device keeps so many; 0: all.
  int expert_slots = 0;
  // Of the layers built so far.
  ExpertMemory experts;
  std::vector<const ExpertFetchCounts*> expert_counts;  // on the device

  // ModelLoadOptions.
  InputObserver* input_observer = nullptr;
  ExpertLender* expert_lender = nullptr;
  // Gets what BuildDecoder was asked for; may be null.
  DecoderSpec* described = nullptr;

  // The place of `window` in `reaches`.
  int AddReach(int32_t window) {
    const auto found = std::find(reaches.begin(), reaches.end(), window);
    const auto place = static_cast<int>(found - reaches.begin());
    if (found == reaches.end()) reaches.push_back(window);
    return place;
  }
  bool on_cpu() const { return kernels.device().kind == DeviceKind::kCpu; }
  // Not on CPU: the place in `cuts` of the way to cut attention that `cut`
  // becomes where batches must not matter.
  size_t AddCut(AttentionCut cut) {
    if (batch_invariant) {
      // One kernel for prompts and single tokens.
      cut.shape.prefix_units = 0;
      if (!cut.pattern && cut.reach < 0 && !cut.bias) {
        cut.shape.piece_keys = AttentionPieceKeys(cut.shape);
      }
      if (cut.shape.piece_keys == 0) {
        cut.shape.tile_tokens = 0;
        cut.shape.batch_invariant = true;
        cut.shape.whole_rows = true;
      }
    }
    const auto found = std::find(cuts.begin(), cuts.end(), cut);
    const auto place = static_cast<size_t>(found - cuts.begin());
    if (found == cuts.end()) cuts.push_back(cut);
    return place;
  }
};

}  // namespace inlay

#endif  // INLAY_CORE_MODEL_MODEL_BUILD_H_
