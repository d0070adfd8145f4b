// Calibration: token sequences on their way through a model, a layer at a time,
// and what the linear layers read meanwhile. Knows no formats and no files.
#ifndef INLAY_CORE_QUANTIZE_CALIBRATION_H_
#define INLAY_CORE_QUANTIZE_CALIBRATION_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/formats/model_files.h"
#include "core/model/expert_lender.h"
#include "core/model/model.h"
#include "core/quantize/hessian.h"
#include "core/text/tokenizer.h"
#include "memory/device/device.h"

namespace inlay {

using TokenSequences = std::vector<std::vector<int32_t>>;

// Each text from its start, special tokens read and added, cut into sequences
// of at most `length` tokens, one shorter than 2 left out, until there are
// `most` tokens. INVALID_ARGUMENT where nothing comes of it.
absl::StatusOr<TokenSequences> CalibrationSequences(
    const Tokenizer& tokenizer, absl::Span<const std::string> texts,
    int64_t length, int64_t most);

// By the name of the first linear layer that reads the input.
using Hessians = std::map<std::string, Hessian, std::less<>>;

// Keeps the residual stream of all sequences: 4 * hidden_size bytes a token,
// twice that of one sequence, and the KV of one in all layers; of all sequences
// where layers read the keys and values of others. Where layers see what others
// have selected, 4 bytes for each token and key that it sees. Float32. All of
// it, and the model, is memory of the device, within its budget.
class Calibration : private InputObserver {
 public:
  // Told one more sequence is past a layer; false cancels.
  using Progress = std::function<bool()>;

  // `files.weights` is there. The device is a CPU; it and the stream must
  // outlive this. INVALID_ARGUMENT for tokens beyond the vocabulary and
  // sequences that are empty or beyond the model's positions; errors of
  // LoadModel.
  static absl::StatusOr<std::unique_ptr<Calibration>> Create(
      const ModelFiles& files, TokenSequences sequences, Device& device,
      Stream& stream, Progress progress);

  int num_layers() const { return model_->info().num_layers; }
  int64_t longest() const { return longest_; }  // sequence, tokens
  // Of the device, what Advance takes while it runs.
  uint64_t advance_bytes() const;
  int64_t num_tokens() const { return num_tokens_; }

  // What `layer`, the next one, reads, added to those of `hessians` that have
  // its names. `advance`: moves on past the layer. Past the last layer: the
  // head's input, under `head`.
  absl::Status Collect(int layer, bool advance, Hessians* hessians);
  absl::Status CollectHead(std::string_view head, Hessians* hessians);
  // Moves on past `layer` with other weights, which are float32 or as the
  // model's are. `lender`: has those of its experts that are not loaded; may be
  // null.
  absl::Status Advance(int layer, std::shared_ptr<const WeightSource> weights,
                       ExpertLender* lender = nullptr);

 private:
  struct Sequence {
    std::vector<int32_t> tokens;
    Buffer hidden;                             // [tokens, hidden_size] f32
    std::vector<std::vector<int32_t>> blocks;  // by group
    // [tokens, ModelInfo::shared_selection] i32, of the last layer that
    // selects.
    Buffer selection;
    Buffer first_values;  // [tokens, ModelInfo::first_values] f32
  };

  Calibration(const ModelFiles& files, Device& device, Stream& stream,
              Progress progress);
  absl::Status CheckSequences(const TokenSequences& sequences) const;
  absl::StatusOr<Buffer> Values(int64_t count);  // of 4 bytes, zeros
  absl::Status Allocate(bool keeps_kv);
  // Runs `count` layers of a sequence on `hidden`.
  absl::Status Run(const Model& model, int layer, int count, Sequence& sequence,
                   float* hidden);
  absl::Status Report() const;
  void OnInput(std::string_view layer, const TensorView& x) override;

  ModelFiles files_;
  Device& device_;
  Stream& stream_;
  Progress progress_;
  std::unique_ptr<Model> model_;
  std::vector<Sequence> sequences_;
  int64_t num_tokens_ = 0;
  int64_t longest_ = 0;  // sequence, tokens
  Buffer scratch_;       // [longest, hidden_size] f32
  Buffer output_;        // the same: the head's input
  Buffer kv_;
  Buffer workspace_;
  // While collecting.
  Hessians* hessians_ = nullptr;
  absl::Status observed_;
};

}  // namespace inlay

#endif  // INLAY_CORE_QUANTIZE_CALIBRATION_H_
