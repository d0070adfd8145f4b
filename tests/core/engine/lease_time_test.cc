// A memory budget that shrinks in the middle of a step that has a time budget:
// the time is kept, and memory is given back a piece a step at least.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "tests/support/engine_harness.h"

namespace inlay {
namespace {

using ::inlay::testing::Blocks;
using ::inlay::testing::EngineHarness;
using ::inlay::testing::GoldenModel;
using ::inlay::testing::Outcome;
using ::inlay::testing::TokenRequest;

constexpr uint64_t kLeaseMiB = uint64_t{1} << 20;
constexpr uint64_t kLeasePiece = 16 * kLeaseMiB;

// 64 MiB of KV.
class LeaseTimeTest : public ::testing::Test {
 protected:
  LeaseTimeTest() : harness_(GoldenModel("llama3"), Logged(), Blocks(4096)) {}
  void SetUp() override {
    ASSERT_TRUE(harness_.ok());
    fixed_ = harness_.FixedBytes();
    EXPECT_EQ(Used(), fixed_ + 64 * kLeaseMiB);
  }

  // The log is written at the end of a step, the engine still in it.
  EngineOptions Logged() {
    EngineOptions options;
    options.log = Log(LogLevel::kWarning, [this](LogLevel, const std::string&) {
      const uint64_t bytes = armed_.exchange(0);
      if (bytes == 0) return;
      std::thread setter([&] {
        EXPECT_TRUE(harness_.engine().SetMemoryBudget(0, bytes).ok());
      });
      setter.join();
    });
    return options;
  }
  // A step in whose middle another thread sets the memory budget.
  Engine::StepSummary ShrinkInStep(uint64_t bytes, uint64_t budget_us) {
    RequestOptions late = TokenRequest({5, 6, 7}, 3);
    late.deadline_us = 1;
    const SessionId session = *harness_.runner().CreateSession();
    EXPECT_TRUE(harness_.runner().Submit(session, late).ok());
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    armed_ = bytes;
    const auto summary = harness_.engine().Step(budget_us);
    EXPECT_TRUE(summary.ok()) << summary.status();
    EXPECT_EQ(armed_, 0u) << "it was set";
    return summary.ok() ? *summary : Engine::StepSummary();
  }
  uint64_t Used() { return harness_.Stats().memory.total_bytes; }

  std::atomic<uint64_t> armed_{0};
  EngineHarness harness_;
  uint64_t fixed_ = 0;
};

TEST_F(LeaseTimeTest, WithoutATimeBudgetItIsObeyedWithinTheStep) {
  ShrinkInStep(fixed_ + kLeaseMiB, 0);
  EXPECT_LE(Used(), fixed_ + kLeaseMiB);
}

TEST_F(LeaseTimeTest, WithOneAPieceAStepIsGivenBack) {
  const SessionId session = *harness_.runner().CreateSession();
  const RequestId decoder =
      *harness_.runner().Submit(session, TokenRequest({1, 2, 3}, 30));
  ASSERT_TRUE(harness_.engine().Step(0).ok());
  const uint64_t lease = fixed_ + kLeaseMiB;
  ShrinkInStep(lease, 1);
  EXPECT_EQ(Used(), fixed_ + 64 * kLeaseMiB);
  Outcome outcome;
  harness_.Drain(decoder, outcome);
  for (const uint64_t left : {48, 32, 16, 1}) {
    const size_t tokens = outcome.tokens.size();
    const auto summary = harness_.engine().Step(1);
    ASSERT_TRUE(summary.ok());
    EXPECT_EQ(Used(), fixed_ + left * kLeaseMiB);
    harness_.Drain(decoder, outcome);
    EXPECT_EQ(outcome.tokens.size(), tokens + 1) << "others go on";
  }
  // Nothing more goes, and what there was is computed to its end.
  harness_.RunAll();
  harness_.Drain(decoder, outcome);
  EXPECT_EQ(outcome.tokens.size(), 30u);
  EXPECT_EQ(Used(), lease);
}

// With nothing else to do the host is told to step on.
TEST_F(LeaseTimeTest, ThereIsMoreToDoUntilItIsObeyed) {
  const uint64_t lease = fixed_ + kLeaseMiB;
  EXPECT_TRUE(ShrinkInStep(lease, 1).more_work);
  for (int i = 0; i < 4; ++i) {
    EXPECT_GT(Used(), lease);
    const auto summary = harness_.engine().Step(1);
    ASSERT_TRUE(summary.ok());
    EXPECT_EQ(summary->more_work, i < 3);
  }
  EXPECT_LE(Used(), lease);
}

TEST_F(LeaseTimeTest, ATimeThatIsLongEnoughObeysItWithinTheStep) {
  const auto summary = ShrinkInStep(fixed_ + kLeaseMiB, 20000000);
  EXPECT_LT(summary.duration_us, 10000000u);
  EXPECT_LE(Used(), fixed_ + kLeaseMiB);
}

// Who sets it while nobody steps has it obeyed there and then.
TEST_F(LeaseTimeTest, SetBetweenStepsItIsObeyedAtOnce) {
  ShrinkInStep(fixed_ + kLeaseMiB, 1);
  EXPECT_GT(Used(), fixed_ + kLeasePiece);
  ASSERT_TRUE(
      harness_.engine().SetMemoryBudget(0, fixed_ + 2 * kLeaseMiB).ok());
  EXPECT_LE(Used(), fixed_ + 2 * kLeaseMiB);
}

}  // namespace
}  // namespace inlay
