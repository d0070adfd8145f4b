// CostModel: what a step will take, learned from the steps that were. Plain
// host arithmetic; knows no clocks, devices or models.
//
// A linear function of the shape says what was never measured
// (sched/linear_fit.h); for the shapes that occur (buckets of powers of two)
// the ratio to it and its spread are averaged. Predictions and bounds never
// fall when a shape grows: see Estimate().
#ifndef INLAY_SCHED_COST_MODEL_H_
#define INLAY_SCHED_COST_MODEL_H_

#include <array>
#include <cstdint>

#include "sched/linear_fit.h"

namespace inlay {

// What a step's time depends on.
struct StepShape {
  int32_t num_sequences = 0;
  int32_t num_tokens = 0;       // decode and prefill
  int64_t attention_pairs = 0;  // summed over tokens: the positions it attends

  // One more sequence: tokens [first_token, first_token + num_tokens).
  void Add(int64_t first_token, int32_t count) {
    ++num_sequences;
    num_tokens += count;
    attention_pairs += count * first_token + int64_t{count} * (count + 1) / 2;
  }
};

// Which of a step's times: the expected one, or one that about one step in a
// hundred exceeds.
enum class CostLevel { kExpected, kBound };

// What is believed before anything was measured; should be on the slow side.
// Values that are not finite or negative count as the defaults.
struct CostPrior {
  double step_us = 1000;  // of a step of one token
  double token_us = 100;  // each further token
  double pair_us = 0.01;  // each attention pair
};

// Thread-compatible.
class CostModel {
 public:
  explicit CostModel(const CostPrior& prior);

  // A step of this shape took `us` (>= 0; anything else is ignored).
  void Observe(const StepShape& shape, double us);

  // The expected time.
  double PredictUs(const StepShape& shape) const;
  // A time that about one step in a hundred exceeds; >= PredictUs().
  double BoundUs(const StepShape& shape) const;

  // The most tokens (0 .. max_tokens) of one more sequence, from first_token
  // on, with which the step's time of that level stays within limit_us.
  // Logarithmic in max_tokens.
  int32_t MaxTokens(const StepShape& so_far, int64_t first_token,
                    int32_t max_tokens, double limit_us, CostLevel level) const;

  // What computing tokens [first_token, first_token + num_tokens) of one
  // sequence takes in steps of at most max_batch_tokens (>= 1) that have
  // nothing else in them.
  double PrefillUs(int64_t first_token, int64_t num_tokens,
                   int32_t max_batch_tokens) const;

 private:
  // Shapes with [token_low, token_high] tokens and [pair_low, pair_high]
  // pairs: both intervals begin and end at powers of two.
  struct Bucket {
    double token_low, token_high, pair_low, pair_high;
    double ratio;      // measured / linear
    double deviation;  // mean distance of a measured ratio from it, relative
    int64_t count;     // samples
    int64_t last_use;
  };
  // More shapes than an engine sees in any while; the oldest is replaced.
  static constexpr int kMaxBuckets = 32;

  double Estimate(const LinearFit::Vector& x, CostLevel level) const;
  double Margin(double deviation, CostLevel level) const;
  Bucket* FindBucket(const LinearFit::Vector& x);
  Bucket* AddBucket(const LinearFit::Vector& x);
  // Learns the spread and whether the machine's speed has changed, from a
  // shape that is known well.
  void Track(double expected, double bound, double us);
  void UpdateBucket(const LinearFit::Vector& x, double us);

  LinearFit fit_;
  std::array<Bucket, kMaxBuckets> buckets_;
  int num_buckets_ = 0;
  int64_t num_observed_ = 0;
  double deviation_;   // of all shapes, as Bucket::deviation
  double multiplier_;  // the bound's distance, in deviations
  double drift_ = 0;   // recent mean of log(measured / expected)
  bool speed_changes_ = false;
};

}  // namespace inlay

#endif  // INLAY_SCHED_COST_MODEL_H_
