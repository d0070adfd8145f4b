// wkv7, the vector row. A head goes through all tokens of a sequence, its state
// in the first or second cache. Vectors are of values: columns of the state do
// not know of each other, so a few vectors of them take a token at a time, once
// over the keys to find what the state gives for kk and once more to change it,
// and nothing of that is summed over lanes. Lengths, means and the bonus are
// sums over a head's channels in one order.
#include "kernels/simd_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/linear_attention/wkv7_cpu_simd.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/linear_attention/wkv7.h"
#include "kernels/simd_float-inl.h"
#include "kernels/simd_math-inl.h"
#include "memory/device/thread_pool.h"

HWY_BEFORE_NAMESPACE();
namespace inlay {
namespace HWY_NAMESPACE {
namespace wkv7 {

constexpr size_t kMaxDim = kMaxWkvHeadDim;

class Head {
 public:
  Head(const Wkv7Desc& desc, const Wkv7Params& params, int64_t head)
      : params_(params),
        mixes_(desc.mixes),
        size_(static_cast<size_t>(desc.head_dim)),
        first_(head * desc.head_dim) {}

  void Run(size_t sequence) {
    const size_t bytes = size_ * size_ * sizeof(float);
    const int64_t at = first_ * static_cast<int64_t>(size_);
    bool loaded = false;
    ForEachStateRun(params_.state, sequence, [&](const StateRun& run) HWY_ATTR {
      const auto* from = reinterpret_cast<const float*>(run.from);
      if (!loaded && from == nullptr) {
        std::memset(state_, 0, bytes);
      } else if (!loaded) {
        std::memcpy(state_, from + at, bytes);
      }
      loaded = true;
      for (int64_t row = run.row; row < run.row + run.count; ++row) Token(row);
      std::memcpy(reinterpret_cast<float*>(run.to) + at, state_, bytes);
    });
  }

 private:
  HWY_INLINE const float* At(const TensorView& view, int64_t row) const {
    return view.row<const float>(row) + first_;
  }

  static HWY_INLINE float Sum(VF v) {
    return hn::GetLane(hn::SumOfLanes(DF(), v));
  }

  // What a token brings, from what layers gave.
  HWY_INLINE void Prepare(int64_t row) {
    const DF d;
    const float* k_in = At(params_.k, row);
    const float* r = At(params_.r, row);
    const float* v_in = At(params_.v, row);
    const VF one = hn::Set(d, 1.0f);
    VF squares = hn::Zero(d);
    for (size_t i = 0; i < size_; i += kLanes) {
      const VF kk =
          hn::Mul(LoadWide(k_in + i), LoadWide(params_.k_scale + first_ + i));
      hn::Store(kk, d, kk_ + i);
      squares = hn::MulAdd(kk, kk, squares);
    }
    const VF factor =
        hn::Set(d, 1.0f / std::max(std::sqrt(Sum(squares)), kWkvLeastLength));
    VF bonus = hn::Zero(d);
    for (size_t i = 0; i < size_; i += kLanes) {
      const VF a = Sigmoid(LoadWide(At(params_.rate, row) + i));
      const VF kk = hn::Mul(hn::Load(d, kk_ + i), factor);
      hn::Store(kk, d, kk_ + i);
      hn::Store(hn::Neg(hn::Mul(kk, a)), d, gain_ + i);
      const VF k =
          hn::Mul(LoadWide(k_in + i),
                  hn::MulAdd(hn::Sub(a, one),
                             LoadWide(params_.k_rate + first_ + i), one));
      hn::Store(k, d, k_ + i);
      const VF exponent =
          hn::Mul(hn::Set(d, static_cast<float>(-kWkvDecay)),
                  Sigmoid(LoadWide(At(params_.decay, row) + i)));
      hn::Store(ExpNonPositive(exponent), d, w_ + i);
      VF v = LoadWide(v_in + i);
      if (mixes_) {
        const VF difference =
            hn::Sub(LoadWide(At(params_.first_v, row) + i), v);
        v = hn::MulAdd(difference, Sigmoid(LoadWide(At(params_.mix, row) + i)),
                       v);
      }
      hn::Store(v, d, v_ + i);
      bonus = hn::MulAdd(hn::Mul(LoadWide(r + i), k),
                         LoadWide(params_.bonus + first_ + i), bonus);
    }
    bonus_ = Sum(bonus);
  }

  // kVectors vectors of values, from value `at` on, take the token.
  template <size_t kVectors>
  HWY_INLINE void Columns(const float* r, size_t at) {
    const DF d;
    VF known[kVectors], v[kVectors], y[kVectors];
    for (size_t n = 0; n < kVectors; ++n) {
      known[n] = y[n] = hn::Zero(d);
      v[n] = hn::Load(d, v_ + at + n * kLanes);
    }
    for (size_t key = 0; key < size_; ++key) {
      const float* s = state_ + key * size_ + at;
      const VF kk = hn::Set(d, kk_[key]);
      for (size_t n = 0; n < kVectors; ++n) {
        known[n] = hn::MulAdd(hn::Load(d, s + n * kLanes), kk, known[n]);
      }
    }
    for (size_t key = 0; key < size_; ++key) {
      float* const s = state_ + key * size_ + at;
      const VF w = hn::Set(d, w_[key]);
      const VF gain = hn::Set(d, gain_[key]);
      const VF k = hn::Set(d, k_[key]);
      const VF query = hn::Set(d, r[key]);
      for (size_t n = 0; n < kVectors; ++n) {
        VF state = hn::Mul(hn::Load(d, s + n * kLanes), w);
        state = hn::MulAdd(known[n], gain, state);
        state = hn::MulAdd(v[n], k, state);
        hn::Store(state, d, s + n * kLanes);
        y[n] = hn::MulAdd(state, query, y[n]);
      }
    }
    for (size_t n = 0; n < kVectors; ++n) {
      hn::Store(y[n], d, y_ + at + n * kLanes);
    }
  }

  HWY_INLINE void Token(int64_t row) {
    Prepare(row);
    const float* r = At(params_.r, row);
    const size_t vectors = size_ / kLanes;
    size_t n = 0;
    for (; n + 4 <= vectors; n += 4) Columns<4>(r, n * kLanes);
    for (; n < vectors; ++n) Columns<1>(r, n * kLanes);
    Finish(row);
  }

  HWY_INLINE void Finish(int64_t row) {
    const DF d;
    VF sum = hn::Zero(d);
    for (size_t i = 0; i < size_; i += kLanes) {
      sum = hn::Add(sum, hn::Load(d, y_ + i));
    }
    const float share = 1.0f / static_cast<float>(size_);
    const VF mean = hn::Set(d, Sum(sum) * share);
    VF squares = hn::Zero(d);
    for (size_t i = 0; i < size_; i += kLanes) {
      const VF off = hn::Sub(hn::Load(d, y_ + i), mean);
      squares = hn::MulAdd(off, off, squares);
    }
    const VF scale =
        hn::Set(d, 1.0f / std::sqrt(Sum(squares) * share + params_.epsilon));
    const VF bonus = hn::Set(d, bonus_);
    const float* g = At(params_.g, row);
    float* const to = params_.y.row<float>(row) + first_;
    for (size_t i = 0; i < size_; i += kLanes) {
      const VF off = hn::Mul(hn::Sub(hn::Load(d, y_ + i), mean), scale);
      VF out = hn::MulAdd(off, LoadWide(params_.norm_weight + first_ + i),
                          LoadWide(params_.norm_bias + first_ + i));
      out = hn::MulAdd(bonus, hn::Load(d, v_ + i), out);
      hn::StoreU(hn::Mul(out, LoadWide(g + i)), d, to + i);
    }
  }

  const Wkv7Params& params_;
  const bool mixes_;
  const size_t size_;
  const int64_t first_;  // channel of the head
  float bonus_ = 0.0f;
  HWY_ALIGN float kk_[kMaxDim];
  HWY_ALIGN float gain_[kMaxDim];  // -kk a
  HWY_ALIGN float k_[kMaxDim];
  HWY_ALIGN float w_[kMaxDim];
  HWY_ALIGN float v_[kMaxDim];
  HWY_ALIGN float y_[kMaxDim];
  HWY_ALIGN float state_[kMaxDim * kMaxDim];
};

HWY_NOINLINE void RunHead(const Wkv7Desc& desc, const Wkv7Params& params,
                          int64_t head, size_t sequence) {
  Head(desc, params, head).Run(sequence);
}

}  // namespace wkv7

void RunWkv7(const Wkv7Desc& desc, const Wkv7Params& params, ThreadPool& pool) {
  const auto sequences = static_cast<int64_t>(params.state.sequences.size());
  pool.ParallelFor(
      sequences * desc.num_heads, 1, [&](int64_t begin, int64_t end) HWY_ATTR {
        for (int64_t task = begin; task < end; ++task) {
          wkv7::RunHead(desc, params, task % desc.num_heads,
                        static_cast<size_t>(task / desc.num_heads));
        }
      });
}

}  // namespace HWY_NAMESPACE
}  // namespace inlay
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace inlay {
HWY_EXPORT(RunWkv7);

absl::Status RunWkv7CpuSimd(const Wkv7Desc& desc, const Wkv7Params& params,
                            Stream& stream) {
  HWY_DYNAMIC_DISPATCH(RunWkv7)(desc, params, *stream.thread_pool());
  return absl::OkStatus();
}

}  // namespace inlay
#endif  // HWY_ONCE
