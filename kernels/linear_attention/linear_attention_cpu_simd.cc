// linear_attention, the vector row. Columns of a head's state do not know of
// each other, so some vectors of them are taken through all tokens of a
// sequence while they lie in the first cache: a step reads and writes the state
// once, however many tokens it has. Sums over keys are one accumulator a
// column, in ascending order. Feature maps and the normaliser are made again
// for every tile: they are a vector of keys where the tile is kMostVectors
// vectors of columns a key.
#include "kernels/simd_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE \
  "kernels/linear_attention/linear_attention_cpu_simd.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/linear_attention/linear_attention.h"
#include "kernels/simd_float-inl.h"
#include "kernels/simd_math-inl.h"
#include "memory/device/thread_pool.h"

HWY_BEFORE_NAMESPACE();
namespace inlay {
namespace HWY_NAMESPACE {
namespace linear_attention {

// Vectors of columns at a time: as many independent sums as hide the latency of
// an addition, and 32 KB of state with vectors of 256 bits.
constexpr size_t kMostVectors = 4;

// NaN stays.
HWY_INLINE VF Map(FeatureMap map, VF x) {
  const DF d;
  const VF zero = hn::Zero(d);
  if (map == FeatureMap::kRelu) return hn::IfThenZeroElse(hn::Lt(x, zero), x);
  if (map == FeatureMap::kNone) return x;
  const auto above = hn::Gt(x, zero);
  return hn::IfThenElse(above, hn::Add(x, hn::Set(d, 1.0f)),
                        ExpNonPositive(hn::IfThenZeroElse(above, x)));
}

// A head's normaliser z, and q and k as features; zeros beyond key_dim.
class Features {
 public:
  Features(const LinearAttentionDesc& desc, int head)
      : desc_(desc),
        keys_(static_cast<size_t>(desc.key_dim)),
        first_(LinearAttentionMatrixFloats(desc) +
               int64_t{head} * desc.key_dim) {
    if (!present()) return;
    std::fill_n(k_, kMaxStateKeyDim, 0.0f);
    std::fill_n(q_, kMaxStateKeyDim, 0.0f);
  }

  // Otherwise q and k serve as they are.
  bool present() const {
    return desc_.normalised || desc_.feature_map != FeatureMap::kNone;
  }

  void Load(const float* from) {
    if (!desc_.normalised) return;
    std::fill_n(z_, kMaxStateKeyDim, 0.0f);
    if (from != nullptr) std::copy_n(from + first_, keys_, z_);
  }

  void Store(float* to) const {
    if (desc_.normalised) std::copy_n(z_, keys_, to + first_);
  }

  HWY_INLINE void Make(const float* k, const float* q) {
    MapRow(k, k_);
    MapRow(q, q_);
  }

  // z decays (`step` of LinearAttention's decays, or null) and gains beta k;
  // the sum that y is divided by.
  HWY_INLINE float Divisor(const float* decay, size_t step, float beta) {
    const DF d;
    VF sum = hn::Zero(d);
    ForEachVector([&](size_t i, size_t lanes) HWY_ATTR {
      VF z = hn::Load(d, z_ + i);
      if (decay != nullptr) {
        z = hn::Mul(z, step == 0         ? hn::Set(d, decay[0])
                       : lanes == kLanes ? LoadWide(decay + i)
                                         : LoadWideTail(decay + i, lanes));
      }
      z = hn::MulAdd(hn::Load(d, k_ + i), hn::Set(d, beta), z);
      hn::Store(z, d, z_ + i);
      sum = hn::MulAdd(z, hn::Load(d, q_ + i), sum);
    });
    return hn::GetLane(hn::SumOfLanes(d, sum)) + desc_.epsilon;
  }

  const float* k() const { return k_; }
  const float* q() const { return q_; }

 private:
  // Calls visit(first key, lanes it has).
  template <typename Visit>
  HWY_INLINE void ForEachVector(const Visit& visit) const {
    for (size_t i = 0; i < keys_; i += kLanes) {
      visit(i, std::min(kLanes, keys_ - i));
    }
  }

  HWY_INLINE void MapRow(const float* from, float* to) const {
    ForEachVector([&](size_t i, size_t lanes) HWY_ATTR {
      if (lanes == kLanes) {
        hn::Store(Map(desc_.feature_map, LoadWide(from + i)), DF(), to + i);
      } else {
        StoreTail(Map(desc_.feature_map, LoadWideTail(from + i, lanes)), to + i,
                  lanes);
      }
    });
  }

  const LinearAttentionDesc& desc_;
  const size_t keys_;
  const int64_t first_;  // of the state
  HWY_ALIGN float z_[kMaxStateKeyDim];
  HWY_ALIGN float k_[kMaxStateKeyDim];
  HWY_ALIGN float q_[kMaxStateKeyDim];
};

// kVectors vectors of columns of one head; the last may lack lanes, which stay
// zero.
template <size_t kVectors>
class Tile {
 public:
  Tile(const LinearAttentionDesc& desc, const LinearAttentionParams& params,
       int head, int64_t column, size_t columns)
      : desc_(desc),
        params_(params),
        head_(head),
        keys_(static_cast<size_t>(desc.key_dim)),
        columns_(columns),
        key_(head / (desc.num_heads / desc.num_key_heads) * desc.key_dim),
        value_(int64_t{head} * desc.value_dim + column),
        first_(int64_t{head} * desc.key_dim * desc.value_dim + column),
        features_(desc, head) {}

  void Run(size_t sequence) {
    bool loaded = false;
    ForEachStateRun(params_.state, sequence, [&](const StateRun& run) HWY_ATTR {
      if (!loaded) {
        Load(reinterpret_cast<const float*>(run.from));
        features_.Load(reinterpret_cast<const float*>(run.from));
      }
      loaded = true;
      for (int64_t i = 0; i < run.count; ++i) {
        Token(run.row + i);
      }
      Store(reinterpret_cast<float*>(run.to));
      // The head's first tile leaves what all of them have.
      if (value_ % desc_.value_dim == 0) {
        features_.Store(reinterpret_cast<float*>(run.to));
      }
    });
  }

 private:
  static constexpr size_t kWidth = kVectors * kLanes;

  // Calls visit(vector, lanes it has).
  template <typename Visit>
  HWY_INLINE void ForEachVector(const Visit& visit) const {
    for (size_t c = 0; c < kVectors; ++c) {
      visit(c, std::min(kLanes, columns_ - c * kLanes));
    }
  }

  HWY_INLINE void LoadColumns(const float* from, float* to) const {
    ForEachVector([&](size_t c, size_t lanes) HWY_ATTR {
      const float* p = from + c * kLanes;
      hn::Store(lanes == kLanes ? LoadWide(p) : LoadWideTail(p, lanes), DF(),
                to + c * kLanes);
    });
  }

  HWY_INLINE void StoreColumns(const float* from, float* to) const {
    ForEachVector([&](size_t c, size_t lanes) HWY_ATTR {
      const VF v = hn::Load(DF(), from + c * kLanes);
      if (lanes == kLanes) {
        hn::StoreU(v, DF(), to + c * kLanes);
      } else {
        StoreTail(v, to + c * kLanes, lanes);
      }
    });
  }

  HWY_INLINE void Load(const float* from) {
    for (size_t i = 0; i < keys_; ++i) {
      if (from == nullptr) {
        std::fill_n(state_ + i * kWidth, kWidth, 0.0f);
      } else {
        LoadColumns(from + first_ + static_cast<int64_t>(i) * desc_.value_dim,
                    state_ + i * kWidth);
      }
    }
  }

  HWY_INLINE void Store(float* to) const {
    for (size_t i = 0; i < keys_; ++i) {
      StoreColumns(state_ + i * kWidth,
                   to + first_ + static_cast<int64_t>(i) * desc_.value_dim);
    }
  }

  // The state decays, and u loses what it already gives for k.
  HWY_INLINE void Correct(const float* decay, size_t step, const float* k,
                          float* u) {
    const DF d;
    VF sums[kVectors];
    for (size_t c = 0; c < kVectors; ++c) sums[c] = hn::Zero(d);
    for (size_t i = 0; i < keys_; ++i) {
      float* state = state_ + i * kWidth;
      const VF factor = hn::Set(d, decay == nullptr ? 1.0f : decay[i * step]);
      const VF key = hn::Set(d, k[i]);
      for (size_t c = 0; c < kVectors; ++c) {
        const VF s = hn::Mul(hn::Load(d, state + c * kLanes), factor);
        hn::Store(s, d, state + c * kLanes);
        sums[c] = hn::MulAdd(s, key, sums[c]);
      }
    }
    for (size_t c = 0; c < kVectors; ++c) {
      hn::Store(hn::Sub(hn::Load(d, u + c * kLanes), sums[c]), d,
                u + c * kLanes);
    }
  }

  // The state decays (unless null) and gains k u^T; y = S^T q.
  HWY_INLINE void Update(const float* decay, size_t step, const float* k,
                         const float* q, const float* u, float* y) {
    const DF d;
    VF sums[kVectors], gains[kVectors];
    for (size_t c = 0; c < kVectors; ++c) {
      sums[c] = hn::Zero(d);
      gains[c] = hn::Load(d, u + c * kLanes);
    }
    for (size_t i = 0; i < keys_; ++i) {
      float* state = state_ + i * kWidth;
      const VF factor = hn::Set(d, decay == nullptr ? 1.0f : decay[i * step]);
      const VF key = hn::Set(d, k[i]);
      const VF query = hn::Set(d, q[i]);
      for (size_t c = 0; c < kVectors; ++c) {
        VF s = hn::Load(d, state + c * kLanes);
        if (decay != nullptr) s = hn::Mul(s, factor);
        s = hn::MulAdd(key, gains[c], s);
        hn::Store(s, d, state + c * kLanes);
        sums[c] = hn::MulAdd(s, query, sums[c]);
      }
    }
    for (size_t c = 0; c < kVectors; ++c) {
      hn::Store(sums[c], d, y + c * kLanes);
    }
  }

  HWY_INLINE void Token(int64_t row) {
    const DF d;
    HWY_ALIGN float v[kWidth];
    HWY_ALIGN float u[kWidth];
    HWY_ALIGN float y[kWidth];
    const float* k = params_.k.row<const float>(row) + key_;
    const float* q = params_.q.row<const float>(row) + key_;
    if (features_.present()) {
      features_.Make(k, q);
      k = features_.k();
      q = features_.q();
    }
    LoadColumns(params_.v.row<const float>(row) + value_, v);
    std::copy_n(v, kWidth, u);
    const float* decay = nullptr;
    size_t step = 0;
    if (desc_.decay == StateDecay::kHead) {
      decay = params_.decay.row<const float>(row) + head_;
    } else if (desc_.decay == StateDecay::kChannel) {
      decay = params_.decay.row<const float>(row) + head_ * desc_.key_dim;
      step = 1;
    }
    if (desc_.delta) {
      Correct(decay, step, k, u);
      decay = nullptr;
    }
    float beta = 1.0f;
    if (!params_.beta.empty()) {
      beta = params_.beta.row<const float>(row)[head_];
      for (size_t c = 0; c < kVectors; ++c) {
        hn::Store(hn::Mul(hn::Load(d, u + c * kLanes), hn::Set(d, beta)), d,
                  u + c * kLanes);
      }
    }
    Update(decay, step, k, q, u, y);
    if (desc_.normalised) {
      const VF divisor = hn::Set(d, features_.Divisor(decay, step, beta));
      for (size_t c = 0; c < kVectors; ++c) {
        hn::Store(hn::Div(hn::Load(d, y + c * kLanes), divisor), d,
                  y + c * kLanes);
      }
    }
    if (params_.skip != nullptr) {
      const VF skip = hn::Set(d, params_.skip[head_]);
      for (size_t c = 0; c < kVectors; ++c) {
        hn::Store(hn::MulAdd(hn::Load(d, v + c * kLanes), skip,
                             hn::Load(d, y + c * kLanes)),
                  d, y + c * kLanes);
      }
    }
    StoreColumns(y, params_.y.row<float>(row) + value_);
  }

  const LinearAttentionDesc& desc_;
  const LinearAttentionParams& params_;
  const int head_;
  const size_t keys_;
  const size_t columns_;
  const int64_t key_;
  const int64_t value_;
  const int64_t first_;
  Features features_;
  HWY_ALIGN float state_[kMaxStateKeyDim * kWidth];
};

HWY_NOINLINE void RunHead(const LinearAttentionDesc& desc,
                          const LinearAttentionParams& params, int head,
                          size_t sequence) {
  const auto width = static_cast<size_t>(desc.value_dim);
  for (size_t column = 0; column < width; column += kMostVectors * kLanes) {
    const size_t columns = std::min(width - column, kMostVectors * kLanes);
    const auto first = static_cast<int64_t>(column);
    switch ((columns + kLanes - 1) / kLanes) {
      case 1:
        Tile<1>(desc, params, head, first, columns).Run(sequence);
        break;
      case 2:
        Tile<2>(desc, params, head, first, columns).Run(sequence);
        break;
      case 3:
        Tile<3>(desc, params, head, first, columns).Run(sequence);
        break;
      default:
        Tile<4>(desc, params, head, first, columns).Run(sequence);
    }
  }
}

}  // namespace linear_attention

void RunLinearAttention(const LinearAttentionDesc& desc,
                        const LinearAttentionParams& params, ThreadPool& pool) {
  const auto sequences = static_cast<int64_t>(params.state.sequences.size());
  pool.ParallelFor(
      sequences * desc.num_heads, 1, [&](int64_t begin, int64_t end) HWY_ATTR {
        for (int64_t task = begin; task < end; ++task) {
          linear_attention::RunHead(desc, params,
                                    static_cast<int>(task % desc.num_heads),
                                    static_cast<size_t>(task / desc.num_heads));
        }
      });
}

}  // namespace HWY_NAMESPACE
}  // namespace inlay
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace inlay {
HWY_EXPORT(RunLinearAttention);

absl::Status RunLinearAttentionCpuSimd(const LinearAttentionDesc& desc,
                                       const LinearAttentionParams& params,
                                       Stream& stream) {
  HWY_DYNAMIC_DISPATCH(RunLinearAttention)
  (desc, params, *stream.thread_pool());
  return absl::OkStatus();
}

}  // namespace inlay
#endif  // HWY_ONCE
