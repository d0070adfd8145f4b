// Sliding windows: what no later token reads is not held, so that sequences
// longer than the pool run in it.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/sched/fake_engine.h"

namespace inlay {
namespace {

SchedulerConfig WindowConfig(int64_t window, int32_t batch) {
  SchedulerConfig config = FakeConfig(std::min(4, batch), batch);
  config.groups[0].window = window;
  return config;
}

// What one sequence may come to hold.
int32_t PeakBlocks(const SchedulerConfig& config) {
  return static_cast<int32_t>(KvBlocksFor(config.groups[0].window +
                                              config.max_batch_tokens +
                                              2 * config.groups[0].block_size,
                                          config.groups[0].block_size));
}

TEST(WindowTest, ALongSequenceRunsInAPoolMuchSmaller) {
  for (int64_t window : {1, 2, 3, 4, 5, 16, 33}) {
    const SchedulerConfig config = WindowConfig(window, 16);
    FakeEngine engine(config, PeakBlocks(config));
    const RequestId id = engine.Submit(2000, 200);
    int32_t most = 0;
    while (engine.scheduler->HasWork()) {
      engine.Step();
      if (engine.Find(id) == nullptr || engine.Find(id)->num_computed < 100)
        continue;
      most = std::max(most, engine.kv.num_held());
    }
    EXPECT_EQ(engine.counts.finished, 1) << "window " << window;
    EXPECT_EQ(engine.counts.blocked, 0) << "window " << window;
    // Between steps: those that the window touches.
    EXPECT_LE(most, KvBlocksFor(std::max<int64_t>(1, window - 1), 4) + 1);
  }
}

TEST(WindowTest, RefusesWhatDoesNotFitEvenSo) {
  const SchedulerConfig config = WindowConfig(32, 16);
  FakeEngine engine(config, PeakBlocks(config) - 1);
  EXPECT_EQ(
      engine.TrySubmit(engine.AddSession(), engine.NewTokens(2000), 1).code(),
      absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(
      engine.TrySubmit(engine.AddSession(), engine.NewTokens(40), 1).ok());
}

TEST(WindowTest, SeveralShareAPoolThatNoneOfThemWouldFit) {
  SchedulerConfig config = WindowConfig(16, 16);
  config.max_prefill_chunk = 8;
  FakeEngine engine(config, 2 * PeakBlocks(config));
  for (int i = 0; i < 6; ++i) engine.Submit(300, 50);
  engine.StepUntilIdle();
  EXPECT_EQ(engine.counts.finished, 6);
}

TEST(WindowTest, AHitNeedsTheWindowOnly) {
  const SchedulerConfig config = WindowConfig(8, 64);
  FakeEngine engine(config, 64);
  const SessionId session = engine.AddSession();
  engine.SubmitTo(session, engine.NewTokens(202), 1);
  engine.StepUntilIdle();
  const SessionId fork = engine.Fork(session);
  const RequestId id = engine.SubmitTo(fork, engine.NewTokens(3), 4);
  EXPECT_EQ(engine.Step().items[0].first_token, 202);
  EXPECT_LE(engine.kv.num_held(), 5);
  EXPECT_EQ(engine.Find(id)->num_computed, 206);
  engine.StepUntilIdle();
}

TEST(WindowTest, ThePreemptedNeedsRoomForItsWindowNotForItsLength) {
  SchedulerConfig config = WindowConfig(8, 16);
  config.max_running = 1;
  FakeEngine engine(config, PeakBlocks(config));
  const RequestId low = engine.Submit(500, 20);
  while (engine.Find(low)->pending() > 1) engine.Step();
  engine.Submit(30, 2, /*priority=*/1);  // which leaves no block of it
  engine.StepUntilIdle();
  EXPECT_EQ(engine.counts.preempted, 1);
  EXPECT_EQ(engine.counts.finished, 2);
}

}  // namespace
}  // namespace inlay
