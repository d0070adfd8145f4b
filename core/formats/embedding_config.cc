#include "core/formats/embedding_config.h"

#include <string_view>
#include <utility>

#include "core/formats/describe.h"
#include "core/json/python_json.h"
#include "memory/formatted_string.h"
#include "memory/mapped_file.h"
#include "memory/status.h"

namespace inlay {
namespace {

struct Mode {
  std::string_view name;  // "pooling_mode", since version 5
  std::string_view key;   // a flag each before
  Pooling pooling;        // kNone: not supported
};
constexpr Mode kModes[] = {
    {"mean", "pooling_mode_mean_tokens", Pooling::kMean},
    {"cls", "pooling_mode_cls_token", Pooling::kCls},
    {"lasttoken", "pooling_mode_lasttoken", Pooling::kLast},
    {"max", "pooling_mode_max_tokens", Pooling::kNone},
    {"mean_sqrt_len_tokens", "pooling_mode_mean_sqrt_len_tokens",
     Pooling::kNone},
    {"weightedmean", "pooling_mode_weightedmean_tokens", Pooling::kNone}};

absl::Status ReadPooling(const Json& config, EmbeddingDefaults* defaults) {
  INLAY_ASSIGN_OR_RETURN(const std::string name,
                         JsonString(config, "pooling_mode", ""));
  int found = 0;
  for (const Mode& mode : kModes) {
    INLAY_ASSIGN_OR_RETURN(
        const bool chosen,
        JsonBool(config, mode.key, !name.empty() && mode.name == name));
    if (!chosen) continue;
    ++found;
    defaults->pooling = mode.pooling;
    if (mode.pooling == Pooling::kNone) {
      defaults->unsupported = FormattedString("the pooling \"%s\"", mode.name);
    }
  }
  if (found == 1) return absl::OkStatus();
  defaults->pooling = Pooling::kNone;
  defaults->unsupported = found == 0
                              ? FormattedString("the pooling %s", Quoted(name))
                              : "several poolings side by side";
  return absl::OkStatus();
}

struct NamedDense {
  std::string_view name;  // of a class in torch.nn
  DenseActivation activation;
};
constexpr NamedDense kDenseActivations[] = {
    {"Identity", DenseActivation::kIdentity},
    {"Tanh", DenseActivation::kTanh},
    {"GELU", DenseActivation::kGelu},
    {"ReLU", DenseActivation::kRelu},
    {"SiLU", DenseActivation::kSilu}};

constexpr int64_t kMaxFeatures = int64_t{1} << 20;
constexpr size_t kMaxDense = 16;

// The configuration of a module in the folder that modules.json names.
absl::StatusOr<Json> ModuleConfig(const std::string& directory,
                                  const Json& module) {
  INLAY_ASSIGN_OR_RETURN(const std::string path,
                         JsonString(module, "path", ""));
  if (path.empty() || path.find('/') != std::string::npos || path[0] == '.') {
    return absl::InvalidArgumentError(FormattedString(
        "\"path\" is %s, allowed: the name of a folder", Quoted(path)));
  }
  return ReadOptionalPythonJson(
      FormattedString("%s/%s/config.json", directory, path));
}

// What of a Dense module's configuration there is nothing for; "": all is well,
// and `dense` has it.
absl::StatusOr<std::string> ReadDense(const Json& config, DenseModule* dense) {
  for (const auto& [key, size] : {std::pair{"in_features", &dense->inputs},
                                  std::pair{"out_features", &dense->outputs}}) {
    INLAY_ASSIGN_OR_RETURN(*size, JsonInt(config, key, 0, 1, kMaxFeatures));
    if (*size > 0) continue;
    return absl::InvalidArgumentError(FormattedString(
        "the config.json of a module Dense has no %s, allowed: 1 to %d", key,
        kMaxFeatures));
  }
  INLAY_ASSIGN_OR_RETURN(dense->bias, JsonBool(config, "bias", true));
  for (const char* key : {"module_input_name", "module_output_name"}) {
    INLAY_ASSIGN_OR_RETURN(const std::string name,
                           JsonString(config, key, "sentence_embedding"));
    if (name != "sentence_embedding") {
      return FormattedString("a module Dense with %s %s", key, Quoted(name));
    }
  }
  INLAY_ASSIGN_OR_RETURN(const std::string path,
                         JsonString(config, "activation_function", ""));
  const std::string_view name =
      std::string_view(path).substr(path.rfind('.') + 1);
  for (const NamedDense& named : kDenseActivations) {
    if (named.name != name) continue;
    dense->activation = named.activation;
    return std::string();
  }
  return FormattedString("a module Dense with the activation %s", Quoted(path));
}

absl::Status AddDense(const std::string& directory, const Json& module,
                      EmbeddingDefaults* defaults) {
  INLAY_ASSIGN_OR_RETURN(const Json config, ModuleConfig(directory, module));
  DenseModule dense;
  INLAY_ASSIGN_OR_RETURN(dense.folder, JsonString(module, "path", ""));
  INLAY_ASSIGN_OR_RETURN(std::string unsupported, ReadDense(config, &dense));
  if (unsupported.empty() &&
      (defaults->pooling == Pooling::kNone || defaults->normalise)) {
    unsupported =
        "a module Dense that does not come between the pooling and "
        "the normalisation";
  }
  if (!unsupported.empty()) {
    defaults->unsupported = std::move(unsupported);
    return absl::OkStatus();
  }
  const std::vector<DenseModule>& before = defaults->dense;
  if (before.size() == kMaxDense) {
    return absl::InvalidArgumentError(FormattedString(
        "there are more than %d modules Dense, allowed: so many", kMaxDense));
  }
  if (!before.empty() && before.back().outputs != dense.inputs) {
    return absl::InvalidArgumentError(
        FormattedString("%s: in_features is %d, allowed: %d, what %s gives",
                        Quoted(dense.folder), dense.inputs,
                        before.back().outputs, Quoted(before.back().folder)));
  }
  defaults->dense.push_back(std::move(dense));
  return absl::OkStatus();
}

absl::Status ReadModule(const std::string& directory, const Json& module,
                        EmbeddingDefaults* defaults) {
  INLAY_ASSIGN_OR_RETURN(const std::string type,
                         JsonString(module, "type", ""));
  const std::string name = type.substr(type.rfind('.') + 1);
  // Nothing is dropped but in training.
  if (name == "Transformer" || name == "Dropout") return absl::OkStatus();
  if (name == "Dense") return AddDense(directory, module, defaults);
  if (name == "Normalize") {
    defaults->normalise = true;
    return absl::OkStatus();
  }
  if (name != "Pooling") {
    defaults->unsupported = FormattedString("the module %s", Quoted(type));
    return absl::OkStatus();
  }
  INLAY_ASSIGN_OR_RETURN(const Json config, ModuleConfig(directory, module));
  return ReadPooling(config, defaults);
}

}  // namespace

absl::StatusOr<EmbeddingDefaults> ReadEmbeddingDefaults(
    const std::string& directory) {
  EmbeddingDefaults defaults;
  const std::string path = FormattedString("%s/modules.json", directory);
  const auto text = ReadWholeFile(path, kMaxConfigBytes);
  if (absl::IsNotFound(text.status())) return defaults;
  if (!text.ok()) return text.status();
  INLAY_ASSIGN_OR_RETURN(const Json modules, ParseJson(*text, path));
  if (!modules.is_array()) {
    return absl::InvalidArgumentError(FormattedString(
        "%s is of type %s, allowed: a list", path, modules.type_name()));
  }
  for (const Json& module : modules) {
    const absl::Status read = ReadModule(directory, module, &defaults);
    if (!read.ok()) return InFile(path, read);
  }
  // Layers that come before or behind what is not there are of no use.
  if (!defaults.unsupported.empty()) defaults.dense.clear();
  return defaults;
}

}  // namespace inlay
