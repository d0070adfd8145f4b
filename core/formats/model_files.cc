#include "core/formats/model_files.h"

#include "core/formats/chat_format.h"
#include "core/formats/describe.h"
#include "core/formats/expert_source.h"
#include "core/formats/generation_config.h"
#include "core/formats/gguf_model.h"
#include "core/formats/group_source.h"
#include "core/formats/head_source.h"
#include "core/formats/joined_source.h"
#include "core/formats/model_path.h"
#include "core/formats/norm_head_source.h"
#include "core/formats/quantized_source.h"
#include "core/formats/rope_config.h"
#include "core/formats/safetensors_source.h"
#include "core/formats/sinusoid_source.h"
#include "core/formats/text_model.h"
#include "core/json/python_json.h"
#include "memory/formatted_string.h"
#include "memory/mapped_file.h"
#include "memory/status.h"

namespace inlay {
namespace {

constexpr char kAllowed[] =
    "a folder with config.json and safetensors files, or a .gguf file";

// Why `path`, which is no folder, cannot be opened.
absl::Status NotADirectory(const std::string& path) {
  const auto file = FileReader::Open(path);
  if (absl::IsNotFound(file.status())) {
    return absl::NotFoundError(FormattedString(
        "there is no model at %s, allowed: %s", path, kAllowed));
  }
  if (!file.ok()) return file.status();
  return absl::InvalidArgumentError(
      FormattedString("%s is a file, allowed: %s", path, kAllowed));
}

// Leaves `text` empty where the model is not inside a multimodal one.
absl::Status ReadDescription(const ModelFilesOptions& options,
                             ModelFiles* files, std::string* text) {
  const std::string& directory = files->directory;
  const std::string config = FormattedString("%s/config.json", directory);
  INLAY_ASSIGN_OR_RETURN(files->config, ReadOptionalPythonJson(config));
  if (files->config.is_null() && !options.vocab_only) {
    return absl::NotFoundError(
        FormattedString("%s is missing, allowed: %s", config, kAllowed));
  }
  INLAY_ASSIGN_OR_RETURN(const Json generation,
                         ReadOptionalPythonJson(FormattedString(
                             "%s/generation_config.json", directory)));
  auto defaults = InterpretGenerationDefaults(generation, files->config);
  if (!defaults.ok()) return InFile(directory, defaults.status());
  files->generation = *std::move(defaults);
  INLAY_ASSIGN_OR_RETURN(files->chat, ReadChatFormat(directory));
  INLAY_ASSIGN_OR_RETURN(files->embedding, ReadEmbeddingDefaults(directory));
  auto inside = FindTextModel(files->config);
  if (!inside.ok()) return InFile(directory, inside.status());
  if (inside->has_value()) {
    files->config = std::move((*inside)->config);
    *text = std::move((*inside)->type);
  }
  if (files->config.is_object()) KeepOneRope(&files->config);
  return absl::OkStatus();
}

// What ModelOpt's earlier versions write beside config.json, as settings of
// its; null: none, or of the KV cache alone.
absl::StatusOr<Json> ModelOptSettings(const std::string& directory) {
  const std::string path = directory + "/hf_quant_config.json";
  INLAY_ASSIGN_OR_RETURN(const Json beside, ReadOptionalPythonJson(path));
  const Json* stored = JsonFind(beside, "quantization");
  if (stored == nullptr) return Json();
  if (!stored->is_object()) {
    return absl::InvalidArgumentError(
        FormattedString("%s: quantization is %s; it must be an object", path,
                        stored->type_name()));
  }
  if (JsonFind(*stored, "quant_algo") == nullptr) return Json();
  Json settings = *stored;
  settings["quant_method"] = "modelopt";
  return settings;
}

// Earlier versions of ModelOpt leave the layers of mixed checkpoints out of
// config.json (convert_hf_config.py).
bool LacksLayers(const Json& settings) {
  const Json* algorithm = JsonFind(settings, "quant_algo");
  return algorithm != nullptr && *algorithm == "MIXED_PRECISION" &&
         JsonFind(settings, "quantized_layers") == nullptr;
}

// By config.json's settings, else by those beside it, which become config's.
absl::Status PresentQuantized(bool is_text_model, ModelFiles* files) {
  std::string_view place = kConfigSettings;
  const Json* own = JsonFind(files->config, "quantization_config");
  if (own == nullptr || LacksLayers(*own)) {
    INLAY_ASSIGN_OR_RETURN(Json beside, ModelOptSettings(files->directory));
    if (beside.is_null() && own == nullptr) return absl::OkStatus();
    if (!beside.is_null()) {
      files->config["quantization_config"] = std::move(beside);
      place = kModelOptSettings;
    }
  }
  Json& settings = files->config["quantization_config"];
  if (is_text_model) RenameQuantizedLayers(&settings);
  auto weights = OpenQuantized(settings, std::move(files->weights), place);
  if (!weights.ok()) return InFile(files->directory, weights.status());
  files->weights = *std::move(weights);
  return absl::OkStatus();
}

// Presents a multimodal checkpoint's text model alone (`text`: FindTextModel's
// type), one matrix an expert, a quantised checkpoint's layers in block
// formats, q, k and v apart, and the layers of block-diagonal matrices.
absl::Status PresentWeights(const std::string& text, ModelFiles* files) {
  if (!text.empty()) {
    auto own = PresentTextModel(std::move(files->weights));
    if (!own.ok()) return InFile(files->directory, own.status());
    files->weights = *std::move(own);
  }
  auto experts = PresentExperts(files->config, std::move(files->weights), text);
  if (!experts.ok()) return InFile(files->directory, experts.status());
  files->weights = *std::move(experts);
  INLAY_RETURN_IF_ERROR(PresentQuantized(!text.empty(), files));
  auto heads = PresentHeads(files->config, std::move(files->weights));
  if (!heads.ok()) return InFile(files->directory, heads.status());
  files->weights = *std::move(heads);
  auto groups = PresentGroups(files->config, std::move(files->weights));
  if (!groups.ok()) return InFile(files->directory, groups.status());
  files->weights = *std::move(groups);
  auto normed = PresentNormHead(files->config, std::move(files->weights));
  if (!normed.ok()) return InFile(files->directory, normed.status());
  files->weights = *std::move(normed);
  auto positions = PresentSinusoids(files->config, std::move(files->weights));
  if (!positions.ok()) return InFile(files->directory, positions.status());
  files->weights = *std::move(positions);
  return absl::OkStatus();
}

// The weights of Dense modules, which lie in folders of their own, beside the
// model's. Where there are none that can be read, embeddings as the files say
// them are not supported.
absl::Status JoinDense(WeightAccess access, ModelFiles* files) {
  EmbeddingDefaults& embedding = files->embedding;
  std::vector<JoinedPart> parts = {{"", files->weights}};
  for (const DenseModule& dense : embedding.dense) {
    auto opened = OpenSafetensors(
        FormattedString("%s/%s", files->directory, dense.folder), access);
    if (absl::IsNotFound(opened.status()) ||
        absl::IsUnimplemented(opened.status())) {
      embedding.unsupported = FormattedString(
          "the weights of the module %s as safetensors", Quoted(dense.folder));
      embedding.dense.clear();
      return absl::OkStatus();
    }
    if (!opened.ok()) return opened.status();
    parts.push_back({dense.folder + ".", *std::move(opened)});
  }
  if (parts.size() == 1) return absl::OkStatus();
  auto joined = MakeJoinedSource(std::move(parts));
  if (!joined.ok()) return InFile(files->directory, joined.status());
  files->weights = *std::move(joined);
  return absl::OkStatus();
}

}  // namespace

DType RandomWeights::DTypeOf(std::string_view name) const {
  DType chosen = dtype;
  for (const TensorOverride& given : overrides) {
    if (MatchesPattern(given.pattern, name)) chosen = given.dtype;
  }
  return chosen;
}

absl::StatusOr<ModelFiles> OpenModelFiles(const std::string& path,
                                          const ModelFilesOptions& options) {
  INLAY_ASSIGN_OR_RETURN(const ModelPath parsed, ParseModelPath(path));
  if (!IsDirectory(parsed.path)) {
    const bool is_gguf =
        parsed.path.ends_with(".gguf") && IsRegularFile(parsed.path);
    if (is_gguf && !parsed.random.has_value()) {
      return OpenGgufModel(parsed.path, options);
    }
    return NotADirectory(parsed.path);
  }
  ModelFiles files;
  files.directory = parsed.path;
  files.random = parsed.random;
  std::string text;
  INLAY_RETURN_IF_ERROR(ReadDescription(options, &files, &text));
  if (!options.vocab_only && !files.random.has_value()) {
    TensorFilter wanted;
    if (!text.empty()) {
      wanted = [](std::string_view name) {
        return TextModelName(name).has_value();
      };
    }
    INLAY_ASSIGN_OR_RETURN(
        files.weights,
        OpenSafetensors(files.directory, options.access, wanted));
    INLAY_RETURN_IF_ERROR(PresentWeights(text, &files));
    INLAY_RETURN_IF_ERROR(JoinDense(options.access, &files));
  }
  return files;
}

}  // namespace inlay
