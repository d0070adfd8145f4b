// A model's safetensors files as a WeightSource. Owns the open files; knows
// nothing of what the tensors mean.
#ifndef INLAY_CORE_FORMATS_SAFETENSORS_SOURCE_H_
#define INLAY_CORE_FORMATS_SAFETENSORS_SOURCE_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "core/formats/model_files.h"
#include "core/formats/safetensors.h"
#include "core/formats/weight_source.h"

namespace inlay {

// model.safetensors in the folder `directory`, else the files that
// model.safetensors.index.json lists there (only the tensors it lists are
// seen). NOT_FOUND naming the missing file, INVALID_ARGUMENT for a malformed
// one or a tensor that is not in its file, UNIMPLEMENTED for a folder with
// pickled weights only. Only tensors that are `wanted` are there, and only
// files with such are opened.
absl::StatusOr<std::shared_ptr<const WeightSource>> OpenSafetensors(
    const std::string& directory, WeightAccess access,
    const TensorFilter& wanted = nullptr);

}  // namespace inlay

#endif  // INLAY_CORE_FORMATS_SAFETENSORS_SOURCE_H_
