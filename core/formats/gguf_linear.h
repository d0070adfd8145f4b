// The keys of recurrent layers as the config.json of Qwen 3 Next, Kimi Linear
// and the families with Mamba 2 mixers has them.
#ifndef INLAY_CORE_FORMATS_GGUF_LINEAR_H_
#define INLAY_CORE_FORMATS_GGUF_LINEAR_H_

#include "absl/status/status.h"
#include "core/formats/gguf_arch_keys.h"
#include "core/formats/gguf_files.h"
#include "core/formats/gguf_sizes.h"
#include "core/json/json.h"

namespace inlay {

// Sizes, and which layers attend. Files of Qwen 3 Next whose projections are
// apart are taken for Qwen 3.5's with experts: the same network, a layer each
// for qkv, z, b and a. INVALID_ARGUMENT naming the key that is missing or out
// of range.
absl::Status ReadGgufLinear(const GgufFiles& files, const GgufArchKeys& keys,
                            const GgufSizes& sizes, Json* config);

// Kimi Linear's linear_attn_config; its other keys are latent attention's. The
// number of heads is that of ssm_beta's rows.
absl::Status ReadGgufKimi(const GgufFiles& files, const GgufArchKeys& keys,
                          const GgufSizes& sizes, Json* config);

// Nemotron H: its Mamba 2 layers' sizes, and by their tensors which layers are
// of which kind, their biases and the MLPs' width. UNIMPLEMENTED for experts
// over a narrower input.
absl::Status ReadGgufNemotron(const GgufFiles& files, const GgufArchKeys& keys,
                              const GgufSizes& sizes, Json* config);

// Mamba 2, which has nothing but mixers.
absl::Status ReadGgufMamba2(const GgufFiles& files, const GgufArchKeys& keys,
                            const GgufSizes& sizes, Json* config);

// Falcon H1's mixers, without the family's multipliers: the weights have them.
absl::Status ReadGgufFalconH1(const GgufFiles& files, const GgufArchKeys& keys,
                              const GgufSizes& sizes, Json* config);

// Granite 4: which layers attend, whether they rotate, the mixers of the
// others, the width of the MLP that every token goes to; not the multipliers.
// "granitemoe" has no mixers.
absl::Status ReadGgufGraniteHybrid(const GgufFiles& files,
                                   const GgufArchKeys& keys,
                                   const GgufSizes& sizes, Json* config);

}  // namespace inlay

#endif  // INLAY_CORE_FORMATS_GGUF_LINEAR_H_
