// CalibratedLayers: the methods that need calibration, tensor by tensor as a
// file is written: importance (the diagonal of H), GPTQ, AWQ, SmoothQuant. Owns
// the course of calibration through the layers; knows no files.
#ifndef INLAY_CORE_QUANTIZE_CALIBRATED_LAYERS_H_
#define INLAY_CORE_QUANTIZE_CALIBRATED_LAYERS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "absl/status/statusor.h"
#include "core/model/decoder_spec.h"
#include "core/quantize/awq.h"
#include "core/quantize/calibration.h"
#include "core/quantize/gptq.h"
#include "core/quantize/linear_inputs.h"
#include "core/quantize/output_error.h"
#include "core/quantize/overlay_weights.h"
#include "core/quantize/row_writer.h"

namespace inlay {

enum class QuantizeMethod : uint8_t {
  kNearest,
  kImportance,
  kGptq,
  kAwq,
  kSmoothQuant
};

inline constexpr uint64_t kDefaultExpertBytes = uint64_t{4} << 30;

struct MethodOptions {
  QuantizeMethod method = QuantizeMethod::kNearest;
  bool act_order = false;  // GPTQ: inputs of largest squares first
  float smoothing = 0.5f;  // SmoothQuant's alpha (smooth_quant.h)
  // Bytes that are kept of one layer's experts at a time: their Hessians, and
  // once those are gone, with GPTQ, their matrices in float32; one of either
  // has room whatever this is. Other Hessians are collected when their turn
  // comes, by running the layer again; other matrices are decoded whenever a
  // sequence needs them, from the blocks that are written. Files are the same
  // to the bit.
  uint64_t expert_bytes = kDefaultExpertBytes;
  // Bytes that all of this may take beside what Calibration holds, at least
  // CalibratedLayers::LeastRoom(); 0: no limit. With one, Hessians of whatever
  // layers wait for room as experts' do, and AWQ keeps none for its report.
  uint64_t room = 0;
};

// A tensor's outputs, against those of the stored weights: root mean squares of
// the differences relative to the outputs', of some rows of each band; with the
// importance alone inputs are taken for independent.
struct MethodReport {
  bool used = false;
  double output_error = 0.0;
  double nearest_error = 0.0;  // of rounding to nearest
  // Of experts: how many tokens of calibration went to each.
  std::vector<int64_t> expert_tokens;
};

// Tokens that a mean of squares wants.
inline constexpr int64_t kMeanTokens = 128;

// What a report is made of: sums over the parts of a file's tensor.
struct MethodSums {
  bool used = false;
  double outputs = 0.0;  // squares
  double errors = 0.0;
  double nearest_errors = 0.0;
  double seconds = 0.0;  // without the calibration
  std::vector<int64_t> expert_tokens;

  MethodReport Report() const;
};

class CalibratedLayers : private RowMethod {
 public:
  struct Tensor {
    const WeightInfo* info = nullptr;
    DType to = DType::kF32;
    const GroupScheme* scheme = nullptr;  // of `to`; null: its grid's
    // Whether what is written has rows of it, not turned or sorted.
    bool by_rows = true;
  };
  // Whether the method does anything to a linear layer's matrix.
  static bool Serves(QuantizeMethod method, const Tensor& tensor);
  // By published name; finds what is to become of a tensor, null of one that is
  // not written.
  using FindTensor = std::function<const Tensor*(const std::string& name)>;

  // All must outlive this. `spec` is that of calibration's model.
  CalibratedLayers(const DecoderSpec& spec, const MethodOptions& options,
                   std::shared_ptr<const WeightSource> weights,
                   std::unique_ptr<Calibration> calibration, FindTensor find,
                   Stream& stream);

  // The least that MethodOptions::room can be: the sums of a layer with one
  // Hessian, and with GPTQ its matrices in float32. Before Start.
  uint64_t LeastRoom();
  void set_room(uint64_t bytes) { options_.room = bytes; }

  // Tensors come in the order in which the model asks for them. What to write
  // rows of `name` with, as `target` says, until Finish; null: nothing special.
  // Goes on to the tensor's layer, which takes the time of calibration.
  // `otherwise`: who rounds to nearest; null: the format's encoder.
  absl::StatusOr<RowMethod*> Start(const std::string& name,
                                   const Tensor& target,
                                   const RowReader& reader,
                                   RowMethod* otherwise);
  // Adds what became of it.
  void Finish(MethodSums* sums);
  // Of the input that the tensor of Start reads, the largest magnitude; 0 where
  // it is no layer that is written in blocks.
  float LargestInput() const;

 private:
  // Where a tensor stands in the network, each part if it has it.
  struct Place {
    int layer = 0;
    const LinearSpec* spec = nullptr;  // of a linear layer that is rounded
    int reads = -1;                    // the input that it reads
    int keeps = -1;      // the input that it reads without being rounded
    int scaled_by = -1;  // the input whose scales divide its rows
    bool zero_centred = false;
  };
  struct Input {
    LinearInput linear;
    int64_t tokens = 0;  // of calibration that it had
    // These with what makes up for tokens that an expert did not have.
    std::vector<float> diagonal;
    std::vector<float> sizes;    // mean |x|
    std::vector<float> largest;  // |x|
    std::optional<Hessian> hessian;
    std::optional<InputFactor> factor;
    // Of AWQ and SmoothQuant; empty: none. Rows of a common input have its.
    std::vector<float> scales;
  };

  static int64_t NowUs();
  bool is(QuantizeMethod method) const { return options_.method == method; }
  // Leaves rounding to whoever does it.
  static bool IsToNearest(QuantizeMethod method) {
    return method == QuantizeMethod::kNearest ||
           method == QuantizeMethod::kSmoothQuant;
  }
  bool to_nearest() const { return IsToNearest(options_.method); }
  // Columns are multiplied and what gives the inputs is divided.
  bool scales() const {
    return is(QuantizeMethod::kAwq) || is(QuantizeMethod::kSmoothQuant);
  }
  void MapLayer(int layer, const std::vector<LinearInput>& inputs);
  bool IsQuantized(const std::string& name) const;
  absl::Status Enter(int layer);
  bool is_head() const {
    return layer_ + 1 == static_cast<int>(layers_.size());
  }
  // Layers that read it, or rows of it.
  std::vector<const LinearSpec*> ReadersOf(const Input& input) const;
  const std::vector<float>& ScalesOf(const Input& input) const {
    const int common = input.linear.common;
    return common < 0 ? input.scales
                      : inputs_[static_cast<size_t>(common)].scales;
  }
  // What is known of inputs: calibrated_inputs.cc.
  bool IsWanted(const Input& input) const;
  bool NeedsMatrix(const Input& input) const;
  // Goes on past the layer where all that is needed has room.
  absl::Status Collect(bool* goes_on);
  // Whole Hessians of inputs that wait for room from `first` on, and no others
  // of such.
  absl::Status CollectFrom(size_t first);
  absl::Status Take(Hessian hessian, const Hessian* common, Input* input) const;
  absl::Status NeedFactor(Input& input);
  // What they take: calibrated_room.cc.
  bool is_limited() const { return options_.room > 0; }
  // Whether its Hessian waits for room; others have it.
  bool MayWait(const Input& input) const {
    return is_limited() || input.linear.is_experts;
  }
  static uint64_t MatrixBytes(const Input& input);
  // Of the Hessian that it has rows of.
  uint64_t CommonBytes(const Input& input) const;
  // Of matrices as the next layers' inputs want them (KeepRows).
  uint64_t KeptBytes(const Input& input) const;
  // Of the layer, but for Hessians.
  uint64_t FixedBytes() const;
  // Of inputs that wait, from `first` on, those whose Hessians have room.
  std::vector<size_t> WithRoom(size_t first) const;
  // For matrices in float32 beside those that are kept.
  uint64_t LentBytes() const;
  // Scales that leave the network what it is: calibrated_scales.cc.
  bool CanScale(const Input& input) const;
  absl::Status Scale(Input& input);
  absl::Status SearchScales(Input& input);
  absl::Status Smooth(Input& input);
  absl::Status KeepToNorm(Input& input);
  // Of each of so many layers, that AWQ's search looks at.
  static int64_t SampledRows(size_t layers);
  absl::StatusOr<AwqReader> SampleRows(const LinearSpec& reader,
                                       int64_t most) const;
  absl::StatusOr<RowReader> ReadLayer(const LinearSpec& reader) const;
  // Where the rows to come are kept for the layers behind.
  absl::Status KeepRows(const WeightInfo& info);

  void Change(int64_t first, int64_t rows, float* values) override;
  bool encodes() const override { return reads_ != nullptr; }
  bool wants_largest() const override {
    return otherwise_ != nullptr && otherwise_->wants_largest();
  }
  void SetLargest(float largest) override { otherwise_->SetLargest(largest); }
  int64_t rows_together() const override {
    return otherwise_ == nullptr ? 1 : otherwise_->rows_together();
  }
  absl::Status Encode(int64_t rows, const float* values,
                      std::byte* encoded) override;
  absl::Status EncodeNearest(int64_t rows, const float* values,
                             std::byte* encoded);
  absl::Status Note(int64_t first, int64_t rows, const float* values,
                    const std::byte* encoded, const float* decoded) override;
  // Keeps the rows in done_.
  void Keep(int64_t first, int64_t rows, const std::byte* encoded,
            const float* decoded);
  absl::Status AddErrors(int64_t rows, const float* values,
                         const float* decoded);

  LinearSpec head_;
  MethodOptions options_;
  std::shared_ptr<const WeightSource> weights_;
  std::unique_ptr<Calibration> calibration_;
  FindTensor find_;
  Stream& stream_;
  std::vector<std::vector<LinearInput>> layers_;  // the last: the head's
  std::unordered_map<std::string, Place> places_;

  int layer_ = -1;
  std::vector<Input> inputs_;  // of layer_
  // What became of its matrices, by the source's names.
  std::map<std::string, OverlayWeights::Matrix> done_;

  // Of the tensor under way.
  RowMethod* otherwise_ = nullptr;
  Input* reads_ = nullptr;
  Input* scaled_by_ = nullptr;
  const std::vector<float>* columns_ = nullptr;  // their scales, if there are
  Place place_;
  const BlockCodec* codec_ = nullptr;
  const GroupScheme* scheme_ = nullptr;
  const RowReader* reader_ = nullptr;
  OverlayWeights::Matrix* matrix_ = nullptr;
  std::optional<GptqEncoder> gptq_;
  MethodSums sums_;
  int64_t started_us_ = 0;
};

}  // namespace inlay

#endif  // INLAY_CORE_QUANTIZE_CALIBRATED_LAYERS_H_
