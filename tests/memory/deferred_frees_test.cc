#include "memory/device/deferred_frees.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "tests/support/lease_allocator.h"

namespace inlay {
namespace {

using ::inlay::testing::LeaseAllocator;

constexpr size_t kFreesMiB = size_t{1} << 20;

// Pages of [data, data + bytes) that have memory behind them.
size_t PagesHeld(const std::byte* data, size_t bytes) {
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGE_SIZE));
  const uintptr_t begin = reinterpret_cast<uintptr_t>(data) / page * page;
  const size_t count =
      (reinterpret_cast<uintptr_t>(data) + bytes - begin) / page;
  std::vector<unsigned char> held(count);
  if (mincore(reinterpret_cast<void*>(begin), count * page, held.data()) != 0)
    return 0;
  size_t sum = 0;
  for (const unsigned char page_held : held) sum += page_held & 1;
  return sum;
}

class DeferredFreesTest : public ::testing::Test {
 protected:
  void Create(size_t budget, const HostAllocator* allocator = nullptr) {
    device_ = *CreateCpuDevice(1, budget, allocator);
    frees_ = DeferredFrees::Of(device_.get());
    ASSERT_NE(frees_, nullptr);
  }
  Buffer Filled(size_t bytes, MemoryClass memory_class = MemoryClass::kKv) {
    auto buffer = device_->Allocate(bytes, memory_class);
    EXPECT_TRUE(buffer.ok()) << buffer.status();
    if (!buffer.ok()) return Buffer();
    std::memset(buffer->data(), 1, bytes);
    return *std::move(buffer);
  }
  size_t Used() const { return device_->memory_use().total_bytes; }

  std::unique_ptr<Device> device_;
  DeferredFrees* frees_ = nullptr;
};

TEST_F(DeferredFreesTest, GoAPieceAtATimeAndStayAccounted) {
  for (const MemoryClass memory_class :
       {MemoryClass::kWeights, MemoryClass::kKv}) {
    Create(0);
    const size_t bytes = 40 * kFreesMiB + 12345;
    Buffer buffer = Filled(bytes, memory_class);
    const std::byte* const data = buffer.data();
    {
      const DeferredFrees::Scope scope(frees_);
      buffer = Buffer();
    }
    EXPECT_EQ(frees_->bytes(), bytes);
    EXPECT_EQ(Used(), bytes);
    size_t held = PagesHeld(data, bytes);
    EXPECT_GE(held, bytes / sysconf(_SC_PAGE_SIZE) - 1);
    int pieces = 0;
    while (frees_->bytes() > 0) {
      ASSERT_TRUE(frees_->FreeSome());
      if (++pieces == 6) break;
      EXPECT_EQ(Used(), bytes) << "not all of it is free";
      const size_t now = PagesHeld(data, bytes);
      EXPECT_LT(now, held) << pieces;
      EXPECT_GE(now + DeferredFrees::kPieceBytes / sysconf(_SC_PAGE_SIZE),
                held);
      held = now;
    }
    EXPECT_EQ(pieces, 6);
    EXPECT_EQ(frees_->bytes(), 0u);
    EXPECT_EQ(Used(), 0u);
    EXPECT_FALSE(frees_->FreeSome());
  }
}

TEST_F(DeferredFreesTest, OutsideOfAScopeAndSmallOnesAtOnce) {
  Create(0);
  Filled(40 * kFreesMiB);
  EXPECT_EQ(Used(), 0u);
  const DeferredFrees::Scope scope(frees_);
  Filled(1000);
  EXPECT_EQ(Used(), 0u);
  EXPECT_EQ(frees_->bytes(), 0u);
  EXPECT_EQ(DeferredFrees::Of(nullptr), nullptr);
  const DeferredFrees::Scope nothing(nullptr);
}

// Before an allocation is refused, for the budget's or the system's sake.
TEST_F(DeferredFreesTest, MakeRoomForAllocations) {
  Create(100 * kFreesMiB);
  {
    const DeferredFrees::Scope scope(frees_);
    Filled(40 * kFreesMiB);
    Filled(40 * kFreesMiB);
  }
  EXPECT_EQ(Used(), 80 * kFreesMiB);
  // As many as it takes.
  const Buffer first = Filled(50 * kFreesMiB);
  EXPECT_EQ(frees_->bytes(), 40 * kFreesMiB);
  const Buffer second = Filled(50 * kFreesMiB);
  EXPECT_EQ(frees_->bytes(), 0u);
  EXPECT_EQ(device_->memory_use().peak_bytes, 100 * kFreesMiB);
  EXPECT_TRUE(absl::IsResourceExhausted(
      device_->Allocate(1, MemoryClass::kKv).status()));
}

// A host's allocator gets back what it gave, whole; all of it when the device
// ends.
TEST_F(DeferredFreesTest, OfAHostsAllocator) {
  LeaseAllocator allocator;
  const HostAllocator hooks = allocator.hooks();
  Create(0, &hooks);
  {
    const DeferredFrees::Scope scope(frees_);
    Filled(40 * kFreesMiB);
    Filled(40 * kFreesMiB);
    Filled(40 * kFreesMiB);
  }
  EXPECT_EQ(allocator.num_live(), 3);
  EXPECT_TRUE(frees_->FreeSome());
  EXPECT_EQ(allocator.num_live(), 2);
  EXPECT_EQ(allocator.live(), Used());
  // The host has none either, but for what is still to be freed.
  allocator.FailFrom(1, 1);
  const Buffer buffer = Filled(kFreesMiB);
  EXPECT_EQ(allocator.num_live(), 2);
  EXPECT_EQ(frees_->bytes(), 40 * kFreesMiB);
}

TEST_F(DeferredFreesTest, TheDeviceFreesTheRest) {
  LeaseAllocator allocator;
  const HostAllocator hooks = allocator.hooks();
  Create(0, &hooks);
  {
    const DeferredFrees::Scope scope(frees_);
    Filled(40 * kFreesMiB);
    Filled(kFreesMiB);
  }
  EXPECT_EQ(allocator.num_live(), 2);
  device_.reset();
  EXPECT_EQ(allocator.num_live(), 0);
}

}  // namespace
}  // namespace inlay
