// CalibratedLayers: what a layer takes of memory, and which Hessians have room.
#include <algorithm>

#include "core/quantize/calibrated_layers.h"

namespace inlay {
namespace {

// Of an input's element, whatever its method: sums, what is made of them.
constexpr uint64_t kSumBytes = 48;
// Columns beside a Hessian: a piece of tokens turned (Hessian::Add), products
// and what is subtracted from them (InputFactor).
constexpr uint64_t kWorkColumns = 1024;
// Of a row that AWQ's search looks at, for an element: the weight, and scaled,
// in blocks, decoded, its error.
constexpr uint64_t kSampleBytes = 24;

uint64_t Elements(const LinearSpec& spec) {
  return static_cast<uint64_t>(spec.n) * static_cast<uint64_t>(spec.k);
}

}  // namespace

uint64_t CalibratedLayers::MatrixBytes(const Input& input) {
  const auto width = static_cast<uint64_t>(input.linear.size());
  return width * width * sizeof(float);
}

uint64_t CalibratedLayers::KeptBytes(const Input& input) const {
  uint64_t bytes = 0;
  for (const LinearSpec* reader : input.linear.readers) {
    const std::string name = reader->name + std::string(kWeightSuffix);
    if (!IsQuantized(name)) continue;
    bytes += input.linear.is_experts
                 ? RowBytes(find_(name)->to, static_cast<size_t>(reader->k)) *
                       static_cast<uint64_t>(reader->n)
                 : Elements(*reader) * sizeof(float);
  }
  return bytes;
}

uint64_t CalibratedLayers::FixedBytes() const {
  uint64_t sums = 0, rows = 0, kept = 0, work = 0, samples = 0;
  for (const Input& input : inputs_) {
    if (!IsWanted(input)) continue;
    const auto width = static_cast<uint64_t>(input.linear.size());
    sums += kSumBytes * width;
    // A sequence's rows that an expert has, beside each other.
    if (input.linear.is_experts) {
      rows = std::max(rows, static_cast<uint64_t>(calibration_->longest()) *
                                width * sizeof(float));
    }
    if (!NeedsMatrix(input)) continue;
    work = std::max(work, kWorkColumns * width * sizeof(float) +
                              (options_.act_order ? MatrixBytes(input) : 0));
    if (is(QuantizeMethod::kGptq) && !is_head()) kept += KeptBytes(input);
    if (is(QuantizeMethod::kAwq)) {
      const std::vector<const LinearSpec*> readers = ReadersOf(input);
      int64_t looked_at = 0;
      for (const LinearSpec* reader : readers) {
        looked_at += std::min(reader->n, SampledRows(readers.size()));
      }
      samples = std::max(
          samples, kSampleBytes * width * static_cast<uint64_t>(looked_at));
    }
  }
  return sums + rows + kept + work + samples;
}

uint64_t CalibratedLayers::LeastRoom() {
  uint64_t most = 0;
  for (layer_ = 0; layer_ < static_cast<int>(layers_.size()); ++layer_) {
    inputs_.clear();
    for (const LinearInput& linear : layers_[static_cast<size_t>(layer_)]) {
      inputs_.emplace_back().linear = linear;
    }
    uint64_t largest = 0;
    for (const Input& input : inputs_) {
      if (!NeedsMatrix(input)) continue;
      largest = std::max(largest, MatrixBytes(input) + CommonBytes(input));
      // With the Hessians gone, an expert's in float32.
      if (!is(QuantizeMethod::kGptq) || !input.linear.is_experts) continue;
      for (const LinearSpec* reader : input.linear.readers) {
        largest = std::max(largest, Elements(*reader) * sizeof(float));
      }
    }
    most = std::max(most, FixedBytes() + largest);
  }
  inputs_.clear();
  layer_ = -1;
  return most;
}

uint64_t CalibratedLayers::CommonBytes(const Input& input) const {
  const int common = input.linear.common;
  return common < 0 ? 0 : MatrixBytes(inputs_[static_cast<size_t>(common)]);
}

std::vector<size_t> CalibratedLayers::WithRoom(size_t first) const {
  const uint64_t fixed = is_limited() ? FixedBytes() : 0;
  const uint64_t room = is_limited()
                            ? options_.room - std::min(options_.room, fixed)
                            : UINT64_MAX;
  std::vector<size_t> those;
  uint64_t all = 0, experts = 0;
  int common = -1;
  for (size_t i = first; i < inputs_.size(); ++i) {
    const Input& input = inputs_[i];
    if (!NeedsMatrix(input) || !MayWait(input)) continue;
    all += MatrixBytes(input);
    if (input.linear.is_experts) experts += MatrixBytes(input);
    // What experts have rows of comes before them, or again with the first.
    const int of = input.linear.common;
    if (is_limited() && of >= 0 && of != common &&
        static_cast<size_t>(of) < first) {
      common = of;
      all += CommonBytes(input);
    }
    const bool fits = all <= room && experts <= options_.expert_bytes;
    if (!those.empty() && !fits) break;
    those.push_back(i);
  }
  return those;
}

uint64_t CalibratedLayers::LentBytes() const {
  if (!is_limited()) return options_.expert_bytes;
  uint64_t kept = 0;
  for (const auto& [name, matrix] : done_) {
    kept += matrix.values.size() * sizeof(float) + matrix.blocks.size();
  }
  return std::min(options_.expert_bytes,
                  options_.room - std::min(options_.room, kept));
}

}  // namespace inlay
