// Tencent's rotary scaling ("dynamic" with `alpha`): a larger base, whatever
// the length.
#ifndef INLAY_CORE_FORMATS_NTK_ALPHA_H_
#define INLAY_CORE_FORMATS_NTK_ALPHA_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "core/json/json.h"

namespace inlay {

// `config` with the base that it means as rope_theta and no scaling; as it is
// where it has another scaling or none. INVALID_ARGUMENT naming the key out of
// range.
absl::StatusOr<Json> WithoutNtkAlpha(const Json& config, int64_t head_dim);

}  // namespace inlay

#endif  // INLAY_CORE_FORMATS_NTK_ALPHA_H_
