#include "core/model/layers/rope_tables.h"

#include <algorithm>
#include <new>

#include "kernels/rope/rope.h"

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
                   rope.attention_factor, cos + offset, sin + offset);
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

absl::Span<RopeAngles> RopeTables::Place(Arena& arena, int64_t tokens) const {
  std::byte* list = arena.Take(frequencies_.size() * sizeof(RopeAngles));
  auto* angles = reinterpret_cast<RopeAngles*>(list);
  for (size_t i = 0; i < frequencies_.size(); ++i) {
    const size_t bytes = static_cast<size_t>(tokens) *
                         frequencies_[i].inv_freq.size() * sizeof(float);
    const auto* cos = reinterpret_cast<const float*>(arena.Take(bytes));
    const auto* sin = reinterpret_cast<const float*>(arena.Take(bytes));
    if (angles != nullptr) new (angles + i) RopeAngles{cos, sin};
  }
  return angles == nullptr ? absl::Span<RopeAngles>()
                           : absl::MakeSpan(angles, frequencies_.size());
}

void RopeTables::Fill(const ForwardBatch& batch,
                      absl::Span<RopeAngles> angles) const {
  for (size_t i = 0; i < frequencies_.size(); ++i) {
    const RopeFrequencies& rope = frequencies_[i];
    // The tables are the workspace's, which this step owns.
    auto* cos = const_cast<float*>(angles[i].cos);
    auto* sin = const_cast<float*>(angles[i].sin);
    if (rope.long_inv_freq.empty()) {
      FillRopeAngles(batch.positions, rope.inv_freq, rope.attention_factor, cos,
                     sin);
    } else {
      FillSequences(batch, rope, cos, sin);
    }
  }
}

}  // namespace inlay
