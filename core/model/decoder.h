// Builds the Model that a DecoderSpec describes: embeddings, layers of residual
// blocks, final norm, head. Knows no architectures by name.
#ifndef INLAY_CORE_MODEL_DECODER_H_
#define INLAY_CORE_MODEL_DECODER_H_

#include <memory>

#include "absl/status/statusor.h"
#include "core/model/decoder_spec.h"
#include "core/model/model.h"
#include "core/model/model_build.h"

namespace inlay {

// Takes the loader's storage. Errors: those of WeightLoader, and NOT_FOUND when
// no kernel serves a layer. With a planning loader the model answers info(),
// kv_layout() and WorkspaceBytes() only.
absl::StatusOr<std::unique_ptr<Model>> BuildDecoder(const DecoderSpec& spec,
                                                    ModelBuild& build);

}  // namespace inlay

#endif  // INLAY_CORE_MODEL_DECODER_H_
