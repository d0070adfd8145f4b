#include "core/model/weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "core/model/random_weights.h"
#include "tests/support/memory_weights.h"

namespace inlay {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Every way a source can offer its bytes.
enum class Access { kMapped, kMisaligned, kRead };

class Weights : public ::testing::TestWithParam<Access> {
 protected:
  Weights() : device_(*CreateCpuDevice(2, 0)) {
    source_ = std::make_shared<MemoryWeights>(
        GetParam() != Access::kRead, GetParam() == Access::kMisaligned);
    const float matrix[] = {1, 2, 3, 4, 5, 6};
    source_->Add("model.m", DType::kF32, {2, 3}, matrix);
    const uint16_t bf16[] = {F32ToBF16(1), F32ToBF16(-2), F32ToBF16(0.5f)};
    source_->Add("bare.b", DType::kBF16, {3}, bf16);
    const uint16_t f16[] = {F32ToF16(1), F32ToF16(-2), F32ToF16(0.5f)};
    source_->Add("h", DType::kF16, {3}, f16);
    source_->Add("h23", DType::kBF16, {1, 3}, bf16);
    const int64_t integer = 7;
    source_->Add("i", DType::kI64, {1}, &integer);
    files_.weights = source_;
  }

  WeightLoader Loader(WeightLoader::Mode mode = WeightLoader::Mode::kLoad) {
    return WeightLoader(files_, *device_, mode);
  }

  std::unique_ptr<Device> device_;
  std::shared_ptr<MemoryWeights> source_;
  ModelFiles files_;
};

std::vector<float> Values(const TensorView& view) {
  const float* data = view.row<const float>(0);
  return std::vector<float>(data, data + view.elements());
}

TEST_P(Weights, MatrixIsMappedWhereItCanBe) {
  WeightLoader loader = Loader();
  const auto view = loader.Matrix("model.m", 2, 3);
  ASSERT_TRUE(view.ok()) << view.status();
  EXPECT_THAT(Values(*view), ElementsAre(1, 2, 3, 4, 5, 6));
  const bool mapped = view->data == source_->Mapped(*source_->Find("model.m"));
  EXPECT_EQ(mapped, GetParam() == Access::kMapped);
  EXPECT_EQ(source_->num_left(), 0);
  EXPECT_EQ(loader.TakeStorage()->buffers.size(), mapped ? 0u : 1u);
  EXPECT_EQ(source_->num_left(), 1);
  EXPECT_EQ(loader.num_parameters(), 6u);
  EXPECT_EQ(loader.bytes(), 24u);
}

TEST_P(Weights, Transposed) {
  WeightLoader loader = Loader();
  const auto wide = loader.Transposed("model.m", 3, 2);
  ASSERT_TRUE(wide.ok()) << wide.status();
  EXPECT_THAT(Values(*wide), ElementsAre(1, 4, 2, 5, 3, 6));
  const auto narrow = loader.Transposed("h23", 3, 1);
  ASSERT_TRUE(narrow.ok()) << narrow.status();
  EXPECT_EQ(narrow->row<uint16_t>(1)[0], F32ToBF16(-2));
}

// T5's tables of distances, in blocks too (llama.cpp's converter rounds those
// of 32 n heads).
TEST_P(Weights, RowsTurned) {
  const uint16_t scale = F32ToF16(0.5f);
  std::string blocks;
  for (int row = 0; row < 3; ++row) {
    blocks.append(reinterpret_cast<const char*>(&scale), sizeof(scale));
    for (int i = 0; i < 32; ++i) blocks += static_cast<char>(i - 10 * row);
  }
  source_->Add("blocks", DType::kQ8_0, {3, 32}, blocks.data());
  WeightLoader plan = Loader(WeightLoader::Mode::kPlan);
  WeightLoader loader = Loader();
  for (WeightLoader* one : {&plan, &loader}) {
    const auto plain = one->TurnedRows("model.m", 2, 3, {1, 0, 1});
    const auto wide = one->TurnedRows("blocks", 3, 32, {2, 0});
    ASSERT_TRUE(plain.ok() && wide.ok()) << plain.status() << wide.status();
    EXPECT_EQ(one->num_parameters(), 6u + 96u);
    EXPECT_EQ(one->bytes(), 24u + 102u);
    if (one == &plan) {
      EXPECT_EQ(*wide, nullptr);
      continue;
    }
    const float* p = *plain;
    EXPECT_EQ(std::vector<float>(p, p + 9),
              (std::vector<float>{4, 1, 4, 5, 2, 5, 6, 3, 6}));
    for (int head = 0; head < 32; ++head) {
      EXPECT_EQ((*wide)[2 * head], 0.5f * static_cast<float>(head - 20));
      EXPECT_EQ((*wide)[2 * head + 1], 0.5f * static_cast<float>(head));
    }
  }
  const absl::Status wrong = loader.TurnedRows("blocks", 2, 32, {0}).status();
  EXPECT_EQ(wrong.code(), absl::StatusCode::kInvalidArgument) << wrong;
}

TEST_P(Weights, VectorsAreWidened) {
  WeightLoader loader = Loader();
  for (const char* name : {"bare.b", "h"}) {
    const auto plain = loader.Vector(name, 3, VectorKind::kScale);
    ASSERT_TRUE(plain.ok()) << plain.status();
    EXPECT_THAT(absl::MakeConstSpan(*plain, 3), ElementsAre(1, -2, 0.5f));
    const auto centred = loader.Vector(name, 3, VectorKind::kZeroCentredScale);
    ASSERT_TRUE(centred.ok()) << centred.status();
    EXPECT_THAT(absl::MakeConstSpan(*centred, 3), ElementsAre(2, -1, 1.5f));
  }
}

TEST_P(Weights, PlanningReadsAndAllocatesNothing) {
  WeightLoader loader = Loader(WeightLoader::Mode::kPlan);
  const auto view = loader.Matrix("model.m", 2, 3);
  ASSERT_TRUE(view.ok()) << view.status();
  EXPECT_TRUE(view->empty());
  EXPECT_EQ(view->elements(), 6);
  EXPECT_TRUE(loader.Transposed("model.m", 3, 2)->empty());
  EXPECT_EQ(*loader.Vector("h", 3, VectorKind::kBias), nullptr);
  EXPECT_EQ(loader.bytes(), 24u + 24u + 6u);
  EXPECT_EQ(device_->memory_use().peak_bytes, 0u);
}

TEST_P(Weights, OptionalPrefix) {
  WeightLoader loader = Loader();
  EXPECT_EQ(loader.Vector("model.bare.b", 3, VectorKind::kBias).status().code(),
            absl::StatusCode::kNotFound);
  loader.set_optional_prefix("model.");
  EXPECT_TRUE(loader.Vector("model.bare.b", 3, VectorKind::kBias).ok());
  EXPECT_TRUE(loader.Matrix("model.m", 2, 3).ok());
}

// Against conversion itself, whatever the value.
TEST_P(Weights, ThatFitBf16) {
  std::vector<uint16_t> fitting, others;
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto f16 = static_cast<uint16_t>(bits);
    const float value = F16ToF32(f16);
    if (std::isnan(value)) continue;
    const bool fits = BF16ToF32(F32ToBF16(value)) == value;
    (fits ? fitting : others).push_back(f16);
  }
  const auto rows = static_cast<int64_t>(fitting.size());
  source_->Add("fitting", DType::kF16, {rows, 1}, fitting.data());
  source_->Add("bf16", DType::kBF16, {rows, 1}, fitting.data());
  constexpr size_t kStep = 500;
  for (size_t i = 0; i < others.size(); i += kStep) {
    std::vector<uint16_t> values(fitting.begin(), fitting.begin() + 2000);
    values[i / kStep * 17 % values.size()] = others[i];
    source_->Add("other" + std::to_string(i), DType::kF16, {1, 2000},
                 values.data());
  }
  // So long that only a sample is read: of its last values, too.
  std::vector<uint16_t> sampled(100'000, F32ToF16(1));
  source_->Add("long", DType::kF16, {100'000}, sampled.data());
  sampled.back() = others[0];
  source_->Add("long_other", DType::kF16, {100'000}, sampled.data());
  for (const auto mode :
       {WeightLoader::Mode::kPlan, WeightLoader::Mode::kLoad}) {
    const WeightLoader loader = Loader(mode);
    EXPECT_TRUE(*loader.FitsBf16("fitting"));
    EXPECT_TRUE(*loader.FitsBf16("long"));
    EXPECT_FALSE(*loader.FitsBf16("long_other"));
    EXPECT_FALSE(*loader.FitsBf16("bf16"));
    EXPECT_FALSE(*loader.FitsBf16("missing"));
    for (size_t i = 0; i < others.size(); i += kStep) {
      EXPECT_FALSE(*loader.FitsBf16("other" + std::to_string(i))) << others[i];
    }
  }
}

TEST_P(Weights, ErrorsNameTheTensor) {
  WeightLoader loader = Loader();
  auto status = loader.Matrix("model.x", 2, 3).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr("model.x"));
  status = loader.Matrix("model.m", 3, 2).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("[2, 3]"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("[3, 2]"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("model.m"));
  // [1, 3] is a vector of 3.
  EXPECT_TRUE(loader.Vector("h23", 3, VectorKind::kBias).ok());
  status = loader.Vector("h23", 2, VectorKind::kBias).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  status = loader.Vector("model.m", 3, VectorKind::kBias).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  status = loader.Vector("i", 1, VectorKind::kBias).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(status.message()), HasSubstr("i64"));
}

TEST_P(Weights, BudgetIsRespected) {
  device_->set_budget(64);
  WeightLoader loader = Loader();
  absl::Status status;
  for (int i = 0; i < 3 && status.ok(); ++i) {
    status = loader.Transposed("model.m", 3, 2).status();
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
}

INSTANTIATE_TEST_SUITE_P(Access, Weights,
                         ::testing::Values(Access::kMapped, Access::kMisaligned,
                                           Access::kRead));

TEST(RandomWeights, LookNormalWhateverTheDtype) {
  const auto pool = *ThreadPool::Create(2);
  constexpr int64_t kCount = 200001;
  std::vector<float> values(kCount);
  DrawWeights(1, "w", DType::kF32, kCount, values.data(), *pool);
  double sum = 0, square = 0;
  std::map<float, int> counts;
  for (const float v : values) {
    sum += v;
    square += double{v} * v;
    ++counts[v];
  }
  // The mean of n draws has a standard deviation of 0.02 / sqrt(n), theirs one
  // of 0.02 / sqrt(2 n).
  EXPECT_LT(std::fabs(sum / kCount), 5 * 0.02 / std::sqrt(double{kCount}));
  EXPECT_NEAR(std::sqrt(square / kCount), 0.02,
              5 * 0.02 / std::sqrt(2.0 * kCount));
  EXPECT_GT(counts.size(), 500u);

  std::vector<uint16_t> narrow(kCount);
  DrawWeights(1, "w", DType::kBF16, kCount, narrow.data(), *pool);
  for (size_t i = 0; i < kCount; i += 997) {
    EXPECT_EQ(narrow[i], F32ToBF16(values[i]));
  }
  DrawWeights(1, "w", DType::kF16, kCount, narrow.data(), *pool);
  EXPECT_EQ(narrow[0], F32ToF16(values[0]));
}

TEST(RandomWeights, DependOnSeedAndNameOnly) {
  const auto one = *ThreadPool::Create(1);
  const auto three = *ThreadPool::Create(3);
  std::vector<float> a(300000), b(300000);
  DrawWeights(5, "name", DType::kF32, 300000, a.data(), *one);
  DrawWeights(5, "name", DType::kF32, 300000, b.data(), *three);
  EXPECT_EQ(a, b);
  DrawWeights(6, "name", DType::kF32, 300000, b.data(), *one);
  EXPECT_NE(a, b);
  DrawWeights(5, "name2", DType::kF32, 300000, b.data(), *one);
  EXPECT_NE(a, b);
}

TEST(RandomWeights, FormatsByName) {
  const auto device = *CreateCpuDevice(1, 0);
  ModelFiles files;
  files.random = RandomWeights{
      .dtype = DType::kF16, .seed = 1, .overrides = {{"*v*", DType::kQ8_0}}};
  WeightLoader loader(files, *device, WeightLoader::Mode::kLoad);
  EXPECT_TRUE(loader.SameDType({{"q", 4}, {"k", 4}}));
  EXPECT_FALSE(loader.SameDType({{"q", 4}, {"v", 4}}));
  EXPECT_EQ(loader.Matrix("q", 4, 32)->dtype, DType::kF16);
  EXPECT_EQ(loader.Matrix("v", 4, 32)->dtype, DType::kQ8_0);
  EXPECT_EQ(loader.Matrix("v", 4, 33).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace inlay
