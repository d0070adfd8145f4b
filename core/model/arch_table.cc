#include <string>

#include "core/formats/text_model.h"
#include "core/model/arch.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {

#define INLAY_ARCHITECTURE(architecture, model_type, factory)        \
  absl::StatusOr<std::unique_ptr<Model>> factory(const Json& config, \
                                                 ModelBuild& build);
#include "core/model/architectures.def"
#undef INLAY_ARCHITECTURE

namespace {

constexpr ArchRow kArchitectures[] = {
#define INLAY_ARCHITECTURE(architecture, model_type, factory) \
  {architecture, model_type, factory},
#include "core/model/architectures.def"
#undef INLAY_ARCHITECTURE
};

constexpr std::string_view kBare = "Model";
constexpr std::string_view kCausal = "ForCausalLM";

// "" where config.json names none.
std::string FirstName(const Json& config) {
  const Json* list = JsonFind(config, "architectures");
  const bool is_listed = list != nullptr && list->is_array() &&
                         !list->empty() && list->front().is_string();
  return is_listed ? list->front().get<std::string>() : std::string();
}

const ArchRow* FindRow(std::string_view architecture) {
  for (const ArchRow& row : kArchitectures) {
    if (row.architecture == architecture) return &row;
  }
  return nullptr;
}

std::string SupportedNames() {
  std::string names;
  for (const ArchRow& row : kArchitectures) {
    if (!names.empty()) names += ", ";
    names += row.architecture;
  }
  return names;
}

}  // namespace

absl::Span<const ArchRow> Architectures() { return kArchitectures; }

absl::StatusOr<const ArchRow*> FindArchitecture(const Json& config) {
  const std::string name = FirstName(config);
  INLAY_ASSIGN_OR_RETURN(const std::string model_type,
                         JsonString(config, "model_type", ""));
  for (const ArchRow& row : kArchitectures) {
    if (name.empty() ? row.model_type == model_type
                     : row.architecture == name) {
      return &row;
    }
  }
  // Multimodal networks are called as their text models' are.
  INLAY_RETURN_IF_ERROR(WhyNoTextModel(config));
  if (name.ends_with(kBare)) {
    const std::string whole =
        name.substr(0, name.size() - kBare.size()) + std::string(kCausal);
    if (const ArchRow* row = FindRow(whole)) return row;
  }
  if (name.empty() && model_type.empty()) {
    return absl::InvalidArgumentError(FormattedString(
        "config.json names neither \"architectures\" nor \"model_type\"; "
        "supported architectures are %s",
        SupportedNames()));
  }
  return absl::UnimplementedError(FormattedString(
      "architecture \"%s\" (model_type \"%s\") is not supported; supported are "
      "%s",
      name, model_type, SupportedNames()));
}

bool IsBareNetwork(const Json& config, const ArchRow& row) {
  const std::string name = FirstName(config);
  return name.ends_with(kBare) && row.architecture.ends_with(kCausal);
}

}  // namespace inlay
