// selective_scan, the scalar reference row: one channel at a time; what is not
// the state in double.
#include <array>
#include <cmath>

#include "kernels/linear_attention/selective_scan.h"
#include "memory/device/thread_pool.h"

namespace inlay {
namespace {

// Beyond 40 log(1 + e^x) is x, and further e^x is infinite.
double Softplus(double x) { return x > 40.0 ? x : std::log1p(std::exp(x)); }

class ScannedChannel {
 public:
  ScannedChannel(const SelectiveScanDesc& desc,
                 const SelectiveScanParams& params, int64_t channel)
      : desc_(desc),
        params_(params),
        channel_(channel),
        size_(static_cast<size_t>(desc.state_size)) {}

  void Run(size_t sequence) {
    bool loaded = false;
    ForEachStateRun(params_.state, sequence, [&](const StateRun& run) {
      const auto* from = reinterpret_cast<const float*>(run.from);
      for (size_t i = 0; i < size_ && !loaded; ++i) {
        state_[i] = from == nullptr ? 0.0f : from[Index(i)];
      }
      loaded = true;
      for (int64_t row = run.row; row < run.row + run.count; ++row) Token(row);
      auto* to = reinterpret_cast<float*>(run.to);
      for (size_t i = 0; i < size_; ++i) to[Index(i)] = state_[i];
    });
  }

 private:
  // Of a table [state_size][channels].
  int64_t Index(size_t i) const {
    return static_cast<int64_t>(i) * desc_.channels + channel_;
  }
  double At(const TensorView& view, int64_t row) const {
    return view.row<const float>(row)[channel_];
  }

  void Token(int64_t row) {
    const float* b = params_.b.row<const float>(row);
    const float* c = params_.c.row<const float>(row);
    const double x = At(params_.x, row);
    const double z = At(params_.z, row);
    const double step = Softplus(At(params_.step, row));
    double y = params_.skip[channel_] * x;
    for (size_t i = 0; i < size_; ++i) {
      const double decay = std::exp(step * params_.rates[Index(i)]);
      state_[i] = static_cast<float>(decay * state_[i] + step * x * b[i]);
      y += double{state_[i]} * c[i];
    }
    params_.y.row<float>(row)[channel_] =
        static_cast<float>(y * z / (1.0 + std::exp(-z)));
  }

  const SelectiveScanDesc& desc_;
  const SelectiveScanParams& params_;
  const int64_t channel_;
  const size_t size_;
  std::array<float, kMaxScanState> state_;
};

}  // namespace

absl::Status RunSelectiveScanCpuScalar(const SelectiveScanDesc& desc,
                                       const SelectiveScanParams& params,
                                       Stream& stream) {
  const auto sequences = static_cast<int64_t>(params.state.sequences.size());
  stream.thread_pool()->ParallelFor(
      sequences * desc.channels, 16, [&](int64_t begin, int64_t end) {
        for (int64_t task = begin; task < end; ++task) {
          ScannedChannel(desc, params, task % desc.channels)
              .Run(static_cast<size_t>(task / desc.channels));
        }
      });
  return absl::OkStatus();
}

}  // namespace inlay
