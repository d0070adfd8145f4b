// The names that OpenELM's config.json has and nobody else, and the sizes of
// each of its layers. Knows nothing of networks.
// Source: the published configuration_openelm.py.
#ifndef INLAY_CORE_FORMATS_OPENELM_CONFIG_H_
#define INLAY_CORE_FORMATS_OPENELM_CONFIG_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "core/json/json.h"

namespace inlay {

// A number a layer each.
struct OpenElmLayers {
  std::vector<int64_t> heads;
  std::vector<int64_t> kv_heads;  // of which heads are multiples
  std::vector<int64_t> widths;    // of MLPs
};

// num_query_heads, num_kv_heads, and ffn_multipliers with ffn_dim_divisor. No
// number is above 2^20, nor is head_dim times one. INVALID_ARGUMENT naming the
// key that is missing or out of range.
absl::StatusOr<OpenElmLayers> ReadOpenElmLayers(const Json& config);

// `config` with what stands under those names under the usual ones, too: sizes
// that differ by layer are those of the layers that have the most, heads of
// keys as many as those of queries. Errors as ReadOpenElmLayers.
absl::StatusOr<Json> WithUsualOpenElmNames(const Json& config);

}  // namespace inlay

#endif  // INLAY_CORE_FORMATS_OPENELM_CONFIG_H_
