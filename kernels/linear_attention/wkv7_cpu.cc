// wkv7, the scalar reference row: one head at a time; what is not the state in
// double.
#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "kernels/linear_attention/wkv7.h"
#include "memory/device/thread_pool.h"

namespace inlay {
namespace {

double WkvSigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

using WkvRow = std::array<double, kMaxWkvHeadDim>;

class WkvHead {
 public:
  WkvHead(const Wkv7Desc& desc, const Wkv7Params& params, int64_t head)
      : desc_(desc),
        params_(params),
        size_(static_cast<size_t>(desc.head_dim)),
        first_(head * desc.head_dim) {}

  void Run(size_t sequence) {
    const auto at = static_cast<int64_t>(size_) * first_;
    const size_t floats = size_ * size_;
    bool loaded = false;
    ForEachStateRun(params_.state, sequence, [&](const StateRun& run) {
      const auto* from = reinterpret_cast<const float*>(run.from);
      if (!loaded && from == nullptr) {
        std::fill_n(state_.begin(), floats, 0.0f);
      } else if (!loaded) {
        std::copy_n(from + at, floats, state_.begin());
      }
      loaded = true;
      for (int64_t row = run.row; row < run.row + run.count; ++row) Token(row);
      std::copy_n(state_.begin(), floats,
                  reinterpret_cast<float*>(run.to) + at);
    });
  }

 private:
  const float* At(const TensorView& view, int64_t row) const {
    return view.row<const float>(row) + first_;
  }

  // What a token brings, from what layers gave.
  void Prepare(int64_t row) {
    const float* k = At(params_.k, row);
    const float* v = At(params_.v, row);
    double squares = 0.0;
    for (size_t i = 0; i < size_; ++i) {
      kk_[i] = double{k[i]} * params_.k_scale[first_ + Index(i)];
      squares += kk_[i] * kk_[i];
    }
    const double length = std::max(std::sqrt(squares), double{kWkvLeastLength});
    for (size_t i = 0; i < size_; ++i) {
      const double a = WkvSigmoid(At(params_.rate, row)[i]);
      kk_[i] /= length;
      gain_[i] = kk_[i] * a;
      k_[i] = k[i] * (1.0 + (a - 1.0) * params_.k_rate[first_ + Index(i)]);
      w_[i] = std::exp(-kWkvDecay * WkvSigmoid(At(params_.decay, row)[i]));
      v_[i] = v[i];
      if (!desc_.mixes) continue;
      v_[i] += (At(params_.first_v, row)[i] - v_[i]) *
               WkvSigmoid(At(params_.mix, row)[i]);
    }
  }

  void Token(int64_t row) {
    Prepare(row);
    const float* r = At(params_.r, row);
    WkvRow known = {}, y = {};
    for (size_t key = 0; key < size_; ++key) {
      const float* s = &state_[key * size_];
      for (size_t i = 0; i < size_; ++i) known[i] += s[i] * kk_[key];
    }
    double bonus = 0.0;
    for (size_t key = 0; key < size_; ++key) {
      float* s = &state_[key * size_];
      for (size_t i = 0; i < size_; ++i) {
        s[i] = static_cast<float>(s[i] * w_[key] - known[i] * gain_[key] +
                                  v_[i] * k_[key]);
        y[i] += double{s[i]} * r[key];
      }
      bonus += r[key] * k_[key] * params_.bonus[first_ + Index(key)];
    }
    Finish(row, bonus, y);
  }

  void Finish(int64_t row, double bonus, const WkvRow& y) {
    const auto size = static_cast<double>(size_);
    double mean = 0.0, variance = 0.0;
    for (size_t i = 0; i < size_; ++i) mean += y[i] / size;
    for (size_t i = 0; i < size_; ++i) {
      variance += (y[i] - mean) * (y[i] - mean) / size;
    }
    const double scale = 1.0 / std::sqrt(variance + params_.epsilon);
    const float* g = At(params_.g, row);
    float* to = params_.y.row<float>(row) + first_;
    for (size_t i = 0; i < size_; ++i) {
      const double normed =
          (y[i] - mean) * scale * params_.norm_weight[first_ + Index(i)] +
          params_.norm_bias[first_ + Index(i)];
      to[i] = static_cast<float>((normed + bonus * v_[i]) * g[i]);
    }
  }

  static int64_t Index(size_t i) { return static_cast<int64_t>(i); }

  const Wkv7Desc& desc_;
  const Wkv7Params& params_;
  const size_t size_;
  const int64_t first_;  // channel of the head
  WkvRow kk_, gain_, k_, w_, v_;
  std::array<float, size_t{kMaxWkvHeadDim} * kMaxWkvHeadDim> state_;
};

}  // namespace

absl::Status RunWkv7CpuScalar(const Wkv7Desc& desc, const Wkv7Params& params,
                              Stream& stream) {
  const auto sequences = static_cast<int64_t>(params.state.sequences.size());
  stream.thread_pool()->ParallelFor(
      sequences * desc.num_heads, 1, [&](int64_t begin, int64_t end) {
        for (int64_t task = begin; task < end; ++task) {
          WkvHead(desc, params, task % desc.num_heads)
              .Run(static_cast<size_t>(task / desc.num_heads));
        }
      });
  return absl::OkStatus();
}

}  // namespace inlay
