// What AltUp's CPU rows make of a token's products with the router, in float64.
#ifndef INLAY_KERNELS_ALTUP_ALTUP_FACTORS_H_
#define INLAY_KERNELS_ALTUP_ALTUP_FACTORS_H_

#include <cmath>

#include "kernels/altup/altup.h"

namespace inlay {

// factors[i] = (coefs m)[i] for i in [0, count). `products`: of the router's
// rows with the token times the norm's weights, without its factor.
inline void AltUpFactors(const AltUpDesc& desc, const AltUpRouter& router,
                         const double* products, double squares, int count,
                         double* factors) {
  const auto width = static_cast<double>(desc.width);
  const double norm = 1.0 / std::sqrt(squares / width + desc.norm_epsilon);
  const int n = desc.num_streams;
  double m[kMaxAltUpStreams];
  for (int j = 0; j < n; ++j) m[j] = std::tanh(products[j] * norm / width);
  for (int i = 0; i < count; ++i) {
    factors[i] = 0.0;
    for (int j = 0; j < n; ++j) factors[i] += router.coefs[i * n + j] * m[j];
  }
}

}  // namespace inlay

#endif  // INLAY_KERNELS_ALTUP_ALTUP_FACTORS_H_
