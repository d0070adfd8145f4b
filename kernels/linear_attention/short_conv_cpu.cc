// short_conv, the scalar reference row: one channel at a time, sums in double.
#include <array>
#include <cmath>

#include "kernels/linear_attention/short_conv.h"
#include "memory/device/thread_pool.h"

namespace inlay {
namespace {

void RunChannel(const ShortConvDesc& desc, const ShortConvParams& params,
                size_t sequence, int64_t channel) {
  const auto at = [channel](const TensorView& view, int64_t row) {
    return view.row<float>(row)[channel];
  };
  const auto past = static_cast<size_t>(desc.num_taps - 1);
  std::array<float, kMaxConvTaps> inputs{};  // the oldest first
  bool loaded = false;
  ForEachStateRun(params.state, sequence, [&](const StateRun& run) {
    const auto* from = reinterpret_cast<const float*>(run.from);
    for (size_t j = 0; j < past && !loaded && from != nullptr; ++j) {
      inputs[j] = from[static_cast<int64_t>(j) * desc.channels + channel];
    }
    loaded = true;
    for (int64_t row = run.row; row < run.row + run.count; ++row) {
      inputs[past] = at(params.x, row);
      if (!params.input_gate.empty()) {
        inputs[past] *= at(params.input_gate, row);
      }
      double sum = params.bias == nullptr ? 0.0 : params.bias[channel];
      for (size_t j = 0; j <= past; ++j) {
        sum += double{inputs[j]} *
               params.taps[static_cast<int64_t>(j) * desc.channels + channel];
      }
      if (desc.silu) sum /= 1.0 + std::exp(-sum);
      if (!params.output_gate.empty()) sum *= at(params.output_gate, row);
      params.y.row<float>(row)[channel] = static_cast<float>(sum);
      for (size_t j = 0; j < past; ++j) inputs[j] = inputs[j + 1];
    }
    auto* to = reinterpret_cast<float*>(run.to);
    for (size_t j = 0; j < past; ++j) {
      to[static_cast<int64_t>(j) * desc.channels + channel] = inputs[j];
    }
  });
}

}  // namespace

absl::Status RunShortConvCpuScalar(const ShortConvDesc& desc,
                                   const ShortConvParams& params,
                                   Stream& stream) {
  const auto sequences = static_cast<int64_t>(params.state.sequences.size());
  stream.thread_pool()->ParallelFor(
      sequences * desc.channels, 64, [&](int64_t begin, int64_t end) {
        for (int64_t task = begin; task < end; ++task) {
          RunChannel(desc, params, static_cast<size_t>(task / desc.channels),
                     task % desc.channels);
        }
      });
  return absl::OkStatus();
}

}  // namespace inlay
