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

absl::Status ReadModule(const std::string& directory, const Json& module,
                        EmbeddingDefaults* defaults) {
  INLAY_ASSIGN_OR_RETURN(const std::string type,
                         JsonString(module, "type", ""));
  const std::string name = type.substr(type.rfind('.') + 1);
  if (name == "Transformer") return absl::OkStatus();
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
  return defaults;
}

}  // namespace inlay
