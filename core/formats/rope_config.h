// config.json's rope_parameters and rope_scaling, where files have both, as
// one. Source: transformers 5 (convert_rope_params_to_dict), which takes the
// older key.
#ifndef INLAY_CORE_FORMATS_ROPE_CONFIG_H_
#define INLAY_CORE_FORMATS_ROPE_CONFIG_H_

#include "core/json/json.h"

namespace inlay {

// Leaves at most one of the two in an object: rope_scaling, unless that is null
// or empty. Where rope_parameters has full_attention (Gemma 3, OLMo 3), what
// rope_scaling says goes there instead. ModernBERT's two stay.
void KeepOneRope(Json* config);

}  // namespace inlay

#endif  // INLAY_CORE_FORMATS_ROPE_CONFIG_H_
