// linear_attention, the vector row. Columns of a head's state do not know of
// each other, so some vectors of them are taken through all tokens of a
// sequence while they lie in the first cache: a step reads and writes the state
// once, however many tokens it has. Two tokens at most share a pass over them
// (Pass), by the delta rule the end of one and the beginning of the next;
// what an element goes through is the same in any pass. Sums over keys are one
// accumulator a column, in ascending order. Feature maps and the normaliser are
// made again for every tile: they are a vector of keys where the tile is
// kMostVectors vectors of columns a key.
#include "kernels/simd_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE \
  "kernels/linear_attention/linear_attention_cpu_simd.cc"
#include <hwy/cache_control.h>
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

// Vectors of columns at a time: with two tokens a pass, as many independent
// sums as hide the latency of an addition, and half of a first cache of 32 KB
// with vectors of 512 bits and 128 keys.
constexpr size_t kMostVectors = 2;

// Blocks' bytes that no cache has any more when the next step reads them.
constexpr int64_t kStreamedBytes = int64_t{4} << 20;

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

inline bool HasFeatures(const LinearAttentionDesc& desc) {
  return desc.normalised || desc.feature_map != FeatureMap::kNone;
}

// A head's normaliser z, and q and k as features; zeros beyond key_dim.
class Features {
 public:
  Features(const LinearAttentionDesc& desc, int head)
      : desc_(desc),
        keys_(static_cast<size_t>(desc.key_dim)),
        first_(LinearAttentionMatrixFloats(desc) +
               int64_t{head} * desc.key_dim) {
    if (!HasFeatures(desc)) return;
    for (size_t place = 0; place < 2; ++place) {
      std::fill_n(k_[place], kMaxStateKeyDim, 0.0f);
      std::fill_n(q_[place], kMaxStateKeyDim, 0.0f);
    }
  }

  void Load(const float* from) {
    if (!desc_.normalised) return;
    std::fill_n(z_, kMaxStateKeyDim, 0.0f);
    if (from != nullptr) std::copy_n(from + first_, keys_, z_);
  }

  void Store(float* to) const {
    if (desc_.normalised) std::copy_n(z_, keys_, to + first_);
  }

  // Of one of two tokens, in its place; k and q become those made.
  HWY_INLINE void Make(size_t place, const float*& k, const float*& q) {
    MapRow(k, k_[place]);
    MapRow(q, q_[place]);
    k = k_[place];
    q = q_[place];
  }

  // z decays (`step` of LinearAttention's decays, or null) and gains beta k;
  // the sum that y is divided by.
  HWY_INLINE float Divisor(size_t place, const float* decay, size_t step,
                           float beta) {
    const DF d;
    VF sum = hn::Zero(d);
    ForEachVector([&](size_t i, size_t lanes) HWY_ATTR {
      VF z = hn::Load(d, z_ + i);
      if (decay != nullptr) {
        z = hn::Mul(z, step == 0         ? hn::Set(d, decay[0])
                       : lanes == kLanes ? LoadWide(decay + i)
                                         : LoadWideTail(decay + i, lanes));
      }
      z = hn::MulAdd(hn::Load(d, k_[place] + i), hn::Set(d, beta), z);
      hn::Store(z, d, z_ + i);
      sum = hn::MulAdd(z, hn::Load(d, q_[place] + i), sum);
    });
    return hn::GetLane(hn::SumOfLanes(d, sum)) + desc_.epsilon;
  }

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
  HWY_ALIGN float k_[2][kMaxStateKeyDim];
  HWY_ALIGN float q_[2][kMaxStateKeyDim];
};

// kVectors vectors of columns of one head; the last may lack lanes, which stay
// zero.
template <size_t kVectors>
class Tile {
 public:
  Tile(const LinearAttentionDesc& desc, const LinearAttentionParams& params,
       size_t sequence, int head, int64_t column, size_t columns)
      : desc_(desc),
        params_(params),
        sequence_(sequence),
        head_(head),
        keys_(static_cast<size_t>(desc.key_dim)),
        columns_(columns),
        key_(head / (desc.num_heads / desc.num_key_heads) * desc.key_dim),
        value_(int64_t{head} * desc.value_dim + column),
        first_(int64_t{head} * desc.key_dim * desc.value_dim + column),
        features_(desc, head) {}

  void Run() {
    bool loaded = false;
    ForEachStateRun(
        params_.state, sequence_, [&](const StateRun& run) HWY_ATTR {
          const auto* from = reinterpret_cast<const float*>(run.from);
          auto* to = reinterpret_cast<float*>(run.to);
          if (!loaded) features_.Load(from);
          // A run's first pass reads the state where it was left, its last one
          // writes it where it is to be left, unless vectors there lack lanes.
          const bool whole = columns_ == kWidth;
          const auto step = static_cast<size_t>(desc_.value_dim);
          const bool in_place = whole && from != nullptr;
          if (!loaded && !in_place) Load(from);
          loaded = true;
          const Source source =
              in_place ? Source{from + first_, step} : Source{state_, kWidth};
          const Target target = whole ? Target{to + first_, step, Streams(run)}
                                      : Target{state_, kWidth, false};
          if (desc_.delta) {
            CorrectedTokens(run, source, target);
          } else if (desc_.decay == StateDecay::kNone) {
            Tokens<false>(run, source, target);
          } else {
            Tokens<true>(run, source, target);
          }
          if (!whole) Store(to);
          // The head's first tile leaves what all of them have.
          if (value_ % desc_.value_dim == 0) features_.Store(to);
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

  // What the step leaves goes past the caches where it is too much for them,
  // which else read it from memory before they write it.
  bool Streams(const StateRun& run) const {
    const AttentionSequence& sequence = params_.state.sequences[sequence_];
    return run.row + run.count == sequence.q_begin + sequence.q_len &&
           params_.state.state.block_stride_bytes *
                   static_cast<int64_t>(params_.state.sequences.size()) >=
               kStreamedBytes &&
           desc_.value_dim % static_cast<int>(kLanes) == 0 &&
           reinterpret_cast<uintptr_t>(run.to) % (kLanes * sizeof(float)) == 0;
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

  // Where the state of key i is: at + i * step.
  struct Source {
    const float* at;
    size_t step;
  };
  struct Target {
    float* at;
    size_t step;
    bool streams;  // past the caches; whole vectors
  };

  struct Rows {
    const float* k = nullptr;
    const float* q = nullptr;
    const float* decay = nullptr;  // of key i: decay[i * step]
    size_t step = 0;
  };

  struct Token : Rows {
    float beta = 1.0f;
    HWY_ALIGN float v[kWidth];
    HWY_ALIGN float u[kWidth];
    HWY_ALIGN float y[kWidth];
  };

  static HWY_INLINE void Zero(VF (&sums)[kVectors]) {
    for (VF& sum : sums) sum = hn::Zero(DF());
  }

  // Of key i.
  template <bool kDecays>
  static HWY_INLINE void Gain(const Rows& token, size_t i,
                              const VF (&u)[kVectors], VF (&state)[kVectors],
                              VF (&y)[kVectors]) {
    const DF d;
    const VF key = hn::Set(d, token.k[i]);
    const VF query = hn::Set(d, token.q[i]);
    for (size_t c = 0; c < kVectors; ++c) {
      if constexpr (kDecays) {
        state[c] = hn::Mul(state[c], hn::Set(d, token.decay[i * token.step]));
      }
      state[c] = hn::MulAdd(key, u[c], state[c]);
      y[c] = hn::MulAdd(state[c], query, y[c]);
    }
  }

  // One pass over the state. For each of kGains tokens, one after another, it
  // decays (kDecays) and gains k u^T; y = S^T q. Then, with kNext, it decays
  // for the token after them, whose u loses what the state gives for its k.
  template <size_t kGains, bool kDecays, bool kNext, bool kStreams = false>
  HWY_INLINE void Pass(const Source& source, const Target& target,
                       Token* const (&gains)[2], Token* next) {
    static_assert(kGains <= 2 && !(kNext && kDecays));
    const DF d;
    VF y[2][kVectors], u[2][kVectors], given[kVectors];
    for (size_t t = 0; t < kGains; ++t) {
      Zero(y[t]);
      for (size_t c = 0; c < kVectors; ++c) {
        u[t][c] = hn::Load(d, gains[t]->u + c * kLanes);
      }
    }
    Zero(given);
    // Copies: what is stored might be these, as far as compilers know.
    Rows rows[2], next_rows;
    for (size_t t = 0; t < kGains; ++t) rows[t] = *gains[t];
    if constexpr (kNext) next_rows = *next;
    const size_t keys = keys_;
    const float* from = source.at;
    float* to = target.at;
    for (size_t i = 0; i < keys; ++i) {
      VF state[kVectors];
      for (size_t c = 0; c < kVectors; ++c) {
        state[c] = hn::LoadU(d, from + c * kLanes);
      }
      if constexpr (kGains > 0) Gain<kDecays>(rows[0], i, u[0], state, y[0]);
      if constexpr (kGains > 1) Gain<kDecays>(rows[1], i, u[1], state, y[1]);
      if constexpr (kNext) {
        const VF factor = hn::Set(d, next_rows.decay[i * next_rows.step]);
        const VF key = hn::Set(d, next_rows.k[i]);
        for (size_t c = 0; c < kVectors; ++c) {
          state[c] = hn::Mul(state[c], factor);
          given[c] = hn::MulAdd(state[c], key, given[c]);
        }
      }
      for (size_t c = 0; c < kVectors; ++c) {
        if constexpr (kStreams) {
          hn::Stream(state[c], d, to + c * kLanes);
        } else {
          hn::StoreU(state[c], d, to + c * kLanes);
        }
      }
      from += source.step;
      to += target.step;
    }
    for (size_t c = 0; c < kVectors; ++c) {
      const size_t first = c * kLanes;
      for (size_t t = 0; t < kGains; ++t) {
        hn::Store(y[t][c], d, gains[t]->y + first);
      }
      if constexpr (kNext) {
        hn::Store(hn::Sub(hn::Load(d, next->u + first), given[c]), d,
                  next->u + first);
      }
    }
  }

  // A run's last.
  template <size_t kGains, bool kDecays>
  HWY_INLINE void LastPass(const Source& source, const Target& target,
                           Token* const (&gains)[2]) {
    if (target.streams) {
      Pass<kGains, kDecays, false, true>(source, target, gains, nullptr);
    } else {
      Pass<kGains, kDecays, false>(source, target, gains, nullptr);
    }
  }

  // Token `place` of two from a row.
  HWY_INLINE Token& Begin(size_t place, int64_t row) {
    static constexpr float kNoDecay = 1.0f;
    Token& token = tokens_[place];
    token.k = params_.k.row<const float>(row) + key_;
    token.q = params_.q.row<const float>(row) + key_;
    if (HasFeatures(desc_)) features_.Make(place, token.k, token.q);
    LoadColumns(params_.v.row<const float>(row) + value_, token.v);
    std::copy_n(token.v, kWidth, token.u);
    token.decay = &kNoDecay;
    token.step = 0;
    if (desc_.decay == StateDecay::kHead) {
      token.decay = params_.decay.row<const float>(row) + head_;
    } else if (desc_.decay == StateDecay::kChannel) {
      token.decay = params_.decay.row<const float>(row) + head_ * desc_.key_dim;
      token.step = 1;
    }
    return token;
  }

  // u gets its factor.
  HWY_INLINE void Scale(Token& token, int64_t row) const {
    if (params_.beta.empty()) return;
    const DF d;
    token.beta = params_.beta.row<const float>(row)[head_];
    for (size_t c = 0; c < kWidth; c += kLanes) {
      hn::Store(hn::Mul(hn::Load(d, token.u + c), hn::Set(d, token.beta)), d,
                token.u + c);
    }
  }

  HWY_INLINE void Finish(size_t place, int64_t row) {
    const DF d;
    Token& token = tokens_[place];
    if (desc_.normalised) {
      const float* decay =
          desc_.decay == StateDecay::kNone ? nullptr : token.decay;
      const VF divisor =
          hn::Set(d, features_.Divisor(place, decay, token.step, token.beta));
      for (size_t c = 0; c < kWidth; c += kLanes) {
        hn::Store(hn::Div(hn::Load(d, token.y + c), divisor), d, token.y + c);
      }
    }
    if (params_.skip != nullptr) {
      const VF skip = hn::Set(d, params_.skip[head_]);
      for (size_t c = 0; c < kWidth; c += kLanes) {
        hn::Store(hn::MulAdd(hn::Load(d, token.v + c), skip,
                             hn::Load(d, token.y + c)),
                  d, token.y + c);
      }
    }
    StoreColumns(token.y, params_.y.row<float>(row) + value_);
  }

  // By the delta rule a token's u is known after a pass: that of the token
  // before.
  HWY_INLINE void CorrectedTokens(const StateRun& run, const Source& source,
                                  const Target& target) {
    const Source inner = {state_, kWidth};
    const Target kept = {state_, kWidth, false};
    Pass<0, false, true>(source, kept, {}, &Begin(0, run.row));
    for (int64_t i = 0; i < run.count; ++i) {
      const int64_t row = run.row + i;
      const auto place = static_cast<size_t>(i % 2);
      Token* const gains[2] = {&tokens_[place], nullptr};
      Scale(tokens_[place], row);
      if (i + 1 < run.count) {
        Pass<1, false, true>(inner, kept, gains, &Begin(1 - place, row + 1));
      } else {
        LastPass<1, false>(inner, target, gains);
      }
      Finish(place, row);
    }
  }

  template <bool kDecays>
  HWY_INLINE void Tokens(const StateRun& run, const Source& source,
                         const Target& target) {
    const Source inner = {state_, kWidth};
    const Target kept = {state_, kWidth, false};
    Token* const gains[2] = {&tokens_[0], &tokens_[1]};
    for (int64_t i = 0; i < run.count; i += 2) {
      const int64_t row = run.row + i;
      const Source& from = i == 0 ? source : inner;
      const bool pair = i + 1 < run.count;
      Scale(Begin(0, row), row);
      if (pair) Scale(Begin(1, row + 1), row + 1);
      if (i + 2 < run.count) {
        Pass<2, kDecays, false>(from, kept, gains, nullptr);
      } else if (pair) {
        LastPass<2, kDecays>(from, target, gains);
      } else {
        LastPass<1, kDecays>(from, target, gains);
      }
      Finish(0, row);
      if (pair) Finish(1, row + 1);
    }
  }

  const LinearAttentionDesc& desc_;
  const LinearAttentionParams& params_;
  const size_t sequence_;
  const int head_;
  const size_t keys_;
  const size_t columns_;
  const int64_t key_;
  const int64_t value_;
  const int64_t first_;
  Features features_;
  Token tokens_[2];
  HWY_ALIGN float state_[kMaxStateKeyDim * kWidth];
};

HWY_NOINLINE void RunHead(const LinearAttentionDesc& desc,
                          const LinearAttentionParams& params, int head,
                          size_t sequence) {
  const auto width = static_cast<size_t>(desc.value_dim);
  for (size_t column = 0; column < width; column += kMostVectors * kLanes) {
    const size_t columns = std::min(width - column, kMostVectors * kLanes);
    const auto first = static_cast<int64_t>(column);
    if (columns <= kLanes) {
      Tile<1>(desc, params, sequence, head, first, columns).Run();
    } else {
      Tile<2>(desc, params, sequence, head, first, columns).Run();
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
        hwy::FlushStream();
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
