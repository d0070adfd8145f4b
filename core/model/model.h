// Model: a loaded network that turns a ragged batch of tokens into logits,
// reading and writing a paged KV cache. Knows nothing of sessions, scheduling
// or text.
#ifndef INLAY_CORE_MODEL_MODEL_H_
#define INLAY_CORE_MODEL_MODEL_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/model/device_batch.h"
#include "kernels/attention/attention.h"
#include "kernels/moe/expert_fetch.h"
#include "memory/device/device.h"
#include "memory/kv/kv_layout.h"

namespace inlay {

// The weights of a model's experts, shared ones left out.
struct ExpertMemory {
  uint64_t bytes = 0;       // of all
  uint64_t slot_bytes = 0;  // of one in each layer
  int least_slots = 0;      // experts that one token goes to in a layer
  // Of each layer's experts the device has so many at a time, the others lie in
  // host memory; 0: it has all.
  int slots = 0;
  uint64_t device_bytes = 0;
  uint64_t host_bytes = 0;
};

struct ModelInfo {
  std::string
      architecture;  // as config.json spells it, for example "LlamaForCausalLM"
  std::string model_type;
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  // Of the residual stream between layers: as many times hidden_size as there
  // are streams.
  int64_t stream_width = 0;
  int num_layers = 0;
  int64_t max_positions = 0;  // the longest sequence the model takes
  std::vector<KvLayerShape> kv_layers;
  uint64_t num_parameters = 0;
  uint64_t weight_bytes = 0;  // bytes of all weights as stored
  uint64_t weight_bytes_per_token =
      0;  // bytes a decode step at batch 1 must read
  ExpertMemory experts;
  // Sequences of at most this many positions and longer ones rotate their keys
  // differently, so that neither can use the other's KV (see
  // ForwardBatch::final_lengths); 0: no such distinction.
  int64_t rope_threshold = 0;
  // Of ForwardBatch::hidden.
  DType hidden_dtype = DType::kF32;
  // Tokens see those after them too: a sequence has to be computed in one
  // Forward, no KV of one serves another, and logits are those of labels.
  bool is_encoder = false;
  // There is no head, and no encoder either: a sequence's states are all there
  // is.
  bool is_headless = false;
  // Kinds of tokens that a batch may tell apart (ForwardBatch::segments); 0 or
  // 1: it need not.
  int64_t num_segments = 0;
  // Keys that a query sees at most where layers share what one has selected
  // (LayerRange::selection); 0: none do.
  int64_t shared_selection = 0;
  // Numbers that each token's layers read of what the first layer made
  // (LayerRange::first_values); 0: none do.
  int64_t first_values = 0;
  // Of an encoder's head; 0: it has none, and there are no logits.
  int64_t num_labels = 0;
  // The head's input is the mean of the tokens' states, not the first one's.
  bool labels_of_mean = false;
  // Of Model::Pooled; 0: it has nothing to do.
  int64_t pooled_width = 0;

  // Logits that Model::Logits gives of a row.
  int64_t logit_width() const {
    return is_encoder ? num_labels : is_headless ? 0 : vocab_size;
  }
};

// Called after each layer with the residual stream of the batch [tokens,
// stream_width], float32, in host memory; for tests and debugging.
class LayerObserver {
 public:
  virtual ~LayerObserver() = default;
  virtual void OnLayer(int layer, TensorView hidden) = 0;
};

// Told what each linear layer that a model was loaded for reads, in its order,
// on the thread of Forward: calibration. Layers that read the same input are
// told of apart.
class InputObserver {
 public:
  virtual ~InputObserver() = default;
  // `layer`: the name of the layer's tensors without ".weight". `x`: [tokens,
  // inputs] float32 in host memory, good during the call.
  virtual void OnInput(std::string_view layer, const TensorView& x) = 0;
};

// A part of the network, the residual stream in the caller's hands.
struct LayerRange {
  int first = 0;
  int count = 0;
  // [tokens, stream_width] float32, on the device: in and out. Layer 0 begins
  // with the embedding, whatever is in it.
  TensorView hidden;
  // [tokens, ModelInfo::shared_selection]: what the last layer that selects has
  // selected, in and out. Null: none is shared with layers of other ranges.
  int32_t* selection = nullptr;
  // [tokens, ModelInfo::first_values], of hidden_dtype: layer 0 writes them,
  // the others read them. Null: they are not shared with layers of other
  // ranges.
  std::byte* first_values = nullptr;
};

// One step's work. All spans belong to the caller and stay valid during
// Forward. Layers of different groups (KvLayout::groups) have KV in different
// blocks: what speaks of blocks is there once a group, one after another.
struct ForwardBatch {
  absl::Span<const int32_t>
      tokens;  // [t], each in [0, vocab_size): checked by the caller
  absl::Span<const int32_t> positions;  // [t], each in [0, max_positions)
  // [t], each in [0, num_segments); empty: all 0.
  absl::Span<const int32_t> segments;
  absl::Span<const int64_t>
      slots;  // [groups][t], where K and V of the token go: block * the
              // group's block_size + offset
  // [groups][sequences], cover all tokens, in order; only `blocks` differs
  // between groups.
  absl::Span<const AttentionSequence> sequences;
  size_t num_groups = 1;  // the layout's
  // [sequences]: of the states' group, the block with the state before the
  // first token here, -1 before any token; empty where no layer has states. It
  // is not written to, so it is none of those that these tokens' states go to.
  absl::Span<const int32_t> state_sources;
  // [sequences]: the length each sequence is to reach in all (prompt and
  // longest generation); it only matters on which side of
  // ModelInfo::rope_threshold it lies, and that must not change as long as KV
  // of the sequence is reused. Empty: kv_len.
  absl::Span<const int32_t> final_lengths;
  absl::Span<const int32_t>
      logit_rows;  // tokens whose logits are wanted, ascending
  KvBase kv_base;  // the KV cache
  // The same where kernels can read it, which PackBatch() has made and the
  // caller has queued for copying on the stream; null on CPU.
  const DeviceBatch* device = nullptr;
  // Out: [logit_rows, hidden_size] of ModelInfo::hidden_dtype, what Logits()
  // takes: the residual stream of those tokens after the final norm.
  TensorView hidden;
  LayerObserver* observer = nullptr;  // may be null
  // Null: the whole network. Otherwise these layers, and what follows them
  // (logit_rows to `hidden`) with the last one only.
  const LayerRange* layers = nullptr;

  const int64_t* SlotsOf(size_t group) const {
    return slots.data() + group * tokens.size();
  }
  absl::Span<const AttentionSequence> SequencesOf(size_t group) const {
    const size_t count = sequences.size() / num_groups;
    return sequences.subspan(group * count, count);
  }
};

// Immutable after loading. Forward may run on one thread at a time per
// workspace.
class Model {
 public:
  virtual ~Model() = default;
  virtual const ModelInfo& info() const = 0;
  virtual const KvLayout& kv_layout() const = 0;
  // Scratch for one Forward of at most `max_tokens` tokens of at most
  // `max_sequences` sequences, or one Logits of at most `max_logit_rows` rows.
  virtual size_t WorkspaceBytes(int64_t max_tokens, int64_t max_logit_rows,
                                int64_t max_sequences) const = 0;
  size_t WorkspaceBytes(int64_t max_tokens, int64_t max_logit_rows) const {
    return WorkspaceBytes(max_tokens, max_logit_rows, max_tokens);
  }
  // What kernels keep with a stream: before the first Forward on it.
  virtual absl::Status Prepare(Stream& stream) const = 0;
  // For devices that cannot read the host's arrays (others: 0 bytes, and
  // PackBatch is not called). The image of `batch`, which is within `limits`,
  // is written to `image`, host memory of BatchImageBytes(limits) bytes, to be
  // copied to `device`, both 64-byte aligned; it serves one Forward.
  virtual size_t BatchImageBytes(const BatchLimits& limits) const = 0;
  virtual absl::StatusOr<DeviceBatch> PackBatch(const ForwardBatch& batch,
                                                const BatchLimits& limits,
                                                std::byte* image,
                                                std::byte* device) const = 0;
  // What kernels hand from step to step on one stream: device memory that is
  // zeros at first, DeviceBatch::exchange of all its steps. 0: none.
  virtual size_t ExchangeBytes() const { return 0; }
  // Whether steps of one token a sequence may be recorded once and replayed
  // (BatchLimits::fixed).
  virtual bool CanBeFixed() const = 0;
  // Allocates nothing. Errors are device errors; the KV of the batch's tokens
  // is then undefined.
  virtual absl::Status Forward(const ForwardBatch& batch,
                               absl::Span<std::byte> workspace,
                               Stream& stream) const = 0;
  // logits [rows, logit_width()] float32 of rows of ForwardBatch::hidden; a
  // call of its own, so that callers need room for few rows at a time. A row's
  // logits do not depend on the others.
  virtual absl::Status Logits(TensorView hidden, TensorView logits,
                              absl::Span<std::byte> workspace,
                              Stream& stream) const = 0;
  // y [rows, pooled_width] float32 of pooled states, rows like those of
  // ForwardBatch::hidden; the workspace is one for Logits of as many rows.
  // FAILED_PRECONDITION where pooled_width is 0.
  virtual absl::Status Pooled(TensorView hidden, TensorView y,
                              absl::Span<std::byte> workspace,
                              Stream& stream) const = 0;
  // Has pages of the files that weights lie in leave the process's memory, some
  // from byte `*at` of all files on, which moves on; they come back where they
  // are read again. False: none are left.
  virtual bool LeaveSomePages(uint64_t* /*at*/) const { return false; }
  // What steps so far found of the experts they needed, over all layers whose
  // experts lie in host memory (`steps` is theirs too); waits for the stream.
  // For tests and measurements.
  virtual absl::StatusOr<ExpertFetchCounts> ReadExpertCounts(Stream&) const {
    return ExpertFetchCounts();
  }
};

}  // namespace inlay

#endif  // INLAY_CORE_MODEL_MODEL_H_
