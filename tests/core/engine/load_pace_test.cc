#include "core/engine/load_pace.h"

#include <gtest/gtest.h>

namespace inlay {
namespace {

constexpr size_t kPaceBlock = 50000;  // 50 us where nothing was measured

LoadPace DuePace() {
  LoadPace pace;
  for (int i = 0; i < LoadPace::kGap; ++i) pace.HadNoTime();
  return pace;
}

TEST(LoadPaceTest, ABlockIsDueAfterEightStepsWithout) {
  LoadPace pace;
  for (int i = 0; i < 8; ++i) {
    EXPECT_FALSE(pace.due()) << i;
    pace.HadNoTime();
  }
  EXPECT_TRUE(pace.due());
  pace.HadNoTime();
  EXPECT_TRUE(pace.due());
  pace.KeptUp();
  EXPECT_FALSE(pace.due());
}

TEST(LoadPaceTest, ABlockTakesWhatTheSlowestTookUntilItWasLongAgo) {
  LoadPace pace;
  EXPECT_DOUBLE_EQ(pace.BlockUs(kPaceBlock), 50);
  // At most four times as long as was thought.
  pace.TookBlock(1000, kPaceBlock);
  EXPECT_DOUBLE_EQ(pace.BlockUs(kPaceBlock), 200);
  pace.TookBlock(1000, kPaceBlock);
  EXPECT_DOUBLE_EQ(pace.BlockUs(kPaceBlock), 800);
  pace.TookBlock(1000, kPaceBlock);
  EXPECT_DOUBLE_EQ(pace.BlockUs(kPaceBlock), 1000);
  pace.TookBlock(10, kPaceBlock);
  EXPECT_DOUBLE_EQ(pace.BlockUs(kPaceBlock), 950);
  pace.HadNoTime();
  EXPECT_DOUBLE_EQ(pace.BlockUs(kPaceBlock), 950 * 0.95);
  pace.KeptUp();
  EXPECT_DOUBLE_EQ(pace.BlockUs(kPaceBlock), 950 * 0.95);
  // Shorter than what was only thought.
  LoadPace fast;
  fast.TookBlock(3, kPaceBlock);
  EXPECT_DOUBLE_EQ(fast.BlockUs(kPaceBlock), 3);
}

TEST(LoadPaceTest, OthersHaveAllOfABudgetUntilABlockIsDue) {
  LoadPace pace;
  EXPECT_EQ(pace.BudgetOfOthers(4000, 7, kPaceBlock), 4000);
  pace = DuePace();
  EXPECT_EQ(pace.BudgetOfOthers(4000, 1, kPaceBlock), 3950);
  EXPECT_EQ(pace.BudgetOfOthers(4000, 7, kPaceBlock), 3650);
  // At least half of it.
  EXPECT_EQ(pace.BudgetOfOthers(4000, 40, kPaceBlock), 2000);
  EXPECT_EQ(pace.BudgetOfOthers(4000, 4000, kPaceBlock), 2000);
  EXPECT_EQ(pace.BudgetOfOthers(1, 7, kPaceBlock), 1);
  // None stays none.
  EXPECT_EQ(pace.BudgetOfOthers(0, 7, kPaceBlock), 0);
}

LoadPace::Step PaceStep(double elapsed_us, bool computed) {
  LoadPace::Step step;
  step.elapsed_us = elapsed_us;
  step.computed = computed;
  return step;
}

TEST(LoadPaceTest, EndsWhenItHasTakenAsLongAsTheStep) {
  const LoadPace pace;
  EXPECT_DOUBLE_EQ(pace.EndsUs(PaceStep(300, true)), 600);
  EXPECT_DOUBLE_EQ(pace.EndsUs(PaceStep(5000, true)), 10000);
  // Nobody else wants the time.
  EXPECT_DOUBLE_EQ(pace.EndsUs(PaceStep(300, false)), 2300);
  EXPECT_DOUBLE_EQ(pace.EndsUs(PaceStep(5000, false)), 10000);
  EXPECT_DOUBLE_EQ(DuePace().EndsUs(PaceStep(300, true)), 2300);
  EXPECT_DOUBLE_EQ(DuePace().EndsUs(PaceStep(5000, true)), 10000);
}

TEST(LoadPaceTest, EndsWithTheBudget) {
  LoadPace::Step step = PaceStep(300, true);
  step.budget_us = 500;
  EXPECT_DOUBLE_EQ(LoadPace().EndsUs(step), 500);
  EXPECT_DOUBLE_EQ(DuePace().EndsUs(step), 500);
  step.budget_us = 100;  // it was exceeded
  EXPECT_DOUBLE_EQ(LoadPace().EndsUs(step), 100);
  step.budget_us = 700;
  EXPECT_DOUBLE_EQ(LoadPace().EndsUs(step), 600);
}

TEST(LoadPaceTest, LeavesDecodesTheirTarget) {
  LoadPace::Step step = PaceStep(300, true);
  step.target_us = 1000;
  // Without decodes there is none to keep.
  EXPECT_DOUBLE_EQ(LoadPace().EndsUs(step), 600);
  step.has_decodes = true;
  EXPECT_DOUBLE_EQ(LoadPace().EndsUs(step), 1000);
  EXPECT_DOUBLE_EQ(DuePace().EndsUs(step), 1000);
  // A block that is due has half as long again.
  step.elapsed_us = 900;
  EXPECT_DOUBLE_EQ(LoadPace().EndsUs(step), 1000);
  EXPECT_DOUBLE_EQ(DuePace().EndsUs(step), 1400);
  step.budget_us = 1200;
  EXPECT_DOUBLE_EQ(DuePace().EndsUs(step), 1200);
}

}  // namespace
}  // namespace inlay
