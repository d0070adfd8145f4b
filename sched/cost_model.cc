#include "sched/cost_model.h"

#include <algorithm>
#include <cmath>

namespace inlay {
namespace {

using Vector = LinearFit::Vector;
enum Feature { kStep, kSequences, kTokens, kPairs };

constexpr double kMaxUs = 1e9;
constexpr double kMinUs = 1e-3;

// A mean's weight of the newest sample, once it has had some.
constexpr double kGain = 0.05;
constexpr double kDriftGain = 0.1;
// The share of a bucket's correction that goes each step, if nothing renews it.
constexpr double kFade = 0.003;
// The same of what is believed of its spread: one that was left early with a
// guess would raise the bounds of all larger shapes.
constexpr double kSpreadFade = 0.02;
// A bucket's samples from which on it says what is usual.
constexpr int64_t kKnownSamples = 4;
// Leverage from which on a shape is unlike any seen, whatever its bucket.
constexpr double kNewLeverage = 0.25;
// How far a sample is believed to exceed what was expected: a thread that lost
// its core makes a step take a hundred times as long and says nothing about the
// next. For a known shape e^0.5, or four deviations if that is more; one unlike
// any seen may need several samples to be believed too.
constexpr double kNewFactor = 4;
constexpr double kSimilarFactor = 2;
constexpr double kKnownLog = 0.5;
constexpr double kKnownDeviations = 4;
// The mean over about 1 / kDriftGain samples is off by less than this (or one
// mean deviation: 3.5 of its own standard deviations) unless the speed changed;
// what is left of a change below a third of that is for the fit to learn.
constexpr double kDriftLog = 0.12;
constexpr double kDriftStep = 0.3;  // the share of a drift taken up at a time

// The 99th percentile lies 2.9 mean deviations above the mean for normally
// distributed times, further for skewed ones: learned, within these limits.
constexpr double kInitialDeviation = 0.25;
constexpr double kInitialMultiplier = 3.5;
constexpr double kMinMultiplier = 2;
constexpr double kMaxMultiplier = 8;
constexpr double kTail = 0.01;
constexpr double kMultiplierStep = 0.3;

constexpr double kMaxRatio = 4;

double OrDefault(double value, double otherwise) {
  return std::isfinite(value) && value >= 0 ? std::min(value, kMaxUs)
                                            : otherwise;
}

LinearFit InitialFit(const CostPrior& prior) {
  const CostPrior usual;
  const double step = OrDefault(prior.step_us, usual.step_us);
  const double token = OrDefault(prior.token_us, usual.token_us);
  const double pair = OrDefault(prior.pair_us, usual.pair_us);
  // Weights of 0 must be able to learn too.
  const Vector scale = {
      std::max(step, usual.step_us), std::max(token, usual.token_us),
      std::max(token, usual.token_us), std::max(pair, usual.pair_us)};
  return LinearFit({std::max(0.0, step - token), 0, token, pair}, scale);
}

// Larger than any step: a shape beyond would count for millions of real ones.
constexpr int32_t kMaxTokens = 1 << 20;
constexpr int64_t kMaxPairs = int64_t{1} << 37;

Vector Features(const StepShape& shape) {
  return {1,
          static_cast<double>(std::clamp(shape.num_sequences, 0, kMaxTokens)),
          static_cast<double>(std::clamp(shape.num_tokens, 0, kMaxTokens)),
          static_cast<double>(
              std::clamp<int64_t>(shape.attention_pairs, 0, kMaxPairs))};
}

// In doubles: StepShape::Add() of hostile positions would overflow.
Vector Extend(const Vector& x, double first_token, double count) {
  return {x[kStep], x[kSequences] + 1, x[kTokens] + count,
          x[kPairs] + count * first_token + count * (count + 1) / 2};
}

// The largest power of two <= max(value, 1).
double Floor2(double value) {
  return std::exp2(std::floor(std::log2(std::max(value, 1.0))));
}

}  // namespace

CostModel::CostModel(const CostPrior& prior)
    : fit_(InitialFit(prior)),
      buckets_{},
      deviation_(kInitialDeviation),
      multiplier_(kInitialMultiplier) {}

double CostModel::Margin(double deviation, CostLevel level) const {
  return level == CostLevel::kBound ? 1 + multiplier_ * deviation : 1;
}

// The linear prediction, kept between what the buckets of smaller and of larger
// shapes say: at least what any bucket below predicts for its part of this
// shape, at most what any bucket above does for the least shape it shares with
// this one. Both grow with the shape, as there are ever more buckets below and
// fewer above; and in a bucket of its own a shape is both, which makes the
// bucket's correction count.
double CostModel::Estimate(const Vector& x, CostLevel level) const {
  const Vector& weights = fit_.weights();
  const double tokens = x[kTokens], pairs = x[kPairs];
  const double base = weights[kStep] + weights[kSequences] * x[kSequences];
  const double token_us = weights[kTokens], pair_us = weights[kPairs];
  double low = 0, high = HUGE_VAL;
  for (int i = 0; i < num_buckets_; ++i) {
    const Bucket& b = buckets_[i];
    const double factor = b.ratio * Margin(b.deviation, level);
    if (b.token_low <= tokens && b.pair_low <= pairs) {
      low = std::max(
          low, factor * (base + token_us * std::min(tokens, b.token_high) +
                         pair_us * std::min(pairs, b.pair_high)));
    }
    if (tokens <= b.token_high && pairs <= b.pair_high) {
      high = std::min(
          high, factor * (base + token_us * std::max(tokens, b.token_low) +
                          pair_us * std::max(pairs, b.pair_low)));
    }
  }
  const double linear =
      (base + token_us * tokens + pair_us * pairs) * Margin(deviation_, level);
  return std::max(low, std::min(linear, high));
}

double CostModel::PredictUs(const StepShape& shape) const {
  return Estimate(Features(shape), CostLevel::kExpected);
}

double CostModel::BoundUs(const StepShape& shape) const {
  return Estimate(Features(shape), CostLevel::kBound);
}

int32_t CostModel::MaxTokens(const StepShape& so_far, int64_t first_token,
                             int32_t max_tokens, double limit_us,
                             CostLevel level) const {
  const Vector x = Features(so_far);
  const double first = static_cast<double>(std::max<int64_t>(first_token, 0));
  int32_t fits = 0, most = std::max(max_tokens, 0);
  while (fits < most) {
    const int32_t middle = most - (most - fits) / 2;
    if (Estimate(Extend(x, first, middle), level) <= limit_us) {
      fits = middle;
    } else {
      most = middle - 1;
    }
  }
  return fits;
}

double CostModel::PrefillUs(int64_t first_token, int64_t num_tokens,
                            int32_t max_batch_tokens) const {
  const double chunk = std::max(max_batch_tokens, 1);
  const double tokens = static_cast<double>(std::max<int64_t>(num_tokens, 0));
  double first = static_cast<double>(std::max<int64_t>(first_token, 0));
  const double chunks = std::floor(tokens / chunk);
  const Vector nothing = {1, 0, 0, 0};
  double sum = 0;
  // Chunks differ by their position only, in which the time is linear but for
  // the corrections: the middle of a group stands for it.
  constexpr double kGroups = 16;
  const double group = std::max(1.0, std::ceil(chunks / kGroups));
  for (double done = 0; done < chunks; done += group) {
    const double count = std::min(group, chunks - done);
    const double middle = first + chunk * (done + (count - 1) / 2);
    sum +=
        count * Estimate(Extend(nothing, middle, chunk), CostLevel::kExpected);
  }
  first += chunks * chunk;
  const double rest = tokens - chunks * chunk;
  if (rest > 0) {
    sum += Estimate(Extend(nothing, first, rest), CostLevel::kExpected);
  }
  return sum;
}

CostModel::Bucket* CostModel::FindBucket(const Vector& x) {
  for (int i = 0; i < num_buckets_; ++i) {
    Bucket& b = buckets_[i];
    if (b.token_low <= x[kTokens] && x[kTokens] <= b.token_high &&
        b.pair_low <= x[kPairs] && x[kPairs] <= b.pair_high) {
      return &b;
    }
  }
  return nullptr;
}

CostModel::Bucket* CostModel::AddBucket(const Vector& x) {
  Bucket* bucket = &buckets_[num_buckets_ % kMaxBuckets];
  if (num_buckets_ < kMaxBuckets) {
    ++num_buckets_;
  } else {
    for (Bucket& b : buckets_) {
      if (b.last_use < bucket->last_use) bucket = &b;
    }
  }
  const double tokens = Floor2(x[kTokens]), pairs = Floor2(x[kPairs]);
  // Shapes are integers: the next bucket begins at twice the power of two. An
  // empty step is in the first one.
  *bucket = {.token_low = tokens > 1 ? tokens : 0,
             .token_high = 2 * tokens - 1,
             .pair_low = pairs > 1 ? pairs : 0,
             .pair_high = std::max(2 * pairs - 1, pairs),
             .ratio = 1,
             .deviation = deviation_,
             .count = 0,
             .last_use = 0};
  return bucket;
}

void CostModel::Track(double expected, double bound, double us) {
  const double limit = std::max(kKnownLog, kKnownDeviations * deviation_);
  const double error =
      std::log(std::max(us, kMinUs) / std::max(expected, kMinUs));
  drift_ += kDriftGain * (std::clamp(error, -limit, limit) - drift_);
  // Rises 99 times as far as it falls: at rest when one in a hundred is above.
  multiplier_ += kMultiplierStep * (us > bound ? 1 - kTail : -kTail);
  multiplier_ = std::clamp(multiplier_, kMinMultiplier, kMaxMultiplier);
}

void CostModel::UpdateBucket(const Vector& x, double us) {
  for (int i = 0; i < num_buckets_; ++i) {
    buckets_[i].ratio += kFade * (1 - buckets_[i].ratio);
    buckets_[i].deviation += kSpreadFade * (deviation_ - buckets_[i].deviation);
  }
  Bucket* b = FindBucket(x);
  if (b == nullptr) b = AddBucket(x);
  const double ratio = std::clamp(us / std::max(fit_.Predict(x), kMinUs),
                                  1 / kMaxRatio, kMaxRatio);
  ++b->count;
  b->last_use = num_observed_;
  const double gain = std::max(kGain, 1.0 / static_cast<double>(b->count + 1));
  if (b->count > kKnownSamples) {
    const double distance = std::abs(ratio / b->ratio - 1);
    b->deviation += gain * (distance - b->deviation);
    deviation_ += kGain * (distance - deviation_);
  }
  b->ratio += gain * (ratio - b->ratio);
}

void CostModel::Observe(const StepShape& shape, double us) {
  if (!std::isfinite(us) || us < 0) return;
  us = std::min(us, kMaxUs);
  const Vector x = Features(shape);
  ++num_observed_;
  const double expected = Estimate(x, CostLevel::kExpected);
  const Bucket* bucket = FindBucket(x);
  double factor = kNewFactor;
  if (fit_.Leverage(x) < kNewLeverage) {
    factor = kSimilarFactor;
    if (bucket != nullptr && bucket->count >= kKnownSamples) {
      Track(expected, Estimate(x, CostLevel::kBound), us);
      factor = std::exp(std::max(kKnownLog, kKnownDeviations * deviation_));
    }
  }
  us = std::min(us, std::max(expected * factor, kMinUs));
  const double unusual = std::max(kDriftLog, deviation_);
  speed_changes_ = std::abs(drift_) > (speed_changes_ ? unusual / 3 : unusual);
  if (speed_changes_) {
    fit_.Rescale(std::exp(kDriftStep * drift_));
    drift_ -= kDriftStep * drift_;
  }
  fit_.Observe(x, us);
  // A ratio to what is still moving would be wrong as soon as it stands.
  if (!speed_changes_) UpdateBucket(x, us);
}

}  // namespace inlay
