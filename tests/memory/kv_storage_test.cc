#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <set>
#include <vector>

#include "memory/device/device.h"
#include "memory/kv/storage.h"
#include "tests/support/lease_allocator.h"

namespace inlay {
namespace {

using ::inlay::testing::LeaseAllocator;

std::unique_ptr<Device> CpuOn(LeaseAllocator& allocator, size_t budget = 0) {
  const HostAllocator hooks = allocator.hooks();
  auto device = CreateCpuDevice(1, budget, &hooks);
  EXPECT_TRUE(device.ok()) << device.status();
  return *std::move(device);
}

TEST(KvStorageTest, ExtentsArePowersOfTwoOfBlocksWithinTheTarget) {
  LeaseAllocator allocator;
  const auto device = CpuOn(allocator);
  struct {
    size_t block_bytes, target;
    int32_t blocks;
  } const cases[] = {
      {100, 0, 1},
      {100, 99, 1},
      {100, 100, 1},
      {100, 199, 1},
      {100, 200, 2},
      {100, 399, 2},
      {100, 400, 4},
      {100, 1000, 8},
      {1, 3, 2},
      {1, 1, 1},
      {1, size_t{1} << 20, 1 << 20},
      // However large the target, an extent's blocks can be counted.
      {1, SIZE_MAX, 1 << 20}};
  for (const auto& c : cases) {
    const KvStorage storage(device.get(), c.block_bytes, c.target);
    EXPECT_EQ(storage.blocks_per_extent(), c.blocks)
        << c.block_bytes << " " << c.target;
    EXPECT_EQ(storage.extent_bytes(),
              c.block_bytes * static_cast<size_t>(c.blocks));
    EXPECT_EQ(storage.num_extents(), 0);
    EXPECT_EQ(storage.end_extent(), 0);
  }
  EXPECT_EQ(allocator.num_allocations(), 0);
}

TEST(KvStorageTest, BlocksAreApartAndKeepTheirBytes) {
  constexpr size_t kBlockBytes = 48;
  LeaseAllocator allocator;
  {
    const auto device = CpuOn(allocator);
    KvStorage storage(device.get(), kBlockBytes, 4 * kBlockBytes);
    for (int32_t extent = 0; extent < 5; ++extent) {
      ASSERT_EQ(*storage.AddExtent(), extent);
      // Adding moves no block that was there.
      for (int32_t id = 4 * extent; id < 4 * extent + 4; ++id)
        std::memset(storage.Block(id), id + 1, kBlockBytes);
      for (int32_t id = 0; id < 4 * extent + 4; ++id) {
        for (size_t i = 0; i < kBlockBytes; ++i) {
          ASSERT_EQ(storage.Block(id)[i], static_cast<std::byte>(id + 1));
        }
        EXPECT_EQ(storage.base().Block(id, kBlockBytes), storage.Block(id));
      }
    }
    EXPECT_EQ(allocator.live(), 20 * kBlockBytes);
    EXPECT_EQ(
        device->memory_use().by_class[static_cast<size_t>(MemoryClass::kKv)],
        20 * kBlockBytes);
  }
  EXPECT_EQ(allocator.live(), 0u);
}

TEST(KvStorageTest, DroppedExtentsAreGivenBackAndTheirPlacesUsedAgain) {
  LeaseAllocator allocator;
  const auto device = CpuOn(allocator);
  KvStorage storage(device.get(), 64, 128);
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(storage.AddExtent().ok());
  std::byte* const kept = storage.Block(4);
  storage.DropExtent(1);
  storage.DropExtent(3);
  EXPECT_EQ(storage.num_extents(), 2);
  EXPECT_EQ(storage.end_extent(), 4);
  EXPECT_EQ(allocator.live(), 256u);
  EXPECT_FALSE(storage.HasExtent(1));
  EXPECT_TRUE(storage.HasExtent(2));
  EXPECT_EQ(storage.base().extents[1], nullptr);
  // The lowest absent one first.
  EXPECT_EQ(*storage.AddExtent(), 1);
  EXPECT_EQ(*storage.AddExtent(), 3);
  EXPECT_EQ(*storage.AddExtent(), 4);
  EXPECT_EQ(storage.Block(4), kept);
  for (int32_t extent = 0; extent < 5; ++extent) storage.DropExtent(extent);
  EXPECT_EQ(storage.num_extents(), 0);
  EXPECT_EQ(allocator.live(), 0u);
  EXPECT_EQ(*storage.AddExtent(), 0);
}

TEST(KvStorageTest, WithoutRoomNothingChanges) {
  LeaseAllocator allocator;
  const auto device = CpuOn(allocator, 1000);
  KvStorage storage(device.get(), 200, 400);
  ASSERT_TRUE(storage.AddExtent().ok());
  ASSERT_TRUE(storage.AddExtent().ok());
  std::byte* const block = storage.Block(3);
  EXPECT_EQ(storage.AddExtent().status().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(storage.num_extents(), 2);
  EXPECT_EQ(storage.end_extent(), 2);
  EXPECT_EQ(storage.Block(3), block);
  // The budget may rise and fall.
  device->set_budget(1200);
  allocator.FailFrom(1, 1);
  EXPECT_FALSE(storage.AddExtent().ok());
  EXPECT_EQ(*storage.AddExtent(), 2);
  device->set_budget(100);
  EXPECT_FALSE(storage.AddExtent().ok());
  EXPECT_EQ(storage.num_extents(), 3);
  EXPECT_EQ(allocator.live(), 1200u);
}

}  // namespace
}  // namespace inlay
