// How a GGUF file says what rotary embedding a config.json asks for.
#ifndef INLAY_CORE_FORMATS_GGUF_ROPE_WRITER_H_
#define INLAY_CORE_FORMATS_GGUF_ROPE_WRITER_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "core/formats/gguf_config_writer.h"

namespace inlay {

struct GgufRopeShape {
  int64_t head_dim = 0;
  int64_t max_positions = 0;
  double theta = 10000.0;  // where config.json has none
  double partial = 1.0;    // the same, partial_rotary_factor
  // Latent attention's: all of head_dim rotates, and yarn has the magnitudes of
  // DeepSeek.
  bool is_latent = false;
  // Ministral 3's: mscale is mscale_all_dim, and stored as it is.
  bool keeps_magnitude = false;
  // Phi-3.5-MoE's LongRoPE: short_mscale and long_mscale, which are one here.
  bool has_mscales = false;
  // What yarn's truncate must be: no key says it.
  bool truncates = true;
  // Step 3.5's: files have the dimensions and the factors of a whole head,
  // whatever part of it is rotated; 1 where none is.
  bool stores_whole_heads = false;
};

// Sets `prefix`.rope.*; adds factors of frequencies to `tensors`. Errors as
// SetGgufConfig.
absl::Status SetGgufRope(const Json& config, const std::string& prefix,
                         const GgufRopeShape& shape, GgufWriter* writer,
                         GgufConfigTensors* tensors);

// `config` without a dynamic scaling: one begins where the context ends that a
// file has.
Json WithoutDynamicRope(const Json& config);

}  // namespace inlay

#endif  // INLAY_CORE_FORMATS_GGUF_ROPE_WRITER_H_
