#include "core/quantize/calibrated_layers.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "absl/strings/str_format.h"
#include "kernels/quant/grid.h"
#include "memory/device/thread_pool.h"
#include "memory/status.h"

namespace inlay {
namespace {

constexpr std::string_view kBias = ".bias";

int64_t NowUs() {
  return std::chrono::duration_cast<std::chrono::microseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

MethodReport MethodSums::Report() const {
  MethodReport report;
  report.used = used;
  report.seconds = seconds;
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
    : spec_(spec),
      options_(options),
      weights_(std::move(weights)),
      calibration_(std::move(calibration)),
      find_(std::move(find)),
      stream_(stream) {
  for (const LayerSpec& layer : spec.layers) layers_.push_back(InputsOf(layer));
  std::vector<LinearInput>& last = layers_.emplace_back();
  if (!spec.head.empty()) {
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
      place(reader->name, kWeightSuffix).reads = index;
    }
    if (!scales()) continue;
    for (const std::string_view suffix : {kWeightSuffix, kBias}) {
      if (input.norm != nullptr) {
        Place& norm = place(input.norm->name, suffix);
        norm.scaled_by = index;
        norm.zero_centred = input.norm->kind == NormKind::kRmsZeroCentred &&
                            suffix == kWeightSuffix;
      } else if (input.producer != nullptr) {
        place(input.producer->name, suffix).scaled_by = index;
      }
    }
  }
}

bool CalibratedLayers::IsQuantized(const std::string& name) const {
  const Tensor* tensor = find_(name);
  if (tensor == nullptr || tensor->info->dtype == tensor->to) return false;
  const BlockCodec* codec = FindBlockCodec(tensor->to);
  return codec != nullptr && (codec->grid != nullptr || to_nearest());
}

absl::StatusOr<RowMethod*> CalibratedLayers::Start(const std::string& name,
                                                   const RowReader& reader,
                                                   RowMethod* otherwise) {
  const auto found = places_.find(name);
  if (found == places_.end()) return nullptr;
  place_ = found->second;
  while (layer_ < place_.layer) INLAY_RETURN_IF_ERROR(Enter(layer_ + 1));
  started_us_ = NowUs();
  reader_ = &reader;
  otherwise_ = otherwise;
  reads_ = scaled_by_ = nullptr;
  matrix_ = nullptr;
  sums_ = {};
  if (place_.scaled_by >= 0) {
    Input& input = inputs_[static_cast<size_t>(place_.scaled_by)];
    if (!input.scales.empty()) scaled_by_ = &input;
  }
  if (place_.reads >= 0 && IsQuantized(name)) {
    const Tensor& tensor = *find_(name);
    reads_ = &inputs_[static_cast<size_t>(place_.reads)];
    codec_ = FindBlockCodec(tensor.to);
    scheme_ = tensor.scheme;
    if (is(QuantizeMethod::kGptq)) {
      INLAY_RETURN_IF_ERROR(NeedFactor(*reads_));
      gptq_.emplace(*reads_->factor, *codec_->grid, scheme_);
      matrix_ = &done_[tensor.info->name];
      matrix_->shape = {reader.rows(), reader.row_elements()};
      matrix_->values.resize(
          static_cast<size_t>(reader.rows() * reader.row_elements()));
    }
  }
  if (reads_ == nullptr && scaled_by_ == nullptr) return nullptr;
  return static_cast<RowMethod*>(this);
}

void CalibratedLayers::Finish(MethodSums* sums) {
  sums->used |= reads_ != nullptr;
  sums->outputs += sums_.outputs;
  sums->errors += sums_.errors;
  sums->nearest_errors += sums_.nearest_errors;
  sums->seconds += 1e-6 * static_cast<double>(NowUs() - started_us_);
  gptq_.reset();
}

float CalibratedLayers::LargestInput() const {
  float most = 0.0f;
  for (size_t i = 0; reads_ != nullptr && i < reads_->largest.size(); ++i) {
    const float scale = reads_->scales.empty() ? 1.0f : reads_->scales[i];
    most = std::max(most, reads_->largest[i] / scale);
  }
  return most;
}

absl::Status CalibratedLayers::Enter(int layer) {
  // Layers read what those before them give as they are written.
  if (is(QuantizeMethod::kGptq) && layer > 0) {
    INLAY_RETURN_IF_ERROR(calibration_->Advance(
        layer - 1,
        std::make_shared<OverlayWeights>(weights_, std::move(done_))));
  }
  done_.clear();
  inputs_.clear();
  layer_ = layer;
  for (const LinearInput& linear : layers_[static_cast<size_t>(layer)]) {
    inputs_.emplace_back().linear = linear;
  }
  INLAY_RETURN_IF_ERROR(Collect(layer));
  for (Input& input : inputs_) {
    if (scales()) INLAY_RETURN_IF_ERROR(Scale(input));
  }
  return absl::OkStatus();
}

absl::Status CalibratedLayers::Collect(int layer) {
  Hessians hessians;
  for (const Input& input : inputs_) {
    const auto& readers = input.linear.readers;
    const bool wanted =
        std::any_of(readers.begin(), readers.end(), [&](const auto* reader) {
          return IsQuantized(reader->name + std::string(kWeightSuffix));
        });
    if (!wanted) continue;
    hessians.emplace(
        input.linear.name(),
        Hessian(input.linear.size(),
                !to_nearest() && !is(QuantizeMethod::kImportance)));
  }
  const bool is_head = layer == static_cast<int>(spec_.layers.size());
  INLAY_RETURN_IF_ERROR(
      is_head ? calibration_->CollectHead(head_.name, &hessians)
              : calibration_->Collect(layer, !is(QuantizeMethod::kGptq),
                                      &hessians));
  for (Input& input : inputs_) {
    const auto found = hessians.find(input.linear.name());
    if (found == hessians.end()) continue;
    const absl::Status status = found->second.Check();
    if (!status.ok()) {
      return absl::InvalidArgumentError(
          absl::StrFormat("inputs of \"%s\": %s", input.linear.name(),
                          std::string(status.message())));
    }
    input.diagonal.assign(found->second.diagonal().begin(),
                          found->second.diagonal().end());
    input.sizes = found->second.MeanMagnitudes();
    input.largest = found->second.largest();
    input.hessian = std::move(found->second);
  }
  return absl::OkStatus();
}

absl::Status CalibratedLayers::NeedFactor(Input& input) {
  if (input.factor.has_value()) return absl::OkStatus();
  FactorOptions options;
  options.act_order = options_.act_order && is(QuantizeMethod::kGptq);
  INLAY_ASSIGN_OR_RETURN(
      input.factor,
      InputFactor::Create(*std::move(input.hessian), options, stream_));
  input.hessian.reset();
  return absl::OkStatus();
}

}  // namespace inlay
