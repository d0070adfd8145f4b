// The cost model on synthetic machines: what it learns, how often its bound
// holds, how fast it follows a change, and what must not unsettle it.
#include "sched/cost_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <ostream>
#include <random>
#include <string>
#include <vector>

#include "sched/linear_fit.h"

namespace inlay {
namespace {

struct Machine {
  const char* name;
  double (*us)(const StepShape&);
  // Largest mean error of a prediction without noise: 0 would be a machine that
  // is linear within each bucket.
  double tolerance;

  friend void PrintTo(const Machine& test, std::ostream* out) {
    *out << test.name;
  }
};

const Machine kMachines[] = {
    {"bandwidth",
     [](const StepShape& s) {
       return 300 + 2 * s.num_sequences + 5. * s.num_tokens +
              5e-4 * static_cast<double>(s.attention_pairs);
     },
     0.02},
    {"cpu",
     [](const StepShape& s) {
       return 200 + 10 * s.num_sequences + 80. * s.num_tokens +
              4e-3 * static_cast<double>(s.attention_pairs);
     },
     0.02},
    {"tiles",
     [](const StepShape& s) {
       return 150 + 10 * s.num_sequences + 400 * std::ceil(s.num_tokens / 64.) +
              2e-3 * static_cast<double>(s.attention_pairs);
     },
     0.08},
    {"roofline",
     [](const StepShape& s) {
       return std::max(900., 6. * s.num_tokens) +
              (s.num_tokens <= 8 ? 0 : 300) +
              8e-4 * static_cast<double>(s.attention_pairs);
     },
     0.12},
};

// What an engine does: decodes at contexts of some hundred to thousand tokens
// and, in half of the steps, a chunk of a prompt.
class Workload {
 public:
  explicit Workload(uint64_t seed) : random_(seed) {}

  StepShape Next() {
    StepShape shape;
    const int decodes = static_cast<int>(std::exp(5 * Uniform()));
    for (int i = 0; i < decodes; ++i) shape.Add(100 + Position(2000), 1);
    if (Uniform() < 0.5) {
      // In the same order with every compiler.
      const int count = static_cast<int>(std::exp(6.2 * Uniform()));
      shape.Add(Position(3000), count);
    }
    return shape;
  }
  // Lognormal with mean 1; now and then a step that lost its core.
  double Noise(double sd, double outliers) {
    std::normal_distribution<double> normal(-sd * sd / 2, sd);
    const double noise = std::exp(normal(random_));
    return noise * (Uniform() < outliers ? 100 : 1);
  }

 private:
  double Uniform() { return std::uniform_real_distribution<double>()(random_); }
  int64_t Position(int64_t below) {
    return static_cast<int64_t>(Uniform() * static_cast<double>(below));
  }
  std::mt19937_64 random_;
};

struct Score {
  double coverage = 0;    // share of the steps within their bound
  double mean_error = 0;  // of the expected time, relative
  double bias = 0;
  double worst = 0;
};

// Observes `steps` steps, and scores the last `scored` of them beforehand.
Score Work(CostModel* model, const Machine& machine, Workload* workload,
           int steps, int scored, double speed, double sd, double outliers) {
  Score score;
  for (int i = 0; i < steps; ++i) {
    const StepShape shape = workload->Next();
    const double mean = machine.us(shape) * speed;
    const double us = mean * workload->Noise(sd, outliers);
    const double predicted = model->PredictUs(shape);
    const double bound = model->BoundUs(shape);
    EXPECT_GE(bound, predicted);
    if (i >= steps - scored) {
      const double error = predicted / mean - 1;
      score.coverage += (us <= bound) / static_cast<double>(scored);
      score.mean_error += std::abs(error) / scored;
      score.bias += error / scored;
      score.worst = std::max(score.worst, std::abs(error));
    }
    model->Observe(shape, us);
  }
  return score;
}

class CostModelTest : public ::testing::TestWithParam<Machine> {};

// Bounds of what is learned from noise are not derived: its buckets forget,
// weigh and cut off, so that they are what was measured, with room, and grow
// with the noise.
TEST_P(CostModelTest, LearnsTheMachine) {
  for (const uint64_t seed : {1, 2, 3}) {
    CostModel model({});
    Workload workload(seed);
    const Score exact =
        Work(&model, GetParam(), &workload, 500, 300, 1, 0.02, 0);
    EXPECT_LE(exact.mean_error, GetParam().tolerance) << "seed " << seed;
    const Score noisy =
        Work(&model, GetParam(), &workload, 2000, 1500, 1, 0.15, 0);
    EXPECT_LE(noisy.mean_error, GetParam().tolerance + 0.05) << "seed " << seed;
    EXPECT_LE(std::abs(noisy.bias), 0.08) << "seed " << seed;
  }
}

TEST_P(CostModelTest, BoundIsThe99thPercentile) {
  for (const double sd : {0.03, 0.1, 0.3}) {
    for (const double outliers : {0., 0.003}) {
      CostModel model({});
      Workload workload(7);
      const Score score =
          Work(&model, GetParam(), &workload, 6000, 5000, 1, sd, outliers);
      EXPECT_GE(score.coverage, 0.97) << "sd " << sd << ", " << outliers;
      EXPECT_LE(score.coverage, 0.999) << "sd " << sd << ", " << outliers;
    }
  }
}

TEST_P(CostModelTest, OutliersChangeLittle) {
  for (const uint64_t seed : {1, 2, 3}) {
    CostModel model({});
    Workload workload(seed);
    Work(&model, GetParam(), &workload, 500, 1, 1, 0.05, 0);
    std::vector<StepShape> shapes;
    for (int i = 0; i < 200; ++i) shapes.push_back(workload.Next());
    CostModel shaken = model;
    shaken.Observe(shapes[0], 100 * GetParam().us(shapes[0]));
    double mean = 0;
    for (const StepShape& shape : shapes) {
      const double change =
          std::abs(shaken.PredictUs(shape) / model.PredictUs(shape) - 1);
      // Shapes like the shaken one may double, if it was seldom seen.
      EXPECT_LE(change, 1) << "seed " << seed;
      mean += change / 200;
    }
    EXPECT_LE(mean, 0.03) << "seed " << seed;
    const Score score =
        Work(&shaken, GetParam(), &workload, 3000, 3000, 1, 0.05, 0.01);
    EXPECT_LE(score.mean_error, GetParam().tolerance + 0.06) << "seed " << seed;
  }
}

TEST_P(CostModelTest, FollowsAChangeOfSpeedWithin50Steps) {
  for (const double factor : {2., 0.5}) {
    for (const double sd : {0.03, 0.15}) {
      CostModel model({});
      Workload workload(5);
      Work(&model, GetParam(), &workload, 1000, 1, 1, sd, 0);
      const Score score =
          Work(&model, GetParam(), &workload, 100, 50, factor, sd, 0);
      EXPECT_LE(score.mean_error, GetParam().tolerance + 0.03 + 0.7 * sd)
          << factor << ", sd " << sd;
      EXPECT_GE(score.coverage, 0.94) << factor << ", sd " << sd;
    }
  }
}

// After every sort of history, on a fine grid of shapes.
TEST_P(CostModelTest, NeverFallsWhenAShapeGrows) {
  CostModel model({});
  Workload workload(9);
  for (int round = 0; round < 8; ++round) {
    for (int32_t sequences = 1; sequences <= 32; sequences *= 4) {
      for (int64_t pairs = 1; pairs < 1 << 24; pairs += 1 + pairs / 3) {
        double below = 0, bound_below = 0;
        for (int32_t tokens = 1; tokens < 4096; tokens += 1 + tokens / 9) {
          const StepShape shape{sequences, tokens, pairs};
          const StepShape more_pairs{sequences, tokens, pairs + 1 + pairs / 3};
          const StepShape more_sequences{sequences + 1, tokens, pairs};
          const double us = model.PredictUs(shape);
          const double bound = model.BoundUs(shape);
          ASSERT_GE(us, below) << tokens << " tokens, " << pairs << " pairs";
          ASSERT_GE(bound, bound_below) << tokens << ", " << pairs;
          ASSERT_GE(model.PredictUs(more_pairs), us) << tokens << ", " << pairs;
          ASSERT_GE(model.BoundUs(more_pairs), bound);
          ASSERT_GE(model.PredictUs(more_sequences), us);
          below = us;
          bound_below = bound;
        }
      }
    }
    Work(&model, GetParam(), &workload, round < 3 ? 3 : 300, 1, 1 + round % 3,
         0.4, 0.02);
  }
}

TEST_P(CostModelTest, MaxTokensIsTheMostWithinTheLimit) {
  CostModel model({});
  Workload workload(11);
  for (int round = 0; round < 3; ++round) {
    for (const int64_t first : {0, 100, 5000}) {
      for (const int decodes : {0, 8, 100}) {
        StepShape so_far;
        for (int i = 0; i < decodes; ++i) so_far.Add(500, 1);
        for (double limit = 50; limit < 1e7; limit *= 1.7) {
          const int32_t most =
              model.MaxTokens(so_far, first, 3000, limit, CostLevel::kBound);
          ASSERT_GE(most, 0);
          ASSERT_LE(most, 3000);
          StepShape with = so_far, over = so_far;
          with.Add(first, most);
          over.Add(first, most + 1);
          if (most > 0) {
            ASSERT_LE(model.BoundUs(with), limit);
          }
          if (most < 3000) {
            ASSERT_GT(model.BoundUs(over), limit);
          }
        }
      }
    }
    Work(&model, GetParam(), &workload, 400, 1, 1, 0.1, 0.01);
  }
}

TEST_P(CostModelTest, PrefillIsTheSumOfItsChunks) {
  CostModel model({});
  Workload workload(13);
  for (int round = 0; round < 2; ++round) {
    for (const int64_t first : {0, 777}) {
      for (const int64_t tokens : {0, 1, 63, 64, 65, 1000, 6000}) {
        for (const int32_t batch : {1, 64, 512, 1 << 30}) {
          double sum = 0;
          for (int64_t done = 0; done < tokens; done += batch) {
            StepShape shape;
            shape.Add(first + done, static_cast<int32_t>(std::min<int64_t>(
                                        batch, tokens - done)));
            sum += model.PredictUs(shape);
          }
          EXPECT_NEAR(model.PrefillUs(first, tokens, batch), sum, 0.03 * sum)
              << first << ", " << tokens << ", " << batch;
        }
      }
    }
    Work(&model, GetParam(), &workload, 500, 1, 1, 0.05, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Machines, CostModelTest,
                         ::testing::ValuesIn(kMachines), [](const auto& info) {
                           return std::string(info.param.name);
                         });

TEST(CostModelPriorTest, CountsUntilSomethingIsLearned) {
  const CostModel model({.step_us = 500, .token_us = 20, .pair_us = 0.5});
  StepShape shape;
  shape.Add(9, 1);
  EXPECT_DOUBLE_EQ(model.PredictUs(shape), 500 + 0.5 * 10);
  shape.Add(0, 4);
  EXPECT_DOUBLE_EQ(model.PredictUs(shape), 500 + 4 * 20 + 0.5 * (10 + 10));
  EXPECT_GT(model.BoundUs(shape), model.PredictUs(shape));
}

// What decodes teach about the step must not unteach what prefills taught.
TEST(CostModelPriorTest, RareShapesAreRemembered) {
  CostModel model({});
  Workload workload(17);
  Work(&model, kMachines[0], &workload, 300, 1, 1, 0.05, 0);
  StepShape decode;
  for (int i = 0; i < 8; ++i) decode.Add(1000, 1);
  for (int i = 0; i < 20000; ++i) {
    model.Observe(decode, kMachines[0].us(decode) * workload.Noise(0.05, 0));
  }
  for (const int count : {64, 512, 2048}) {
    StepShape prefill;
    prefill.Add(0, count);
    EXPECT_NEAR(model.PredictUs(prefill) / kMachines[0].us(prefill), 1, 0.15)
        << count;
  }
}

TEST(CostModelPriorTest, HostileInputIsHarmless) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double inf = std::numeric_limits<double>::infinity();
  constexpr int32_t kMax32 = std::numeric_limits<int32_t>::max();
  constexpr int64_t kMax64 = std::numeric_limits<int64_t>::max();
  const double values[] = {0, -1, nan, inf, -inf, 1e-300, 1e300, 5000};
  const StepShape shapes[] = {{},
                              {-1, -1, -1},
                              {1, 1, 1},
                              {kMax32, kMax32, kMax64},
                              {-kMax32 - 1, -kMax32 - 1, -kMax64 - 1},
                              {4, 100, 100000}};
  for (const double prior : values) {
    CostModel model({prior, prior, prior});
    for (int round = 0; round < 40; ++round) {
      for (const StepShape& shape : shapes) {
        for (const double us : values) {
          model.Observe(shape, us);
          ASSERT_TRUE(std::isfinite(model.PredictUs(shape)));
          ASSERT_GE(model.PredictUs(shape), 0);
          ASSERT_TRUE(std::isfinite(model.BoundUs(shape)));
          ASSERT_GE(model.BoundUs(shape), model.PredictUs(shape));
        }
        EXPECT_GE(
            model.MaxTokens(shape, kMax64, kMax32, 1e4, CostLevel::kBound), 0);
        EXPECT_EQ(model.MaxTokens(shape, 0, -5, 1e4, CostLevel::kBound), 0);
        EXPECT_EQ(model.MaxTokens(shape, 0, 100, nan, CostLevel::kBound), 0);
        EXPECT_EQ(model.MaxTokens(shape, 0, 100, -1, CostLevel::kBound), 0);
        EXPECT_EQ(model.MaxTokens(shape, -kMax64, 100, inf, CostLevel::kBound),
                  100);
        EXPECT_TRUE(std::isfinite(model.PrefillUs(kMax64, kMax64, 1)));
        EXPECT_EQ(model.PrefillUs(0, -1, -1), 0);
      }
    }
    // It recovers: nothing of that stays.
    Workload workload(19);
    const Score score =
        Work(&model, kMachines[0], &workload, 4000, 1000, 1, 0.05, 0);
    EXPECT_LE(score.mean_error, 0.1) << "prior " << prior;
  }
}

TEST(CostModelPriorTest, WhatIsNoTimeTeachesNothing) {
  CostModel model({}), untouched({});
  const StepShape shape{1, 1, 1};
  for (const double us : {-1., std::nan(""), HUGE_VAL, -HUGE_VAL}) {
    model.Observe(shape, us);
  }
  EXPECT_EQ(model.PredictUs(shape), untouched.PredictUs(shape));
  EXPECT_EQ(model.BoundUs(shape), untouched.BoundUs(shape));
}

TEST(LinearFitTest, RecoversWeightsAndKeepsThemNonNegative) {
  LinearFit fit({1000, 0, 100, 0.01}, {1000, 100, 100, 0.01});
  std::mt19937_64 random(3);
  std::uniform_real_distribution<double> uniform;
  const LinearFit::Vector truth = {50, 3, 0, 0.02};
  for (int i = 0; i < 400; ++i) {
    const LinearFit::Vector x = {1, std::floor(20 * uniform(random)),
                                 std::floor(400 * uniform(random)),
                                 std::floor(9e4 * uniform(random))};
    double y = 0;
    for (int k = 0; k < LinearFit::kSize; ++k) y += truth[k] * x[k];
    fit.Observe(x, y * (0.95 + 0.1 * uniform(random)));
    for (const double weight : fit.weights()) ASSERT_GE(weight, 0);
  }
  EXPECT_NEAR(fit.weights()[0], truth[0], 0.25 * truth[0]);
  EXPECT_NEAR(fit.weights()[1], truth[1], 1);
  EXPECT_NEAR(fit.weights()[2], truth[2], 0.2);
  EXPECT_NEAR(fit.weights()[3], truth[3], 0.05 * truth[3]);
}

TEST(LinearFitTest, LeverageFallsWhereThereWereSamples) {
  LinearFit fit({1000, 0, 100, 0.01}, {1000, 100, 100, 0.01});
  const LinearFit::Vector small = {1, 1, 1, 100}, large = {1, 1, 512, 131328};
  EXPECT_GT(fit.Leverage(small), 10);
  for (int i = 0; i < 200; ++i) fit.Observe(small, 300);
  EXPECT_LT(fit.Leverage(small), 0.05);
  EXPECT_GT(fit.Leverage(large), 10);
}

}  // namespace
}  // namespace inlay
