// What the CPU rows of hyper_mix make of a token's products, in float64.
#ifndef INLAY_KERNELS_HYPER_CONNECTION_HYPER_WEIGHTS_H_
#define INLAY_KERNELS_HYPER_CONNECTION_HYPER_WEIGHTS_H_

#include <algorithm>
#include <cmath>

#include "kernels/hyper_connection/hyper_connection.h"

namespace inlay {

using HyperMatrix = double[kMaxHyperStreams][kMaxHyperStreams];

inline double HyperSigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

// Divides rows (or columns) by their sums.
inline void DivideBySums(bool rows, int n, double epsilon, HyperMatrix& c) {
  for (int i = 0; i < n; ++i) {
    double sum = epsilon;
    for (int j = 0; j < n; ++j) sum += rows ? c[i][j] : c[j][i];
    for (int j = 0; j < n; ++j) (rows ? c[i][j] : c[j][i]) /= sum;
  }
}

// `products`: of fn h, of which `inverse_rms` makes f; null where
// desc.averages. `a`: [num_streams];
// `weights`: b and c, where there are.
inline void HyperWeights(const HyperMixDesc& desc, const HyperMixParams& params,
                         const float* products, double inverse_rms, double* a,
                         float* weights) {
  const int n = desc.num_streams;
  if (desc.averages) {
    for (int j = 0; j < n; ++j) a[j] = 1.0 / n;
    return;
  }
  const auto logit = [&](int i, int kind) {
    return products[i] * inverse_rms * params.scale[kind] + params.base[i];
  };
  for (int j = 0; j < n; ++j) {
    a[j] = HyperSigmoid(logit(j, 0)) + desc.epsilon;
  }
  if (desc.only_mixes) return;
  for (int j = 0; j < n; ++j) {
    const double b = desc.magnitude * HyperSigmoid(logit(n + j, 1));
    weights[j] = static_cast<float>(desc.independent ? b + desc.epsilon : b);
  }
  if (desc.independent) return;
  HyperMatrix c;
  for (int i = 0; i < n; ++i) {
    double most = -HUGE_VAL;
    for (int j = 0; j < n; ++j) {
      c[i][j] = logit((2 + i) * n + j, 2);
      most = std::max(most, c[i][j]);
    }
    double sum = 0.0;
    for (int j = 0; j < n; ++j) {
      c[i][j] = std::exp(c[i][j] - most);
      sum += c[i][j];
    }
    for (int j = 0; j < n; ++j) c[i][j] = c[i][j] / sum + desc.epsilon;
  }
  for (int round = 0; round < desc.rounds; ++round) {
    if (round > 0) DivideBySums(true, n, desc.epsilon, c);
    DivideBySums(false, n, desc.epsilon, c);
  }
  for (int i = 0; i < n; ++i) {
    for (int j = 0; j < n; ++j) {
      weights[(1 + i) * n + j] = static_cast<float>(c[i][j]);
    }
  }
}

}  // namespace inlay

#endif  // INLAY_KERNELS_HYPER_CONNECTION_HYPER_WEIGHTS_H_
