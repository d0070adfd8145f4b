// The names that SmallThinker's config.json has and nobody else.
// Source: the published configuration_smallthinker.py.
#ifndef INLAY_CORE_FORMATS_SMALLTHINKER_CONFIG_H_
#define INLAY_CORE_FORMATS_SMALLTHINKER_CONFIG_H_

#include "core/json/json.h"

namespace inlay {

// `config` with what stands under those names under the usual ones, too, where
// it is not null. Layers have experts alone: intermediate_size is one's.
Json WithUsualSmallThinkerNames(const Json& config);

}  // namespace inlay

#endif  // INLAY_CORE_FORMATS_SMALLTHINKER_CONFIG_H_
