// Summaries of samples.
#ifndef INLAY_EXAMPLES_INLAY_STATISTICS_H_
#define INLAY_EXAMPLES_INLAY_STATISTICS_H_

#include <algorithm>
#include <cmath>
#include <vector>

namespace inlay::cli {

// 0 for none.
inline double Mean(const std::vector<double>& samples) {
  double sum = 0;
  for (const double sample : samples) sum += sample;
  return samples.empty() ? 0 : sum / static_cast<double>(samples.size());
}

// Of the sample (n - 1); 0 for fewer than two.
inline double StandardDeviation(const std::vector<double>& samples) {
  if (samples.size() < 2) return 0;
  const double mean = Mean(samples);
  double sum = 0;
  for (const double sample : samples) sum += (sample - mean) * (sample - mean);
  return std::sqrt(sum / static_cast<double>(samples.size() - 1));
}

// The smallest sample that at least `percent` of them do not exceed.
inline double Percentile(std::vector<double> samples, double percent) {
  if (samples.empty()) return 0;
  std::sort(samples.begin(), samples.end());
  const double rank =
      std::ceil(percent / 100 * static_cast<double>(samples.size()));
  return samples[static_cast<size_t>(std::max(rank, 1.0)) - 1];
}

}  // namespace inlay::cli

#endif  // INLAY_EXAMPLES_INLAY_STATISTICS_H_
