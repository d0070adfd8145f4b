#include "memory/kv/tier.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <latch>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "tests/memory/failing_new.h"
#include "tests/support/file_fault.h"

namespace inlay {
namespace {

using ::inlay::testing::FaultyFileOps;
using ::inlay::testing::ScratchFolder;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int32_t kBlockSize = 4;
constexpr uint64_t kBlockBytes = 1000;
constexpr uint64_t kRecordCost = 4096;

// Block number n: its key, tokens and bytes.
KvBlockKey Key(uint64_t n) { return {n * 77, n}; }
std::vector<int32_t> TokensOf(uint64_t n) {
  return {static_cast<int32_t>(n), 1, 2, 3};
}
std::vector<std::byte> BlockContent(uint64_t n) {
  std::vector<std::byte> bytes(kBlockBytes);
  for (size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<std::byte>(n * 13 + i * (n + 1));
  }
  return bytes;
}

// Writes wait while the gate is closed.
class GatedFileOps : public FaultyFileOps {
 public:
  std::atomic<bool> closed{false};
  mutable std::atomic<bool> waiting{false};

  ssize_t Write(int descriptor, const void* data, size_t bytes) const override {
    if (closed) waiting = true;
    waiting.notify_all();
    closed.wait(true);
    return FaultyFileOps::Write(descriptor, data, bytes);
  }
};

// Once nothing can be removed there is no memory either, on that thread.
class StarvingFileOps : public FileOps {
 public:
  int UnlinkAt(int, const char*) const override {
    static thread_local std::optional<FailingNew> starving;
    if (!starving.has_value()) starving.emplace(0, /*from_then_on=*/true);
    errno = EIO;
    return -1;
  }
};

class TierTest : public ::testing::Test {
 protected:
  TierTest() : host_(*CreateCpuDevice(1, 0)) {
    options_.block_size = kBlockSize;
    options_.block_bytes = kBlockBytes;
    options_.host = host_.get();
    options_.owner = {1, 2};
  }

  void SetHostBlocks(int32_t blocks) {
    options_.host_bytes = static_cast<uint64_t>(blocks) *
                          KvHostSlots::SlotCost(kBlockBytes, kBlockSize);
  }
  void SetDiskBlocks(uint64_t blocks) {
    options_.disk_folder = folder_.File("kv");
    options_.disk_bytes = blocks * kRecordCost;
    options_.file_ops = &ops_;
  }
  std::unique_ptr<KvTier> Create() {
    auto tier = KvTier::Create(options_);
    EXPECT_TRUE(tier.ok()) << tier.status();
    if (!tier.ok()) return nullptr;
    (*tier)->WaitIdle();
    EXPECT_THAT((*tier)->disk_note(), IsEmpty());
    return *std::move(tier);
  }

  static bool Put(KvTier& tier, uint64_t n) {
    return tier.Put(Key(n), TokensOf(n), BlockContent(n));
  }
  // Waits for the disk. A hit has the right content.
  static bool Get(KvTier& tier, uint64_t n) {
    std::vector<std::byte> bytes(kBlockBytes);
    const auto get = [&] {
      return tier.Get(Key(n), TokensOf(n), absl::MakeSpan(bytes));
    };
    KvTier::Got got = get();
    while (got == KvTier::Got::kOnDisk) {
      tier.Fetch(Key(n));
      tier.WaitIdle();
      got = get();
    }
    if (got != KvTier::Got::kBlock) return false;
    EXPECT_EQ(bytes, BlockContent(n)) << n;
    return true;
  }
  static int CountGets(KvTier& tier, uint64_t end) {
    int count = 0;
    for (uint64_t n = 0; n < end; ++n) count += Get(tier, n);
    return count;
  }
  uint64_t FolderBytes() const {
    uint64_t total = 0;
    std::error_code none;
    for (std::filesystem::directory_iterator it(folder_.File("kv"), none), end;
         it != end; it.increment(none)) {
      const uintmax_t bytes = it->file_size(none);
      if (!none) total += (bytes + 4095) / 4096 * 4096;
    }
    return total;
  }
  std::string PathOf(uint64_t n) const {
    for (const auto& entry :
         std::filesystem::directory_iterator(folder_.File("kv"))) {
      const std::string name = entry.path().filename().string();
      char key[40];
      snprintf(key, sizeof(key), "-%016llx%016llx.kv",
               static_cast<unsigned long long>(Key(n).high),
               static_cast<unsigned long long>(Key(n).low));
      if (name.ends_with(key)) return entry.path().string();
    }
    return "";
  }

  ScratchFolder folder_;
  GatedFileOps ops_;
  std::unique_ptr<Device> host_;
  KvTierOptions options_;
};

int NumThreads() {
  int count = 0;
  for ([[maybe_unused]] const auto& entry :
       std::filesystem::directory_iterator("/proc/self/task")) {
    ++count;
  }
  return count;
}

TEST_F(TierTest, HostOnly) {
  SetHostBlocks(8);
  const int threads = NumThreads();
  const auto tier = Create();
  EXPECT_EQ(NumThreads(), threads);
  EXPECT_LE(host_->memory_use().total_bytes, options_.host_bytes);
  EXPECT_GT(host_->memory_use().by_class[static_cast<size_t>(MemoryClass::kKv)],
            8 * kBlockBytes);
  for (uint64_t n = 0; n < 8; ++n) ASSERT_TRUE(Put(*tier, n));
  EXPECT_EQ(CountGets(*tier, 9), 8);
  // Block 0 is used, and 1 put once more: 2 is the oldest.
  EXPECT_TRUE(Get(*tier, 0));
  EXPECT_TRUE(Put(*tier, 1));
  EXPECT_TRUE(Put(*tier, 8));
  EXPECT_TRUE(Put(*tier, 9));
  for (const uint64_t n : {0, 1, 4, 5, 6, 7, 8, 9}) {
    EXPECT_TRUE(tier->Has(Key(n))) << n;
  }
  EXPECT_FALSE(tier->Has(Key(2)) || tier->Has(Key(3)));
  tier->Drop(Key(8));
  tier->Drop(Key(100));
  EXPECT_FALSE(tier->Has(Key(8)) || Get(*tier, 8));
  tier->Prefetch({Key(2)});
  tier->Flush();
  const KvTierStats stats = tier->stats();
  EXPECT_EQ(stats.puts, 10u);
  EXPECT_EQ(stats.host_hits, 9u);
  EXPECT_EQ(stats.misses, 2u);
  EXPECT_EQ(stats.lost, 2u);
  EXPECT_EQ(stats.host_blocks, 7);
  EXPECT_EQ(stats.host_bytes, 7 * kBlockBytes);
  EXPECT_EQ(stats.host_peak_bytes, 8 * kBlockBytes);
  EXPECT_EQ(stats.host_limit_bytes, options_.host_bytes);
  EXPECT_EQ(stats.disk_limit_bytes, 0u);
  EXPECT_EQ(stats.disk_blocks, 0);
}

TEST_F(TierTest, TokensMustBeThoseStored) {
  SetHostBlocks(4);
  SetDiskBlocks(10);
  const auto tier = Create();
  ASSERT_TRUE(Put(*tier, 1));
  std::vector<std::byte> bytes(kBlockBytes);
  // Another block whose key is the same.
  EXPECT_EQ(tier->Get(Key(1), TokensOf(2), absl::MakeSpan(bytes)),
            KvTier::Got::kLost);
  EXPECT_FALSE(tier->Put(Key(1), TokensOf(2), BlockContent(2)));
  EXPECT_TRUE(Get(*tier, 1));
  tier->Flush();
  for (uint64_t n = 10; n < 20; ++n) Put(*tier, n);
  tier->WaitIdle();
  EXPECT_TRUE(tier->Fetch(Key(1)));
  tier->WaitIdle();
  EXPECT_EQ(tier->Get(Key(1), TokensOf(2), absl::MakeSpan(bytes)),
            KvTier::Got::kLost);
  EXPECT_TRUE(Get(*tier, 1));
}

TEST_F(TierTest, OptionsOutOfRange) {
  SetHostBlocks(4);
  const auto expect = [&](const KvTierOptions& options, const char* what) {
    const absl::Status status = KvTier::Create(options).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr(what));
  };
  KvTierOptions bad = options_;
  bad.block_size = 0;
  expect(bad, "block_size is 0");
  bad = options_;
  bad.block_bytes = 0;
  expect(bad, "block_bytes is 0");
  bad = options_;
  bad.block_bytes = UINT64_MAX;
  expect(bad, "block_bytes is");
  bad = options_;
  bad.host_bytes -= 1;
  expect(bad, "host_bytes is");
  bad = options_;
  bad.host = nullptr;
  expect(bad, "CPU device");
  host_->set_budget(1000);
  EXPECT_EQ(KvTier::Create(options_).status().code(),
            absl::StatusCode::kResourceExhausted);
}

TEST_F(TierTest, OverflowGoesToDisk) {
  SetHostBlocks(8);
  SetDiskBlocks(100);
  const auto tier = Create();
  for (uint64_t n = 0; n < 50; ++n) {
    ASSERT_TRUE(Put(*tier, n));
    tier->WaitIdle();
  }
  EXPECT_EQ(CountGets(*tier, 50), 50);
  const KvTierStats stats = tier->stats();
  EXPECT_EQ(stats.lost, 0u);
  // One has made way for those that were read.
  EXPECT_EQ(stats.host_hits, 7u);
  EXPECT_EQ(stats.disk_hits, 43u);
  EXPECT_EQ(stats.host_blocks, 7);
  // A quarter of host memory is on disk already, and what made way was of that.
  EXPECT_EQ(stats.disk_blocks, 45);
  EXPECT_EQ(stats.demotions, 45u);
  EXPECT_EQ(stats.disk_bytes, 45 * kRecordCost);
  EXPECT_EQ(FolderBytes(), stats.disk_bytes);
}

TEST_F(TierTest, TheFolderStaysWithinItsLimit) {
  SetHostBlocks(8);
  SetDiskBlocks(10);
  const auto tier = Create();
  for (uint64_t n = 0; n < 60; ++n) {
    Put(*tier, n);
    ASSERT_LE(FolderBytes(), options_.disk_bytes);
    tier->WaitIdle();
    // Used in time, block 0 stays.
    ASSERT_TRUE(Get(*tier, 0));
  }
  EXPECT_EQ(tier->stats().disk_blocks, 10);
  EXPECT_TRUE(tier->Has(Key(59)) && !tier->Has(Key(20)));
}

TEST_F(TierTest, SurvivesARestart) {
  SetHostBlocks(8);
  SetDiskBlocks(20);
  {
    const auto tier = Create();
    for (uint64_t n = 0; n < 8; ++n) Put(*tier, n);
    tier->Flush();
    EXPECT_EQ(tier->stats().disk_blocks, 8);
  }
  {
    const auto tier = Create();
    EXPECT_EQ(CountGets(*tier, 8), 8);
    EXPECT_EQ(tier->stats().disk_hits, 8u);
  }
  options_.owner.low ^= 1;  // another model
  {
    const auto tier = Create();
    EXPECT_EQ(CountGets(*tier, 8), 0);
    EXPECT_EQ(tier->stats().disk_blocks, 8);
    // Its records make room for ours: the limit is that of the folder.
    for (uint64_t n = 100; n < 115; ++n) {
      Put(*tier, n);
      tier->Flush();
    }
    EXPECT_EQ(tier->stats().disk_blocks, 20);
    EXPECT_LE(FolderBytes(), options_.disk_bytes);
  }
  options_.owner.low ^= 1;
  EXPECT_EQ(CountGets(*Create(), 8), 5);
  // A smaller limit holds at once.
  SetDiskBlocks(3);
  const auto tier = Create();
  EXPECT_EQ(tier->stats().disk_blocks, 3);
  EXPECT_LE(FolderBytes(), options_.disk_bytes);
}

TEST_F(TierTest, PrefetchBringsBlocksUp) {
  SetHostBlocks(8);
  SetDiskBlocks(100);
  {
    const auto tier = Create();
    for (uint64_t n = 0; n < 8; ++n) Put(*tier, n);
    tier->Flush();
  }
  const auto tier = Create();
  tier->Prefetch({Key(3), Key(5), Key(99), Key(3)});
  tier->WaitIdle();
  EXPECT_EQ(tier->stats().promotions, 2u);
  EXPECT_TRUE(Get(*tier, 3) && Get(*tier, 5));
  EXPECT_EQ(tier->stats().host_hits, 2u);
  // Fresh blocks do not go for it.
  ops_.keeps_failing = true;
  ops_.fail_at = 0;
  for (uint64_t n = 10; n < 18; ++n) Put(*tier, n);
  std::vector<KvBlockKey> keys;
  for (uint64_t n = 0; n < 100; ++n) keys.push_back(Key(n));
  tier->Prefetch(keys);
  tier->WaitIdle();
  EXPECT_GE(CountGets(*tier, 18), 6);
}

// Not even for a sentence that says so; the thread goes on all the same.
TEST_F(TierTest, AFolderThatThereIsNoMemoryFor) {
  SetHostBlocks(8);
  SetDiskBlocks(8);
  {
    const auto tier = Create();
    for (uint64_t n = 0; n < 8; ++n) Put(*tier, n);
    tier->Flush();
  }
  SetDiskBlocks(4);
  const StarvingFileOps starving;
  options_.file_ops = &starving;
  const auto tier = KvTier::Create(options_);
  ASSERT_TRUE(tier.ok()) << tier.status();
  (*tier)->WaitIdle();
  EXPECT_EQ((*tier)->disk_note(), "no disk");
  EXPECT_TRUE(Put(**tier, 1) && Get(**tier, 1));
}

TEST_F(TierTest, DamagedRecordsAreMisses) {
  SetHostBlocks(4);
  SetDiskBlocks(100);
  {
    const auto tier = Create();
    for (uint64_t n = 0; n < 4; ++n) Put(*tier, n);
    tier->Flush();
  }
  const auto tier = Create();
  {
    std::fstream file(PathOf(0), std::ios::in | std::ios::out);
    file.seekp(500).put('!');
  }
  std::filesystem::resize_file(PathOf(1), 700);
  std::filesystem::remove(PathOf(2));
  EXPECT_EQ(CountGets(*tier, 4), 1);
  tier->WaitIdle();
  KvTierStats stats = tier->stats();
  EXPECT_EQ(stats.damaged, 2u);
  EXPECT_EQ(stats.disk_blocks, 1);
  EXPECT_EQ(stats.disk_bytes, kRecordCost);
  EXPECT_EQ(FolderBytes(), kRecordCost);
  EXPECT_FALSE(tier->Has(Key(0)));
  // A prefetched one likewise.
  std::filesystem::resize_file(PathOf(3), 700);
  tier->Prefetch({Key(3)});
  tier->WaitIdle();
  EXPECT_FALSE(tier->Has(Key(3)));
  // And they can be stored again.
  for (uint64_t n = 0; n < 4; ++n) Put(*tier, n);
  tier->Flush();
  EXPECT_EQ(tier->stats().disk_blocks, 4);
}

TEST_F(TierTest, AnUnreadableDisk) {
  SetHostBlocks(4);
  SetDiskBlocks(100);
  const auto tier = Create();
  for (uint64_t n = 0; n < 12; ++n) {
    Put(*tier, n);
    tier->Flush();
  }
  ops_.read_error = EIO;
  // One of those in host memory has made way for what was to be read.
  EXPECT_EQ(CountGets(*tier, 12), 3);
  tier->WaitIdle();
  EXPECT_EQ(tier->stats().damaged, 9u);
  EXPECT_EQ(FolderBytes(), 3 * kRecordCost);
}

TEST_F(TierTest, AFullDisk) {
  SetHostBlocks(4);
  SetDiskBlocks(100);
  const auto tier = Create();
  ops_.space = 3000;
  for (uint64_t n = 0; n < 20; ++n) {
    ASSERT_TRUE(Put(*tier, n));
    tier->WaitIdle();
  }
  KvTierStats stats = tier->stats();
  EXPECT_GT(stats.write_failures, 10u);
  EXPECT_EQ(stats.disk_blocks, 2);
  EXPECT_EQ(FolderBytes(), 2 * kRecordCost);  // nothing half-written
  // One has made way for those two.
  EXPECT_EQ(CountGets(*tier, 20), 5);
  stats = tier->stats();
  // Room again: it goes on.
  ops_.space = INT64_MAX;
  for (uint64_t n = 20; n < 40; ++n) {
    ASSERT_TRUE(Put(*tier, n));
    tier->WaitIdle();
  }
  EXPECT_EQ(tier->stats().write_failures, stats.write_failures);
  EXPECT_GE(CountGets(*tier, 40), 20);
}

TEST_F(TierTest, FilesThatCannotBeRemovedKeepTheirRoom) {
  SetHostBlocks(4);
  SetDiskBlocks(5);
  class StickyFileOps : public FaultyFileOps {
   public:
    int UnlinkAt(int, const char*) const override {
      errno = EACCES;
      return -1;
    }
  } sticky;
  options_.file_ops = &sticky;
  const auto tier = Create();
  for (uint64_t n = 0; n < 20; ++n) {
    Put(*tier, n);
    tier->Flush();
    ASSERT_LE(FolderBytes(), options_.disk_bytes);
  }
  EXPECT_EQ(tier->stats().disk_bytes, 5 * kRecordCost);
  EXPECT_EQ(CountGets(*tier, 20), 4);
}

TEST_F(TierTest, AFolderInUseLeavesTheTierWithoutDisk) {
  SetHostBlocks(4);
  SetDiskBlocks(10);
  const auto first = Create();
  {
    const auto second = KvTier::Create(options_);
    ASSERT_TRUE(second.ok()) << second.status();
    EXPECT_THAT((*second)->disk_note(), HasSubstr("another process"));
    for (uint64_t n = 0; n < 8; ++n) EXPECT_TRUE(Put(**second, n));
    (*second)->Flush();
    EXPECT_EQ(CountGets(**second, 8), 4);
  }
  EXPECT_EQ(FolderBytes(), 0u);
  for (const auto& [folder, bytes, what] :
       std::vector<std::tuple<std::string, uint64_t, const char*>>{
           {folder_.File("no/kv"), 1 << 20, "No such file"},
           {folder_.File("kv2"), kRecordCost - 1, "one block takes 4096"},
           {folder_.File("kv2"), 0, "disk_bytes is 0"}}) {
    options_.disk_folder = folder;
    options_.disk_bytes = bytes;
    const auto tier = KvTier::Create(options_);
    ASSERT_TRUE(tier.ok());
    EXPECT_THAT((*tier)->disk_note(), HasSubstr(what));
    EXPECT_TRUE(Put(**tier, 1) && Get(**tier, 1));
  }
}

TEST_F(TierTest, NobodyWaitsForAWrite) {
  SetHostBlocks(8);
  SetDiskBlocks(100);
  const auto tier = Create();
  ops_.closed = true;
  for (uint64_t n = 0; n < 8; ++n) ASSERT_TRUE(Put(*tier, n));
  ops_.waiting.wait(false);  // the I/O thread is in a write now
  for (uint64_t n = 8; n < 100; ++n) {
    ASSERT_TRUE(Put(*tier, n));
    ASSERT_TRUE(tier->Has(Key(n)));
    ASSERT_TRUE(Get(*tier, n));
  }
  EXPECT_GT(tier->stats().lost, 80u);
  tier->Prefetch({Key(0)});
  // Dropped while it is being written: it must not be found on disk later.
  tier->Drop(Key(0));
  ops_.closed = false;
  ops_.closed.notify_all();
  tier->Flush();
  EXPECT_FALSE(tier->Has(Key(0)));
  EXPECT_EQ(PathOf(0), "");
  EXPECT_EQ(FolderBytes(), tier->stats().disk_bytes);
}

TEST_F(TierTest, DroppedBlocksAreGoneAfterARestart) {
  SetHostBlocks(4);
  SetDiskBlocks(10);
  {
    const auto tier = Create();
    for (uint64_t n = 0; n < 4; ++n) Put(*tier, n);
    tier->Flush();
    tier->Drop(Key(1));
    EXPECT_FALSE(tier->Has(Key(1)));
  }
  EXPECT_EQ(PathOf(1), "");
  EXPECT_EQ(CountGets(*Create(), 4), 3);
}

// Any mix of calls from several threads, with calls of the system failing: what
// is found is right, and limits hold.
TEST_F(TierTest, Stress) {
  SetHostBlocks(6);
  SetDiskBlocks(12);
  const auto tier = Create();
  constexpr int kThreads = 4;
  constexpr int kCalls = 4000;
  std::atomic<int> running{kThreads};
  std::latch start(kThreads + 1);
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      std::mt19937 random(static_cast<uint32_t>(thread));
      start.arrive_and_wait();
      for (int call = 0; call < kCalls; ++call) {
        const uint64_t n = random() % 30;
        switch (random() % 8) {
          case 0:
          case 1:
          case 2:
            Put(*tier, n);
            break;
          case 3:
            tier->Has(Key(n));
            break;
          case 4:
            tier->Prefetch({Key(n), Key(n + 1), Key(n + 2)});
            break;
          case 5:
            if (random() % 8 == 0) tier->Drop(Key(n));
            break;
          default:
            Get(*tier, n);
        }
        if (call % 500 == 499) tier->Flush();
      }
      --running;
    });
  }
  start.arrive_and_wait();
  std::mt19937 random(99);
  while (running > 0) {
    ops_.error = random() % 2 == 0 ? EIO : ENOSPC;
    ops_.fail_at = ops_.num_calls + static_cast<int64_t>(random() % 40);
    EXPECT_LE(FolderBytes(), options_.disk_bytes);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  for (std::thread& thread : threads) thread.join();
  ops_.fail_at = -1;
  tier->Flush();
  const KvTierStats stats = tier->stats();
  EXPECT_LE(stats.disk_bytes, options_.disk_bytes);
  EXPECT_LE(FolderBytes(), options_.disk_bytes);
  EXPECT_GT(stats.host_hits, 0u);
  EXPECT_GT(stats.disk_hits, 0u);
  EXPECT_GT(stats.promotions, 0u);
  EXPECT_LE(stats.host_blocks, 6);
}

}  // namespace
}  // namespace inlay
