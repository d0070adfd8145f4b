// KV that a disk alone has: steps go on without it, and whatever becomes of it
// on the disk, nobody loses anything but time.
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <future>
#include <set>
#include <thread>
#include <vector>

#include "tests/support/engine_harness.h"
#include "tests/support/file_fault.h"

namespace inlay {
namespace {

using ::inlay::testing::Blocks;
using ::inlay::testing::EngineHarness;
using ::inlay::testing::GoldenModel;
using ::inlay::testing::Outcome;
using ::inlay::testing::RandomTokens;
using ::inlay::testing::ScratchFolder;
using ::inlay::testing::SlowReads;
using ::inlay::testing::TokenRequest;
using std::chrono::milliseconds;

// Of llama3, 16 tokens and 16 KiB each.
constexpr uint64_t kDiskBlocks = 20;
constexpr uint64_t kDiskBlockBytes = 16 << 10;

class DiskLoadTest : public ::testing::Test {
 protected:
  DiskLoadTest() { Reopen(EngineOptions()); }

  // The engine anew, over the same folder.
  void Reopen(const EngineOptions& engine) {
    harness_.reset();
    ModelOptions options = Blocks(48);
    options.host_cache_bytes = 32 * (kDiskBlockBytes + 1024);
    options.disk_cache_folder = folder_.File("kv");
    options.disk_cache_bytes = 64 << 20;
    options.disk_cache_ops = &ops_;
    harness_ =
        std::make_unique<EngineHarness>(GoldenModel("llama3"), engine, options);
  }
  // Nothing but the disk has the KV of prompt_ afterwards.
  void SetUp() override {
    ASSERT_TRUE(harness_->ok());
    prompt_ = RandomTokens(1, kDiskBlocks * 16 + 1);
    want_ = harness_->RunAlone(TokenRequest(prompt_, 8)).tokens;
    Reopen(EngineOptions());
    ASSERT_TRUE(harness_->ok());
    WaitForFolder();
  }
  // Until the tier knows all that is in it: whole pages, one file at a time.
  void WaitForFolder() {
    constexpr uint64_t kPage = 4096;
    uint64_t bytes = 0;
    for (const auto& record : Records()) {
      bytes += (std::filesystem::file_size(record) + kPage - 1) / kPage * kPage;
    }
    ASSERT_GE(bytes, kDiskBlocks * kDiskBlockBytes);
    const auto known = [&] {
      return harness_->Metrics().tier_disk_used_bytes >= bytes;
    };
    for (int i = 0; i < 5000 && !known(); ++i)
      std::this_thread::sleep_for(milliseconds(1));
    ASSERT_TRUE(known());
  }

  ModelRunner& runner() { return harness_->runner(); }
  uint64_t DiskBytes() { return harness_->Metrics().tier_disk_used_bytes; }
  RequestId Submit(RequestOptions options) {
    const auto request =
        runner().Submit(*runner().CreateSession(), std::move(options));
    EXPECT_TRUE(request.ok()) << request.status();
    return request.ok() ? *request : 0;
  }
  Outcome Ended(RequestId id) {
    Outcome outcome;
    harness_->RunAll();
    harness_->Drain(id, outcome);
    EXPECT_TRUE(outcome.finished);
    return outcome;
  }
  std::vector<std::filesystem::path> Records() const {
    std::vector<std::filesystem::path> records;
    for (const auto& entry :
         std::filesystem::directory_iterator(folder_.File("kv"))) {
      if (entry.path().extension() == ".kv") records.push_back(entry.path());
    }
    return records;
  }

  ScratchFolder folder_;
  SlowReads ops_;
  std::unique_ptr<EngineHarness> harness_;
  std::vector<int32_t> prompt_, want_;
};

// Lets reads go after a while, so that a step that waits for them fails the
// test instead of standing still.
class Watchdog {
 public:
  explicit Watchdog(SlowReads& ops)
      : thread_([this, &ops] {
          if (done_.get_future().wait_for(std::chrono::seconds(20)) ==
              std::future_status::timeout) {
            ADD_FAILURE() << "somebody waited";
            ops.LetGo();
          }
        }) {}
  ~Watchdog() {
    done_.set_value();
    thread_.join();
  }

 private:
  std::promise<void> done_;
  std::thread thread_;
};

TEST_F(DiskLoadTest, OthersGoOnWhileADiskIsRead) {
  const RequestId decoder = Submit(TokenRequest({1, 2, 3}, 300));
  EXPECT_TRUE(harness_->engine().Step(0).ok());
  Outcome decoded;
  harness_->Drain(decoder, decoded);
  ops_.Hold();
  const RequestId id = Submit(TokenRequest(prompt_, 8));
  const RequestId third = Submit(TokenRequest({4, 5}, 3));
  Outcome of_third;
  {
    const Watchdog watchdog(ops_);
    const size_t before = decoded.tokens.size();
    for (const uint64_t budget_us : {0, 1, 2000}) {
      for (int i = 0; i < 20; ++i)
        EXPECT_TRUE(harness_->engine().Step(budget_us).ok());
    }
    harness_->Drain(decoder, decoded);
    EXPECT_GE(decoded.tokens.size(), before + 60);
    harness_->Drain(third, of_third);
    EXPECT_TRUE(of_third.finished);
    // Calls of other threads do not wait either.
    EXPECT_TRUE(runner().Cancel(decoder).ok());
    EXPECT_EQ(harness_->Metrics().tier_disk_hit_blocks, 0u);
  }
  ops_.LetGo();
  const Outcome outcome = Ended(id);
  EXPECT_EQ(outcome.tokens, want_);
  EXPECT_EQ(outcome.finish.cached_tokens, kDiskBlocks * 16);
  EXPECT_EQ(harness_->BlocksUsed(), 0u);
}

// With nothing else to do a step waits, but no longer than it may.
TEST_F(DiskLoadTest, AStepWaitsWithinItsBudget) {
  ops_.Hold();
  const RequestId id = Submit(TokenRequest(prompt_, 8));
  {
    const Watchdog watchdog(ops_);
    // One that has its turn admits the request, and asks for the block.
    for (const uint64_t budget_us : {20000, 1000, 30000}) {
      const auto summary = harness_->engine().Step(budget_us);
      ASSERT_TRUE(summary.ok());
      EXPECT_TRUE(summary->more_work);
      EXPECT_GE(summary->duration_us, budget_us);
      EXPECT_LT(summary->duration_us, budget_us + 500000);
    }
  }
  EXPECT_EQ(harness_->Metrics().step_tokens.count(),
            harness_->Metrics().step_time_us.count());
  std::thread reads([&] {
    std::this_thread::sleep_for(milliseconds(50));
    ops_.LetGo();
  });
  // Without a budget it waits until it can do something.
  const auto summary = harness_->engine().Step(0);
  reads.join();
  ASSERT_TRUE(summary.ok());
  EXPECT_GE(summary->duration_us, 20000u);
  EXPECT_EQ(Ended(id).tokens, want_);
}

TEST_F(DiskLoadTest, ABlockThatIsHereEndsTheWait) {
  ops_.Hold();
  const RequestId id = Submit(TokenRequest(prompt_, 8));
  std::thread reads([&] {
    ops_.WaitUntilHeld();
    ops_.LetGo();
  });
  Outcome outcome;
  const SteadyTime begin = Now();
  while (!outcome.finished) {
    ASSERT_TRUE(harness_->engine().Step(60000000).ok());
    harness_->Drain(id, outcome);
  }
  reads.join();
  EXPECT_LT(MicrosecondsBetween(begin, Now()), 30000000u);
  EXPECT_EQ(outcome.tokens, want_);
}

TEST_F(DiskLoadTest, CancelledAndReleasedWhileADiskIsRead) {
  ops_.Hold();
  const RequestId id = Submit(TokenRequest(prompt_, 8));
  {
    const Watchdog watchdog(ops_);
    EXPECT_TRUE(harness_->engine().Step(1).ok());
    ops_.WaitUntilHeld();
    EXPECT_TRUE(runner().Cancel(id).ok());
    const auto summary = harness_->engine().Step(1000000);
    ASSERT_TRUE(summary.ok());
    EXPECT_FALSE(summary->more_work);
    EXPECT_LT(summary->duration_us, 900000u);
  }
  ops_.LetGo();
  // Who comes next has what was fetched for nobody.
  EXPECT_EQ(Ended(Submit(TokenRequest(prompt_, 8))).tokens, want_);
  EXPECT_EQ(harness_->BlocksUsed(), 0u);
}

TEST_F(DiskLoadTest, AnEngineOfItsOwnThread) {
  EngineOptions options;
  options.own_thread = true;
  Reopen(options);
  ASSERT_TRUE(harness_->ok());
  WaitForFolder();
  const RequestId id = Submit(TokenRequest(prompt_, 8));
  Outcome outcome;
  while (!outcome.finished) {
    const auto event = harness_->engine().events().NextOf(id, 10000000000);
    ASSERT_TRUE(event.ok()) << event.status();
    outcome.Take(*event);
  }
  EXPECT_EQ(outcome.tokens, want_);
  EXPECT_EQ(outcome.finish.cached_tokens, kDiskBlocks * 16);
}

// For want of memory or descriptors: what cannot be had is computed, and stays
// on the disk.
TEST_F(DiskLoadTest, WhatCannotBeReadNowIsComputedAndStays) {
  const uint64_t before = DiskBytes();
  ops_.read_error = ENOMEM;
  const Outcome outcome = Ended(Submit(TokenRequest(prompt_, 8)));
  EXPECT_EQ(outcome.tokens, want_);
  EXPECT_EQ(outcome.finish.cached_tokens, 0u);
  EXPECT_EQ(DiskBytes(), before);
  EXPECT_EQ(Records().size(), kDiskBlocks);
  ops_.read_error = 0;
  EXPECT_EQ(harness_->BlocksUsed(), 0u);
}

// Of a session's records any one may be gone or damaged: what lies before it
// comes back, the rest is computed.
TEST_F(DiskLoadTest, ARecordIsLostInTheMiddle) {
  for (const bool damaged : {false, true}) {
    std::set<uint64_t> found;
    for (uint64_t i = 0; i < kDiskBlocks; ++i) {
      auto records = Records();
      ASSERT_EQ(records.size(), kDiskBlocks);
      std::sort(records.begin(), records.end());
      if (damaged) {
        std::fstream file(records[i], std::ios::in | std::ios::out);
        file.seekp(3000).put('!');
        file.seekp(5000).put('?');
      } else {
        std::filesystem::remove(records[i]);
      }
      const Outcome outcome = Ended(Submit(TokenRequest(prompt_, 8)));
      EXPECT_EQ(outcome.tokens, want_) << i;
      EXPECT_EQ(outcome.finish.cached_tokens % 16, 0u);
      found.insert(outcome.finish.cached_tokens / 16);
      EXPECT_EQ(harness_->BlocksUsed(), 0u);
      // It is written again.
      Reopen(EngineOptions());
      ASSERT_TRUE(harness_->ok());
      WaitForFolder();
    }
    // Each has been the one that is missing.
    EXPECT_EQ(found.size(), kDiskBlocks);
    EXPECT_EQ(*found.begin(), 0u);
    EXPECT_EQ(*found.rbegin(), kDiskBlocks - 1);
  }
}

}  // namespace
}  // namespace inlay
