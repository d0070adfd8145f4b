// The normal distribution and its inverse, as far as configurations and files
// need them (Gemma 3n's sparsities).
#ifndef INLAY_CORE_FORMATS_NORMAL_QUANTILE_H_
#define INLAY_CORE_FORMATS_NORMAL_QUANTILE_H_

namespace inlay {

// The probability that a normal variable is below `deviations` standard
// deviations from its mean.
double NormalBelow(double deviations);

// The inverse. -infinity where p <= 0, infinity where p >= 1.
double NormalQuantile(double p);

}  // namespace inlay

#endif  // INLAY_CORE_FORMATS_NORMAL_QUANTILE_H_
