// What tests of wkv7 share: inputs and the float64 reference. Header only.
#ifndef INLAY_TESTS_SUPPORT_WKV7_UTIL_H_
#define INLAY_TESTS_SUPPORT_WKV7_UTIL_H_

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/linear_attention/wkv7.h"
#include "tests/support/state_test_util.h"

namespace inlay::testing {

// All sizes of heads; v as it is and mixed with the first layer's.
inline std::vector<Wkv7Desc> WkvCases(DType activation) {
  return {{3, 16, false, activation}, {1, 16, true, activation},
          {2, 32, true, activation},  {3, 64, false, activation},
          {2, 64, true, activation},  {2, 128, true, activation}};
}

struct WkvInputs {
  WkvInputs(const Wkv7Desc& desc, int64_t tokens, unsigned seed)
      : r(Rows(desc, desc.activation, tokens, seed)),
        k(Rows(desc, desc.activation, tokens, seed + 1)),
        v(Rows(desc, desc.activation, tokens, seed + 2)),
        g(Rows(desc, desc.activation, tokens, seed + 3)),
        first_v(Rows(desc, desc.activation, tokens, seed + 4)),
        decay(Rows(desc, DType::kF32, tokens, seed + 5)),
        rate(Rows(desc, DType::kF32, tokens, seed + 6)),
        mix(Rows(desc, DType::kF32, tokens, seed + 7)),
        k_scale(Vector(desc, seed + 8)),
        k_rate(Vector(desc, seed + 9)),
        bonus(Vector(desc, seed + 10)),
        norm_weight(Vector(desc, seed + 11)),
        norm_bias(Vector(desc, seed + 12)) {
    const int64_t last = r.cols() - 1;
    // What hardly decays and hardly learns, and what does so most.
    decay.Set(0, 0, -60.0f);
    rate.Set(0, 0, -60.0f);
    if (tokens < 4) return;
    decay.Set(2, last, 60.0f);
    rate.Set(2, last, 60.0f);
    // Keys without a length.
    for (int64_t i = 0; i <= last; ++i) k.Set(3, i, 0.0f);
  }

  static TestMatrix Rows(const Wkv7Desc& desc, DType dtype, int64_t tokens,
                         unsigned seed) {
    return RandomMatrix(dtype, tokens, int64_t{desc.num_heads} * desc.head_dim,
                        seed, 8);
  }
  static TestMatrix Vector(const Wkv7Desc& desc, unsigned seed) {
    return RandomMatrix(DType::kF32, 1, int64_t{desc.num_heads} * desc.head_dim,
                        seed, 0);
  }

  std::vector<TestMatrix*> rows() {
    return {&r, &k, &v, &g, &first_v, &decay, &rate, &mix};
  }

  // Rows [first, first + count); no state and no y.
  Wkv7Params Params(const Wkv7Desc& desc, int64_t first, int64_t count) {
    const auto rows = [&](TestMatrix& matrix) {
      return matrix.view().RowSlice(first, count);
    };
    Wkv7Params params;
    params.r = rows(r);
    params.k = rows(k);
    params.v = rows(v);
    params.g = rows(g);
    params.decay = rows(decay);
    params.rate = rows(rate);
    if (desc.mixes) {
      params.first_v = rows(first_v);
      params.mix = rows(mix);
    }
    params.k_scale = k_scale.floats();
    params.k_rate = k_rate.floats();
    params.bonus = bonus.floats();
    params.norm_weight = norm_weight.floats();
    params.norm_bias = norm_bias.floats();
    params.epsilon = kEpsilon;
    return params;
  }

  static constexpr float kEpsilon = 64e-5f;

  TestMatrix r, k, v, g, first_v, decay, rate, mix;
  TestMatrix k_scale, k_rate, bonus, norm_weight, norm_bias;
};

// y in float64, and how far float32 may be from it, to first order in its
// roundings u = 2^-24:
//
// - What a token brings errs by no more than D / 2 + 12 u of itself (D a head's
//   channels): the sum of squares below the length D u, halved by the root, the
//   root, the quotient, two products; a sigmoid five, a gain two more.
// - What the state gives for kk is a sum of D terms, each of them as far off as
//   the state and as kk: D + D / 2 + 12 u more. A token's change of the state
//   adds six roundings and the decay's, up to eight. So by each token a path
//   from its values to an output gathers no more than 2 D + 40 u of what
//   `sizes` counts: the same sums of magnitudes.
// - The output's sum is D more. The mean and the deviation of a head's outputs
//   hand on the head's errors: an output that is e off, where they are e' off
//   by root mean square, becomes (e + e' + |o| e') / deviation off, o its
//   normed value. Norm and gate themselves are D + 10 u of their terms.
struct WkvExpected {
  std::vector<double> y, tolerance;
};

inline WkvExpected WkvReference(const Wkv7Desc& desc, const WkvInputs& in) {
  const int64_t tokens = in.r.rows(), width = in.r.cols();
  const auto size = static_cast<size_t>(desc.head_dim);
  const auto dim = static_cast<double>(size);
  const auto sigmoid = [](double x) { return 1.0 / (1.0 + std::exp(-x)); };
  WkvExpected out;
  out.y.resize(static_cast<size_t>(tokens * width));
  out.tolerance = out.y;
  for (int head = 0; head < desc.num_heads; ++head) {
    const int64_t first = int64_t{head} * desc.head_dim;
    std::vector<double> s(size * size), sizes = s;
    for (int64_t t = 0; t < tokens; ++t) {
      const auto at = [&](const TestMatrix& m, size_t i) -> double {
        return m(m.rows() == 1 ? 0 : t, first + static_cast<int64_t>(i));
      };
      std::vector<double> kk(size), k(size), a(size), w(size), v(size);
      double length = 0.0, bonus = 0.0, bonus_size = 0.0;
      for (size_t i = 0; i < size; ++i) {
        kk[i] = at(in.k, i) * at(in.k_scale, i);
        length += kk[i] * kk[i];
        a[i] = sigmoid(at(in.rate, i));
        w[i] = std::exp(-0.606530659712633424 * sigmoid(at(in.decay, i)));
        k[i] = at(in.k, i) * (1.0 + (a[i] - 1.0) * at(in.k_rate, i));
        v[i] = at(in.v, i);
        if (desc.mixes) {
          v[i] += (at(in.first_v, i) - v[i]) * sigmoid(at(in.mix, i));
        }
        bonus += at(in.r, i) * k[i] * at(in.bonus, i);
        bonus_size += std::abs(at(in.r, i) * at(in.bonus, i) * at(in.k, i)) *
                      (1.0 + (1.0 - a[i]) * std::abs(at(in.k_rate, i)));
      }
      length = std::max(std::sqrt(length), 1e-12);
      for (double& x : kk) x /= length;
      std::vector<double> known(size), known_size(size), o(size), o_size(size);
      for (size_t key = 0; key < size; ++key) {
        for (size_t c = 0; c < size; ++c) {
          known[c] += s[key * size + c] * kk[key];
          known_size[c] += sizes[key * size + c] * std::abs(kk[key]);
        }
      }
      for (size_t key = 0; key < size; ++key) {
        const double k_size =
            std::abs(at(in.k, key)) *
            (1.0 + (1.0 - a[key]) * std::abs(at(in.k_rate, key)));
        for (size_t c = 0; c < size; ++c) {
          double& now = s[key * size + c];
          double& now_size = sizes[key * size + c];
          const double v_size =
              std::abs(at(in.v, c)) +
              (desc.mixes ? std::abs(at(in.first_v, c)) : 0.0);
          now = now * w[key] - known[c] * kk[key] * a[key] + v[c] * k[key];
          now_size = now_size * w[key] +
                     known_size[c] * std::abs(kk[key]) * a[key] +
                     v_size * k_size;
          o[c] += now * at(in.r, key);
          o_size[c] += now_size * std::abs(at(in.r, key));
        }
      }
      const double roundings =
          kUnitF32 * (static_cast<double>(t + 1) * (2.0 * dim + 40.0) + dim);
      double mean = 0.0, variance = 0.0, error = 0.0;
      for (size_t c = 0; c < size; ++c) {
        mean += o[c] / dim;
        error += roundings * roundings * o_size[c] * o_size[c] / dim;
      }
      for (size_t c = 0; c < size; ++c) {
        variance += (o[c] - mean) * (o[c] - mean) / dim;
      }
      const double deviation = std::sqrt(variance + double{in.kEpsilon});
      error = std::sqrt(error);
      for (size_t c = 0; c < size; ++c) {
        const double normed = (o[c] - mean) / deviation;
        const double weight = at(in.norm_weight, c), g = at(in.g, c);
        const auto index = static_cast<size_t>(t * width + first) + c;
        out.y[index] =
            (normed * weight + at(in.norm_bias, c) + bonus * v[c]) * g;
        const double handed =
            (roundings * o_size[c] + error + std::abs(normed) * error) /
            deviation * std::abs(weight);
        // The mean's own sum, over the deviation, beside the norm's terms.
        const double terms =
            std::abs(normed * weight) + std::abs(mean / deviation * weight) +
            std::abs(at(in.norm_bias, c)) +
            bonus_size * (std::abs(at(in.v, c)) + std::abs(at(in.first_v, c)));
        out.tolerance[index] =
            (handed + kUnitF32 * (dim + 20.0) * terms) * std::abs(g) + 1e-30;
      }
    }
  }
  return out;
}

}  // namespace inlay::testing

#endif  // INLAY_TESTS_SUPPORT_WKV7_UTIL_H_
