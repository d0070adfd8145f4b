// ModelLoadOptions::expert_device_bytes on a CPU, where experts are in host
// memory as it is; and matrices brought into host memory for another device.
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "core/model/layers/expert_linear.h"
#include "core/model/weights.h"
#include "kernels/moe/expert_fetch.h"
#include "tests/core/model/golden_models.h"
#include "tests/support/memory_weights.h"

namespace inlay {
namespace {

TEST(ExpertMemoryTest, HasNoEffectOnCpu) {
  const auto cpu = *CreateCpuDevice(2, 0);
  const ModelFiles files = Open("qwen3_moe", "config.json");
  const std::vector<int32_t> prompt = {5, 9, 2, 70, 31};
  std::vector<ModelHarness::Logits> both;
  for (const uint64_t bytes : {uint64_t{0}, uint64_t{1}}) {
    ModelLoadOptions options;
    options.expert_device_bytes = bytes;
    const auto model = LoadModel(files, *cpu, options);
    ASSERT_TRUE(model.ok()) << model.status();
    const ExpertMemory& experts = (*model)->info().experts;
    EXPECT_EQ(experts.slots, 0);
    EXPECT_EQ(experts.host_bytes, 0u);
    EXPECT_EQ(experts.device_bytes, experts.bytes);
    EXPECT_GT(experts.bytes, 0u);
    EXPECT_LT(experts.bytes, (*model)->info().weight_bytes);
    EXPECT_GT(experts.slot_bytes, 0u);
    EXPECT_GT(experts.least_slots, 0);
    const auto stream = *cpu->CreateStream();
    EXPECT_EQ((*model)->ReadExpertCounts(*stream)->steps, 0);
    ModelHarness harness(**model, *cpu, 8);
    both.push_back(*harness.Run(harness.AddSequence(8), prompt, 8));
  }
  EXPECT_TRUE(both[0] == both[1]);
}

TEST(ExpertMemoryTest, ModelWithoutExpertsLoads) {
  const auto cpu = *CreateCpuDevice(2, 0);
  ModelLoadOptions options;
  options.expert_device_bytes = 1;
  const auto model = LoadModel(Open("llama2", "config.json"), *cpu, options);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ((*model)->info().experts.bytes, 0u);
}

// A CPU that says it is another device: what is in its memory is copied there.
class Remote final : public Device {
 public:
  Remote() : cpu_(*CreateCpuDevice(2, 0)), info_(cpu_->info()) {
    info_.kind = DeviceKind::kCuda;
  }
  const DeviceInfo& info() const override { return info_; }
  absl::StatusOr<Buffer> Allocate(size_t bytes, MemoryClass what) override {
    return cpu_->Allocate(bytes, what);
  }
  absl::StatusOr<Buffer> AllocateStaging(size_t bytes) override {
    if (bytes > most_staging) return absl::ResourceExhaustedError("no more");
    return cpu_->Allocate(bytes, MemoryClass::kWorkspace);
  }
  absl::StatusOr<std::unique_ptr<Stream>> CreateStream() override {
    return cpu_->CreateStream();
  }
  absl::Status Copy(void* to, const void* from, size_t bytes,
                    Stream& stream) override {
    return cpu_->Copy(to, from, bytes, stream);
  }
  MemoryUse memory_use() const override { return cpu_->memory_use(); }
  void set_budget(size_t bytes) override { cpu_->set_budget(bytes); }

  size_t most_staging = size_t{1} << 30;

 private:
  void Free(std::byte*, size_t, MemoryClass) override {}
  std::unique_ptr<Device> cpu_;
  DeviceInfo info_;
};

class InHostMemoryTest : public ::testing::Test {
 protected:
  // Two matrices of two parts each, 24 and 12 bytes, at multiples of 256.
  InHostMemoryTest() {
    source_ = std::make_shared<MemoryWeights>(true);
    for (int i = 0; i < 4; ++i) {
      std::vector<float> values;
      for (int j = 0; j < (i % 2 == 0 ? 6 : 3); ++j) {
        values.push_back(static_cast<float>(100 * i + j));
      }
      source_->Add(std::string(1, static_cast<char>('a' + i)), DType::kF32,
                   {i % 2 == 0 ? 2 : 1, 3}, values.data());
    }
    files_.weights = source_;
  }

  static constexpr size_t kPitch = 256;
  const std::vector<std::vector<WeightLoader::Rows>> kMatrices = {
      {{"a", 2}, {"b", 1}}, {{"c", 2}, {"d", 1}}};
  Remote device_;
  std::shared_ptr<MemoryWeights> source_;
  ModelFiles files_;
};

std::vector<float> Floats(const std::byte* at) {
  const auto* from = reinterpret_cast<const float*>(at);
  return {from, from + 9};
}

const std::vector<float> kFirst = {0, 1, 2, 3, 4, 5, 100, 101, 102};
const std::vector<float> kSecond = {200, 201, 202, 203, 204,
                                    205, 300, 301, 302};

TEST_F(InHostMemoryTest, PartsOneAfterAnother) {
  WeightLoader loader(files_, device_, WeightLoader::Mode::kLoad);
  const auto base = loader.InHostMemory(kMatrices, 3, nullptr, kPitch);
  ASSERT_TRUE(base.ok()) << base.status();
  EXPECT_EQ(Floats(*base), kFirst);
  EXPECT_EQ(Floats(*base + kPitch), kSecond);
  EXPECT_EQ(loader.num_parameters(), 18u);
  EXPECT_EQ(loader.bytes(), 72u);
  EXPECT_EQ(loader.TakeStorage()->buffers.size(), 1u);
}

// As a kernel packs them, here or on the device: a byte is added to each.
TEST_F(InHostMemoryTest, Packed) {
  for (const bool here : {true, false}) {
    SCOPED_TRACE(here);
    WeightLoader loader(files_, device_, WeightLoader::Mode::kLoad);
    WeightLoader::Packing packing;
    packing.bytes = 36;
    const auto pack = [](const std::byte* rows, int64_t first, int64_t count,
                         std::byte* packed) {
      for (int64_t i = 0; i < 12 * count; ++i) {
        packed[12 * first + i] =
            static_cast<std::byte>(static_cast<unsigned>(rows[i]) + 1);
      }
    };
    packing.pack = pack;
    if (!here) {
      packing.pack_on_device = [pack](const std::byte* rows, int64_t first,
                                      int64_t count, std::byte* packed,
                                      Stream&) {
        pack(rows, first, count, packed);
        return absl::OkStatus();
      };
    }
    const auto base = loader.InHostMemory(kMatrices, 3, &packing, kPitch);
    ASSERT_TRUE(base.ok()) << base.status();
    for (size_t m = 0; m < 2; ++m) {
      std::vector<float> want = m == 0 ? kFirst : kSecond;
      auto* const bytes = reinterpret_cast<unsigned char*>(want.data());
      for (size_t i = 0; i < 36; ++i) ++bytes[i];
      EXPECT_EQ(std::memcmp(*base + m * kPitch, bytes, 36), 0) << m;
    }
    EXPECT_EQ(loader.bytes(), 72u);
    EXPECT_TRUE(loader.TakeStorage().ok());
  }
}

TEST_F(InHostMemoryTest, PlansAndRefuses) {
  WeightLoader plan(files_, device_, WeightLoader::Mode::kPlan);
  const auto base = plan.InHostMemory(kMatrices, 3, nullptr, kPitch);
  ASSERT_TRUE(base.ok()) << base.status();
  EXPECT_EQ(*base, nullptr);
  EXPECT_EQ(plan.bytes(), 72u);
  EXPECT_EQ(plan.planned().size(), 4u);
  EXPECT_EQ(*plan.Room(100), nullptr);

  device_.most_staging = 2 * kPitch - 1;
  WeightLoader loader(files_, device_, WeightLoader::Mode::kLoad);
  EXPECT_EQ(loader.InHostMemory(kMatrices, 3, nullptr, kPitch).status().code(),
            absl::StatusCode::kResourceExhausted);
  WeightLoader wrong(files_, device_, WeightLoader::Mode::kLoad);
  EXPECT_EQ(
      wrong.InHostMemory({{{"e", 2}}}, 3, nullptr, kPitch).status().code(),
      absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace inlay
