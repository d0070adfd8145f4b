#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include "memory/device/device.h"
#include "memory/kv/storage.h"
#include "tests/support/cuda_test_device.h"

namespace inlay {
namespace {

std::vector<uint8_t> Pattern(size_t bytes, int seed) {
  std::vector<uint8_t> pattern(bytes);
  std::iota(pattern.begin(), pattern.end(), static_cast<uint8_t>(seed));
  return pattern;
}

TEST(CudaDeviceTest, DescribesTheGpu) {
  INLAY_CUDA_DEVICE_OR_SKIP(device, 0);
  const DeviceInfo& info = device->info();
  EXPECT_EQ(info.kind, DeviceKind::kCuda);
  EXPECT_FALSE(info.name.empty());
  EXPECT_GE(info.sm, 80);
  EXPECT_GT(info.num_sms, 0);
  EXPECT_GT(info.memory_bytes, size_t{1} << 30);
  EXPECT_FALSE(device->host_addressable());
  EXPECT_TRUE(device->status().ok());
  for (const int ordinal : {-1, 1000}) {
    EXPECT_EQ(CreateCudaDevice(ordinal, 0).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
}

TEST(CudaDeviceTest, AccountsByClassWithinTheBudget) {
  INLAY_CUDA_DEVICE_OR_SKIP(device, 1000);
  {
    const Buffer weights = *device->Allocate(600, MemoryClass::kWeights);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(weights.data()) % Device::kAlignment,
              0u);
    const Buffer kv = *device->Allocate(400, MemoryClass::kKv);
    const Buffer staging = *device->AllocateStaging(5000);
    std::memset(staging.data(), 1, staging.bytes());
    const MemoryUse use = device->memory_use();
    EXPECT_EQ(use.total_bytes, 1000u);
    EXPECT_EQ(use.by_class[0], 600u);
    EXPECT_EQ(use.by_class[1], 400u);
    EXPECT_EQ(device->Allocate(1, MemoryClass::kKv).status().message(),
              "cuda:0: 1 bytes asked for, 1000 in use, budget 1000");
  }
  EXPECT_EQ(device->memory_use().total_bytes, 0u);
  EXPECT_EQ(device->memory_use().peak_bytes, 1000u);
  EXPECT_TRUE(device->Allocate(0, MemoryClass::kKv)->empty());
}

TEST(CudaDeviceTest, MoreThanThereIsIsAnError) {
  INLAY_CUDA_DEVICE_OR_SKIP(device, 0);
  for (const size_t bytes :
       {std::numeric_limits<size_t>::max(), device->info().memory_bytes + 1,
        device->info().memory_bytes}) {  // the last is the driver's to refuse
    EXPECT_EQ(device->Allocate(bytes, MemoryClass::kKv).status().code(),
              absl::StatusCode::kResourceExhausted);
  }
  EXPECT_EQ(device->memory_use().total_bytes, 0u);
  EXPECT_TRUE(device->status().ok());
  EXPECT_TRUE(device->Allocate(64, MemoryClass::kKv).ok());
}

TEST(CudaDeviceTest, CopiesInOrder) {
  INLAY_CUDA_DEVICE_OR_SKIP(device, 0);
  constexpr size_t kBytes = (3 << 20) + 5;
  const auto first = device->CreateStream();
  const auto second = device->CreateStream();
  ASSERT_TRUE(first.ok() && second.ok());
  const Buffer there = *device->Allocate(kBytes, MemoryClass::kWorkspace);
  const Buffer copy = *device->Allocate(kBytes, MemoryClass::kWorkspace);
  const Buffer staging = *device->AllocateStaging(kBytes);
  const auto event = device->CreateEvent();
  ASSERT_TRUE(event.ok());
  EXPECT_TRUE((*event)->Synchronize().ok());  // never recorded
  const std::vector<uint8_t> pattern = Pattern(kBytes, 3);
  std::memcpy(staging.data(), pattern.data(), kBytes);
  ASSERT_TRUE(device->Copy(there.data(), staging.data(), kBytes, **first).ok());
  ASSERT_TRUE((*first)->Record(**event).ok());
  ASSERT_TRUE((*second)->Wait(**event).ok());
  ASSERT_TRUE(device->Copy(copy.data(), there.data(), kBytes, **second).ok());
  std::vector<uint8_t> back(kBytes);
  ASSERT_TRUE(device->Copy(back.data(), copy.data(), kBytes, **second).ok());
  ASSERT_TRUE((*second)->Synchronize().ok());
  EXPECT_TRUE((*event)->Synchronize().ok());
  EXPECT_EQ(back, pattern);
}

TEST(CudaDeviceTest, RangesGrowAndShrink) {
  INLAY_CUDA_DEVICE_OR_SKIP(device, 0);
  const size_t piece = device->range_granularity();
  ASSERT_GT(piece, 0u);
  device->set_budget(3 * piece);
  auto range = device->ReserveRange(100 * piece, MemoryClass::kKv);
  ASSERT_TRUE(range.ok()) << range.status();
  EXPECT_EQ(device->memory_use().total_bytes, 0u);
  const auto stream = device->CreateStream();
  // Not in order, with a gap; then the gap.
  ASSERT_TRUE((*range)->Map(97 * piece, piece).ok());
  ASSERT_TRUE((*range)->Map(0, 2 * piece).ok());
  EXPECT_EQ(device->memory_use().by_class[1], 3 * piece);
  EXPECT_EQ((*range)->Map(2 * piece, piece).code(),
            absl::StatusCode::kResourceExhausted);
  (*range)->Unmap(97 * piece);
  ASSERT_TRUE((*range)->Map(2 * piece, piece).ok());
  // One run of bytes over both pieces.
  const std::vector<uint8_t> pattern = Pattern(3 * piece, 9);
  std::vector<uint8_t> back(3 * piece);
  ASSERT_TRUE(
      device->Copy((*range)->base(), pattern.data(), pattern.size(), **stream)
          .ok());
  ASSERT_TRUE(
      device->Copy(back.data(), (*range)->base(), back.size(), **stream).ok());
  ASSERT_TRUE((*stream)->Synchronize().ok());
  EXPECT_EQ(back, pattern);
  *range = nullptr;
  EXPECT_EQ(device->memory_use().total_bytes, 0u);
  EXPECT_EQ(device->memory_use().peak_bytes, 3 * piece);
}

TEST(CudaDeviceTest, RangesRefuseWhatTheGpuHasNot) {
  INLAY_CUDA_DEVICE_OR_SKIP(device, 0);
  const size_t piece = device->range_granularity();
  const size_t most = device->info().memory_bytes / piece * piece;
  auto range = device->ReserveRange(2 * most, MemoryClass::kKv);
  ASSERT_TRUE(range.ok()) << range.status();
  EXPECT_EQ((*range)->Map(0, most).code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(device->memory_use().total_bytes, 0u);
  EXPECT_TRUE((*range)->Map(0, piece).ok());
}

// Blocks of any size lie side by side over extents that the granularity allows.
TEST(CudaDeviceTest, KvExtentsArePiecesOfOneRange) {
  INLAY_CUDA_DEVICE_OR_SKIP(device, 0);
  constexpr size_t kBlockBytes = 3 << 14;
  KvStorage storage(device.get(), kBlockBytes, 1 << 20);
  EXPECT_EQ(storage.extent_bytes() % device->range_granularity(), 0u);
  for (int i = 0; i < 3; ++i) ASSERT_EQ(*storage.AddExtent(), i);
  EXPECT_EQ(device->memory_use().by_class[1], 3 * storage.extent_bytes());
  EXPECT_EQ(storage.base().extents, nullptr);
  const int32_t last = 3 * storage.blocks_per_extent() - 1;
  EXPECT_EQ(storage.Block(last), storage.base().base + last * kBlockBytes);
  storage.DropExtent(1);
  EXPECT_EQ(device->memory_use().by_class[1], 2 * storage.extent_bytes());
  device->set_budget(2 * storage.extent_bytes());
  EXPECT_FALSE(storage.AddExtent().ok());
  EXPECT_FALSE(storage.HasExtent(1));
  EXPECT_EQ(storage.end_extent(), 3);
  device->set_budget(0);
  EXPECT_EQ(*storage.AddExtent(), 1);
  const auto stream = device->CreateStream();
  const std::vector<uint8_t> pattern = Pattern(3 * storage.extent_bytes(), 1);
  std::vector<uint8_t> back(pattern.size());
  for (int32_t id = 0; id <= last; ++id) {
    ASSERT_TRUE(device
                    ->Copy(storage.Block(id), pattern.data() + id * kBlockBytes,
                           kBlockBytes, **stream)
                    .ok());
  }
  ASSERT_TRUE(
      device->Copy(back.data(), storage.base().base, back.size(), **stream)
          .ok());
  ASSERT_TRUE((*stream)->Synchronize().ok());
  EXPECT_EQ(back, pattern);
}

TEST(CpuDeviceTest, HasNoRanges) {
  const auto device = *CreateCpuDevice(1, 0);
  EXPECT_EQ(device->range_granularity(), 0u);
  EXPECT_EQ(device->ReserveRange(1 << 21, MemoryClass::kKv).status().code(),
            absl::StatusCode::kUnimplemented);
  const auto stream = device->CreateStream();
  const auto event = device->CreateEvent();
  EXPECT_TRUE((*stream)->Record(**event).ok());
  EXPECT_TRUE((*stream)->Wait(**event).ok());
  EXPECT_TRUE((*event)->Synchronize().ok());
  EXPECT_EQ(device->AllocateStaging(64)->bytes(), 64u);
}

}  // namespace
}  // namespace inlay
