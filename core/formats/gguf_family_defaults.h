// What families assume where config.json is silent and GGUF files are not.
#ifndef INLAY_CORE_FORMATS_GGUF_FAMILY_DEFAULTS_H_
#define INLAY_CORE_FORMATS_GGUF_FAMILY_DEFAULTS_H_

#include <cstdint>
#include <string_view>

namespace inlay {

// A width of 0: what heads share of the residual stream.
struct GgufFamilyDefaults {
  std::string_view model_type;
  int64_t head_dim = 0;
  double theta = 10000.0;
  double partial = 1.0;
  double epsilon = 1e-6;
};

GgufFamilyDefaults GgufDefaultsOf(std::string_view model_type);

}  // namespace inlay

#endif  // INLAY_CORE_FORMATS_GGUF_FAMILY_DEFAULTS_H_
