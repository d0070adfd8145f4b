#include "core/quantize/checkpoint.h"

#include <filesystem>
#include <set>
#include <system_error>
#include <utility>

#include "absl/strings/str_format.h"
#include "core/formats/safetensors_writer.h"
#include "core/quantize/gptq_layout.h"
#include "core/quantize/overlay_weights.h"
#include "core/quantize/tensor_pass.h"
#include "kernels/quant/grid.h"
#include "memory/mapped_file.h"
#include "memory/status.h"

namespace inlay {
namespace {

// Beside the weights and config.json.
constexpr const char* kTextFiles[] = {
    "tokenizer.json",          "tokenizer.model",     "tokenizer_config.json",
    "special_tokens_map.json", "vocab.json",          "merges.txt",
    "added_tokens.json",       "chat_template.jinja", "chat_template.json"};

// To nearest, with scales and zero points that the layout can say.
class NearestOnGrid : public RowMethod {
 public:
  NearestOnGrid(DType dtype, int64_t width, ThreadPool& pool)
      : grid_(*FindBlockCodec(dtype)->grid), width_(width), pool_(pool) {}
  void Change(int64_t, int64_t, float*) override {}
  bool encodes() const override { return true; }
  absl::Status Encode(int64_t rows, const float* values,
                      std::byte* encoded) override {
    const int64_t blocks = width_ / grid_.elements;
    pool_.ParallelFor(rows, 1, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        EncodeOnGrid(grid_, values + row * width_, nullptr, blocks,
                     encoded + row * blocks * grid_.block_bytes);
      }
    });
    return absl::OkStatus();
  }
  absl::Status Note(int64_t, int64_t, const float*, const float*) override {
    return absl::OkStatus();
  }

 private:
  const BlockGrid& grid_;
  int64_t width_;
  ThreadPool& pool_;
};

template <typename T>
absl::Span<const std::byte> BytesOf(const std::vector<T>& values) {
  return absl::MakeConstSpan(reinterpret_cast<const std::byte*>(values.data()),
                             values.size() * sizeof(T));
}

absl::Status WriteText(const std::string& path, std::string_view text) {
  INLAY_ASSIGN_OR_RETURN(DurableFile file, DurableFile::Create(path));
  INLAY_RETURN_IF_ERROR(file.Append(absl::MakeConstSpan(
      reinterpret_cast<const std::byte*>(text.data()), text.size())));
  return file.Commit();
}

absl::Status CopyFile(const std::string& from, const std::string& to) {
  INLAY_ASSIGN_OR_RETURN(const FileReader file, FileReader::Open(from));
  std::string text(file.size(), '\0');
  INLAY_RETURN_IF_ERROR(file.ReadAt(
      0,
      absl::MakeSpan(reinterpret_cast<std::byte*>(text.data()), text.size())));
  return WriteText(to, text);
}

class CheckpointQuantizer {
 public:
  CheckpointQuantizer(const ModelFiles& files, const QuantizeOptions& options,
                      const QuantizedType& type,
                      const std::vector<TensorOverride>& overrides,
                      const std::string& folder)
      : files_(files),
        options_(options),
        type_(type.base),
        overrides_(overrides),
        folder_(folder),
        pass_(files, options) {}

  absl::StatusOr<QuantizeReport> Run() {
    INLAY_RETURN_IF_ERROR(CheckSource());
    INLAY_RETURN_IF_ERROR(pass_.Open());
    INLAY_RETURN_IF_ERROR(PlanTensors());
    std::error_code error;
    std::filesystem::create_directories(folder_, error);
    const std::string path = folder_ + "/model.safetensors";
    INLAY_ASSIGN_OR_RETURN(SafetensorsWriter writer,
                           SafetensorsWriter::Create(path));
    INLAY_RETURN_IF_ERROR(AddTensors(&writer));
    INLAY_RETURN_IF_ERROR(pass_.Calibrate());
    INLAY_RETURN_IF_ERROR(writer.StartData());
    for (size_t i = 0; i < pass_.report().tensors.size(); ++i) {
      INLAY_RETURN_IF_ERROR(WriteTensor(i, &writer));
    }
    INLAY_RETURN_IF_ERROR(writer.Commit());
    INLAY_RETURN_IF_ERROR(WriteTexts());
    INLAY_ASSIGN_OR_RETURN(const FileReader file, FileReader::Open(path));
    pass_.report().file_bytes = file.size();
    return std::move(pass_.report());
  }

 private:
  absl::Status CheckSource() const {
    std::error_code error;
    const char* fault = nullptr;
    if (files_.random.has_value() || files_.directory.empty()) {
      fault = "no folder";
    } else if (files_.config.contains("quantization_config")) {
      fault = "quantised already";
    } else if (std::filesystem::equivalent(files_.directory, folder_, error)) {
      fault = "the folder to write";
    }
    if (fault == nullptr) return absl::OkStatus();
    return absl::UnimplementedError(absl::StrFormat(
        "%s from a model that is %s, allowed: another folder of plain weights",
        DTypeName(type_), fault));
  }

  // Plain types by override leave a tensor as it is.
  bool IsWanted(const std::string& name) const {
    DType wanted = type_;
    for (const TensorOverride& given : overrides_) {
      if (MatchesPattern(given.pattern, name)) wanted = given.dtype;
    }
    return wanted == type_;
  }

  absl::Status PlanTensors() {
    for (const TensorOverride& given : overrides_) {
      if (!IsBlockFormat(given.dtype)) continue;
      return absl::InvalidArgumentError(absl::StrFormat(
          "the type of tensors \"%s\" is %s, allowed beside %s: f32, f16 or "
          "bf16, which leave them as they are",
          given.pattern, DTypeName(given.dtype), DTypeName(type_)));
    }
    std::set<std::string> linears;
    for (const LayerSpec& layer : pass_.spec().layers) {
      for (const LinearInput& input : InputsOf(layer)) {
        for (const LinearSpec* reader : input.readers) {
          if (reader->transposed) {
            return absl::UnimplementedError(absl::StrFormat(
                "\"%s\" lies transposed, allowed for %s: layers stored as "
                "[outputs, inputs]",
                reader->name, DTypeName(type_)));
          }
          linears.insert(reader->name + std::string(kWeightSuffix));
        }
      }
    }
    for (size_t i = 0; i < pass_.report().tensors.size(); ++i) {
      QuantizedTensor& row = pass_.report().tensors[i];
      const std::vector<int64_t>& shape = pass_.info(i).shape;
      row.shape = shape;
      row.to = row.wanted = row.from;
      if (!linears.contains(row.name) || !IsWanted(row.name)) continue;
      row.wanted = type_;
      if (FitsGptqLayout(type_, shape[0], shape[1])) row.to = type_;
    }
    return absl::OkStatus();
  }

  // Of the source's tensor, without ".weight".
  std::string LayerOf(size_t i) const {
    const std::string& name = pass_.info(i).name;
    return name.substr(0, name.size() - kWeightSuffix.size());
  }

  absl::Status AddTensors(SafetensorsWriter* writer) {
    QuantizeReport& report = pass_.report();
    for (size_t i = 0; i < report.tensors.size(); ++i) {
      QuantizedTensor& row = report.tensors[i];
      int64_t elements = 1;
      for (const int64_t size : row.shape) elements *= size;
      pass_.CountElements(elements);
      row.gguf = pass_.info(i).name;
      row.bytes_after = row.bytes_before;
      if (row.to != type_) {
        INLAY_RETURN_IF_ERROR(writer->AddTensor(row.gguf, row.to, row.shape));
      } else {
        const int64_t n = row.shape[0], k = row.shape[1];
        const int64_t fields = 32 / GptqBits(type_);
        const int64_t groups = k / GetFormatInfo(type_).block_elements;
        const std::string layer = LayerOf(i);
        row.bytes_after = static_cast<uint64_t>(
            4 * (k / fields * n + groups * n / fields + k) + 2 * groups * n);
        INLAY_RETURN_IF_ERROR(writer->AddTensor(layer + ".qweight", DType::kI32,
                                                {k / fields, n}));
        INLAY_RETURN_IF_ERROR(writer->AddTensor(layer + ".qzeros", DType::kI32,
                                                {groups, n / fields}));
        INLAY_RETURN_IF_ERROR(
            writer->AddTensor(layer + ".scales", DType::kF16, {groups, n}));
        INLAY_RETURN_IF_ERROR(
            writer->AddTensor(layer + ".g_idx", DType::kI32, {k}));
      }
      report.bytes_after += row.bytes_after;
    }
    return absl::OkStatus();
  }

  absl::Status WriteTensor(size_t i, SafetensorsWriter* writer) {
    const QuantizedTensor& row = pass_.report().tensors[i];
    INLAY_ASSIGN_OR_RETURN(
        RowReader reader,
        RowReader::Create(pass_.source(), pass_.info(i), GgufLayout::kSame, {},
                          pass_.pool()));
    if (row.to != type_) {
      return pass_.Write(i, reader, nullptr, [writer](auto bytes) {
        return writer->Append(bytes);
      });
    }
    std::vector<std::byte> rows;
    NearestOnGrid nearest(type_, reader.row_elements(), pass_.pool());
    INLAY_RETURN_IF_ERROR(pass_.Write(i, reader, &nearest, [&](auto bytes) {
      rows.insert(rows.end(), bytes.begin(), bytes.end());
      return absl::OkStatus();
    }));
    const GptqTensors tensors =
        ToGptqTensors(rows, type_, reader.rows(), reader.row_elements());
    INLAY_RETURN_IF_ERROR(writer->Append(BytesOf(tensors.codes)));
    INLAY_RETURN_IF_ERROR(writer->Append(BytesOf(tensors.zeros)));
    INLAY_RETURN_IF_ERROR(writer->Append(BytesOf(tensors.scales)));
    return writer->Append(BytesOf(tensors.groups));
  }

  absl::Status WriteTexts() {
    const auto copy = [&](const char* name, bool* copied) -> absl::Status {
      const std::string from = files_.directory + "/" + name;
      if (!IsRegularFile(from)) return absl::OkStatus();
      if (copied != nullptr) *copied = true;
      return CopyFile(from, folder_ + "/" + name);
    };
    INLAY_RETURN_IF_ERROR(copy("generation_config.json", nullptr));
    for (const char* name : kTextFiles) {
      if (!options_.tokenizer) break;
      INLAY_RETURN_IF_ERROR(copy(name, &pass_.report().has_tokenizer));
    }
    Json config = files_.config;
    config["quantization_config"] = {
        {"quant_method", "gptq"},
        {"checkpoint_format", "gptq"},
        {"bits", GptqBits(type_)},
        {"group_size", GetFormatInfo(type_).block_elements},
        {"desc_act", false},
        {"static_groups", options_.act_order},
        {"sym", false},
        {"true_sequential", false}};
    return WriteText(folder_ + "/config.json", DumpJson(config) + "\n");
  }

  const ModelFiles& files_;
  const QuantizeOptions& options_;
  DType type_;
  const std::vector<TensorOverride>& overrides_;
  const std::string& folder_;
  TensorPass pass_;
};

}  // namespace

absl::StatusOr<QuantizeReport> QuantizeCheckpoint(
    const ModelFiles& files, const QuantizeOptions& options,
    const QuantizedType& type, const std::vector<TensorOverride>& overrides,
    const std::string& folder) {
  return CheckpointQuantizer(files, options, type, overrides, folder).Run();
}

}  // namespace inlay
