// The text model inside a multimodal checkpoint: config.json's text_config as
// the config.json of its family, and its tensors under their own names. What
// sees and hears is left out: never read, not counted. Knows nothing of how
// families are built. Source: transformers' configuration classes of
// multimodal.def, and their published files.
#ifndef INLAY_CORE_FORMATS_TEXT_MODEL_H_
#define INLAY_CORE_FORMATS_TEXT_MODEL_H_

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/formats/weight_source.h"
#include "core/json/json.h"

namespace inlay {

struct TextModel {
  Json config;       // of the text model alone; names no "architectures"
  std::string type;  // model_type as text_config has it, before a rename
};

// Nothing unless config.json is of a class in multimodal.def (by its first
// "architectures" entry, or by "model_type" where there is none) that opens.
// What text_config is silent about comes from around it: the ids of tokens,
// the type, quantization_config; and whether embeddings are tied. Positions of
// three rows (mrope) are those of text, all equal: a plain rope.
// INVALID_ARGUMENT for a text_config that is missing, no object or has one
// itself.
absl::StatusOr<std::optional<TextModel>> FindTextModel(const Json& config);

// Why the text model in config.json's text_config is not opened: UNIMPLEMENTED
// that names the class and the family. OK where there is none.
absl::Status WhyNoTextModel(const Json& config);

// What the text model calls a tensor or module of the checkpoint, such as
// "language_model.model.norm.weight"; nothing for one that is not its own.
std::optional<std::string> TextModelName(std::string_view stored);

// The text model's tensors under its names. INVALID_ARGUMENT for two of one
// name.
absl::StatusOr<std::shared_ptr<const WeightSource>> PresentTextModel(
    std::shared_ptr<const WeightSource> stored);

// Of settings that list layers by name (ModelOpt's mixed checkpoints): the
// text model's, under its names.
void RenameQuantizedLayers(Json* settings);

}  // namespace inlay

#endif  // INLAY_CORE_FORMATS_TEXT_MODEL_H_
