#include "core/quantize/quantize.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/formats/gguf_config_writer.h"
#include "core/formats/gguf_encoder.h"
#include "core/formats/gguf_tokenizer_writer.h"
#include "core/formats/gguf_writer.h"
#include "core/formats/gguf_xielu.h"
#include "core/json/json.h"
#include "core/quantize/checkpoint.h"
#include "core/quantize/file_tensors.h"
#include "core/quantize/index_tables.h"
#include "core/quantize/tensor_pass.h"
#include "core/quantize/tensor_types.h"
#include "core/text/tokenizer.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

constexpr uint32_t kQuantizationVersion = 2;

// The document, or null where the model has none to write.
absl::StatusOr<Json> FindTokenizer(const ModelFiles& files) {
  if (!files.tokenizer.is_null()) return files.tokenizer;
  if (files.directory.empty() || files.random.has_value()) return Json();
  auto document = ReadTokenizerDocument(files.directory);
  if (absl::IsNotFound(document.status())) return Json();
  return document;
}

class GgufQuantizer {
 public:
  GgufQuantizer(const ModelFiles& files, const QuantizeOptions& options,
                const QuantizedType& type,
                const std::vector<TensorOverride>& overrides)
      : files_(files),
        options_(options),
        type_(type),
        overrides_(overrides),
        pass_(files, options) {}

  absl::StatusOr<QuantizeReport> Run(const std::string& path) {
    INLAY_RETURN_IF_ERROR(PlanTensors());
    INLAY_RETURN_IF_ERROR(CheckTensorTypes());
    INLAY_ASSIGN_OR_RETURN(GgufWriter writer, GgufWriter::Create(path));
    INLAY_RETURN_IF_ERROR(SetKeys(&writer));
    INLAY_RETURN_IF_ERROR(AddTensors(&writer));
    INLAY_RETURN_IF_ERROR(pass_.Calibrate());
    INLAY_RETURN_IF_ERROR(writer.StartData());
    INLAY_RETURN_IF_ERROR(WriteData(&writer));
    INLAY_RETURN_IF_ERROR(writer.Commit());
    INLAY_ASSIGN_OR_RETURN(const FileReader file, FileReader::Open(path));
    pass_.report().file_bytes = file.size();
    return std::move(pass_.report());
  }

 private:
  absl::Status PlanTensors() {
    INLAY_ASSIGN_OR_RETURN(arch_, FindGgufArchOf(files_.config));
    INLAY_RETURN_IF_ERROR(pass_.Open());
    INLAY_ASSIGN_OR_RETURN(tensors_, PlanFileTensors(files_.config, *arch_,
                                                     pass_.model_tensors()));
    readers_.resize(tensors_.size());
    pass_.SetFileTensors(tensors_);
    return absl::OkStatus();
  }

  absl::Status CheckTensorTypes() const {
    if (options_.tensor_types.empty()) return absl::OkStatus();
    std::vector<std::string_view> names;
    for (size_t i = 0; i < tensors_.size(); ++i) {
      names.push_back(pass_.report().tensors[i].name);
      names.insert(names.end(), tensors_[i].parts.begin(),
                   tensors_[i].parts.end());
    }
    return CheckPatterns(options_.tensor_types, names);
  }

  // The published one, of several the first's; null: there is no such tensor.
  const std::vector<int64_t>* ShapeOf(std::string_view gguf) const {
    for (const FileTensor& tensor : tensors_) {
      if (tensor.gguf == gguf) return &tensor.rows.parts.front()->shape;
    }
    return nullptr;
  }

  absl::Status SetKeys(GgufWriter* writer) {
    INLAY_ASSIGN_OR_RETURN(
        config_, SetGgufConfig(
                     files_.config, *arch_,
                     [this](auto name) { return ShapeOf(name); }, writer));
    INLAY_RETURN_IF_ERROR(SetGgufEmbedding(files_.embedding, *arch_, writer));
    INLAY_RETURN_IF_ERROR(
        writer->SetU32("general.quantization_version", kQuantizationVersion));
    if (type_.file_type.has_value()) {
      INLAY_RETURN_IF_ERROR(
          writer->SetU32("general.file_type", *type_.file_type));
    }
    int64_t vocab_size = 0;
    for (size_t i = 0; i < tensors_.size(); ++i) {
      if (tensors_[i].gguf == "token_embd.weight") {
        vocab_size = pass_.info(i).shape[0];
      }
    }
    Json tokenizer;
    if (options_.tokenizer) {
      INLAY_ASSIGN_OR_RETURN(tokenizer, FindTokenizer(files_));
    }
    if (tokenizer.is_null()) {
      return SetNoGgufTokenizer(arch_->name, vocab_size, writer);
    }
    pass_.report().has_tokenizer = true;
    return SetGgufTokenizer(tokenizer, files_, vocab_size, writer);
  }

  absl::Status AddTensors(GgufWriter* writer) {
    INLAY_ASSIGN_OR_RETURN(
        const int64_t layers,
        JsonInt(files_.config,
                arch_->name == "gpt2" ? "n_layer" : "num_hidden_layers", 0, 0,
                INT32_MAX));
    const bool has_head = ShapeOf("output.weight") != nullptr;
    QuantizeReport& report = pass_.report();
    for (size_t i = 0; i < tensors_.size(); ++i) {
      const FileTensor& tensor = tensors_[i];
      std::optional<RowReader>& reader = readers_[i];
      QuantizedTensor& row = report.tensors[i];
      INLAY_ASSIGN_OR_RETURN(
          reader, RowReader::Create(pass_.source(), tensor.rows, config_.heads,
                                    pass_.pool()));
      row.shape = tensor.shape;
      if (row.shape.empty()) {
        row.shape = {reader->rows()};
        const bool is_matrix = tensor.rows.parts.front()->shape.size() == 2;
        if (is_matrix) row.shape.push_back(reader->row_elements());
      }
      const bool is_head =
          row.gguf == (has_head ? "output.weight" : "token_embd.weight");
      INLAY_ASSIGN_OR_RETURN(
          const ChosenType chosen,
          ChooseTensorType(
              type_, overrides_,
              {row.name, row.gguf, row.shape, static_cast<int>(layers), is_head,
               tensor.is_vector, tensor.parts}));
      row.to = chosen.dtype;
      row.wanted = chosen.wanted;
      row.bytes_after = RowBytes(row.to, reader->row_elements()) *
                        static_cast<uint64_t>(reader->rows());
      report.bytes_after += row.bytes_after;
      pass_.CountElements(reader->rows() * reader->row_elements());
      INLAY_RETURN_IF_ERROR(writer->AddTensor(row.gguf, row.to, row.shape));
    }
    for (const auto& [name, values] : config_.vectors) {
      INLAY_RETURN_IF_ERROR(writer->AddTensor(
          name, DType::kF32, {static_cast<int64_t>(values.size())}));
    }
    return AddTables(writer);
  }

  absl::Status AddTables(GgufWriter* writer) {
    INLAY_ASSIGN_OR_RETURN(tables_,
                           FindIndexTables(pass_.spec(), pass_.source()));
    for (const WeightInfo* table : tables_) {
      const auto name = GgufTensorName(*arch_, table->name);
      if (!name.has_value()) {
        return absl::UnimplementedError(
            FormattedString("tensor \"%s\" has no name in GGUF files of \"%s\"",
                            table->name, arch_->name));
      }
      INLAY_RETURN_IF_ERROR(
          writer->AddTensor(name->name, DType::kI32, table->shape));
    }
    return absl::OkStatus();
  }

  absl::Status WriteData(GgufWriter* writer) {
    for (size_t i = 0; i < tensors_.size(); ++i) {
      INLAY_RETURN_IF_ERROR(
          pass_.Write(i, *readers_[i], nullptr,
                      [writer](auto bytes) { return writer->Append(bytes); }));
      readers_[i].reset();
    }
    for (const auto& [name, values] : config_.vectors) {
      INLAY_RETURN_IF_ERROR(writer->Append(
          absl::MakeConstSpan(reinterpret_cast<const std::byte*>(values.data()),
                              values.size() * sizeof(float))));
    }
    for (const WeightInfo* table : tables_) {
      INLAY_ASSIGN_OR_RETURN(const std::vector<std::byte> bytes,
                             ReadIndexTable(pass_.source(), *table));
      INLAY_RETURN_IF_ERROR(writer->Append(bytes));
    }
    return absl::OkStatus();
  }

  const ModelFiles& files_;
  const QuantizeOptions& options_;
  const QuantizedType& type_;
  const std::vector<TensorOverride>& overrides_;
  TensorPass pass_;
  const GgufArch* arch_ = nullptr;
  std::vector<FileTensor> tensors_;  // as the report's
  std::vector<std::optional<RowReader>> readers_;
  std::vector<const WeightInfo*> tables_;  // of experts by token
  GgufConfigTensors config_;
};

}  // namespace

absl::StatusOr<QuantizeReport> QuantizeModel(const ModelFiles& files,
                                             const QuantizeOptions& options,
                                             const std::string& path) {
  INLAY_ASSIGN_OR_RETURN(const QuantizedType type,
                         ParseQuantizedType(options.type));
  if (type.checkpoint.has_value()) {
    if (!options.imatrix.empty()) {
      return absl::InvalidArgumentError(FormattedString(
          "an imatrix names tensors as GGUF files do, and %s gives a folder, "
          "allowed: calibration",
          options.type));
    }
    std::vector<CheckpointOverride> overrides;
    for (const std::string& text : options.tensor_types) {
      INLAY_ASSIGN_OR_RETURN(
          overrides.emplace_back(),
          ParseCheckpointOverride(text, options.type, *type.checkpoint));
    }
    return QuantizeCheckpoint(files, options, *type.checkpoint, overrides,
                              path);
  }
  std::vector<TensorOverride> overrides;
  for (const std::string& text : options.tensor_types) {
    INLAY_ASSIGN_OR_RETURN(overrides.emplace_back(), ParseTensorOverride(text));
  }
  ModelFiles whole = files;
  INLAY_ASSIGN_OR_RETURN(whole.config, WithXielu(files));
  return GgufQuantizer(whole, options, type, overrides).Run(path);
}

absl::StatusOr<QuantizeReport> QuantizePath(const std::string& model,
                                            const QuantizeOptions& options,
                                            const std::string& path) {
  INLAY_ASSIGN_OR_RETURN(const ModelFiles files, OpenModelFiles(model, {}));
  return QuantizeModel(files, options, path);
}

}  // namespace inlay
