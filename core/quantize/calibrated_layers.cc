#include "core/quantize/calibrated_layers.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "kernels/quant/grid.h"
#include "memory/device/thread_pool.h"
#include "memory/status.h"

namespace inlay {
namespace {

constexpr std::string_view kBias = ".bias";

}  // namespace

int64_t CalibratedLayers::NowUs() {
  return std::chrono::duration_cast<std::chrono::microseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

MethodReport MethodSums::Report() const {
  MethodReport report;
  report.used = used;
  report.expert_tokens = expert_tokens;
  if (outputs > 0.0) {
    report.output_error = std::sqrt(errors / outputs);
    report.nearest_error = std::sqrt(nearest_errors / outputs);
  }
  return report;
}

CalibratedLayers::CalibratedLayers(const DecoderSpec& spec,
                                   const MethodOptions& options,
                                   std::shared_ptr<const WeightSource> weights,
                                   std::unique_ptr<Calibration> calibration,
                                   FindTensor find, Stream& stream)
    : options_(options),
      weights_(std::move(weights)),
      calibration_(std::move(calibration)),
      find_(std::move(find)),
      stream_(stream) {
  for (const LayerSpec& layer : spec.layers) layers_.push_back(InputsOf(layer));
  std::vector<LinearInput>& last = layers_.emplace_back();
  // One behind layers of its own does not read what the last norm gives.
  if (!spec.head.empty() && spec.head_layers.empty()) {
    head_.name = spec.head;
    head_.n = spec.vocab_size;
    head_.k = spec.hidden_size;
    LinearInput input;
    input.readers = {&head_};
    if (spec.final_norm.kind != NormKind::kNone) input.norm = &spec.final_norm;
    last.push_back(std::move(input));
  }
  for (size_t i = 0; i < layers_.size(); ++i) {
    MapLayer(static_cast<int>(i), layers_[i]);
  }
}

void CalibratedLayers::MapLayer(int layer,
                                const std::vector<LinearInput>& inputs) {
  const auto place = [&](const std::string& name,
                         std::string_view suffix) -> Place& {
    Place& found = places_[name + std::string(suffix)];
    found.layer = layer;
    return found;
  };
  for (size_t i = 0; i < inputs.size(); ++i) {
    const LinearInput& input = inputs[i];
    const auto index = static_cast<int>(i);
    for (const LinearSpec* reader : input.readers) {
      Place& reads = place(reader->name, kWeightSuffix);
      reads.reads = index;
      reads.spec = reader;
    }
    if (!scales()) continue;
    for (const LinearSpec* reader : input.kept) {
      place(reader->name, kWeightSuffix).keeps = index;
    }
    if (input.norm != nullptr) {
      Place& norm = place(input.norm->name, input.norm->suffix);
      norm.scaled_by = index;
      norm.zero_centred = IsZeroCentred(input.norm->kind);
      place(input.norm->name, kBias).scaled_by = index;
    } else if (input.producer != nullptr) {
      place(input.producer->name, kWeightSuffix).scaled_by = index;
      place(input.producer->name, kBias).scaled_by = index;
    }
  }
}

bool CalibratedLayers::Serves(QuantizeMethod method, const Tensor& tensor) {
  if (tensor.info->dtype == tensor.to || !tensor.by_rows) return false;
  const BlockCodec* codec = FindBlockCodec(tensor.to);
  return codec != nullptr && (codec->grid != nullptr || IsToNearest(method));
}

bool CalibratedLayers::IsQuantized(const std::string& name) const {
  const Tensor* tensor = find_(name);
  return tensor != nullptr && Serves(options_.method, *tensor);
}

// Experts', which are most of a layer, stay as they are written.
absl::Status CalibratedLayers::KeepRows(const WeightInfo& info) {
  matrix_ = &done_[info.name];
  if (!matrix_->values.empty() || !matrix_->blocks.empty()) {
    return absl::OkStatus();
  }
  INLAY_ASSIGN_OR_RETURN(RowReader whole, ReadLayer(*place_.spec));
  matrix_->shape = {whole.rows(), whole.row_elements()};
  bool is_as_written =
      reads_->linear.is_experts && reader_->rows() == whole.rows();
  for (int64_t r = 0; is_as_written && r < reader_->rows(); ++r) {
    is_as_written = reader_->FactorOf(r) == 1.0f;
  }
  if (is_as_written) {
    matrix_->format = codec_->dtype;
    matrix_->blocks.resize(
        static_cast<size_t>(whole.rows()) *
        RowBytes(codec_->dtype, static_cast<size_t>(whole.row_elements())));
    return absl::OkStatus();
  }
  matrix_->values.resize(
      static_cast<size_t>(whole.rows() * whole.row_elements()));
  // Rows that go elsewhere are those of the source.
  return reader_->rows() == whole.rows()
             ? absl::OkStatus()
             : whole.Read(0, whole.rows(), matrix_->values.data());
}

std::vector<const LinearSpec*> CalibratedLayers::ReadersOf(
    const Input& input) const {
  std::vector<const LinearSpec*> readers = input.linear.readers;
  if (input.linear.first_expert == nullptr) return readers;
  for (const Input& other : inputs_) {
    if (other.linear.common < 0 ||
        &inputs_[static_cast<size_t>(other.linear.common)] != &input) {
      continue;
    }
    readers.insert(readers.end(), other.linear.readers.begin(),
                   other.linear.readers.end());
  }
  return readers;
}

absl::StatusOr<RowMethod*> CalibratedLayers::Start(const std::string& name,
                                                   const Tensor& target,
                                                   const RowReader& reader,
                                                   RowMethod* otherwise) {
  reads_ = scaled_by_ = nullptr;
  const auto found = places_.find(name);
  if (found == places_.end()) return nullptr;
  place_ = found->second;
  while (layer_ < place_.layer) INLAY_RETURN_IF_ERROR(Enter(layer_ + 1));
  started_us_ = NowUs();
  reader_ = &reader;
  otherwise_ = otherwise;
  columns_ = nullptr;
  matrix_ = nullptr;
  sums_ = {};
  const auto input_at = [&](int index) {
    return index < 0 ? nullptr : &inputs_[static_cast<size_t>(index)];
  };
  scaled_by_ = input_at(place_.scaled_by);
  if (scaled_by_ != nullptr && scaled_by_->scales.empty()) scaled_by_ = nullptr;
  if (place_.keeps >= 0) columns_ = &input_at(place_.keeps)->scales;
  if (place_.reads >= 0 && IsQuantized(name)) {
    reads_ = input_at(place_.reads);
    columns_ = &ScalesOf(*reads_);
    codec_ = FindBlockCodec(target.to);
    scheme_ = target.scheme;
    if (is(QuantizeMethod::kGptq)) {
      INLAY_RETURN_IF_ERROR(NeedFactor(*reads_));
      gptq_.emplace(*reads_->factor, *codec_->grid, scheme_);
      // Nothing reads what the head gives.
      if (!is_head()) INLAY_RETURN_IF_ERROR(KeepRows(*target.info));
    }
  }
  if (columns_ != nullptr && columns_->empty()) columns_ = nullptr;
  const bool changes = scaled_by_ != nullptr || columns_ != nullptr;
  return reads_ != nullptr || changes ? static_cast<RowMethod*>(this) : nullptr;
}

void CalibratedLayers::Finish(MethodSums* sums) {
  sums->used |= reads_ != nullptr;
  sums->outputs += sums_.outputs;
  sums->errors += sums_.errors;
  sums->nearest_errors += sums_.nearest_errors;
  sums->seconds += 1e-6 * static_cast<double>(NowUs() - started_us_);
  if (reads_ != nullptr && reads_->linear.is_experts) {
    sums->expert_tokens.push_back(reads_->tokens);
  }
  gptq_.reset();
}

float CalibratedLayers::LargestInput() const {
  if (reads_ == nullptr) return 0.0f;
  const auto largest = [&](const Input& input) {
    const std::vector<float>& scales = ScalesOf(input);
    float most = 0.0f;
    for (size_t i = 0; i < input.largest.size(); ++i) {
      most =
          std::max(most, input.largest[i] / (scales.empty() ? 1 : scales[i]));
    }
    return most;
  };
  const LinearInput& linear = reads_->linear;
  float most = largest(*reads_);
  if (!linear.is_experts || linear.common >= 0) return most;
  // What down reads of an expert that saw little: as large as of another.
  for (const Input& other : inputs_) {
    if (reads_->tokens >= kMeanTokens) break;
    const bool is_alike = other.linear.is_experts && other.linear.common < 0;
    if (is_alike) most = std::max(most, largest(other));
  }
  return most;
}

absl::Status CalibratedLayers::Enter(int layer) {
  // Sums and factors of the layer behind are not there any more when its
  // experts take their room.
  inputs_.clear();
  // Layers read what those before them give as they are written.
  if (is(QuantizeMethod::kGptq) && layer > 0) {
    const uint64_t lent = LentBytes();
    auto written =
        std::make_shared<OverlayWeights>(weights_, std::move(done_), lent);
    ExpertLender* lender = written.get();
    INLAY_RETURN_IF_ERROR(
        calibration_->Advance(layer - 1, std::move(written), lender));
  }
  done_.clear();
  layer_ = layer;
  for (const LinearInput& linear : layers_[static_cast<size_t>(layer)]) {
    inputs_.emplace_back().linear = linear;
  }
  bool goes_on = false;
  INLAY_RETURN_IF_ERROR(Collect(&goes_on));
  for (Input& input : inputs_) {
    if (scales() && CanScale(input)) INLAY_RETURN_IF_ERROR(Scale(input));
  }
  if (goes_on || is(QuantizeMethod::kGptq)) return absl::OkStatus();
  Hessians none;
  return calibration_->Collect(layer, true, &none);
}

}  // namespace inlay
