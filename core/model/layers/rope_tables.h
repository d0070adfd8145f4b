// RopeTables: a step's cosines and sines, filled once for all layers that share
// a rotary embedding.
#ifndef INLAY_CORE_MODEL_LAYERS_ROPE_TABLES_H_
#define INLAY_CORE_MODEL_LAYERS_ROPE_TABLES_H_

#include <cstdint>
#include <vector>

#include "core/model/layers/step.h"
#include "core/model/rope_scaling.h"

namespace inlay {

class RopeTables {
 public:
  RopeTables() = default;
  explicit RopeTables(const std::vector<RopeSpec>& specs);

  // ModelInfo::rope_threshold.
  int64_t threshold() const;
  // Takes room for the tables of `tokens` tokens; one entry an embedding.
  absl::Span<RopeAngles> Place(Arena& arena, int64_t tokens) const;
  // Fills what Place gave.
  void Fill(const ForwardBatch& batch, absl::Span<RopeAngles> angles) const;

 private:
  std::vector<RopeFrequencies> frequencies_;
};

}  // namespace inlay

#endif  // INLAY_CORE_MODEL_LAYERS_ROPE_TABLES_H_
