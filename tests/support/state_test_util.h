// What the tests of recurrent ops share: a pool of states and sequences that
// leave theirs in it, inputs and the float64 reference of linear attention.
// Header only.
#ifndef INLAY_TESTS_SUPPORT_STATE_TEST_UTIL_H_
#define INLAY_TESTS_SUPPORT_STATE_TEST_UTIL_H_

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "kernels/linear_attention/linear_attention.h"
#include "tests/support/kernel_test_util.h"

namespace inlay::testing {

inline constexpr int kStateBlock = 8;  // tokens a state's block

inline TestMatrix RandomMatrix(DType dtype, int64_t rows, int64_t cols,
                               unsigned seed, int64_t pad = 3,
                               float deviation = 1.0f) {
  std::mt19937 rng(seed);
  TestMatrix matrix(dtype, rows, cols, pad);
  return matrix.Randomize(rng, deviation);
}

// A pool of states, poisoned, and sequences that write theirs to blocks of
// their own, never to the one they read.
class States {
 public:
  States(int64_t floats, int num_blocks, int block_tokens = kStateBlock)
      : stride_((static_cast<size_t>(floats) * 4 + 63) / 64 * 64 + 64),
        memory_(stride_ * static_cast<size_t>(num_blocks), std::byte{0xff}) {
    view_.base = memory_.data();
    view_.block_stride_bytes = static_cast<int64_t>(stride_);
    view_.offset_bytes = 64;
    view_.block_size = block_tokens;
  }

  struct Sequence {
    int64_t length = 0;
    std::vector<int32_t> blocks;
  };

  // The next `count` tokens of `sequence` are rows from `row` on.
  void Add(Sequence& sequence, int64_t row, int64_t count) {
    int32_t source = -1;
    if (sequence.length > 0) source = sequence.blocks.back();
    const int64_t tokens = view_.block_size;
    if (sequence.length % tokens != 0) sequence.blocks.back() = next_++;
    sequence.length += count;
    while (static_cast<int64_t>(sequence.blocks.size()) * tokens <
           sequence.length) {
      sequence.blocks.push_back(next_++);
    }
    sources_.push_back(source);
    tables_.push_back(sequence.blocks);
    AttentionSequence entry;
    entry.q_begin = static_cast<int32_t>(row);
    entry.q_len = static_cast<int32_t>(count);
    entry.kv_len = static_cast<int32_t>(sequence.length);
    entries_.push_back(entry);
  }

  // Of what was added since the last call.
  StateParams Take() {
    for (size_t i = 0; i < entries_.size(); ++i) {
      entries_[i].blocks = tables_[i].data();
    }
    taken_ = std::move(entries_);
    taken_tables_ = std::move(tables_);
    taken_sources_ = std::move(sources_);
    entries_.clear();
    tables_.clear();
    sources_.clear();
    return {taken_, taken_sources_.data(), view_, nullptr};
  }

  // Of the pool.
  size_t bytes() const { return memory_.size(); }
  // Of a state, and where that of `block` begins.
  size_t state_bytes() const { return stride_ - 64; }
  size_t Offset(int32_t block) const {
    return static_cast<size_t>(block) * stride_ + 64;
  }

  // As bytes, so that NaNs compare.
  std::string State(int32_t block) const {
    return std::string(reinterpret_cast<const char*>(view_.State(block)),
                       stride_ - 64);
  }

 private:
  size_t stride_;
  std::vector<std::byte> memory_;
  KvStateView view_;
  int32_t next_ = 0;
  std::vector<AttentionSequence> entries_, taken_;
  std::vector<std::vector<int32_t>> tables_, taken_tables_;
  std::vector<int32_t> sources_, taken_sources_;
};

struct LinearAttentionCase {
  LinearAttentionDesc desc;
  bool beta = true;
  bool skip = false;
};

// Feature maps and normalisers. What is normalised has features of at least 0:
// others may add up to nothing.
inline void AddFeatureCases(std::vector<LinearAttentionCase>& cases) {
  const auto add = [&](FeatureMap map, int key_dim, int value_dim,
                       StateDecay decay, bool normalised, bool delta) {
    LinearAttentionDesc desc;
    desc.num_heads = 4;
    desc.num_key_heads = key_dim == 32 ? 4 : 2;
    desc.key_dim = key_dim;
    desc.value_dim = value_dim;
    desc.decay = decay;
    desc.delta = delta;
    desc.feature_map = map;
    desc.normalised = normalised;
    desc.epsilon = 1e-6f;
    cases.push_back({desc, decay != StateDecay::kNone, key_dim == 7});
  };
  for (const StateDecay decay :
       {StateDecay::kNone, StateDecay::kHead, StateDecay::kChannel}) {
    for (const auto& [key_dim, value_dim] :
         {std::pair{16, 8}, {32, 33}, {7, 70}, {256, 20}, {12, 64}}) {
      add(FeatureMap::kEluPlusOne, key_dim, value_dim, decay, true, false);
    }
    add(FeatureMap::kRelu, 33, 40, decay, true, false);
  }
  add(FeatureMap::kEluPlusOne, 7, 70, StateDecay::kHead, false, false);
  add(FeatureMap::kRelu, 16, 8, StateDecay::kHead, false, true);
}

inline std::vector<LinearAttentionCase> LinearAttentionCases() {
  std::vector<LinearAttentionCase> cases;
  for (const StateDecay decay :
       {StateDecay::kNone, StateDecay::kHead, StateDecay::kChannel}) {
    for (const bool delta : {false, true}) {
      // Widths below, at and beside those of vectors and tiles of them.
      for (const auto& [key_dim, value_dim] :
           {std::pair{16, 8}, {5, 1}, {32, 33}, {7, 70}, {256, 20}, {12, 64}}) {
        LinearAttentionDesc desc;
        desc.num_heads = 4;
        desc.num_key_heads = key_dim == 32 ? 4 : 2;
        desc.key_dim = key_dim;
        desc.value_dim = value_dim;
        desc.decay = decay;
        desc.delta = delta;
        cases.push_back({desc, key_dim != 5, key_dim == 7});
      }
    }
  }
  AddFeatureCases(cases);
  return cases;
}

// Inputs of one sequence.
struct Inputs {
  // `activation`: of q, k and v.
  Inputs(const LinearAttentionCase& test, int64_t tokens, unsigned seed,
         DType activation = DType::kF32)
      : q(RandomMatrix(activation, tokens,
                       test.desc.num_key_heads * test.desc.key_dim, seed)),
        k(RandomMatrix(activation, tokens,
                       test.desc.num_key_heads * test.desc.key_dim, seed + 1)),
        v(RandomMatrix(activation, tokens,
                       test.desc.num_heads * test.desc.value_dim, seed + 2)),
        decay(DType::kF32, tokens, DecayWidth(test), 1),
        beta(DType::kF32, tokens, test.desc.num_heads, 2),
        skip(RandomMatrix(DType::kF32, 1, test.desc.num_heads, seed + 3)) {
    // Keys of length 1, as the delta rule has them: it would not be stable.
    for (TestMatrix* matrix : {&q, &k}) {
      for (int64_t r = 0; r < tokens; ++r) {
        for (int h = 0; h < test.desc.num_key_heads; ++h)
          Unit(*matrix, r, h, test);
      }
    }
    std::mt19937 rng(seed + 4);
    std::uniform_real_distribution<float> uniform(0.2f, 1.0f);
    for (int64_t r = 0; r < tokens; ++r) {
      for (int64_t c = 0; c < decay.cols(); ++c) decay.Set(r, c, uniform(rng));
      for (int64_t c = 0; c < beta.cols(); ++c) beta.Set(r, c, uniform(rng));
    }
  }

  static int64_t DecayWidth(const LinearAttentionCase& test) {
    return test.desc.decay == StateDecay::kChannel
               ? int64_t{test.desc.num_heads} * test.desc.key_dim
               : test.desc.num_heads;
  }

  static void Unit(TestMatrix& matrix, int64_t row, int head,
                   const LinearAttentionCase& test) {
    const int64_t first = int64_t{head} * test.desc.key_dim;
    double squares = 0;
    for (int i = 0; i < test.desc.key_dim; ++i) {
      squares += double{matrix(row, first + i)} * matrix(row, first + i);
    }
    for (int i = 0; i < test.desc.key_dim; ++i) {
      matrix.Set(
          row, first + i,
          static_cast<float>(matrix(row, first + i) / std::sqrt(squares)));
    }
  }

  // Rows [first, first + count), and y of as many.
  LinearAttentionParams Params(const LinearAttentionCase& test, int64_t first,
                               int64_t count, const TensorView& y) {
    LinearAttentionParams params;
    params.q = q.view().RowSlice(first, count);
    params.k = k.view().RowSlice(first, count);
    params.v = v.view().RowSlice(first, count);
    if (test.desc.decay != StateDecay::kNone) {
      params.decay = decay.view().RowSlice(first, count);
    }
    if (test.beta) params.beta = beta.view().RowSlice(first, count);
    if (test.skip) params.skip = skip.floats();
    params.y = y;
    return params;
  }

  TestMatrix q, k, v, decay, beta, skip;
};

// y in float64, and for each element the sum of what its terms' magnitudes come
// to, which rounding errors are measured in.
struct Expected {
  std::vector<double> y, magnitude;
};

inline double MapFeature(FeatureMap map, double x) {
  return map == FeatureMap::kNone   ? x
         : map == FeatureMap::kRelu ? std::max(x, 0.0)
         : x > 0.0                  ? x + 1.0
                                    : std::exp(x);
}

inline Expected Reference(const LinearAttentionCase& test, const Inputs& in) {
  const LinearAttentionDesc& desc = test.desc;
  const int64_t tokens = in.q.rows();
  const int64_t width = int64_t{desc.num_heads} * desc.value_dim;
  Expected out;
  out.y.resize(static_cast<size_t>(tokens * width));
  out.magnitude = out.y;
  for (int head = 0; head < desc.num_heads; ++head) {
    const int64_t key =
        head / (desc.num_heads / desc.num_key_heads) * desc.key_dim;
    const auto mapped = [&](const TestMatrix& from, int64_t t, size_t i) {
      return MapFeature(desc.feature_map,
                        from(t, key + static_cast<int64_t>(i)));
    };
    const auto decay = [&](int64_t t, size_t i) -> double {
      return desc.decay == StateDecay::kNone ? 1.0
             : desc.decay == StateDecay::kHead
                 ? in.decay(t, head)
                 : in.decay(t, int64_t{head} * desc.key_dim +
                                   static_cast<int64_t>(i));
    };
    for (int c = 0; c < desc.value_dim; ++c) {
      std::vector<double> s(static_cast<size_t>(desc.key_dim)), m = s, z = s;
      for (int64_t t = 0; t < tokens; ++t) {
        const int64_t column = int64_t{head} * desc.value_dim + c;
        double u = in.v(t, column), size = std::abs(u);
        for (size_t i = 0; i < s.size(); ++i) {
          s[i] *= decay(t, i);
          m[i] *= decay(t, i);
          z[i] *= decay(t, i);
          if (desc.delta) {
            u -= s[i] * mapped(in.k, t, i);
            size += m[i] * std::abs(mapped(in.k, t, i));
          }
        }
        const double beta = test.beta ? in.beta(t, head) : 1.0;
        double y = 0.0, magnitude = 0.0, divisor = desc.epsilon;
        for (size_t i = 0; i < s.size(); ++i) {
          const double k = mapped(in.k, t, i), q = mapped(in.q, t, i);
          s[i] += k * u * beta;
          m[i] += std::abs(k) * size * beta;
          z[i] += k * beta;
          y += s[i] * q;
          magnitude += m[i] * std::abs(q);
          divisor += z[i] * q;
        }
        if (desc.normalised) {
          // The divisor's terms are positive: it errs by roundings of itself.
          y /= divisor;
          magnitude = magnitude / divisor + std::abs(y);
        }
        const double skipped =
            test.skip ? double{in.skip(0, head)} * in.v(t, column) : 0.0;
        out.y[static_cast<size_t>(t * width + column)] = y + skipped;
        out.magnitude[static_cast<size_t>(t * width + column)] =
            magnitude + std::abs(skipped);
      }
    }
  }
  return out;
}

}  // namespace inlay::testing

#endif  // INLAY_TESTS_SUPPORT_STATE_TEST_UTIL_H_
