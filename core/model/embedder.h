// What makes an embedder of a network: attention both ways, where files of a
// decoder's family say so, and the layers behind the pooling.
#ifndef INLAY_CORE_MODEL_EMBEDDER_H_
#define INLAY_CORE_MODEL_EMBEDDER_H_

#include <string_view>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "core/formats/embedding_config.h"
#include "core/model/decoder_spec.h"

namespace inlay {

// `spec` as an encoder without a head: every token sees all of its sequence,
// in layers with a window so many positions before itself and behind (as
// transformers' sliding_window_bidirectional_overlay has it). `key`: of
// config.json, for messages. UNIMPLEMENTED for parts that know one direction
// alone.
absl::Status SeeBothWays(std::string_view key, DecoderSpec* spec);

// `spec` without its head. UNIMPLEMENTED for heads that a part of the network
// comes before.
absl::Status DropHead(DecoderSpec* spec);

// INVALID_ARGUMENT unless the first module reads as much as `spec` pools.
absl::Status AddDense(absl::Span<const DenseModule> modules, DecoderSpec* spec);

}  // namespace inlay

#endif  // INLAY_CORE_MODEL_EMBEDDER_H_
