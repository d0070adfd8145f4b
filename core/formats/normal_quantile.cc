#include "core/formats/normal_quantile.h"

#include <cmath>
#include <limits>
#include <numbers>

namespace inlay {

double NormalBelow(double deviations) {
  return 0.5 * std::erfc(-deviations * std::numbers::sqrt2 / 2.0);
}

double NormalQuantile(double p) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (!(p > 0.0)) return -kInfinity;
  if (p >= 1.0) return kInfinity;
  if (p < 0.5) return -NormalQuantile(1.0 - p);
  // Newton's method from the middle stays on its side of the root, as the
  // distribution is concave above it. 100 steps reach what a double can say.
  double z = 0.0;
  for (int i = 0; i < 100; ++i) {
    const double density =
        std::exp(-0.5 * z * z) * std::numbers::inv_sqrtpi / std::numbers::sqrt2;
    z += (p - NormalBelow(z)) / density;
  }
  return z;
}

}  // namespace inlay
