#include "core/model/layers/distance_bias.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "memory/status.h"

namespace inlay {

absl::StatusOr<ScoreBias> LoadDistanceBias(const DistanceBiasSpec& spec,
                                           int num_heads, ModelBuild& build) {
  const std::vector<int32_t>& rows = spec.row_of.rows();
  const int reach = spec.row_of.reach();
  INLAY_DCHECK(rows.size() % 2 == 1 && reach <= kMaxBiasReach);
  INLAY_DCHECK(std::ranges::all_of(
      rows, [&](int32_t row) { return row >= 0 && row < spec.rows; }));
  const auto found = build.distance_biases.find(spec.table);
  if (found != build.distance_biases.end()) {
    INLAY_DCHECK(found->second.reach == reach);
    return found->second;
  }
  ScoreBias bias;
  bias.reach = reach;
  INLAY_ASSIGN_OR_RETURN(
      bias.values,
      build.weights.TurnedRows(spec.table, spec.rows, num_heads, rows));
  build.distance_biases.emplace(spec.table, bias);
  return bias;
}

}  // namespace inlay
