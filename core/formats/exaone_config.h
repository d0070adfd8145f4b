// The names that EXAONE 3's config.json has for sizes, and nobody else.
#ifndef INLAY_CORE_FORMATS_EXAONE_CONFIG_H_
#define INLAY_CORE_FORMATS_EXAONE_CONFIG_H_

#include "core/json/json.h"

namespace inlay {

// `config` with what stands under those names under the usual ones, too, where
// it is not null.
Json WithUsualExaoneNames(const Json& config);

}  // namespace inlay

#endif  // INLAY_CORE_FORMATS_EXAONE_CONFIG_H_
