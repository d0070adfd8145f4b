#include "core/formats/ntk_alpha.h"

#include <cmath>

#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {

absl::StatusOr<Json> WithoutNtkAlpha(const Json& config, int64_t head_dim) {
  const Json* scaling = JsonFind(config, "rope_parameters");
  if (scaling == nullptr) scaling = JsonFind(config, "rope_scaling");
  if (scaling == nullptr || !scaling->is_object()) return config;
  const Json* type = JsonFind(*scaling, "rope_type");
  if (type == nullptr) type = JsonFind(*scaling, "type");
  if (type == nullptr || *type != "dynamic") return config;
  INLAY_ASSIGN_OR_RETURN(const double alpha,
                         JsonNumber(*scaling, "alpha", 0.0, 0.0, 1e9));
  if (alpha == 0.0) return config;
  if (head_dim <= 2) {
    return absl::InvalidArgumentError(FormattedString(
        "config.json: head_dim is %d, allowed with rope scaling's alpha: above "
        "2",
        head_dim));
  }
  INLAY_ASSIGN_OR_RETURN(const double outer,
                         JsonNumber(config, "rope_theta", 1e4, 1.0, 1e15));
  INLAY_ASSIGN_OR_RETURN(const double theta,
                         JsonNumber(*scaling, "rope_theta", outer, 1.0, 1e15));
  const auto dim = static_cast<double>(head_dim);
  Json out = config;
  out.erase("rope_parameters");
  out.erase("rope_scaling");
  out["rope_theta"] = theta * std::pow(alpha, dim / (dim - 2.0));
  return out;
}

}  // namespace inlay
