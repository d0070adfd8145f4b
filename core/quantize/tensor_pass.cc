#include "core/quantize/tensor_pass.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "core/model/drawn_weights.h"
#include "core/model/load_model.h"
#include "core/text/tokenizer.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {

absl::Status TensorPass::CheckMethod() const {
  if (!calibrates()) return absl::OkStatus();
  if (options_.sequence_tokens < 2 || options_.calibration_tokens < 2) {
    return absl::InvalidArgumentError(FormattedString(
        "calibration has sequences of %d tokens and %d in all, allowed: at "
        "least 2",
        options_.sequence_tokens, options_.calibration_tokens));
  }
  if (!(options_.smoothing >= 0.0f && options_.smoothing <= 1.0f)) {
    return absl::InvalidArgumentError(FormattedString(
        "smoothing is %g, allowed: 0 to 1", options_.smoothing));
  }
  if (options_.calibration.empty() && options_.calibration_sequences.empty()) {
    return absl::InvalidArgumentError(FormattedString(
        "%s by the method %s was given nothing for calibration, allowed: texts "
        "such as the model is for",
        options_.type, QuantizeMethodName(options_.method)));
  }
  return absl::OkStatus();
}

// What an expert reads is what the tokens that go to it have: not collected.
// Layers run one after another over all sequences: no keys and values are left
// for a later layer, nor what an earlier one has selected.
absl::Status TensorPass::CheckParts() const {
  if (options_.method == QuantizeMethod::kNearest) return absl::OkStatus();
  for (const LayerSpec& layer : spec_.layers) {
    for (const BlockSpec& block : layer.blocks) {
      const auto* attention = std::get_if<AttentionSpec>(&block.part);
      const auto* latent = std::get_if<LatentAttentionSpec>(&block.part);
      const char* what = nullptr;
      const bool compresses =
          std::holds_alternative<CompressedAttentionSpec>(block.part);
      if (std::holds_alternative<MoeSpec>(block.part) ||
          std::holds_alternative<MlpMoeSpec>(block.part)) {
        what = "mixtures of experts";
      } else if (attention != nullptr && attention->kv_source >= 0) {
        what = "layers that read the keys and values of others";
      } else if (compresses || (latent != nullptr && latent->selects > 0)) {
        what = "layers that select keys";
      }
      if (what == nullptr) continue;
      return absl::UnimplementedError(
          FormattedString("the method %s of a model with %s, allowed: rtn",
                          QuantizeMethodName(options_.method), what));
    }
  }
  return absl::OkStatus();
}

absl::Status TensorPass::Open(bool largest_inputs) {
  largest_inputs_ = largest_inputs;
  INLAY_RETURN_IF_ERROR(CheckMethod());
  report_.type = options_.type;
  report_.method = options_.method;
  INLAY_ASSIGN_OR_RETURN(device_, CreateCpuDevice(options_.num_threads, 0));
  INLAY_ASSIGN_OR_RETURN(stream_, device_->CreateStream());
  INLAY_ASSIGN_OR_RETURN(const std::vector<PlannedWeight> planned,
                         PlanWeights(files_, *device_));
  INLAY_ASSIGN_OR_RETURN(spec_, DescribeDecoder(files_, *device_));
  INLAY_RETURN_IF_ERROR(CheckParts());
  source_ = files_.weights;
  if (files_.random.has_value()) {
    INLAY_ASSIGN_OR_RETURN(source_,
                           MakeDrawnWeights(*files_.random, planned, pool()));
  }
  for (const PlannedWeight& weight : planned) {
    infos_.push_back(weight.stored != nullptr ? weight.stored
                                              : source_->Find(weight.name));
    QuantizedTensor& row = report_.tensors.emplace_back();
    row.name = weight.name;
    tensors_.push_back({weight.name, infos_.back(), weight.vector.has_value()});
    row.from = infos_.back()->dtype;
    row.bytes_before = infos_.back()->bytes;
    report_.bytes_before += row.bytes_before;
  }
  schemes_.resize(infos_.size());
  return absl::OkStatus();
}

absl::Status TensorPass::SetFileTensors(absl::Span<const FileTensor> files) {
  infos_.clear();
  report_.tensors.clear();
  report_.bytes_before = 0;
  for (const FileTensor& file : files) {
    if (calibrates() && !file.is_plain()) {
      return absl::UnimplementedError(FormattedString(
          "the method %s of \"%s\", which a GGUF file holds in another form; "
          "allowed: rtn",
          QuantizeMethodName(options_.method), file.parts.front()));
    }
    infos_.push_back(file.rows.parts.front());
    QuantizedTensor& row = report_.tensors.emplace_back();
    row.name = file.is_plain() ? file.parts.front() : file.name;
    row.gguf = file.gguf;
    row.from = infos_.back()->dtype;
    for (const WeightInfo* part : file.rows.parts) {
      row.bytes_before += part->bytes;
    }
    report_.bytes_before += row.bytes_before;
  }
  schemes_.assign(infos_.size(), nullptr);
  return absl::OkStatus();
}

absl::StatusOr<TokenSequences> TensorPass::Sequences() const {
  if (options_.calibration.empty()) return options_.calibration_sequences;
  if (files_.tokenizer.is_null() && files_.directory.empty()) {
    return absl::UnimplementedError(
        "calibration by text, of a model without a tokenizer; allowed: tokens");
  }
  INLAY_ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> tokenizer,
                         files_.tokenizer.is_null()
                             ? LoadTokenizer(files_.directory)
                             : MakeTokenizerFromDocument(files_.tokenizer));
  return CalibrationSequences(*tokenizer, options_.calibration,
                              options_.sequence_tokens,
                              options_.calibration_tokens);
}

absl::Status TensorPass::Calibrate() {
  if (!calibrates()) return absl::OkStatus();
  INLAY_ASSIGN_OR_RETURN(TokenSequences sequences, Sequences());
  for (size_t i = 0; i < infos_.size(); ++i) {
    const QuantizedTensor& row = report_.tensors[i];
    written_[row.name] = {infos_[i], row.to, schemes_[i]};
  }
  // It counts as much as writing.
  const uint64_t passes = options_.method == QuantizeMethod::kGptq ? 2 : 1;
  const uint64_t runs = std::max<uint64_t>(
      1, sequences.size() * (passes * spec_.layers.size() + 1));
  const uint64_t worth = total_;
  total_ += worth;
  ModelFiles files = files_;
  files.weights = source_;
  files.random.reset();
  INLAY_ASSIGN_OR_RETURN(
      std::unique_ptr<Calibration> calibration,
      Calibration::Create(files, std::move(sequences), *device_, *stream_,
                          [this, runs, worth] {
                            ++runs_;
                            calibrated_ = worth / runs * std::min(runs_, runs);
                            return Report();
                          }));
  report_.calibration_tokens = calibration->num_tokens();
  method_ = std::make_unique<CalibratedLayers>(
      spec_,
      MethodOptions{options_.method, options_.act_order, options_.smoothing},
      source_, std::move(calibration),
      [this](const std::string& name) -> const CalibratedLayers::Tensor* {
        const auto found = written_.find(name);
        return found == written_.end() ? nullptr : &found->second;
      },
      *stream_);
  return absl::OkStatus();
}

bool TensorPass::Report() const {
  return options_.progress == nullptr ||
         options_.progress(done_ + calibrated_, total_);
}

absl::Status TensorPass::Write(size_t i, RowReader& reader,
                               RowMethod* otherwise,
                               const RowWriter::Sink& sink) {
  QuantizedTensor& row = report_.tensors[i];
  RowMethod* method = nullptr;
  if (method_ != nullptr) {
    INLAY_ASSIGN_OR_RETURN(method, method_->Start(row.name, reader, otherwise));
  }
  RowWriter rows(sink, pool(), [this](uint64_t elements) {
    done_ += elements;
    return Report();
  });
  const absl::Status status =
      rows.Write(reader, row.from, row.to,
                 method != nullptr ? method : otherwise, &row.error);
  if (absl::IsInvalidArgument(status)) {
    return absl::InvalidArgumentError(
        FormattedString("tensor \"%s\" as %s: %s", row.name, DTypeName(row.to),
                        std::string(status.message())));
  }
  INLAY_RETURN_IF_ERROR(status);
  if (method != nullptr) row.method = method_->Finish();
  return absl::OkStatus();
}

}  // namespace inlay
