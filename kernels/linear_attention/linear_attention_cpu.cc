// linear_attention, the scalar reference row: one column of a head's state at a
// time, and the normaliser beside each; sums in double.
#include <algorithm>
#include <array>
#include <cmath>

#include "kernels/linear_attention/linear_attention.h"
#include "memory/device/thread_pool.h"

namespace inlay {
namespace {

float Map(FeatureMap map, float x) {
  switch (map) {
    case FeatureMap::kEluPlusOne:
      return x > 0.0f ? x + 1.0f : static_cast<float>(std::exp(double{x}));
    case FeatureMap::kRelu:
      return x < 0.0f ? 0.0f : x;
    case FeatureMap::kNone:
      break;
  }
  return x;
}

class Column {
 public:
  Column(const LinearAttentionDesc& desc, const LinearAttentionParams& params,
         int head, int column)
      : desc_(desc),
        params_(params),
        head_(head),
        key_(head / (desc.num_heads / desc.num_key_heads) * desc.key_dim),
        value_(int64_t{head} * desc.value_dim + column),
        first_(int64_t{head} * desc.key_dim * desc.value_dim + column),
        normaliser_(LinearAttentionMatrixFloats(desc) +
                    int64_t{head} * desc.key_dim),
        leaves_normaliser_(desc.normalised && column == 0) {}

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
  using Keys = std::array<float, kMaxStateKeyDim>;

  size_t keys() const { return static_cast<size_t>(desc_.key_dim); }

  void Load(const float* from) {
    for (size_t i = 0; i < keys(); ++i) {
      const auto key = static_cast<int64_t>(i);
      state_[i] = z_[i] = 0.0f;
      if (from == nullptr) continue;
      state_[i] = from[first_ + key * desc_.value_dim];
      if (desc_.normalised) z_[i] = from[normaliser_ + key];
    }
  }

  void Store(float* to) const {
    for (size_t i = 0; i < keys(); ++i) {
      const auto key = static_cast<int64_t>(i);
      to[first_ + key * desc_.value_dim] = state_[i];
      if (leaves_normaliser_) to[normaliser_ + key] = z_[i];
    }
  }

  void MapKeys(const float* from, Keys& to) const {
    for (size_t i = 0; i < keys(); ++i) to[i] = Map(desc_.feature_map, from[i]);
  }

  double Dot(const Keys& a, const Keys& b) const {
    double sum = 0.0;
    for (size_t i = 0; i < keys(); ++i) sum += double{a[i]} * b[i];
    return sum;
  }

  void Decay(int64_t row, Keys& column) const {
    if (desc_.decay == StateDecay::kNone) return;
    const bool each = desc_.decay == StateDecay::kChannel;
    const float* decay = params_.decay.row<const float>(row) +
                         (each ? int64_t{head_} * desc_.key_dim : head_);
    for (size_t i = 0; i < keys(); ++i) column[i] *= decay[each ? i : 0];
  }

  void Add(double u, Keys& column) const {
    for (size_t i = 0; i < keys(); ++i) {
      column[i] = static_cast<float>(column[i] + k_[i] * u);
    }
  }

  void Token(int64_t row) {
    MapKeys(params_.k.row<const float>(row) + key_, k_);
    MapKeys(params_.q.row<const float>(row) + key_, q_);
    const float v = params_.v.row<const float>(row)[value_];
    const float beta =
        params_.beta.empty() ? 1.0f : params_.beta.row<const float>(row)[head_];
    Decay(row, state_);
    Add((v - (desc_.delta ? Dot(state_, k_) : 0.0)) * beta, state_);
    double y = Dot(state_, q_);
    if (desc_.normalised) {
      Decay(row, z_);
      Add(beta, z_);
      y /= Dot(z_, q_) + desc_.epsilon;
    }
    const double skipped =
        params_.skip == nullptr ? 0.0 : double{params_.skip[head_]} * v;
    params_.y.row<float>(row)[value_] = static_cast<float>(y + skipped);
  }

  const LinearAttentionDesc& desc_;
  const LinearAttentionParams& params_;
  const int head_;
  const int64_t key_;
  const int64_t value_;
  const int64_t first_;
  const int64_t normaliser_;  // of the state, the head's
  const bool leaves_normaliser_;
  Keys state_;
  Keys z_;
  Keys k_;  // the token's, mapped
  Keys q_;
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
