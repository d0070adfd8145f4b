// model.safetensors.index.json: which file of a sharded model holds which
// tensor. A pure function over text; opens nothing.
#ifndef INLAY_CORE_FORMATS_SAFETENSORS_INDEX_H_
#define INLAY_CORE_FORMATS_SAFETENSORS_INDEX_H_

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace inlay {

// Name of a file in the model's own folder -> names of its tensors, sorted.
using SafetensorsShards = std::map<std::string, std::vector<std::string>>;

// `what` names the document in messages. INVALID_ARGUMENT for a malformed
// document or a file name that leads out of the folder, RESOURCE_EXHAUSTED
// above a cap.
absl::StatusOr<SafetensorsShards> ParseSafetensorsIndex(std::string_view text,
                                                        std::string_view what);

}  // namespace inlay

#endif  // INLAY_CORE_FORMATS_SAFETENSORS_INDEX_H_
