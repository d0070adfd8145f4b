// RopeTables: a step's cosines and sines, filled once for all layers that share
// a rotary embedding.
#ifndef INLAY_CORE_MODEL_LAYERS_ROPE_TABLES_H_
#define INLAY_CORE_MODEL_LAYERS_ROPE_TABLES_H_

#include <cstdint>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "core/model/layers/step.h"
#include "core/model/rope_scaling.h"
#include "core/model/weights.h"

namespace inlay {

class RopeTables {
 public:
  using Angles = absl::InlinedVector<RopeAngles, 4>;

  RopeTables() = default;
  explicit RopeTables(const std::vector<RopeSpec>& specs);

  // ModelInfo::rope_threshold.
  int64_t threshold() const;
  // Whether what is launched depends on positions.
  bool has_temperature() const;
  // Multiplies frequencies by what files have learned of them
  // (RopeSpec::log_scales). Of the specs the tables were made of.
  absl::Status LoadScales(const std::vector<RopeSpec>& specs,
                          WeightLoader& weights);
  // Has the device make the tables: its kernels read frequencies there.
  absl::Status MoveTo(WeightLoader& weights);
  // Takes room for the tables of `tokens` tokens; one entry an embedding.
  Angles Place(Arena& arena, int64_t tokens) const;
  // Fills what Place gave, or queues that.
  absl::Status Fill(const ForwardBatch& batch, const DeviceBatch& device,
                    const Angles& angles, Stream& stream) const;

 private:
  struct OnDevice {
    const float* inv_freq = nullptr;
    const float* long_inv_freq = nullptr;
  };

  absl::Status FillFactorsOnDevice(size_t index, const ForwardBatch& batch,
                                   const DeviceBatch& device,
                                   const RopeAngles& angles,
                                   Stream& stream) const;
  absl::Status FillOnDevice(size_t index, const ForwardBatch& batch,
                            const DeviceBatch& device, const RopeAngles& angles,
                            Stream& stream) const;

  std::vector<RopeFrequencies> frequencies_;
  std::vector<OnDevice> on_device_;  // empty: the host makes the tables
};

}  // namespace inlay

#endif  // INLAY_CORE_MODEL_LAYERS_ROPE_TABLES_H_
