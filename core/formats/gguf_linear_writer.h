// What a GGUF file says of recurrent layers: what gguf_linear.h undoes.
#ifndef INLAY_CORE_FORMATS_GGUF_LINEAR_WRITER_H_
#define INLAY_CORE_FORMATS_GGUF_LINEAR_WRITER_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/formats/gguf_key_writer.h"
#include "core/json/json.h"

namespace inlay {

// Whether each layer attends, of families where files say it by
// attention.head_count_kv; empty for others. INVALID_ARGUMENT where
// config.json does not say.
absl::StatusOr<std::vector<bool>> GgufAttendingLayers(
    const GgufKeyWriter& keys);

// How wide Falcon H1's mixers are: mamba_d_ssm, which may be null.
absl::StatusOr<int64_t> FalconMixerWidth(const Json& config);

// Sets ssm.*, shortconv.* and kda.* of the families that have such layers, and
// what else only these say. `head_dim`: of attention. UNIMPLEMENTED for what
// files cannot say.
absl::Status SetGgufRecurrent(GgufKeyWriter& keys, int64_t head_dim);

// All keys of Mamba 2, which has no other layers.
absl::Status SetGgufMamba2(GgufKeyWriter& keys);

}  // namespace inlay

#endif  // INLAY_CORE_FORMATS_GGUF_LINEAR_WRITER_H_
