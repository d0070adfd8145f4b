// What this machine's memory gives right now: the roofline of decoding on a
// CPU. Knows nothing of models.
#ifndef INLAY_EXAMPLES_INLAY_BANDWIDTH_H_
#define INLAY_EXAMPLES_INLAY_BANDWIDTH_H_

#include <cstdint>
#include <functional>
#include <vector>

namespace inlay::cli {

// Threads over two arrays of 128 MiB each, well above common last-level caches.
class Bandwidth {
 public:
  explicit Bandwidth(int num_threads);
  // STREAM's copy: bytes read plus bytes written, in GB/s.
  double Copy();
  // Bytes read in GB/s.
  double Read();

 private:
  // Seconds until all threads did work(first, last), their share of the array.
  double Time(const std::function<void(size_t, size_t)>& work) const;

  const int num_threads_;
  std::vector<uint64_t> from_, to_;
  uint64_t sum_ = 0;  // keeps the reads from being optimised away
};

}  // namespace inlay::cli

#endif  // INLAY_EXAMPLES_INLAY_BANDWIDTH_H_
