// What reading this machine's memory gives right now: the roofline of decoding
// on a CPU. Knows nothing of models.
#ifndef INLAY_EXAMPLES_INLAY_BANDWIDTH_H_
#define INLAY_EXAMPLES_INLAY_BANDWIDTH_H_

#include <cstdint>
#include <vector>

namespace inlay::cli {

// Threads over an array of 512 MiB, well above common last-level caches.
class ReadBandwidth {
 public:
  explicit ReadBandwidth(int num_threads);
  // Bytes read in GB/s.
  double Measure();

 private:
  const int num_threads_;
  std::vector<uint64_t> words_;
  uint64_t sum_ = 0;  // keeps the reads from being optimised away
};

}  // namespace inlay::cli

#endif  // INLAY_EXAMPLES_INLAY_BANDWIDTH_H_
