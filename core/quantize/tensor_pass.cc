#include "core/quantize/tensor_pass.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "core/model/drawn_weights.h"
#include "core/model/load_model.h"
#include "core/text/tokenizer.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

// Of each element of a band: as it is read, decoded, in blocks (twice), and
// what methods keep of it.
constexpr uint64_t kElementBytes = 48;
// Besides, of a thread, and of a tensor in lists.
constexpr uint64_t kSmallBytes = uint64_t{2} << 20;
constexpr uint64_t kThreadBytes = uint64_t{256} << 10;
constexpr uint64_t kTensorBytes = uint64_t{2} << 10;

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

absl::Status TensorPass::CheckMethod() const {
  if (!options_.imatrix.empty()) {
    if (options_.method == QuantizeMethod::kImportance &&
        options_.calibration.empty() &&
        options_.calibration_sequences.empty() && !largest_inputs_) {
      return absl::OkStatus();
    }
    return absl::InvalidArgumentError(FormattedString(
        "an imatrix goes with the method imatrix, no calibration and files "
        "that need none, given: %s by the method %s",
        options_.type, QuantizeMethodName(options_.method)));
  }
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
    parts_.push_back({tensors_.back()});
    row.from = infos_.back()->dtype;
    row.bytes_before = infos_.back()->bytes;
    report_.bytes_before += row.bytes_before;
  }
  schemes_.resize(infos_.size());
  turns_.resize(infos_.size());
  return absl::OkStatus();
}

void TensorPass::SetFileTensors(absl::Span<const FileTensor> files) {
  infos_.clear();
  parts_.clear();
  turns_.clear();
  report_.tensors.clear();
  report_.bytes_before = 0;
  for (const FileTensor& file : files) {
    infos_.push_back(file.rows.parts.front());
    std::vector<ModelTensor>& parts = parts_.emplace_back();
    for (size_t part = 0; part < file.parts.size(); ++part) {
      parts.push_back({file.parts[part], file.rows.parts[part]});
    }
    turns_.push_back(file.turns());
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

uint64_t TensorPass::WritingBytes() const {
  int64_t band = 1;
  size_t parts = 0;
  for (size_t i = 0; i < parts_.size(); ++i) {
    parts += parts_[i].size();
    const QuantizedTensor& row = report_.tensors[i];
    int64_t elements = 1;
    for (const int64_t size : row.shape) elements *= size;
    elements /= static_cast<int64_t>(parts_[i].size());
    const int64_t width = row.shape.empty() ? 1 : row.shape.back();
    band = std::max(band, std::min(elements, std::max(kBandElements,
                                                      rows_together_ * width)));
  }
  return kSmallBytes +
         kThreadBytes * static_cast<uint64_t>(pool().num_threads()) +
         kTensorBytes * parts + kElementBytes * static_cast<uint64_t>(band) +
         reserved_;
}

absl::Status TensorPass::HasRoom(uint64_t needed) const {
  if (options_.memory_limit == 0 || needed <= options_.memory_limit) {
    return absl::OkStatus();
  }
  return absl::ResourceExhaustedError(FormattedString(
      "the memory limit is %d bytes, %s by the method %s takes at least %d; "
      "fewer tokens of calibration and shorter sequences take less",
      options_.memory_limit, options_.type, QuantizeMethodName(options_.method),
      needed));
}

absl::Status TensorPass::ShareRoom(const Calibration& calibration) {
  if (options_.memory_limit == 0) return absl::OkStatus();
  const uint64_t held =
      WritingBytes() + device_->memory_use().total_bytes +
      (options_.method == QuantizeMethod::kGptq ? calibration.advance_bytes()
                                                : 0);
  INLAY_RETURN_IF_ERROR(HasRoom(held + method_->LeastRoom()));
  method_->set_room(options_.memory_limit - held);
  device_->set_budget(held - WritingBytes());
  return absl::OkStatus();
}

bool TensorPass::Serves(QuantizeMethod method) const {
  const auto serves = [&](const std::string& layer) {
    const auto found = written_.find(layer + std::string(kWeightSuffix));
    return found != written_.end() &&
           CalibratedLayers::Serves(method, found->second);
  };
  for (const LayerSpec& layer : spec_.layers) {
    for (const LinearInput& input : InputsOf(layer)) {
      for (const LinearSpec* reader : input.readers) {
        if (serves(reader->name)) return true;
      }
    }
  }
  return serves(spec_.head);
}

absl::Status TensorPass::CheckTypes() const {
  if (options_.method == QuantizeMethod::kNearest || Serves(options_.method)) {
    return absl::OkStatus();
  }
  std::string allowed(QuantizeMethodName(QuantizeMethod::kNearest));
  for (const QuantizeMethod method :
       {QuantizeMethod::kImportance, QuantizeMethod::kGptq,
        QuantizeMethod::kAwq, QuantizeMethod::kSmoothQuant}) {
    if (!Serves(method)) continue;
    allowed += ", ";
    allowed += QuantizeMethodName(method);
  }
  return absl::InvalidArgumentError(
      FormattedString("the method for %s is %s, allowed: %s", options_.type,
                      QuantizeMethodName(options_.method), allowed));
}

absl::Status TensorPass::Calibrate() {
  INLAY_RETURN_IF_ERROR(HasRoom(WritingBytes()));
  if (!calibrates()) return absl::OkStatus();
  for (size_t i = 0; i < infos_.size(); ++i) {
    const DType to = report_.tensors[i].to;
    for (const ModelTensor& part : parts_[i]) {
      const auto [found, is_first] = written_.emplace(
          part.name,
          CalibratedLayers::Tensor{part.info, to, schemes_[i], !turns_[i]});
      // In several of the file's.
      if (!is_first)
        found->second.by_rows &= !turns_[i] && found->second.to == to;
    }
  }
  INLAY_RETURN_IF_ERROR(CheckTypes());
  if (!options_.imatrix.empty()) return ReadGivenImportance();
  INLAY_ASSIGN_OR_RETURN(TokenSequences sequences, Sequences());
  // It counts as much as writing.
  const uint64_t passes = options_.method == QuantizeMethod::kGptq ? 2 : 1;
  const uint64_t runs = std::max<uint64_t>(
      1, sequences.size() * (passes * spec_.layers.size() + 1));
  const uint64_t worth = total_;
  total_ += worth;
  ModelFiles files = files_;
  files.weights = source_;
  files.random.reset();
  if (options_.memory_limit != 0) {
    // 0 would be no limit.
    device_->set_budget(
        std::max<uint64_t>(1, options_.memory_limit - WritingBytes()));
  }
  absl::StatusOr<std::unique_ptr<Calibration>> created = Calibration::Create(
      files, std::move(sequences), *device_, *stream_, [this, runs, worth] {
        ++runs_;
        calibrated_ = worth / runs * std::min(runs_, runs);
        return Report();
      });
  if (absl::IsResourceExhausted(created.status()) &&
      options_.memory_limit != 0) {
    return absl::ResourceExhaustedError(FormattedString(
        "the memory limit is %d bytes, which has no room for the model and the "
        "tokens of calibration (%s); fewer of these take less",
        options_.memory_limit, std::string(created.status().message())));
  }
  INLAY_ASSIGN_OR_RETURN(std::unique_ptr<Calibration> calibration,
                         std::move(created));
  report_.calibration_tokens = calibration->num_tokens();
  const Calibration& made = *calibration;
  method_ = std::make_unique<CalibratedLayers>(
      spec_,
      MethodOptions{options_.method, options_.act_order, options_.smoothing,
                    options_.expert_bytes, /*room=*/0},
      source_, std::move(calibration),
      [this](const std::string& name) -> const CalibratedLayers::Tensor* {
        const auto found = written_.find(name);
        return found == written_.end() ? nullptr : &found->second;
      },
      *stream_);
  return ShareRoom(made);
}

absl::Status TensorPass::ReadGivenImportance() {
  INLAY_ASSIGN_OR_RETURN(Imatrix imatrix, ReadImatrix(options_.imatrix));
  given_.emplace(std::move(imatrix), pool());
  INLAY_RETURN_IF_ERROR(HasRoom(WritingBytes() + given_->bytes()));
  for (const QuantizedTensor& tensor : report_.tensors) {
    if (given_->Has(tensor.gguf)) return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      FormattedString("imatrix \"%s\" has nothing for any tensor of this model",
                      options_.imatrix));
}

bool TensorPass::Report() const {
  return options_.progress == nullptr ||
         options_.progress(done_ + calibrated_, total_);
}

absl::Status TensorPass::Write(size_t i, RowReader& reader,
                               RowMethod* otherwise,
                               const RowWriter::Sink& sink) {
  QuantizedTensor& row = report_.tensors[i];
  RowWriter rows(sink, pool(), [this](uint64_t elements) {
    done_ += elements;
    return Report();
  });
  RowErrors errors;
  const Clock::time_point start = Clock::now();
  absl::Status status;
  if (given_.has_value()) {
    status = WriteGiven(i, reader, &rows, &errors);
  } else if (method_ == nullptr) {
    status = rows.Write(reader, row.from, row.to, otherwise, &errors);
    row.seconds = SecondsSince(start);
  } else {
    status = WriteParts(i, reader, otherwise, &rows, &errors);
  }
  row.error = errors.relative();
  if (absl::IsInvalidArgument(status)) {
    return absl::InvalidArgumentError(
        FormattedString("tensor \"%s\" as %s: %s", row.name, DTypeName(row.to),
                        std::string(status.message())));
  }
  return status;
}

absl::Status TensorPass::WriteGiven(size_t i, RowReader& reader,
                                    RowWriter* rows, RowErrors* errors) {
  QuantizedTensor& row = report_.tensors[i];
  INLAY_ASSIGN_OR_RETURN(RowMethod * method,
                         given_->Start(row.gguf, row.from, row.to, reader));
  const Clock::time_point start = Clock::now();
  INLAY_RETURN_IF_ERROR(rows->Write(reader, row.from, row.to, method, errors));
  MethodSums sums;
  if (method != nullptr) given_->Finish(&sums);
  row.method = sums.Report();
  row.seconds = SecondsSince(start);
  return absl::OkStatus();
}

absl::Status TensorPass::WriteParts(size_t i, RowReader& reader,
                                    RowMethod* otherwise, RowWriter* rows,
                                    RowErrors* errors) {
  QuantizedTensor& row = report_.tensors[i];
  const std::vector<ModelTensor>& parts = parts_[i];
  MethodSums sums;
  for (size_t part = 0; part < parts.size(); ++part) {
    RowReader one = parts.size() == 1 ? reader : reader.OfPart(part);
    INLAY_ASSIGN_OR_RETURN(
        RowMethod * method,
        method_->Start(parts[part].name,
                       {parts[part].info, row.to, schemes_[i], !turns_[i]}, one,
                       otherwise));
    const Clock::time_point start = Clock::now();
    INLAY_RETURN_IF_ERROR(rows->Write(
        one, row.from, row.to, method != nullptr ? method : otherwise, errors));
    if (method != nullptr) {
      method_->Finish(&sums);
    } else {
      sums.seconds += SecondsSince(start);
    }
  }
  row.method = sums.Report();
  row.seconds = sums.seconds;
  return absl::OkStatus();
}

}  // namespace inlay
