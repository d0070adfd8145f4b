#include "core/model/layers/rope_tables.h"

#include <algorithm>
#include <cmath>

#include "kernels/rope/rope.h"
#include "memory/status.h"

namespace inlay {
namespace {

void FillSequences(const ForwardBatch& batch, const RopeFrequencies& rope,
                   float* cos, float* sin) {
  const absl::Span<const AttentionSequence> sequences = batch.SequencesOf(0);
  for (size_t i = 0; i < sequences.size(); ++i) {
    const AttentionSequence& sequence = sequences[i];
    const int64_t length =
        batch.final_lengths.empty() ? sequence.kv_len : batch.final_lengths[i];
    const auto first = static_cast<size_t>(sequence.q_begin);
    const size_t offset = first * rope.inv_freq.size();
    FillRopeAngles(absl::MakeConstSpan(batch.positions.data() + first,
                                       static_cast<size_t>(sequence.q_len)),
                   length > rope.threshold ? rope.long_inv_freq : rope.inv_freq,
                   rope.attention_factor, cos + offset, sin + offset,
                   rope.position_step);
  }
}

}  // namespace

RopeTables::RopeTables(const std::vector<RopeSpec>& specs) {
  for (const RopeSpec& spec : specs) {
    frequencies_.push_back(ComputeRopeFrequencies(spec));
  }
}

int64_t RopeTables::threshold() const {
  int64_t threshold = 0;
  for (const RopeFrequencies& rope : frequencies_) {
    threshold = std::max(threshold, rope.threshold);
  }
  return threshold;
}

bool RopeTables::has_temperature() const {
  return std::any_of(
      frequencies_.begin(), frequencies_.end(),
      [](const RopeFrequencies& rope) { return rope.temperature != 0.0f; });
}

absl::Status RopeTables::LoadScales(const std::vector<RopeSpec>& specs,
                                    WeightLoader& weights) {
  for (size_t i = 0; i < specs.size(); ++i) {
    if (specs[i].log_scales.empty()) continue;
    std::vector<float>& frequencies = frequencies_[i].inv_freq;
    INLAY_DCHECK(frequencies_[i].long_inv_freq.empty());
    INLAY_ASSIGN_OR_RETURN(
        const std::vector<float> scales,
        weights.Numbers(specs[i].log_scales,
                        static_cast<int64_t>(frequencies.size())));
    for (size_t j = 0; j < scales.size(); ++j) {
      frequencies[j] *= std::exp(scales[j]);
    }
  }
  return absl::OkStatus();
}

absl::Status RopeTables::MoveTo(WeightLoader& weights) {
  for (const RopeFrequencies& rope : frequencies_) {
    OnDevice& arrays = on_device_.emplace_back();
    INLAY_ASSIGN_OR_RETURN(arrays.inv_freq, weights.Constants(rope.inv_freq));
    if (rope.long_inv_freq.empty()) continue;
    INLAY_ASSIGN_OR_RETURN(arrays.long_inv_freq,
                           weights.Constants(rope.long_inv_freq));
  }
  return absl::OkStatus();
}

RopeTables::Angles RopeTables::Place(Arena& arena, int64_t tokens) const {
  Angles angles;
  for (const RopeFrequencies& rope : frequencies_) {
    const size_t bytes =
        static_cast<size_t>(tokens) * rope.inv_freq.size() * sizeof(float);
    const auto* cos = reinterpret_cast<const float*>(arena.Take(bytes));
    const auto* sin = reinterpret_cast<const float*>(arena.Take(bytes));
    angles.push_back({cos, sin});
  }
  return angles;
}

absl::Status RopeTables::Fill(const ForwardBatch& batch,
                              const DeviceBatch& device, const Angles& angles,
                              Stream& stream) const {
  for (size_t i = 0; i < frequencies_.size(); ++i) {
    const RopeFrequencies& rope = frequencies_[i];
    if (!on_device_.empty()) {
      INLAY_RETURN_IF_ERROR(
          rope.temperature == 0.0f
              ? FillOnDevice(i, batch, device, angles[i], stream)
              : FillFactorsOnDevice(i, batch, device, angles[i], stream));
      continue;
    }
    // The tables are the workspace's, which this step owns.
    auto* cos = const_cast<float*>(angles[i].cos);
    auto* sin = const_cast<float*>(angles[i].sin);
    if (rope.temperature != 0.0f) {
      for (size_t t = 0; t < batch.positions.size(); ++t) {
        cos[t] = rope.FactorAt(batch.positions[t]);
        sin[t] = 0.0f;
      }
    } else if (rope.long_inv_freq.empty()) {
      FillRopeAngles(batch.positions, rope.inv_freq, rope.attention_factor, cos,
                     sin, rope.position_step);
    } else {
      FillSequences(batch, rope, cos, sin);
    }
  }
  return absl::OkStatus();
}

// One launch for each run of tokens of one factor, which changes once in
// temperature_span positions.
absl::Status RopeTables::FillFactorsOnDevice(size_t index,
                                             const ForwardBatch& batch,
                                             const DeviceBatch& device,
                                             const RopeAngles& angles,
                                             Stream& stream) const {
  const RopeFrequencies& rope = frequencies_[index];
  const auto tokens = static_cast<int64_t>(batch.positions.size());
  for (int64_t begin = 0, end = 0; begin < tokens; begin = end) {
    const auto factor_at = [&](int64_t token) {
      return rope.FactorAt(batch.positions[static_cast<size_t>(token)]);
    };
    const float factor = factor_at(begin);
    while (end < tokens && factor_at(end) == factor) ++end;
    INLAY_RETURN_IF_ERROR(FillRopeAnglesCuda(
        device.positions + begin, end - begin, on_device_[index].inv_freq, 1,
        factor, const_cast<float*>(angles.cos) + begin,
        const_cast<float*>(angles.sin) + begin, stream));
  }
  return absl::OkStatus();
}

// One launch for each run of tokens that share their frequencies: all, but
// where sequences of both kinds meet.
absl::Status RopeTables::FillOnDevice(size_t index, const ForwardBatch& batch,
                                      const DeviceBatch& device,
                                      const RopeAngles& angles,
                                      Stream& stream) const {
  const RopeFrequencies& rope = frequencies_[index];
  const auto pairs = static_cast<int64_t>(rope.inv_freq.size());
  const auto fill = [&](int64_t begin, int64_t end, bool is_long) {
    const OnDevice& arrays = on_device_[index];
    const int64_t offset = begin * pairs;
    return FillRopeAnglesCuda(
        device.positions + begin, end - begin,
        is_long ? arrays.long_inv_freq : arrays.inv_freq, pairs,
        rope.attention_factor, const_cast<float*>(angles.cos) + offset,
        const_cast<float*>(angles.sin) + offset, stream, rope.position_step);
  };
  if (rope.long_inv_freq.empty()) return fill(0, device.tokens, false);
  const absl::Span<const AttentionSequence> sequences = batch.SequencesOf(0);
  int64_t begin = 0;
  bool run_is_long = false;
  for (size_t i = 0; i < sequences.size(); ++i) {
    const int64_t length = batch.final_lengths.empty() ? sequences[i].kv_len
                                                       : batch.final_lengths[i];
    const bool is_long = length > rope.threshold;
    const int64_t at = sequences[i].q_begin;
    if (i > 0 && is_long != run_is_long) {
      INLAY_RETURN_IF_ERROR(fill(begin, at, run_is_long));
      begin = at;
    }
    run_is_long = is_long;
  }
  return fill(begin, device.tokens, run_is_long);
}

}  // namespace inlay
