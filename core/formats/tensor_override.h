// Types that single tensors get by their names.
#ifndef INLAY_CORE_FORMATS_TENSOR_OVERRIDE_H_
#define INLAY_CORE_FORMATS_TENSOR_OVERRIDE_H_

#include <string>
#include <string_view>

#include "memory/dtype.h"

namespace inlay {

// `*` stands for any text, `?` for one character.
bool MatchesPattern(std::string_view pattern, std::string_view name);

struct TensorOverride {
  std::string pattern;
  DType dtype = DType::kF32;
};

}  // namespace inlay

#endif  // INLAY_CORE_FORMATS_TENSOR_OVERRIDE_H_
