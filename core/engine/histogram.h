// Histogram: how values are spread, in buckets whose width grows with them.
// Owns a fixed array of counts; knows no units or clocks. Source: the bucket
// layout of HdrHistogram (Tene), each octave cut into equal parts.
#ifndef INLAY_CORE_ENGINE_HISTOGRAM_H_
#define INLAY_CORE_ENGINE_HISTOGRAM_H_

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace inlay {

// Values from 1 to 2^32 (microseconds: 71 minutes) fall into buckets at most
// 1/16 of their value wide, those up to 32 into buckets of one value; 0 counts
// as 1 there, and what is larger falls into a last bucket. count, sum, min and
// max are exact. Copyable; 3.7 KiB; never allocates. Thread-compatible.
class Histogram {
 public:
  static constexpr int kPartsLog2 = 4;  // parts of an octave
  static constexpr int kOctaves = 32;
  // The first octaves have one part a value; the last bucket is what is larger.
  static constexpr size_t kNumBuckets =
      (size_t{kOctaves - kPartsLog2 + 1} << kPartsLog2) + 1;

  // The bucket of a value holds (LowerBound, UpperBound].
  static constexpr size_t BucketOf(uint64_t value) {
    const uint64_t v = value == 0 ? 0 : value - 1;
    if (v >> kOctaves != 0) return kNumBuckets - 1;
    const int octave = std::bit_width(v >> kPartsLog2);
    const int shift = octave == 0 ? 0 : octave - 1;
    return (static_cast<size_t>(shift) << kPartsLog2) +
           static_cast<size_t>(v >> shift);
  }
  static constexpr uint64_t UpperBound(size_t bucket) {
    if (bucket + 1 >= kNumBuckets) return std::numeric_limits<uint64_t>::max();
    return LowerBound(bucket + 1);
  }
  static constexpr uint64_t LowerBound(size_t bucket) {
    constexpr uint64_t kParts = uint64_t{1} << kPartsLog2;
    if (bucket < kParts) return bucket;
    const uint64_t shift = (bucket >> kPartsLog2) - 1;
    return (kParts + bucket % kParts) << shift;
  }

  // O(1), a few nanoseconds.
  void Add(uint64_t value) {
    ++buckets_[BucketOf(value)];
    ++count_;
    sum_ = SaturatingSum(sum_, value);
    min_ = std::min(min_, value);
    max_ = std::max(max_, value);
  }

  // What was added to `other` too.
  void Merge(const Histogram& other) {
    for (size_t i = 0; i < kNumBuckets; ++i) buckets_[i] += other.buckets_[i];
    count_ += other.count_;
    sum_ = SaturatingSum(sum_, other.sum_);
    min_ = std::min(min_, other.min_);
    max_ = std::max(max_, other.max_);
  }

  // The value that p (in [0, 1], else the nearer end) of all values are below:
  // as if each bucket's values were spread evenly over it. Off by less than the
  // bucket's width, 1/16 of the value. 0 when there are none. O(kNumBuckets).
  double Quantile(double p) const {
    if (count_ == 0) return 0;
    // Of the sorted values 0 .. count - 1, which; NaN is taken as 0.
    const double rank =
        p > 0 ? std::min(p, 1.0) * static_cast<double>(count_ - 1) : 0;
    if (rank <= 0) return static_cast<double>(min());
    if (p >= 1) return static_cast<double>(max_);
    double before = 0;
    size_t i = 0;
    for (; i + 1 < kNumBuckets; ++i) {
      const auto in_bucket = static_cast<double>(buckets_[i]);
      if (before + in_bucket > rank) break;
      before += in_bucket;
    }
    const auto low = static_cast<double>(std::max(LowerBound(i) + 1, min()));
    const auto high = static_cast<double>(std::min(UpperBound(i), max_));
    const auto last = static_cast<double>(buckets_[i]) - 1;
    if (high <= low) return high;
    const double part = last > 0 ? std::min((rank - before) / last, 1.0) : 0.5;
    return low + part * (high - low);
  }

  uint64_t count() const { return count_; }
  // Stops at its type's largest value.
  uint64_t sum() const { return sum_; }
  uint64_t min() const { return count_ == 0 ? 0 : min_; }  // 0: none
  uint64_t max() const { return max_; }
  uint64_t bucket(size_t i) const { return buckets_[i]; }

 private:
  static uint64_t SaturatingSum(uint64_t a, uint64_t b) {
    const uint64_t sum = a + b;
    return sum < a ? std::numeric_limits<uint64_t>::max() : sum;
  }

  std::array<uint64_t, kNumBuckets> buckets_ = {};
  uint64_t count_ = 0;
  uint64_t sum_ = 0;
  uint64_t min_ = std::numeric_limits<uint64_t>::max();
  uint64_t max_ = 0;
};

}  // namespace inlay

#endif  // INLAY_CORE_ENGINE_HISTOGRAM_H_
