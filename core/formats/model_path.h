// What a model path spells, before anything is opened.
#ifndef INLAY_CORE_FORMATS_MODEL_PATH_H_
#define INLAY_CORE_FORMATS_MODEL_PATH_H_

#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "core/formats/model_files.h"

namespace inlay {

struct ModelPath {
  std::string path;                     // of a folder or file
  std::optional<RandomWeights> random;  // set for "random:" paths
};

// INVALID_ARGUMENT for an empty path and for options that do not exist, appear
// twice or have a value that is not allowed; the message lists the allowed.
absl::StatusOr<ModelPath> ParseModelPath(std::string_view path);

}  // namespace inlay

#endif  // INLAY_CORE_FORMATS_MODEL_PATH_H_
