#include "core/quantize/checkpoint.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <set>
#include <system_error>
#include <utility>
#include <variant>

#include "core/formats/quantized_settings.h"
#include "core/formats/safetensors_writer.h"
#include "core/model/arch.h"
#include "core/quantize/checkpoint_layout.h"
#include "core/quantize/copied_texts.h"
#include "core/quantize/group_scheme.h"
#include "core/quantize/index_tables.h"
#include "core/quantize/nearest_rows.h"
#include "core/quantize/overlay_weights.h"
#include "core/quantize/tensor_pass.h"
#include "kernels/quant/quant.h"
#include "memory/file_ops.h"
#include "memory/formatted_string.h"
#include "memory/mapped_file.h"
#include "memory/status.h"

namespace inlay {
namespace {

// The layers of one type.
struct TypedLayers {
  CheckpointType type;
  std::unique_ptr<CheckpointLayout> layout;
  std::vector<std::string> names;
  DType stored = DType::kBF16;  // of the first

  bool has_input_scale() const {
    return type.inputs == CheckpointInputs::kTensor;
  }
};

// "quantization_config". With several groups each names its layers: engines
// that make one matrix of q, k and v ask for its class first, "Linear".
Json CheckpointSettings(const std::vector<TypedLayers>& groups,
                        const std::vector<std::string>& kept, bool act_order) {
  const auto config_of = [&](const TypedLayers& group) {
    return group.layout->Config({kept, act_order, group.stored});
  };
  std::vector<const TypedLayers*> used;
  for (const TypedLayers& group : groups) {
    if (!group.names.empty()) used.push_back(&group);
  }
  if (used.empty()) used.push_back(&groups.front());
  Json settings = config_of(*used.front());
  if (used.size() == 1) return settings;
  const Json format = settings["format"];
  Json all = Json::object();
  for (size_t i = 0; i < used.size(); ++i) {
    const Json config = config_of(*used[i]);
    Json group = config["config_groups"]["group_0"];
    group["targets"] = used[i]->names;
    group["format"] = config["format"];
    if (config["format"] != format) settings["format"] = "mixed-precision";
    all[FormattedString("group_%d", i)] = std::move(group);
  }
  settings["config_groups"] = std::move(all);
  return settings;
}

// GPTQ's settings have no list of what stays plain. Those who read the layout
// go by a list of what does not (transformers) or by patterns of names, "-:"
// for plain ones (GPTQModel), and otherwise expect every linear layer.
void AddGptqExceptions(const std::vector<std::string>& kept,
                       const std::vector<std::string>& converted,
                       Json* settings) {
  (*settings)["modules_in_block_to_quantize"] = Json::array({converted});
  Json& dynamic = (*settings)["dynamic"] = Json::object();
  for (const std::string& name : kept) {
    std::string pattern = "-:";
    for (const char c : name) pattern += c == '.' ? "\\." : std::string(1, c);
    dynamic[pattern + "$"] = Json::object();
  }
}

class CheckpointQuantizer {
 public:
  CheckpointQuantizer(const ModelFiles& files, const QuantizeOptions& options,
                      const CheckpointType& type,
                      const std::vector<CheckpointOverride>& overrides,
                      const std::string& folder)
      : files_(files),
        options_(options),
        overrides_(overrides),
        folder_(folder),
        pass_(files, options) {
    GroupOf(type);
    for (const CheckpointOverride& given : overrides) {
      if (given.type.has_value()) GroupOf(*given.type);
    }
  }

  absl::StatusOr<QuantizeReport> Run() {
    INLAY_RETURN_IF_ERROR(CheckSource());
    INLAY_ASSIGN_OR_RETURN(texts_,
                           FindTexts(files_.directory, options_.tokenizer));
    const bool has_input_scales =
        std::any_of(groups_.begin(), groups_.end(),
                    [](const auto& group) { return group.has_input_scale(); });
    INLAY_RETURN_IF_ERROR(pass_.Open(has_input_scales));
    INLAY_RETURN_IF_ERROR(PlanTensors());
    std::error_code error;
    const bool made = std::filesystem::create_directories(folder_, error);
    if (error) return FileError(error.value(), "create the folder", folder_);
    absl::StatusOr<QuantizeReport> report = Write();
    // Fails, as it should, where files were written.
    if (made && !report.ok()) std::filesystem::remove(folder_, error);
    return report;
  }

 private:
  absl::StatusOr<QuantizeReport> Write() {
    const std::string path = folder_ + "/model.safetensors";
    INLAY_ASSIGN_OR_RETURN(SafetensorsWriter writer,
                           SafetensorsWriter::Create(path));
    INLAY_RETURN_IF_ERROR(AddTensors(&writer));
    INLAY_RETURN_IF_ERROR(pass_.Calibrate());
    INLAY_RETURN_IF_ERROR(writer.StartData());
    for (size_t i = 0; i < pass_.report().tensors.size(); ++i) {
      INLAY_RETURN_IF_ERROR(WriteTensor(i, &writer));
    }
    for (const WeightInfo* table : tables_) {
      INLAY_ASSIGN_OR_RETURN(const std::vector<std::byte> bytes,
                             ReadIndexTable(pass_.source(), *table));
      INLAY_RETURN_IF_ERROR(writer.Append(bytes));
    }
    INLAY_RETURN_IF_ERROR(writer.Commit());
    INLAY_RETURN_IF_ERROR(WriteTexts());
    INLAY_ASSIGN_OR_RETURN(const FileReader file, FileReader::Open(path));
    pass_.report().file_bytes = file.size();
    return std::move(pass_.report());
  }

  absl::Status CheckSource() const {
    std::error_code error;
    const char* fault = nullptr;
    const Json* settings = JsonFind(files_.config, "quantization_config");
    if (files_.random.has_value() || files_.directory.empty()) {
      fault = "no folder";
    } else if (settings != nullptr && RoundsWeights(*settings)) {
      fault = "quantised already";
    } else if (std::filesystem::equivalent(files_.directory, folder_, error)) {
      fault = "the folder to write";
    }
    if (fault == nullptr) return absl::OkStatus();
    return absl::UnimplementedError(FormattedString(
        "%s from a model that is %s, allowed: another folder of plain weights",
        options_.type, fault));
  }

  absl::Status AlreadyQuantised(const QuantizedTensor& row) const {
    return absl::UnimplementedError(
        FormattedString("%s from tensor \"%s\" in %s, allowed: plain weights",
                        options_.type, row.name, DTypeName(row.from)));
  }

  // Of groups_; made where there is none of the type.
  size_t GroupOf(const CheckpointType& type) {
    for (size_t i = 0; i < groups_.size(); ++i) {
      if (groups_[i].type == type) return i;
    }
    groups_.push_back({type, MakeCheckpointLayout(type), {}, DType::kBF16});
    return groups_.size() - 1;
  }

  // Null: the tensor stays as it is.
  TypedLayers* WantedGroup(const std::string& name) {
    TypedLayers* wanted = &groups_.front();
    for (const CheckpointOverride& given : overrides_) {
      if (!MatchesPattern(given.pattern, name)) continue;
      wanted =
          given.type.has_value() ? &groups_[GroupOf(*given.type)] : nullptr;
    }
    return wanted;
  }

  absl::StatusOr<std::set<std::string>> LinearLayers() const {
    std::set<std::string> names;
    for (const LayerSpec& layer : pass_.spec().layers) {
      for (const LinearInput& input : InputsOf(layer)) {
        for (const LinearSpec* reader : input.readers) {
          if (reader->transposed) {
            return absl::UnimplementedError(FormattedString(
                "\"%s\" lies transposed, allowed for %s: layers stored as "
                "[outputs, inputs]",
                reader->name, options_.type));
          }
          names.insert(reader->name + std::string(kWeightSuffix));
        }
      }
    }
    return names;
  }

  // Linear to other engines, too, and never of a type: what decides much, as
  // routers do, and what is between the last norm and the head.
  std::set<std::string> KeptLayers() const {
    std::set<std::string> names;
    const auto keep = [&](const LinearSpec& layer) {
      names.insert(layer.name + std::string(kWeightSuffix));
    };
    for (const LayerSpec& layer : pass_.spec().layers) {
      for (const LinearInput& input : InputsOf(layer)) {
        for (const LinearSpec* reader : input.kept) keep(*reader);
      }
      // Routers with norms of their own read no input of others.
      for (const BlockSpec& block : layer.blocks) {
        const auto* both = std::get_if<MlpMoeSpec>(&block.part);
        if (both != nullptr) keep(both->moe.router);
      }
    }
    for (const HeadLayerSpec& layer : pass_.spec().head_layers) {
      keep(layer.linear);
    }
    return names;
  }

  // "lm_head", and what else the files call it.
  std::vector<std::string> HeadNames() const {
    const DecoderSpec& spec = pass_.spec();
    std::vector<std::string> names = {"lm_head"};
    std::string own = spec.head;
    // All that is known of a tied one.
    if (own.empty()) own = spec.tied_bias.substr(0, spec.tied_bias.rfind('.'));
    if (!own.empty() && own != names[0]) names.push_back(std::move(own));
    return names;
  }

  absl::Status CheckTensorTypes() const {
    std::vector<std::string_view> names;
    for (const QuantizedTensor& row : pass_.report().tensors) {
      names.push_back(row.name);
    }
    return CheckPatterns(options_.tensor_types, names);
  }

  absl::Status PlanTensors() {
    INLAY_RETURN_IF_ERROR(CheckTensorTypes());
    INLAY_ASSIGN_OR_RETURN(const std::set<std::string> linears, LinearLayers());
    const std::set<std::string> kept = KeptLayers();
    schemes_.resize(pass_.report().tensors.size());
    group_of_.resize(schemes_.size());
    for (size_t i = 0; i < schemes_.size(); ++i) {
      QuantizedTensor& row = pass_.report().tensors[i];
      row.shape = pass_.info(i).shape;
      row.to = row.wanted = row.from;
      if (IsBlockFormat(row.from)) return AlreadyQuantised(row);
      if (kept.contains(row.name)) kept_.push_back(LayerOf(i));
      if (!linears.contains(row.name)) continue;
      if (TypedLayers* group = WantedGroup(row.name)) Plan(i, *group);
      if (row.to == row.from) kept_.push_back(LayerOf(i));
    }
    return absl::OkStatus();
  }

  void Plan(size_t i, TypedLayers& group) {
    // Of rows of whole blocks, if they are.
    constexpr int64_t kWhole = 128;
    QuantizedTensor& row = pass_.report().tensors[i];
    row.wanted = *group.type.BlockType(kWhole);
    const int64_t n = row.shape[0], k = row.shape[1];
    const auto block = group.type.BlockType(k);
    if (!block.has_value() || !group.layout->Fits(n, k)) return;
    row.to = row.wanted = *block;
    group_of_[i] = &group;
    if (group.names.empty()) group.stored = row.from;
    group.names.push_back(LayerOf(i));
    const BlockGrid* grid = FindBlockCodec(row.to)->grid;
    if (grid == nullptr) return;
    schemes_[i] = {grid, group.type.group, group.type.symmetric,
                   group.layout->ScaleType(row.from)};
    pass_.SetScheme(i, &schemes_[i]);
  }

  bool IsConverted(size_t i) const {
    return IsBlockFormat(pass_.report().tensors[i].to);
  }

  // Of the source's tensor, without ".weight".
  std::string LayerOf(size_t i) const {
    const std::string& name = pass_.info(i).name;
    return name.substr(0, name.size() - kWeightSuffix.size());
  }

  absl::Status AddTensors(SafetensorsWriter* writer) {
    QuantizeReport& report = pass_.report();
    uint64_t largest = 0;
    for (size_t i = 0; i < report.tensors.size(); ++i) {
      QuantizedTensor& row = report.tensors[i];
      int64_t elements = 1;
      for (const int64_t size : row.shape) elements *= size;
      pass_.CountElements(elements);
      row.gguf = pass_.info(i).name;
      row.bytes_after = row.bytes_before;
      if (!IsConverted(i)) {
        INLAY_RETURN_IF_ERROR(writer->AddTensor(row.gguf, row.to, row.shape));
      } else {
        row.bytes_after = 0;
        for (const LayerPart& part : group_of_[i]->layout->Parts(
                 row.shape[0], row.shape[1], row.from)) {
          uint64_t size = 1;
          for (const int64_t side : part.shape) {
            size *= static_cast<uint64_t>(side);
          }
          row.bytes_after += RowBytes(part.dtype, size);
          INLAY_RETURN_IF_ERROR(writer->AddTensor(LayerOf(i) + part.suffix,
                                                  part.dtype, part.shape));
        }
      }
      report.bytes_after += row.bytes_after;
      if (IsConverted(i)) largest = std::max(largest, row.bytes_after);
    }
    // Its rows, and converted: codes, what they are made from, what is written.
    int64_t together = 1;
    for (const TypedLayers& group : groups_) {
      together = std::max<int64_t>(together, group.type.rows);
    }
    pass_.Reserve(4 * largest, together);
    return AddTables(writer);
  }

  // Experts by token: integers, which no plan has.
  absl::Status AddTables(SafetensorsWriter* writer) {
    INLAY_ASSIGN_OR_RETURN(tables_,
                           FindIndexTables(pass_.spec(), pass_.source()));
    for (const WeightInfo* table : tables_) {
      INLAY_RETURN_IF_ERROR(
          writer->AddTensor(table->name, DType::kI32, table->shape));
    }
    return absl::OkStatus();
  }

  // Null: the format's encoder.
  std::unique_ptr<RowMethod> Nearest(size_t i, int64_t width) const {
    const QuantizedTensor& row = pass_.report().tensors[i];
    if (schemes_[i].grid != nullptr) {
      return std::make_unique<NearestInGroups>(schemes_[i], width,
                                               pass_.pool());
    }
    const TypedLayers& group = *group_of_[i];
    if (group.type.codes != CheckpointCodes::kF8) return nullptr;
    std::optional<ScaleGrid> cell = group.type.Cell(row.shape[0], width);
    if (group.type.group == kGroupIsTensor) cell.reset();
    return std::make_unique<NearestE4M3>(
        row.to, cell, group.layout->ScaleType(row.from), width, pass_.pool());
  }

  absl::Status WriteTensor(size_t i, SafetensorsWriter* writer) {
    const QuantizedTensor& row = pass_.report().tensors[i];
    // Of convolutions, whose shape the file keeps: rows are channels.
    const bool is_taps = row.shape.size() == 3;
    INLAY_ASSIGN_OR_RETURN(
        RowReader reader,
        RowReader::Create(pass_.source(), pass_.info(i),
                          is_taps ? GgufLayout::kTaps : GgufLayout::kSame, {},
                          pass_.pool()));
    if (!IsConverted(i)) {
      return pass_.Write(i, reader, nullptr, [writer](auto bytes) {
        return writer->Append(bytes);
      });
    }
    std::vector<std::byte> rows;
    rows.reserve(RowBytes(row.to, static_cast<size_t>(reader.row_elements())) *
                 static_cast<size_t>(reader.rows()));
    const std::unique_ptr<RowMethod> nearest =
        Nearest(i, reader.row_elements());
    INLAY_RETURN_IF_ERROR(
        pass_.Write(i, reader, nearest.get(), [&](auto bytes) {
          rows.insert(rows.end(), bytes.begin(), bytes.end());
          return absl::OkStatus();
        }));
    LayerRows layer = {rows, row.to, reader.rows(), reader.row_elements()};
    const TypedLayers& group = *group_of_[i];
    if (group.has_input_scale()) layer.largest_input = pass_.LargestInput();
    for (const auto& part : group.layout->Convert(layer, row.from)) {
      INLAY_RETURN_IF_ERROR(writer->Append(part));
    }
    return absl::OkStatus();
  }

  absl::Status WriteTexts() {
    INLAY_RETURN_IF_ERROR(CopyTexts(files_.directory, folder_, texts_));
    pass_.report().has_tokenizer = texts_.has_tokenizer;
    Json config = files_.config;
    // A multimodal model's text has none of its own.
    if (JsonFind(config, "architectures") == nullptr) {
      INLAY_ASSIGN_OR_RETURN(const ArchRow* row, FindArchitecture(config));
      config["architectures"] = {std::string(row->architecture)};
    }
    std::vector<std::string> kept = kept_;
    // A linear layer to other engines, tied or not.
    for (std::string& name : HeadNames()) kept.push_back(std::move(name));
    Json& settings = config["quantization_config"] =
        CheckpointSettings(groups_, kept, options_.act_order);
    const TypedLayers& first = groups_.front();
    if (first.type.kind == CheckpointKind::kGptq && !kept_.empty()) {
      AddGptqExceptions(kept_, first.names, &settings);
    }
    return WriteTextFile(folder_ + "/config.json", DumpJson(config) + "\n");
  }

  const ModelFiles& files_;
  const QuantizeOptions& options_;
  const std::vector<CheckpointOverride>& overrides_;
  const std::string& folder_;
  FoundTexts texts_;
  TensorPass pass_;
  std::vector<TypedLayers> groups_;  // all made before the first is referred to
  // As the report's tensors; a grid where it is whole numbers in groups.
  std::vector<GroupScheme> schemes_;
  std::vector<const TypedLayers*> group_of_;  // of tensors that are converted
  std::vector<std::string> kept_;  // linear layers that stay as they are
  std::vector<const WeightInfo*> tables_;
};

}  // namespace

absl::StatusOr<QuantizeReport> QuantizeCheckpoint(
    const ModelFiles& files, const QuantizeOptions& options,
    const CheckpointType& type,
    const std::vector<CheckpointOverride>& overrides,
    const std::string& folder) {
  // Dense modules keep their weights in folders of their own, which are copied
  // (copied_texts.h), as other engines look for them there.
  ModelFiles network = files;
  network.embedding.dense.clear();
  return CheckpointQuantizer(network, options, type, overrides, folder).Run();
}

}  // namespace inlay
