// Models that nobody holds: their memory goes in pieces, in the time that steps
// have, and is accounted until it is gone.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <memory>
#include <thread>
#include <vector>

#include "tests/support/engine_harness.h"
#include "tests/support/file_fault.h"
#include "tests/support/lease_allocator.h"

namespace inlay {
namespace {

using ::inlay::testing::Blocks;
using ::inlay::testing::EngineHarness;
using ::inlay::testing::FaultyFileOps;
using ::inlay::testing::GoldenModel;
using ::inlay::testing::LeaseAllocator;
using ::inlay::testing::Outcome;
using ::inlay::testing::RandomTokens;
using ::inlay::testing::ScratchFolder;
using ::inlay::testing::TokenRequest;

// 64 MiB of KV, in 64 buffers.
constexpr uint64_t kReclaimBlocks = 4096;

EngineOptions Hooked(LeaseAllocator& allocator) {
  EngineOptions options;
  options.allocator = allocator.hooks();
  return options;
}

// A small model that serves, and a large one that is let go of.
class ReclaimTest : public ::testing::Test {
 protected:
  ReclaimTest()
      : harness_(GoldenModel("llama3"), Hooked(allocator_), Blocks(40)) {}
  void SetUp() override {
    ASSERT_TRUE(harness_.ok());
    alone_ = Used();
  }
  void Load(ModelOptions options = Blocks(kReclaimBlocks)) {
    auto loaded = engine().Load(GoldenModel("llama3"), options);
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    large_ = *std::move(loaded);
    EXPECT_GT(allocator_.live(), alone_ + (64 << 20));
  }
  Engine& engine() { return harness_.engine(); }
  uint64_t Used() {
    EXPECT_EQ(harness_.Stats().memory.total_bytes, allocator_.live());
    return allocator_.live();
  }

  LeaseAllocator allocator_;
  EngineHarness harness_;
  uint64_t alone_ = 0;
  Engine::Loaded large_;
};

TEST_F(ReclaimTest, APieceAStepBesideOthersWithoutTime) {
  Load();
  const SessionId session = *harness_.runner().CreateSession();
  const RequestId id =
      *harness_.runner().Submit(session, TokenRequest({1, 2, 3}, 300));
  ASSERT_TRUE(engine().Step(0).ok());
  Outcome outcome;
  harness_.Drain(id, outcome);
  large_ = {};
  const uint64_t before = Used();
  uint64_t last = before;
  int steps = 0;
  for (; Used() > alone_ && steps < 290; ++steps) {
    const size_t tokens = outcome.tokens.size();
    const auto summary = engine().Step(1);
    ASSERT_TRUE(summary.ok());
    EXPECT_TRUE(summary->more_work);
    harness_.Drain(id, outcome);
    EXPECT_EQ(outcome.tokens.size(), tokens + 1) << "others go on";
    EXPECT_LE(last - Used(), 3u << 20) << "in one step";
    last = Used();
  }
  EXPECT_EQ(Used(), alone_);
  EXPECT_GT(steps, 40);
  EXPECT_EQ(harness_.Stats().metrics.models, 1u);
}

TEST_F(ReclaimTest, AllWithinAStepThatHasNothingElseToDo) {
  Load();
  large_ = {};
  const auto summary = engine().Step(0);
  ASSERT_TRUE(summary.ok());
  EXPECT_FALSE(summary->more_work);
  EXPECT_EQ(Used(), alone_);
}

// A step with a budget uses it for this if there is nothing else to do, and
// says that there is more.
TEST_F(ReclaimTest, UntilTheBudgetEnds) {
  Load();
  large_ = {};
  bool more = true;
  int steps = 0;
  for (; more && steps < 1000; ++steps) {
    const auto summary = engine().Step(1);
    ASSERT_TRUE(summary.ok());
    more = summary->more_work;
    EXPECT_TRUE(more || Used() == alone_);
  }
  EXPECT_GT(steps, 20);
  Load();
  large_ = {};
  const auto summary = engine().Step(10000000);
  ASSERT_TRUE(summary.ok());
  EXPECT_FALSE(summary->more_work);
  EXPECT_LT(summary->duration_us, 9000000u);
  EXPECT_EQ(Used(), alone_);
}

// The cache of who stays grows into what is left, when it is left.
TEST_F(ReclaimTest, OthersHaveWhatItLeaves) {
  Load();
  ASSERT_TRUE(engine().SetMemoryBudget(0, Used() - (20 << 20)).ok());
  const uint64_t squeezed = harness_.runner().kv_memory().bytes;
  EXPECT_LT(squeezed, harness_.runner().kv_memory().target_bytes);
  large_ = {};
  for (int i = 0; i < 1000; ++i) {
    ASSERT_TRUE(engine().Step(1).ok());
    EXPECT_LE(Used(), harness_.Stats().memory.budget_bytes);
  }
  EXPECT_EQ(harness_.runner().kv_memory().bytes,
            harness_.runner().kv_memory().target_bytes);
  EXPECT_EQ(Used(), alone_);
}

// Room that is wanted now is had now.
TEST_F(ReclaimTest, ALoadAndABudgetDoNotWaitForSteps) {
  Load();
  const uint64_t both = Used();
  ASSERT_TRUE(engine().SetMemoryBudget(0, both).ok());
  large_ = {};
  ASSERT_TRUE(engine().Step(1).ok());
  EXPECT_GT(Used(), alone_);
  Load();
  EXPECT_EQ(Used(), both);
  large_ = {};
  ASSERT_TRUE(engine().Step(1).ok());
  const uint64_t least = harness_.FixedBytes() - (harness_.FixedBytes() / 3);
  EXPECT_TRUE(engine().SetMemoryBudget(0, least).ok());
  EXPECT_LE(Used(), least);
}

TEST_F(ReclaimTest, TheEnginesEndFreesTheRest) {
  Load();
  large_ = {};
  ASSERT_TRUE(engine().Step(1).ok());
  EXPECT_GT(Used(), alone_);
  engine().Close();
  EXPECT_EQ(allocator_.live(), 0u);
}

TEST_F(ReclaimTest, WithRequestsAndAHostTier) {
  ModelOptions options = Blocks(kReclaimBlocks);
  options.host_cache_bytes = 16 << 20;
  Load(options);
  const SessionId session = *large_.runner->CreateSession();
  const auto id =
      large_.runner->Submit(session, TokenRequest(RandomTokens(1, 100), 50));
  ASSERT_TRUE(id.ok());
  ASSERT_TRUE(engine().Step(0).ok());
  large_ = {};
  bool more = true;
  for (int i = 0; more && i < 2000; ++i) {
    const auto summary = engine().Step(1);
    ASSERT_TRUE(summary.ok());
    more = summary->more_work;
  }
  EXPECT_EQ(allocator_.live(), alone_);
  Outcome outcome;
  harness_.Drain(*id, outcome);
  EXPECT_TRUE(outcome.finished);
  EXPECT_EQ(outcome.finish.reason, FinishReason::kCancelled);
}

// Writes wait while they are held.
class SlowWrites : public FaultyFileOps {
 public:
  std::atomic<bool> held{false};
  ssize_t Write(int descriptor, const void* data, size_t bytes) const override {
    held.wait(true);
    return FaultyFileOps::Write(descriptor, data, bytes);
  }
};

// What goes to the disk is written beside steps.
TEST_F(ReclaimTest, StepsDoNotWaitForItsDisk) {
  const ScratchFolder folder;
  SlowWrites ops;
  ModelOptions options = Blocks(kReclaimBlocks);
  options.host_cache_bytes = 8 << 20;
  options.disk_cache_folder = folder.File("kv");
  options.disk_cache_bytes = 64 << 20;
  options.disk_cache_ops = &ops;
  Load(options);
  const SessionId session = *large_.runner->CreateSession();
  const auto id =
      large_.runner->Submit(session, TokenRequest(RandomTokens(1, 321), 1));
  ASSERT_TRUE(id.ok());
  harness_.RunAll();
  ops.held = true;
  large_ = {};
  const SessionId other = *harness_.runner().CreateSession();
  const RequestId served =
      *harness_.runner().Submit(other, TokenRequest({1, 2, 3}, 50));
  const SteadyTime begin = Now();
  for (int i = 0; i < 200; ++i) {
    const auto summary = engine().Step(1000);
    ASSERT_TRUE(summary.ok());
    EXPECT_TRUE(summary->more_work);
  }
  EXPECT_LT(MicrosecondsBetween(begin, Now()), 5000000u);
  Outcome outcome;
  harness_.Drain(served, outcome);
  EXPECT_TRUE(outcome.finished) << "beside it";
  ops.held = false;
  ops.held.notify_all();
  const auto summary = engine().Step(10000000);
  ASSERT_TRUE(summary.ok());
  EXPECT_FALSE(summary->more_work);
  EXPECT_EQ(allocator_.live(), alone_);
  size_t records = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(folder.File("kv")))
    records += entry.path().extension() == ".kv" ? 1 : 0;
  EXPECT_EQ(records, 20u);
}

TEST(ReclaimThreadTest, AnEngineOfItsOwnThread) {
  LeaseAllocator allocator;
  EngineOptions engine = Hooked(allocator);
  engine.own_thread = true;
  EngineHarness harness(GoldenModel("llama3"), engine, Blocks(40));
  ASSERT_TRUE(harness.ok());
  const uint64_t alone = allocator.live();
  for (int round = 0; round < 3; ++round) {
    auto large =
        harness.engine().Load(GoldenModel("llama3"), Blocks(kReclaimBlocks));
    ASSERT_TRUE(large.ok()) << large.status();
    large = absl::UnknownError("released");
    harness.engine().WakeToReclaim();
    for (int i = 0; i < 5000 && allocator.live() > alone; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_EQ(allocator.live(), alone);
  }
}

}  // namespace
}  // namespace inlay
