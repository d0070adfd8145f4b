// The table of architectures. Adding one: a file in arch/ that defines a
// factory, and a line in architectures.def.
#ifndef INLAY_CORE_MODEL_ARCH_H_
#define INLAY_CORE_MODEL_ARCH_H_

#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/json/json.h"
#include "core/model/model.h"
#include "core/model/model_build.h"

namespace inlay {

// Builds a model from a config.json (an object). Errors: INVALID_ARGUMENT for a
// bad value, UNIMPLEMENTED for a feature that is not supported, and those of
// WeightLoader.
using ModelFactory = absl::StatusOr<std::unique_ptr<Model>> (*)(
    const Json& config, ModelBuild& build);

// Whether the architecture asked for has a head of labels.
inline bool HasLabels(const ModelBuild& build) {
  return build.architecture.ends_with("ForSequenceClassification");
}

struct ArchRow {
  std::string_view architecture;
  std::string_view model_type;
  ModelFactory factory;
};

absl::Span<const ArchRow> Architectures();

// By config.json's first "architectures" entry, or by its "model_type" when
// there is none; "...Model" is "...ForCausalLM" where it has no row of its own.
// UNIMPLEMENTED lists the supported architectures.
absl::StatusOr<const ArchRow*> FindArchitecture(const Json& config);

// Whether config.json is of `row`'s network alone, saved without its head.
bool IsBareNetwork(const Json& config, const ArchRow& row);

}  // namespace inlay

#endif  // INLAY_CORE_MODEL_ARCH_H_
