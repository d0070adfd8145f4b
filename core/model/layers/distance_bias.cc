#include "core/model/layers/distance_bias.h"

#include <algorithm>

#include "memory/status.h"

namespace inlay {

absl::StatusOr<ScoreBias> LoadDistanceBias(const DistanceBiasSpec& spec,
                                           int num_heads, ModelBuild& build) {
  INLAY_DCHECK(spec.row_of.size() % 2 == 1 && spec.reach() <= kMaxBiasReach);
  INLAY_DCHECK(std::ranges::all_of(
      spec.row_of, [&](int32_t row) { return row >= 0 && row < spec.rows; }));
  const auto found = build.distance_biases.find(spec.table);
  if (found != build.distance_biases.end()) {
    INLAY_DCHECK(found->second.reach == spec.reach());
    return found->second;
  }
  ScoreBias bias;
  bias.reach = spec.reach();
  INLAY_ASSIGN_OR_RETURN(
      bias.values,
      build.weights.TurnedRows(spec.table, spec.rows, num_heads, spec.row_of));
  build.distance_biases.emplace(spec.table, bias);
  return bias;
}

}  // namespace inlay
