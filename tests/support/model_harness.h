// ModelHarness: runs token sequences through a Model without an engine. It owns
// a poisoned, scattered KV cache and the block tables; sequences are fed in any
// chunks, alone or in one ragged batch.
#ifndef INLAY_TESTS_SUPPORT_MODEL_HARNESS_H_
#define INLAY_TESTS_SUPPORT_MODEL_HARNESS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/model/model.h"
#include "memory/device/device.h"

namespace inlay {

class ModelHarness {
 public:
  // Tokens to append to one sequence.
  struct Chunk {
    int sequence = 0;
    absl::Span<const int32_t> tokens;
    int64_t logits = -1;  // of so many of the last tokens; -1: of all
  };
  // [rows][vocab_size]; of an encoder its states, [rows][hidden_size].
  using Logits = std::vector<std::vector<float>>;

  // Room for `max_tokens` tokens of all sequences together. `model` and
  // `device` must outlive the harness.
  ModelHarness(const Model& model, Device& device, int64_t max_tokens);

  // `final_length`: see ForwardBatch::final_lengths.
  int AddSequence(int64_t final_length);
  int64_t Length(int sequence) const {
    return sequences_[static_cast<size_t>(sequence)].length;
  }

  // One Forward over all chunks; logits in the chunks' order.
  absl::StatusOr<Logits> Forward(absl::Span<const Chunk> chunks,
                                 LayerObserver* observer = nullptr);
  // Feeds `tokens` to `sequence`, at most `chunk` a Forward; logits of all.
  absl::StatusOr<Logits> Run(int sequence, absl::Span<const int32_t> tokens,
                             int64_t chunk, LayerObserver* observer = nullptr);
  // Continues greedily for `count` tokens after a prompt whose last logits are
  // `logits`.
  absl::StatusOr<std::vector<int32_t>> Greedy(int sequence,
                                              std::vector<float> logits,
                                              int count);

 private:
  struct Sequence {
    int64_t length = 0;
    int64_t final_length = 0;
    std::vector<std::vector<int32_t>> blocks;  // by group
  };

  // A chunk's tokens, laid out for Forward.
  struct Arrays {
    std::vector<int32_t> tokens, positions, rows, final_lengths;
    std::vector<std::vector<int64_t>> slots;  // by group
    std::vector<std::vector<AttentionSequence>> attention;
    std::vector<int32_t> state_sources;
    int64_t num_blocks = 0;
  };

  absl::Status Start();
  absl::StatusOr<int32_t> TakeBlock();
  // The state to read; what is written goes elsewhere.
  absl::Status LeaveState(Sequence& sequence, Arrays& arrays);
  absl::Status AddChunk(const Chunk& chunk, Arrays& arrays);
  // An allocation on the device, all ones.
  absl::StatusOr<Buffer> Poisoned(size_t bytes);
  // The batch's arrays on the device, where it needs that.
  absl::Status Upload(const Arrays& arrays, ForwardBatch& batch);
  absl::Status MakeExchange();
  absl::StatusOr<Logits> Run(const Arrays& arrays, ForwardBatch& batch);
  absl::StatusOr<Logits> States(const TensorView& hidden);

  const Model& model_;
  Device& device_;
  std::unique_ptr<Stream> stream_;
  int64_t num_blocks_ = 0;
  Buffer kv_;
  Buffer image_;
  Buffer exchange_;
  DeviceBatch device_batch_;
  std::vector<int32_t> free_blocks_;
  std::vector<Sequence> sequences_;
};

}  // namespace inlay

#endif  // INLAY_TESTS_SUPPORT_MODEL_HARNESS_H_
