// A GGUF file, or the first of a split model, as ModelFiles.
#ifndef INLAY_CORE_FORMATS_GGUF_MODEL_H_
#define INLAY_CORE_FORMATS_GGUF_MODEL_H_

#include <string>

#include "absl/status/statusor.h"
#include "core/formats/model_files.h"

namespace inlay {

// Errors name the file and the key or tensor, as the parts' headers say.
absl::StatusOr<ModelFiles> OpenGgufModel(const std::string& path,
                                         const ModelFilesOptions& options);

}  // namespace inlay

#endif  // INLAY_CORE_FORMATS_GGUF_MODEL_H_
