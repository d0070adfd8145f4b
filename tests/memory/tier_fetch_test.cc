// Blocks of a tier that are on disk alone: nobody waits for them, and they
// cost no other block its place.
#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <memory>
#include <vector>

#include "memory/kv/tier.h"
#include "tests/support/file_fault.h"

namespace inlay {
namespace {

using ::inlay::testing::ScratchFolder;
using ::inlay::testing::SlowReads;
using Got = KvTier::Got;

constexpr size_t kFetchBytes = 512;

KvBlockKey FetchKey(uint64_t n) { return {n, ~n}; }
std::vector<int32_t> FetchTokens(uint64_t n) {
  return {static_cast<int32_t>(n), 9};
}

class TierFetchTest : public ::testing::Test {
 protected:
  TierFetchTest() : host_(*CreateCpuDevice(1, 0)) {
    options_.block_size = 2;
    options_.block_bytes = kFetchBytes;
    options_.host = host_.get();
    options_.host_bytes = 4 * KvHostSlots::SlotCost(kFetchBytes, 2);
    options_.disk_folder = folder_.File("kv");
    options_.disk_bytes = 1 << 20;
    options_.file_ops = &ops_;
    options_.on_fetched = [this] { ++num_told_; };
  }

  // A tier whose disk has blocks 0 to `count` - 1, and its host memory none.
  void Create(uint64_t count) {
    for (int round = 0; round < 2; ++round) {
      tier_.reset();
      auto tier = KvTier::Create(options_);
      ASSERT_TRUE(tier.ok()) << tier.status();
      tier_ = *std::move(tier);
      tier_->WaitIdle();
      for (uint64_t n = 0; n < count && round == 0; ++n) {
        Put(n);
        tier_->Flush();
      }
    }
    num_told_ = 0;
  }
  void Put(uint64_t n) {
    EXPECT_TRUE(tier_->Put(FetchKey(n), FetchTokens(n),
                           std::vector<std::byte>(kFetchBytes, std::byte(n))));
  }
  Got Get(uint64_t n) {
    std::vector<std::byte> bytes(kFetchBytes);
    const Got got =
        tier_->Get(FetchKey(n), FetchTokens(n), absl::MakeSpan(bytes));
    if (got == Got::kBlock) {
      EXPECT_EQ(bytes, std::vector<std::byte>(kFetchBytes, std::byte(n)));
    }
    return got;
  }

  ScratchFolder folder_;
  SlowReads ops_;
  std::unique_ptr<Device> host_;
  KvTierOptions options_;
  std::atomic<int> num_told_{0};
  std::unique_ptr<KvTier> tier_;
};

TEST_F(TierFetchTest, NobodyWaitsForARead) {
  Create(2);
  ops_.Hold();
  EXPECT_EQ(Get(0), Got::kOnDisk);
  EXPECT_TRUE(tier_->Fetch(FetchKey(0)));
  ops_.WaitUntilHeld();
  EXPECT_EQ(Get(0), Got::kOnDisk);
  EXPECT_TRUE(tier_->Fetch(FetchKey(0)));
  // Not while that is being read; but there is something to wait for.
  EXPECT_TRUE(tier_->Fetch(FetchKey(1)));
  EXPECT_FALSE(tier_->Idle());
  EXPECT_EQ(num_told_, 0);
  ops_.LetGo();
  tier_->WaitIdle();
  EXPECT_FALSE(tier_->Fetch(FetchKey(0)));
  EXPECT_EQ(Get(1), Got::kOnDisk);
  EXPECT_EQ(Get(0), Got::kBlock);
  EXPECT_EQ(tier_->stats().disk_hits, 1u);
  // Taken, it is on disk alone again.
  EXPECT_EQ(Get(0), Got::kOnDisk);
  tier_->WaitIdle();
  tier_.reset();
  EXPECT_EQ(num_told_, 1);
}

TEST_F(TierFetchTest, AnotherTakesThePlaceOfWhatNobodyTook) {
  Create(2);
  for (const uint64_t n : {0, 1, 0}) {
    EXPECT_TRUE(tier_->Fetch(FetchKey(n)));
    tier_->WaitIdle();
  }
  EXPECT_EQ(Get(1), Got::kOnDisk);
  EXPECT_EQ(Get(0), Got::kBlock);
  // All slots are others' again.
  for (uint64_t n = 10; n < 14; ++n) Put(n);
  for (uint64_t n = 10; n < 14; ++n) EXPECT_EQ(Get(n), Got::kBlock);
  EXPECT_EQ(tier_->stats().lost, 0u);
}

// Those that are in host memory alone are written before one of them goes.
TEST_F(TierFetchTest, LosesNoFreshBlock) {
  Create(1);
  for (uint64_t n = 10; n < 14; ++n) Put(n);
  EXPECT_TRUE(tier_->Fetch(FetchKey(0)));
  tier_->WaitIdle();
  EXPECT_EQ(Get(0), Got::kBlock);
  EXPECT_EQ(tier_->stats().lost, 0u);
  for (uint64_t n = 10; n < 14; ++n) EXPECT_TRUE(tier_->Has(FetchKey(n))) << n;
}

TEST_F(TierFetchTest, WhatCannotBeReadNowStays) {
  Create(1);
  ops_.read_error = ENOMEM;
  EXPECT_TRUE(tier_->Fetch(FetchKey(0)));
  tier_->WaitIdle();
  EXPECT_EQ(Get(0), Got::kFailed);
  EXPECT_EQ(Get(0), Got::kOnDisk);
  ops_.read_error = 0;
  EXPECT_TRUE(tier_->Fetch(FetchKey(0)));
  tier_->WaitIdle();
  EXPECT_EQ(Get(0), Got::kBlock);
  // What is not what was written goes.
  ops_.read_error = EIO;
  EXPECT_TRUE(tier_->Fetch(FetchKey(0)));
  tier_->WaitIdle();
  EXPECT_EQ(Get(0), Got::kLost);
  EXPECT_FALSE(tier_->Has(FetchKey(0)));
  EXPECT_FALSE(tier_->Fetch(FetchKey(0)));
}

TEST_F(TierFetchTest, DroppedWhileItIsRead) {
  Create(1);
  ops_.Hold();
  EXPECT_TRUE(tier_->Fetch(FetchKey(0)));
  ops_.WaitUntilHeld();
  tier_->Drop(FetchKey(0));
  ops_.LetGo();
  tier_->WaitIdle();
  EXPECT_EQ(Get(0), Got::kLost);
}

TEST_F(TierFetchTest, OtherTokensAreNotTaken) {
  Create(1);
  EXPECT_TRUE(tier_->Fetch(FetchKey(0)));
  tier_->WaitIdle();
  std::vector<std::byte> bytes(kFetchBytes);
  EXPECT_EQ(tier_->Get(FetchKey(0), FetchTokens(5), absl::MakeSpan(bytes)),
            Got::kLost);
}

TEST_F(TierFetchTest, AFlushThatNobodyWaitsForIsTold) {
  Create(0);
  for (uint64_t n = 0; n < 3; ++n) Put(n);
  tier_->WaitIdle();
  EXPECT_LT(tier_->stats().disk_blocks, 3);
  tier_->BeginFlush();
  while (num_told_ == 0) {
  }
  EXPECT_TRUE(tier_->Idle());
  EXPECT_EQ(tier_->stats().disk_blocks, 3);
}

}  // namespace
}  // namespace inlay
