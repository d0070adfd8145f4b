// Executor: a model on its device as steps use it: the stream, scratch, where
// batches are staged and where logits come back to. Knows no requests.
#ifndef INLAY_CORE_ENGINE_EXECUTOR_H_
#define INLAY_CORE_ENGINE_EXECUTOR_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/engine/device_sampler.h"
#include "core/model/model.h"
#include "memory/device/device.h"
#include "memory/device/thread_pool.h"

namespace inlay {

// One thread at a time.
class Executor {
 public:
  struct Limits {
    int64_t tokens = 0;  // of a step
    int64_t sequences = 0;
    // Entries of the block tables of all sequences that room is made for ahead;
    // a step with more has to find it.
    int64_t blocks = 0;
  };

  // `device`, `model` and `pool` (for host work where the device has no pool of
  // its own; otherwise null) must outlive it. The device's errors.
  static absl::StatusOr<std::unique_ptr<Executor>> Create(Device* device,
                                                          const Model* model,
                                                          ThreadPool* pool,
                                                          const Limits& limits);
  // Waits for what is under way.
  ~Executor();

  // How many rows of logits are in memory at once. A step with more takes them
  // in slices, so that scoring a long prompt needs no [prompt, vocab] matrix.
  // Enough that reading the output layer's weights again for each slice costs
  // less than the arithmetic on them.
  static constexpr int64_t kLogitSlice = 32;

  // The memory of recorded steps goes back; they are recorded again when they
  // recur.
  void DropGraphs() { graphs_.clear(); }

  // Whether Forward can sample, too.
  bool CanSample() const { return sampler_ != nullptr; }
  // Whether there is ForwardAhead(), and for how many tokens.
  bool CanGoAhead() const { return CanSample() && model_->CanBeFixed(); }
  // Launching matters less than computing beyond.
  static constexpr size_t kMostFixed = 512;

  // Queues a forward pass over `batch`, whose `device` and `hidden` are set
  // here. `num_blocks`: entries of the block tables of all its sequences, in
  // the group that has most. `sampling`, unless null (CanSample() and at most
  // limits.sequences rows): how the batch's logit rows are sampled, all of
  // them.
  absl::Status Forward(ForwardBatch batch, int64_t num_blocks,
                       const SampleBatch* sampling = nullptr);
  // Queues the pass that follows the one that samples, queued last, before the
  // host knows what that one chose: a token of each sequence, one logit row
  // each, whose ids are taken on the device: row sources[i] of the pass before
  // for token i (`batch.tokens` only counts). At most limits.sequences. Until
  // TakeAhead(), Tokens() are still those of the pass before.
  absl::Status ForwardAhead(ForwardBatch batch, int64_t num_blocks,
                            const SampleBatch& sampling,
                            absl::Span<const int32_t> sources);
  // The pass queued ahead is the last Forward now.
  void TakeAhead() { turn_ = NextTurn(); }
  // Waits for all that is queued.
  absl::Status Drain() { return stream_->Synchronize(); }
  // Logits [count, logit_width()], count <= kLogitSlice, of logit rows [begin,
  // begin + count) of the last Forward: waits for them. In host memory, the
  // caller's to change, valid until the next call. After a Forward that
  // samples they are computed anew. Not once a pass ahead was queued.
  absl::StatusOr<float*> Logits(int64_t begin, int64_t count);
  // Appends the hidden states of the same rows to `rows`, as float32; as many
  // as Forward was asked for. Waits for them.
  absl::Status Hidden(int64_t begin, int64_t count, std::vector<float>* rows);
  enum class PooledHead : uint8_t { kEmbedding, kLogits };  // Model's
  // What the head makes of `rows`, at most kLogitSlice of [hidden_size], one
  // after another: waits for it. Rows of hidden states are no longer there
  // then. Valid until the next call of this or Logits().
  absl::StatusOr<absl::Span<const float>> OfPooled(
      PooledHead head, absl::Span<const float> rows);
  // What the last Forward, which sampled, chose for each logit row (a code of
  // kernels/sample where there is no token): waits for it. Valid until the next
  // pass but one.
  absl::StatusOr<const int32_t*> Tokens();

  // Work among the step's.
  Stream& stream() { return *stream_; }
  // For work of the host's in a step.
  ThreadPool& pool() { return *pool_; }

 private:
  Executor(Device* device, const Model* model, const Limits& limits)
      : device_(device), model_(model), limits_(limits) {}
  absl::Status Allocate();
  absl::Status AllocateExchange();
  // A step at fixed addresses; the second of its limits is recorded.
  struct Recorded {
    bool warm = false;  // its kernels have run
    bool refused = false;
    std::unique_ptr<Graph> graph;
  };
  // Tokens, blocks, whether it samples; two bits for each of the batch's plans:
  // AttentionPlan::shares and few.
  using GraphKey = std::tuple<int64_t, int64_t, bool, uint64_t>;

  // What a pass under way has to itself. A turn's last pass is over before the
  // next begins: at most one is queued behind the one that computes.
  struct Turn {
    Buffer staging;  // the batch's image; empty as image_
    std::unique_ptr<StreamEvent> sampled;
  };
  int NextTurn() const { return (turn_ + 1) % DeviceSampler::kTurns; }

  bool IsDecode(const ForwardBatch& batch) const;
  // `rows`: logit rows, if they are sampled.
  absl::Status Upload(ForwardBatch& batch, const BatchLimits& limits,
                      const SampleBatch* sampling, int64_t rows, int turn);
  absl::Status Compute(const ForwardBatch& batch);
  // `sources`: ForwardAhead's, or empty.
  absl::Status ForwardFixed(ForwardBatch& batch, int64_t num_blocks,
                            const SampleBatch* sampling, int turn,
                            absl::Span<const int32_t> sources);
  // Queues the pass over an uploaded batch, as a graph once it has one.
  absl::Status Launch(const ForwardBatch& batch, const BatchLimits& limits,
                      bool samples);
  absl::Status ComputeLogits(int64_t begin, const TensorView& logits);
  absl::Status QueueLogits(int64_t begin, int64_t count);
  absl::Status QueueSampling(int64_t count);
  absl::Status QueueTokens(int64_t count, int turn);
  // Of the wider of the model's heads.
  int64_t head_width() const {
    return std::max(model_->info().logit_width(), model_->info().pooled_width);
  }
  TensorView LogitRows(int64_t count) const {
    return HeadRows(count, model_->info().logit_width());
  }
  TensorView HeadRows(int64_t count, int64_t width) const {
    return MatrixView(logits_.data(), DType::kF32, count, width);
  }
  absl::Status ReserveImage(size_t bytes);

  Device* device_;
  const Model* model_;
  const Limits limits_;
  ThreadPool* pool_ = nullptr;
  std::unique_ptr<Stream> stream_;
  Buffer workspace_;
  TensorView hidden_;  // [limits.tokens, hidden_size]
  Buffer hidden_memory_;
  Buffer exchange_;  // DeviceBatch::exchange; may be empty
  int64_t logit_rows_ = kLogitSlice;
  Buffer logits_;  // [logit_rows_, head_width()] float32
  // [kLogitSlice, head_width()]; empty where the host reads logits_.
  Buffer host_logits_;
  std::unique_ptr<DeviceSampler> sampler_;  // null: the host samples
  std::array<Turn, DeviceSampler::kTurns> turns_;
  int turn_ = 0;  // of the last Forward
  // The batch's image on the device, from options_room_ on; before it, ending
  // there, the sampler's. Empty where kernels read the host's arrays.
  Buffer image_;
  size_t options_room_ = 0;
  DeviceBatch device_batch_;
  std::map<GraphKey, Recorded> graphs_;  // of addresses in image_
  bool logits_queued_ = false;           // of all rows of the last Forward
};

}  // namespace inlay

#endif  // INLAY_CORE_ENGINE_EXECUTOR_H_
