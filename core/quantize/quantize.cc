#include "core/quantize/quantize.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <unordered_map>
#include <utility>

#include "absl/strings/str_format.h"
#include "core/formats/gguf_config_writer.h"
#include "core/formats/gguf_tokenizer_writer.h"
#include "core/formats/gguf_writer.h"
#include "core/json/json.h"
#include "core/model/drawn_weights.h"
#include "core/model/load_model.h"
#include "core/quantize/row_writer.h"
#include "core/quantize/tensor_types.h"
#include "core/text/tokenizer.h"
#include "memory/device/device.h"
#include "memory/mapped_file.h"
#include "memory/status.h"

namespace inlay {
namespace {

constexpr uint32_t kQuantizationVersion = 2;

// The document, or null where the model has none to write.
absl::StatusOr<Json> FindTokenizer(const ModelFiles& files) {
  if (!files.tokenizer.is_null()) return files.tokenizer;
  if (files.directory.empty() || files.random.has_value()) return Json();
  const std::string path = files.directory + "/tokenizer.json";
  if (!IsRegularFile(path)) {
    const std::string pieces = files.directory + "/tokenizer.model";
    if (!IsRegularFile(pieces)) return Json();
    return absl::UnimplementedError(absl::StrFormat(
        "%s cannot be written into a GGUF file, allowed: a tokenizer.json, or "
        "no tokenizer",
        pieces));
  }
  INLAY_ASSIGN_OR_RETURN(const FileReader file, FileReader::Open(path));
  std::string text(file.size(), '\0');
  INLAY_RETURN_IF_ERROR(file.ReadAt(
      0,
      absl::MakeSpan(reinterpret_cast<std::byte*>(text.data()), text.size())));
  return ParseJson(text, path);
}

class Quantizer {
 public:
  Quantizer(const ModelFiles& files, const QuantizeOptions& options)
      : files_(files), options_(options) {}

  absl::StatusOr<QuantizeReport> Run(const std::string& path) {
    INLAY_RETURN_IF_ERROR(ReadOptions());
    INLAY_RETURN_IF_ERROR(PlanTensors());
    INLAY_RETURN_IF_ERROR(CheckCalibration());
    INLAY_ASSIGN_OR_RETURN(GgufWriter writer, GgufWriter::Create(path));
    INLAY_RETURN_IF_ERROR(SetKeys(&writer));
    INLAY_RETURN_IF_ERROR(AddTensors(&writer));
    INLAY_RETURN_IF_ERROR(writer.StartData());
    INLAY_RETURN_IF_ERROR(Calibrate());
    INLAY_RETURN_IF_ERROR(WriteData(&writer));
    INLAY_RETURN_IF_ERROR(writer.Commit());
    INLAY_ASSIGN_OR_RETURN(const FileReader file, FileReader::Open(path));
    report_.file_bytes = file.size();
    return std::move(report_);
  }

 private:
  struct Tensor {
    const WeightInfo* info = nullptr;
    TensorName gguf;
    std::optional<RowReader> reader;
  };

  absl::Status ReadOptions() {
    INLAY_ASSIGN_OR_RETURN(type_, ParseQuantizedType(options_.type));
    report_.type = options_.type;
    for (const std::string& text : options_.tensor_types) {
      INLAY_ASSIGN_OR_RETURN(overrides_.emplace_back(),
                             ParseTensorOverride(text));
    }
    INLAY_ASSIGN_OR_RETURN(device_, CreateCpuDevice(options_.num_threads, 0));
    INLAY_ASSIGN_OR_RETURN(stream_, device_->CreateStream());
    pool_ = stream_->thread_pool();
    return absl::OkStatus();
  }

  absl::Status PlanTensors() {
    INLAY_ASSIGN_OR_RETURN(arch_, FindGgufArchOf(files_.config));
    INLAY_ASSIGN_OR_RETURN(const std::vector<PlannedWeight> planned,
                           PlanWeights(files_, *device_));
    source_ = files_.weights;
    if (files_.random.has_value()) {
      INLAY_ASSIGN_OR_RETURN(source_,
                             MakeDrawnWeights(*files_.random, planned, *pool_));
    }
    for (const PlannedWeight& weight : planned) {
      const auto name = GgufTensorName(*arch_, weight.name);
      if (!name.has_value()) {
        return absl::UnimplementedError(
            absl::StrFormat("tensor \"%s\" has no name in GGUF files of \"%s\"",
                            weight.name, arch_->name));
      }
      Tensor tensor;
      tensor.info =
          weight.stored != nullptr ? weight.stored : source_->Find(weight.name);
      tensor.gguf = *name;
      tensors_.push_back(std::move(tensor));
      QuantizedTensor row;
      row.name = weight.name;
      row.gguf = name->name;
      report_.tensors.push_back(std::move(row));
    }
    return absl::OkStatus();
  }

  bool HasTensor(std::string_view gguf) const {
    return std::any_of(tensors_.begin(), tensors_.end(),
                       [&](const auto& t) { return t.gguf.name == gguf; });
  }

  absl::Status SetKeys(GgufWriter* writer) {
    INLAY_ASSIGN_OR_RETURN(config_,
                           SetGgufConfig(files_.config, *arch_, writer));
    INLAY_RETURN_IF_ERROR(
        writer->SetU32("general.quantization_version", kQuantizationVersion));
    if (type_.file_type.has_value()) {
      INLAY_RETURN_IF_ERROR(
          writer->SetU32("general.file_type", *type_.file_type));
    }
    if (!options_.tokenizer) return absl::OkStatus();
    INLAY_ASSIGN_OR_RETURN(const Json tokenizer, FindTokenizer(files_));
    if (tokenizer.is_null()) return absl::OkStatus();
    report_.has_tokenizer = true;
    int64_t vocab_size = 0;
    for (const Tensor& tensor : tensors_) {
      if (tensor.gguf.name == "token_embd.weight") {
        vocab_size = tensor.info->shape[0];
      }
    }
    return SetGgufTokenizer(tokenizer, files_, vocab_size, writer);
  }

  absl::Status AddTensors(GgufWriter* writer) {
    INLAY_ASSIGN_OR_RETURN(
        const int64_t layers,
        JsonInt(files_.config,
                arch_->name == "gpt2" ? "n_layer" : "num_hidden_layers", 0, 0,
                INT32_MAX));
    const bool has_head = HasTensor("output.weight");
    for (size_t i = 0; i < tensors_.size(); ++i) {
      Tensor& tensor = tensors_[i];
      QuantizedTensor& row = report_.tensors[i];
      INLAY_ASSIGN_OR_RETURN(
          tensor.reader,
          RowReader::Create(*source_, *tensor.info, tensor.gguf.layout,
                            config_.heads, *pool_));
      row.shape = {tensor.reader->rows()};
      if (tensor.info->shape.size() == 2) {
        row.shape.push_back(tensor.reader->row_elements());
      }
      const bool is_head =
          row.gguf == (has_head ? "output.weight" : "token_embd.weight");
      const ChosenType chosen = ChooseTensorType(
          type_, overrides_,
          {row.name, row.gguf, row.shape, static_cast<int>(layers), is_head});
      row.from = tensor.info->dtype;
      row.to = chosen.dtype;
      row.wanted = chosen.wanted;
      row.bytes_before = tensor.info->bytes;
      row.bytes_after = RowBytes(row.to, tensor.reader->row_elements()) *
                        static_cast<uint64_t>(tensor.reader->rows());
      report_.bytes_before += row.bytes_before;
      report_.bytes_after += row.bytes_after;
      total_ += static_cast<uint64_t>(tensor.reader->rows() *
                                      tensor.reader->row_elements());
      INLAY_RETURN_IF_ERROR(writer->AddTensor(row.gguf, row.to, row.shape));
    }
    for (const auto& [name, values] : config_.vectors) {
      INLAY_RETURN_IF_ERROR(writer->AddTensor(
          name, DType::kF32, {static_cast<int64_t>(values.size())}));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<TokenSequences> Sequences() {
    if (options_.calibration.empty()) return options_.calibration_sequences;
    INLAY_ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> tokenizer,
                           files_.tokenizer.is_null()
                               ? LoadTokenizer(files_.directory)
                               : MakeTokenizerFromDocument(files_.tokenizer));
    return CalibrationSequences(*tokenizer, options_.calibration,
                                options_.sequence_tokens,
                                options_.calibration_tokens);
  }

  // Before anything is written.
  absl::Status CheckCalibration() {
    report_.method = options_.method;
    if (options_.method == QuantizeMethod::kNearest) return absl::OkStatus();
    if (options_.sequence_tokens < 2 || options_.calibration_tokens < 2) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "calibration has sequences of %d tokens and %d in all, allowed: at "
          "least 2",
          options_.sequence_tokens, options_.calibration_tokens));
    }
    if (options_.calibration.empty() &&
        options_.calibration_sequences.empty()) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "the method %s was given nothing for calibration, allowed: texts "
          "such as the model is for",
          QuantizeMethodName(options_.method)));
    }
    return absl::OkStatus();
  }

  absl::Status Calibrate() {
    if (options_.method == QuantizeMethod::kNearest) return absl::OkStatus();
    INLAY_ASSIGN_OR_RETURN(TokenSequences sequences, Sequences());
    INLAY_ASSIGN_OR_RETURN(spec_, DescribeDecoder(files_, *device_));
    for (size_t i = 0; i < tensors_.size(); ++i) {
      const QuantizedTensor& row = report_.tensors[i];
      written_[row.name] = {tensors_[i].info, row.to};
    }
    // Calibration counts as much as writing.
    const uint64_t passes = options_.method == QuantizeMethod::kGptq ? 2 : 1;
    const uint64_t runs = std::max<uint64_t>(
        1, sequences.size() * (passes * spec_.layers.size() + 1));
    elements_ = total_;
    total_ += elements_;
    ModelFiles files = files_;
    files.weights = source_;
    files.random.reset();
    INLAY_ASSIGN_OR_RETURN(
        std::unique_ptr<Calibration> calibration,
        Calibration::Create(files, std::move(sequences), *device_, *stream_,
                            [this, runs] {
                              ++runs_;
                              calibrated_ = elements_ * runs_ / runs;
                              return Report();
                            }));
    report_.calibration_tokens = calibration->num_tokens();
    method_ = std::make_unique<CalibratedLayers>(
        spec_, options_.method, options_.act_order, source_,
        std::move(calibration),
        [this](const std::string& name) -> const CalibratedLayers::Tensor* {
          const auto found = written_.find(name);
          return found == written_.end() ? nullptr : &found->second;
        },
        *stream_);
    return absl::OkStatus();
  }

  bool Report() const {
    return options_.progress == nullptr ||
           options_.progress(done_ + std::min(calibrated_, total_ - done_),
                             total_);
  }

  absl::Status WriteTensor(RowWriter& rows, size_t i) {
    QuantizedTensor& row = report_.tensors[i];
    RowReader& reader = *tensors_[i].reader;
    RowMethod* method = nullptr;
    if (method_ != nullptr) {
      INLAY_ASSIGN_OR_RETURN(method, method_->Start(row.name, reader));
    }
    const absl::Status status =
        rows.Write(reader, row.from, row.to, method, &row.error);
    if (absl::IsInvalidArgument(status)) {
      return absl::InvalidArgumentError(
          absl::StrFormat("tensor \"%s\" as %s: %s", row.name,
                          DTypeName(row.to), std::string(status.message())));
    }
    INLAY_RETURN_IF_ERROR(status);
    if (method != nullptr) row.method = method_->Finish();
    tensors_[i].reader.reset();
    return absl::OkStatus();
  }

  absl::Status WriteData(GgufWriter* writer) {
    RowWriter rows([writer](auto bytes) { return writer->Append(bytes); },
                   *pool_,
                   [this](uint64_t elements) {
                     done_ += elements;
                     return Report();
                   });
    for (size_t i = 0; i < tensors_.size(); ++i) {
      INLAY_RETURN_IF_ERROR(WriteTensor(rows, i));
    }
    for (const auto& [name, values] : config_.vectors) {
      INLAY_RETURN_IF_ERROR(writer->Append(
          absl::MakeConstSpan(reinterpret_cast<const std::byte*>(values.data()),
                              values.size() * sizeof(float))));
    }
    return absl::OkStatus();
  }

  const ModelFiles& files_;
  const QuantizeOptions& options_;
  QuantizedType type_;
  std::vector<TensorOverride> overrides_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Stream> stream_;
  ThreadPool* pool_ = nullptr;  // the stream's
  const GgufArch* arch_ = nullptr;
  std::shared_ptr<const WeightSource> source_;
  std::vector<Tensor> tensors_;  // as report_.tensors
  GgufConfigTensors config_;
  QuantizeReport report_;
  // Of methods that calibrate; method_ points into the others.
  DecoderSpec spec_;
  std::unordered_map<std::string, CalibratedLayers::Tensor> written_;
  std::unique_ptr<CalibratedLayers> method_;
  // Elements written, and what calibration was worth, of total_.
  uint64_t done_ = 0, calibrated_ = 0, runs_ = 0;
  uint64_t elements_ = 0, total_ = 0;
};

}  // namespace

absl::StatusOr<QuantizeReport> QuantizeModel(const ModelFiles& files,
                                             const QuantizeOptions& options,
                                             const std::string& path) {
  return Quantizer(files, options).Run(path);
}

absl::StatusOr<QuantizeReport> QuantizePath(const std::string& model,
                                            const QuantizeOptions& options,
                                            const std::string& path) {
  INLAY_ASSIGN_OR_RETURN(const ModelFiles files, OpenModelFiles(model, {}));
  return QuantizeModel(files, options, path);
}

}  // namespace inlay
