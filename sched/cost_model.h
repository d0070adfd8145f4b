// CostModel: what a step will take, learned from the steps that were. Plain
// host arithmetic; knows no clocks, devices or models.
#ifndef INLAY_SCHED_COST_MODEL_H_
#define INLAY_SCHED_COST_MODEL_H_

#include <cstdint>

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

// What is believed before anything was measured; should be on the slow side.
struct CostPrior {
  double step_us = 1000;  // of a step of one token
  double token_us = 100;  // each further token
  double pair_us = 0.01;  // each attention pair
};

// Thread-compatible.
class CostModel {
 public:
  explicit CostModel(const CostPrior& prior);

  // A step of this shape took `us` (>= 0).
  void Observe(const StepShape& shape, double us);

  // The expected time.
  double PredictUs(const StepShape& shape) const;
  // A time that about one step in a hundred exceeds; >= PredictUs().
  double BoundUs(const StepShape& shape) const;

  // The most tokens (0 .. max_tokens) of one more sequence, from first_token
  // on, with which BoundUs() stays within limit_us. Logarithmic in max_tokens.
  int32_t MaxTokens(const StepShape& so_far, int64_t first_token,
                    int32_t max_tokens, double limit_us) const;

  // What computing tokens [first_token, first_token + num_tokens) of one
  // sequence takes in steps of at most max_batch_tokens (>= 1) that have
  // nothing else in them.
  double PrefillUs(int64_t first_token, int64_t num_tokens,
                   int32_t max_batch_tokens) const;

 private:
  // (the implementation's own)
};

}  // namespace inlay

#endif  // INLAY_SCHED_COST_MODEL_H_
