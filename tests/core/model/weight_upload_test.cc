#include "core/model/weight_upload.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "memory/device/thread_pool.h"
#include "tests/support/cuda_test_device.h"

namespace inlay {
namespace {

// Tensors of all sizes around the staging memory's, in one sequence.
void CheckUpload(Device& device) {
  constexpr size_t kStaging = 1024;
  const auto upload = WeightUpload::Create(&device, kStaging);
  ASSERT_TRUE(upload.ok()) << upload.status();
  std::mt19937 random(1);
  std::vector<std::vector<std::byte>> sources;
  std::vector<Buffer> there;
  for (const size_t bytes :
       {1u, 3u, 64u, 900u, 1024u, 1025u, 5000u, 7u, 2048u, 1023u, 10000u}) {
    const size_t unit = bytes % 3 == 0 ? 18 : 8;
    std::vector<std::byte>& source = sources.emplace_back(bytes);
    for (std::byte& byte : source) byte = static_cast<std::byte>(random());
    there.push_back(*device.Allocate(bytes, MemoryClass::kWeights));
    size_t next = 0;
    ASSERT_TRUE((*upload)
                    ->Put(there.back().data(), bytes, unit,
                          [&](size_t offset, absl::Span<std::byte> piece) {
                            EXPECT_EQ(offset, next);
                            EXPECT_EQ(offset % unit, 0u);
                            next += piece.size();
                            std::memcpy(piece.data(), source.data() + offset,
                                        piece.size());
                            return absl::OkStatus();
                          })
                    .ok());
    EXPECT_EQ(next, bytes);
  }
  ASSERT_TRUE((*upload)->Finish().ok());
  const auto stream = device.CreateStream();
  for (size_t i = 0; i < sources.size(); ++i) {
    std::vector<std::byte> back(sources[i].size());
    ASSERT_TRUE(
        device.Copy(back.data(), there[i].data(), back.size(), **stream).ok());
    ASSERT_TRUE((*stream)->Synchronize().ok());
    EXPECT_EQ(back, sources[i]);
  }
}

TEST(WeightUploadTest, BringsEveryByte) {
  const auto device = *CreateCpuDevice(1, 0);
  CheckUpload(*device);
}

TEST(WeightUploadTest, BringsEveryByteToAGpu) {
  INLAY_CUDA_DEVICE_OR_SKIP(device, 0);
  CheckUpload(*device);
}

TEST(WeightUploadTest, AnErrorEndsIt) {
  const auto device = *CreateCpuDevice(1, 0);
  const auto upload = *WeightUpload::Create(device.get(), 64);
  std::vector<std::byte> to(1000);
  int calls = 0;
  const absl::Status status =
      upload->Put(to.data(), to.size(), 8, [&](size_t, absl::Span<std::byte>) {
        return ++calls == 3 ? absl::CancelledError("enough") : absl::OkStatus();
      });
  EXPECT_TRUE(absl::IsCancelled(status));
  EXPECT_EQ(calls, 3);
  EXPECT_TRUE(upload->Finish().ok());
}

// Not judged: other users of the link would fail it. The aim is 80 % of what
// copies of pinned memory reach.
TEST(WeightUploadTest, ShareOfTheLink) {
  INLAY_CUDA_DEVICE_OR_SKIP(device, 0);
  constexpr size_t kBytes = size_t{1} << 30;
  using Clock = std::chrono::steady_clock;
  const auto seconds = [](Clock::time_point begin) {
    return std::chrono::duration<double>(Clock::now() - begin).count();
  };
  const Buffer there = *device->Allocate(kBytes, MemoryClass::kWeights);
  const auto pool = *ThreadPool::Create(device->info().num_threads);
  std::vector<std::byte> source(kBytes, std::byte{1});
  const auto upload = *WeightUpload::Create(device.get());
  double uploaded = 0, copied = 0;
  for (int round = 0; round < 2; ++round) {  // the first touches the memory
    const auto begin = Clock::now();
    ASSERT_TRUE(upload
                    ->Put(there.data(), kBytes, 8,
                          [&](size_t offset, absl::Span<std::byte> piece) {
                            pool->ParallelFor(
                                static_cast<int64_t>(piece.size()), 1 << 20,
                                [&](int64_t first, int64_t last) {
                                  std::memcpy(
                                      piece.data() + first,
                                      source.data() + offset +
                                          static_cast<size_t>(first),
                                      static_cast<size_t>(last - first));
                                });
                            return absl::OkStatus();
                          })
                    .ok());
    ASSERT_TRUE(upload->Finish().ok());
    uploaded = seconds(begin);
  }
  const Buffer pinned = *device->AllocateStaging(kBytes / 4);
  const auto stream = *device->CreateStream();
  for (int round = 0; round < 2; ++round) {
    const auto begin = Clock::now();
    for (size_t i = 0; i < 4; ++i) {
      ASSERT_TRUE(device
                      ->Copy(there.data() + i * pinned.bytes(), pinned.data(),
                             pinned.bytes(), *stream)
                      .ok());
    }
    ASSERT_TRUE(stream->Synchronize().ok());
    copied = seconds(begin);
  }
  std::printf("upload %.1f GB/s, pinned copies %.1f GB/s: %.0f %%\n",
              1e-9 * kBytes / uploaded, 1e-9 * kBytes / copied,
              100 * copied / uploaded);
}

}  // namespace
}  // namespace inlay
