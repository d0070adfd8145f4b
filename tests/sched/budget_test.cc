// Steps within a time: the budget of a plan, the target for decodes. The
// machines are synthetic; the cost model learns them from the steps.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <random>
#include <vector>

#include "tests/sched/fake_engine.h"

namespace inlay {
namespace {

using ::testing::IsEmpty;

SchedulerConfig BudgetConfig(int32_t running, int32_t batch) {
  SchedulerConfig config = FakeConfig(running, batch);
  config.groups[0].block_size = 16;
  return config;
}

// A step's fixed cost, a token's and an attention pair's; a few per cent of
// noise that is skewed as that of real machines is.
class NoisyMachine {
 public:
  NoisyMachine(double step_us, double token_us, double pair_us)
      : step_us_(step_us), token_us_(token_us), pair_us_(pair_us) {}

  double operator()(const StepShape& shape) {
    std::exponential_distribution<double> noise(1 / 0.02);
    const double us = step_us_ + token_us_ * shape.num_tokens +
                      pair_us_ * static_cast<double>(shape.attention_pairs);
    return us * (1 + std::min(noise(rng_), 0.2));
  }

 private:
  std::mt19937 rng_{1};
  double step_us_, token_us_, pair_us_;
};

struct Limits {
  int64_t steps = 0, over = 0, longest_us = 0;

  void Count(double us, int64_t limit_us) {
    ++steps;
    over += us > static_cast<double>(limit_us) ? 1 : 0;
    longest_us = std::max(longest_us, static_cast<int64_t>(us));
  }
  // One in a hundred, and three standard deviations of that.
  void ExpectRare() const {
    const double expected = 0.01 * static_cast<double>(steps);
    EXPECT_LE(static_cast<double>(over), expected + 3 * std::sqrt(expected))
        << "of " << steps << " steps; the longest: " << longest_us << " us";
  }
};

TEST(BudgetTest, StepsStayWithinItAndDecodesTakeTurns) {
  constexpr int kRequests = 40;
  FakeEngine engine(BudgetConfig(kRequests, 64), 4000);
  engine.machine = NoisyMachine(300, 50, 0.01);
  engine.budget_us = 1200;  // for some 15 of them
  for (int i = 0; i < kRequests; ++i) engine.Submit(10, 600);
  for (int step = 0; step < 500; ++step) engine.Step();
  Limits limits;
  std::map<RequestId, int64_t> last;
  int64_t longest_wait = 0, fewest = kRequests;
  for (int64_t step = 0; step < 1000; ++step) {
    const StepPlan plan = engine.Step();
    limits.Count(engine.last_step_us, engine.budget_us);
    fewest = std::min(fewest, static_cast<int64_t>(plan.items.size()));
    for (const StepItem& item : plan.items) {
      if (last.contains(item.id))
        longest_wait = std::max(longest_wait, step - last[item.id]);
      last[item.id] = step;
    }
  }
  limits.ExpectRare();
  EXPECT_EQ(last.size(), size_t{kRequests});
  EXPECT_GE(fewest, 10);
  EXPECT_LE(longest_wait, (kRequests + fewest - 1) / fewest);
}

TEST(BudgetTest, PriorityComesBeforeTurns) {
  FakeEngine engine(BudgetConfig(8, 64), 400);
  engine.machine = [](const StepShape& s) { return 300 + 300. * s.num_tokens; };
  std::vector<RequestId> high;
  for (int i = 0; i < 2; ++i) high.push_back(engine.Submit(4, 400, 1));
  for (int i = 0; i < 6; ++i) engine.Submit(4, 400, 0);
  engine.Step();
  engine.budget_us = 1600;
  for (int i = 0; i < 100; ++i) engine.Step();
  for (int i = 0; i < 20; ++i) {
    const StepPlan plan = engine.Step();
    ASSERT_GE(plan.items.size(), 3u);
    for (RequestId id : high) {
      EXPECT_TRUE(
          std::any_of(plan.items.begin(), plan.items.end(),
                      [&](const StepItem& item) { return item.id == id; }));
    }
  }
}

TEST(BudgetTest, PrefillGetsOnBesideMoreDecodesThanThereIsTimeFor) {
  for (bool must_progress : {false, true}) {
    FakeEngine engine(BudgetConfig(64, 512), 8000);
    engine.machine = NoisyMachine(300, 50, 0.01);
    for (int i = 0; i < 40; ++i) engine.Submit(10, 2000);
    for (int step = 0; step < 300; ++step) engine.Step();
    engine.budget_us = 1200;
    engine.must_progress = must_progress;
    for (int step = 0; step < 200; ++step) engine.Step();
    const RequestId id = engine.Submit(500, 1);
    Limits limits;
    while (engine.Find(id) != nullptr) {
      engine.Step();
      limits.Count(engine.last_step_us, engine.budget_us);
      // One step in nine has half its time for it: some 10 tokens.
      ASSERT_LT(limits.steps, 9 * 500 / 5);
    }
    limits.ExpectRare();
  }
}

TEST(BudgetTest, WithoutTimeForTheLeastThePlanIsEmptyAndThereIsWork) {
  FakeEngine engine(BudgetConfig(8, 64), 400);
  engine.machine = [](const StepShape& s) { return 900 + 10. * s.num_tokens; };
  const RequestId id = engine.Submit(40, 8);
  engine.Step();
  for (int i = 0; i < 4; ++i) engine.Step();
  engine.budget_us = 100;
  engine.must_progress = false;
  const RequestId waits = engine.Submit(40, 8);
  for (int i = 0; i < 20; ++i) {
    EXPECT_THAT(engine.Step().items, IsEmpty());
    EXPECT_TRUE(engine.scheduler->HasWork());
  }
  EXPECT_EQ(engine.Find(waits)->state, RequestState::kWaiting);
  engine.must_progress = true;
  EXPECT_EQ(engine.Step().items.size(), 1u) << "one, whatever it takes";
  EXPECT_EQ(engine.Find(id)->num_computed, 45);
  engine.budget_us = 0;
  EXPECT_EQ(engine.Step().items.size(), 2u);
  engine.StepUntilIdle();
}

// On a machine that often stalls, the bound of a single token is above the
// budget. What is expected to fit goes then, not what a block holds.
TEST(BudgetTest, WhereNothingIsSureToFitWhatIsExpectedToDoesGo) {
  FakeEngine engine(BudgetConfig(8, 64), 400);
  int64_t steps = 0;
  engine.machine = [&](const StepShape& s) {
    const double us = 1500 + 150. * s.num_tokens;
    return ++steps % 8 == 0 ? 2 * us : us;
  };
  engine.budget_us = 2600;
  for (int i = 0; i < 8; ++i) engine.Submit(400, 2);
  int64_t most = 0;
  for (int i = 0; i < 400 && engine.scheduler->HasWork(); ++i) {
    const int64_t tokens = engine.Step().shape.num_tokens;
    ASSERT_GT(tokens, 0);
    if (i < 100) continue;
    most = std::max(most, tokens);
  }
  EXPECT_LE(most, 7) << "the most whose usual time fits";
  engine.budget_us = 1000;
  for (int i = 0; i < 20 && engine.scheduler->HasWork(); ++i)
    EXPECT_EQ(engine.Step().shape.num_tokens, 1);
}

// As a game does: steps until the frame's time is used up; only the first must
// do something.
TEST(BudgetTest, AFrameOfSeveralSteps) {
  FakeEngine engine(BudgetConfig(8, 256), 4000);
  engine.machine = NoisyMachine(150, 40, 0.005);
  for (int i = 0; i < 4; ++i) engine.Submit(200, 400);
  Limits limits;
  for (int frame = 0; frame < 2000 && engine.scheduler->HasWork(); ++frame) {
    const int64_t begin = engine.now_us;
    const int64_t end = begin + 2000;
    engine.must_progress = true;
    while (engine.scheduler->HasWork() && engine.now_us < end) {
      engine.budget_us = end - engine.now_us;
      if (engine.Step().empty()) break;
      engine.must_progress = false;
    }
    if (frame >= 50)
      limits.Count(static_cast<double>(engine.now_us - begin), 2000);
    engine.now_us = end;
  }
  limits.ExpectRare();
  EXPECT_EQ(engine.counts.finished, 4);
}

TEST(TpotTargetTest, ALongPromptBesideDecodes) {
  SchedulerConfig config = BudgetConfig(16, 512);
  config.tpot_target_us = 3000;
  FakeEngine engine(config, 4000);
  engine.machine = NoisyMachine(500, 10, 1e-3);
  for (int i = 0; i < 8; ++i) engine.Submit(10, 4000);
  for (int step = 0; step < 300; ++step) engine.Step();
  const RequestId id = engine.Submit(30000, 1);
  Limits limits;
  int32_t first_chunk = 0, last_chunk = 0;
  while (engine.Find(id) != nullptr) {
    const StepPlan plan = engine.Step();
    EXPECT_GE(plan.decode_tokens, 8) << "no decode waits for the prompt";
    if (limits.steps >= 50)
      limits.Count(engine.last_step_us, config.tpot_target_us);
    else
      ++limits.steps;
    if (limits.steps == 20) first_chunk = plan.prefill_tokens;
    if (plan.prefill_tokens > 0) last_chunk = plan.prefill_tokens;
    ASSERT_LT(limits.steps, 4000) << "the prompt gets nowhere";
  }
  limits.ExpectRare();
  EXPECT_GT(first_chunk, 100);
  EXPECT_LT(last_chunk, first_chunk / 3) << "later chunks attend to more";
}

TEST(TpotTargetTest, AloneAPromptHasTheWholeStep) {
  SchedulerConfig config = BudgetConfig(16, 512);
  config.tpot_target_us = 1;
  FakeEngine engine(config, 400);
  engine.Submit(2000, 1);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(engine.Step().prefill_tokens, 512);
}

// Decodes alone exceed the target: a block of the prompt gets on all the same,
// one step in nine.
TEST(TpotTargetTest, AnImpossibleTargetDoesNotStopPrompts) {
  SchedulerConfig config = BudgetConfig(16, 512);
  config.tpot_target_us = 1;
  FakeEngine engine(config, 400);
  engine.Submit(4, 500);
  engine.Step();
  const RequestId id = engine.Submit(160, 1);
  for (int steps = 0; engine.Find(id) != nullptr; ++steps) {
    EXPECT_LE(engine.Step().prefill_tokens, 16);
    ASSERT_LE(steps, 9 * 160 / 16 + 1);
  }
}

}  // namespace
}  // namespace inlay
