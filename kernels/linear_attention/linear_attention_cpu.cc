// linear_attention, the scalar reference row: one column of a head's state at a
// time, sums in double.
#include <algorithm>
#include <array>

#include "kernels/linear_attention/linear_attention.h"
#include "memory/device/thread_pool.h"

namespace inlay {
namespace {

class Column {
 public:
  Column(const LinearAttentionDesc& desc, const LinearAttentionParams& params,
         int head, int column)
      : desc_(desc),
        params_(params),
        head_(head),
        key_(head / (desc.num_heads / desc.num_key_heads) * desc.key_dim),
        value_(int64_t{head} * desc.value_dim + column),
        first_(int64_t{head} * desc.key_dim * desc.value_dim + column) {}

  void Run(size_t sequence) {
    bool loaded = false;
    ForEachStateRun(params_.state, sequence, [&](const StateRun& run) {
      if (!loaded) Load(reinterpret_cast<const float*>(run.from));
      loaded = true;
      for (int64_t row = run.row; row < run.row + run.count; ++row) Token(row);
      Store(reinterpret_cast<float*>(run.to));
    });
  }

 private:
  size_t keys() const { return static_cast<size_t>(desc_.key_dim); }

  void Load(const float* from) {
    for (size_t i = 0; i < keys(); ++i) {
      state_[i] =
          from == nullptr
              ? 0.0f
              : from[first_ + static_cast<int64_t>(i) * desc_.value_dim];
    }
  }

  void Store(float* to) const {
    for (size_t i = 0; i < keys(); ++i) {
      to[first_ + static_cast<int64_t>(i) * desc_.value_dim] = state_[i];
    }
  }

  double Dot(const float* with) const {
    double sum = 0.0;
    for (size_t i = 0; i < keys(); ++i) sum += double{state_[i]} * with[i];
    return sum;
  }

  void Decay(int64_t row) {
    if (desc_.decay == StateDecay::kNone) return;
    const bool each = desc_.decay == StateDecay::kChannel;
    const float* decay = params_.decay.row<const float>(row) +
                         (each ? int64_t{head_} * desc_.key_dim : head_);
    for (size_t i = 0; i < keys(); ++i) state_[i] *= decay[each ? i : 0];
  }

  void Token(int64_t row) {
    const float* k = params_.k.row<const float>(row) + key_;
    const float* q = params_.q.row<const float>(row) + key_;
    const float v = params_.v.row<const float>(row)[value_];
    const float beta =
        params_.beta.empty() ? 1.0f : params_.beta.row<const float>(row)[head_];
    Decay(row);
    const double u = (v - (desc_.delta ? Dot(k) : 0.0)) * beta;
    for (size_t i = 0; i < keys(); ++i) {
      state_[i] = static_cast<float>(state_[i] + k[i] * u);
    }
    const double skipped =
        params_.skip == nullptr ? 0.0 : double{params_.skip[head_]} * v;
    params_.y.row<float>(row)[value_] = static_cast<float>(Dot(q) + skipped);
  }

  const LinearAttentionDesc& desc_;
  const LinearAttentionParams& params_;
  const int head_;
  const int64_t key_;
  const int64_t value_;
  const int64_t first_;
  std::array<float, kMaxStateKeyDim> state_;
};

}  // namespace

absl::Status RunLinearAttentionCpuScalar(const LinearAttentionDesc& desc,
                                         const LinearAttentionParams& params,
                                         Stream& stream) {
  const auto sequences = static_cast<int64_t>(params.state.sequences.size());
  stream.thread_pool()->ParallelFor(
      sequences * desc.num_heads, 1, [&](int64_t begin, int64_t end) {
        for (int64_t task = begin; task < end; ++task) {
          const auto head = static_cast<int>(task % desc.num_heads);
          for (int column = 0; column < desc.value_dim; ++column) {
            Column(desc, params, head, column)
                .Run(static_cast<size_t>(task / desc.num_heads));
          }
        }
      });
  return absl::OkStatus();
}

}  // namespace inlay
