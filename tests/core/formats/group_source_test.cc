// The layers of block-diagonal matrices, one tensor each.
#include "core/formats/group_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/support/memory_weights.h"

namespace inlay {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Json GriffinHeads(int64_t heads) {
  return {{"model_type", "recurrent_gemma"}, {"num_attention_heads", heads}};
}

std::vector<float> Counted(size_t count) {
  std::vector<float> values;
  for (size_t i = 0; i < count; ++i) values.push_back(static_cast<float>(i));
  return values;
}

std::vector<float> GateValues(const WeightSource& source,
                              const std::string& name) {
  const WeightInfo* info = source.Find(name);
  EXPECT_NE(info, nullptr) << name;
  if (info == nullptr) return {};
  std::vector<float> values(info->bytes / sizeof(float));
  EXPECT_TRUE(
      source
          .Read(*info, 0,
                absl::MakeSpan(reinterpret_cast<std::byte*>(values.data()),
                               info->bytes))
          .ok());
  return values;
}

// One tensor of zeros.
absl::Status PresentGates(const Json& config, const std::string& name,
                          DType dtype, const std::vector<int64_t>& shape) {
  size_t elements = 1;
  for (const int64_t size : shape) elements *= static_cast<size_t>(size);
  const std::vector<float> zeros(elements + 1);
  const auto stored = std::make_shared<MemoryWeights>(true);
  stored->Add(name, dtype, shape, zeros.data());
  return PresentGroups(config, stored).status();
}

// Each of wo_a's groups has the order of its columns.
TEST(GroupSourceTest, EachGroupHasTheOrderOfItsColumns) {
  const auto stored = std::make_shared<MemoryWeights>(true);
  const std::vector<float> weight = Counted(12);
  const std::vector<int32_t> order = {2, 0, 1};
  stored->Add("a.wo_a.weight", DType::kF32, {4, 3}, weight.data());
  stored->Add("a.wo_a.input_permutation", DType::kI32, {3}, order.data());
  const Json config = {{"model_type", "deepseek_v4"}, {"o_groups", 2}};
  const auto source = PresentGroups(config, stored);
  ASSERT_TRUE(source.ok()) << source.status();
  EXPECT_EQ((*source)->weights().size(), 4u);
  for (const char* name :
       {"a.wo_a.0.input_permutation", "a.wo_a.1.input_permutation"}) {
    const WeightInfo* info = (*source)->Find(name);
    ASSERT_NE(info, nullptr) << name;
    std::vector<int32_t> got(order.size());
    EXPECT_TRUE(
        (*source)
            ->Read(*info, 0,
                   absl::MakeSpan(reinterpret_cast<std::byte*>(got.data()),
                                  info->bytes))
            .ok());
    EXPECT_EQ(got, order);
  }
  EXPECT_THAT(GateValues(**source, "a.wo_a.1.weight"),
              ElementsAre(6, 7, 8, 9, 10, 11));
  stored->Add("b.wo_a.input_permutation", DType::kF32, {3}, weight.data());
  const auto refused = PresentGroups(config, stored);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.status().message()),
              HasSubstr("b.wo_a.input_permutation"));
}

TEST(GroupSourceTest, GatesOfHeads) {
  const auto stored = std::make_shared<MemoryWeights>(true);
  const std::vector<float> weight = Counted(12), bias = Counted(6);
  stored->Add("a.rg_lru.input_gate_weight", DType::kF32, {3, 2, 2},
              weight.data());
  stored->Add("a.rg_lru.recurrent_gate_weight", DType::kF32, {3, 2, 2},
              weight.data());
  stored->Add("a.rg_lru.recurrent_gate_bias", DType::kF32, {3, 2}, bias.data());
  stored->Add("a.rg_lru.recurrent_param", DType::kF32, {6}, bias.data());
  stored->Add("a.input_gate_weight", DType::kF32, {6}, bias.data());
  const auto source = PresentGroups(GriffinHeads(3), stored);
  ASSERT_TRUE(source.ok()) << source.status();
  EXPECT_EQ((*source)->weights().size(), 3u + 3u + 3u + 2u);
  const WeightInfo* info = (*source)->Find("a.rg_lru.input_gate.2.weight");
  ASSERT_NE(info, nullptr);
  EXPECT_THAT(info->shape, ElementsAre(2, 2));
  // Outputs by inputs.
  EXPECT_THAT(GateValues(**source, "a.rg_lru.input_gate.0.weight"),
              ElementsAre(0, 2, 1, 3));
  EXPECT_THAT(GateValues(**source, "a.rg_lru.recurrent_gate.2.weight"),
              ElementsAre(8, 10, 9, 11));
  info = (*source)->Find("a.rg_lru.recurrent_gate.1.bias");
  ASSERT_NE(info, nullptr);
  EXPECT_THAT(info->shape, ElementsAre(2));
  EXPECT_THAT(GateValues(**source, "a.rg_lru.recurrent_gate.1.bias"),
              ElementsAre(2, 3));
  EXPECT_THAT(GateValues(**source, "a.rg_lru.recurrent_param"),
              ElementsAre(0, 1, 2, 3, 4, 5));
}

TEST(GroupSourceTest, OthersPassThrough) {
  const auto stored = std::make_shared<MemoryWeights>(true);
  const std::vector<float> weight = Counted(12);
  stored->Add("a.rg_lru.input_gate_weight", DType::kF32, {3, 2, 2},
              weight.data());
  const auto other = PresentGroups({{"model_type", "llama"}}, stored);
  ASSERT_TRUE(other.ok());
  EXPECT_EQ(other->get(), stored.get());
  const auto plain = std::make_shared<MemoryWeights>(true);
  plain->Add("a.weight", DType::kF32, {3, 4}, weight.data());
  const auto same = PresentGroups(GriffinHeads(3), plain);
  ASSERT_TRUE(same.ok());
  EXPECT_EQ(same->get(), plain.get());
}

TEST(GroupSourceTest, WrongGates) {
  const std::string weight = "a.rg_lru.input_gate_weight";
  const std::string bias = "a.rg_lru.input_gate_bias";
  const struct {
    std::string name;
    DType dtype;
    std::vector<int64_t> shape;
  } wrong[] = {
      {weight, DType::kF32, {2, 2, 2}}, {weight, DType::kF32, {3, 2, 3}},
      {weight, DType::kF32, {6, 2}},    {weight, DType::kF32, {3, 0, 0}},
      {weight, DType::kF32, {12}},      {weight, DType::kI32, {3, 2, 2}},
      {bias, DType::kF32, {6}},         {bias, DType::kF32, {2, 2}},
      {bias, DType::kF32, {3, 2, 1}},   {bias, DType::kF32, {3, 0}},
  };
  for (const auto& tensor : wrong) {
    const absl::Status status =
        PresentGates(GriffinHeads(3), tensor.name, tensor.dtype, tensor.shape);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(tensor.name));
  }
  EXPECT_EQ(
      PresentGates(GriffinHeads(0), weight, DType::kF32, {3, 2, 2}).code(),
      absl::StatusCode::kInvalidArgument);
}

// A file of many small ones would become many times its size.
TEST(GroupSourceTest, TooManyGates) {
  constexpr int64_t kHeads = 1 << 13;
  const std::vector<float> zeros(kHeads);
  const auto stored = std::make_shared<MemoryWeights>(true);
  for (size_t i = 0; i <= kMaxGateTensors / kHeads; ++i) {
    stored->Add(std::to_string(i) + ".rg_lru.input_gate_bias", DType::kBF16,
                {kHeads, 1}, zeros.data());
  }
  const absl::Status status =
      PresentGroups(GriffinHeads(kHeads), stored).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
}

}  // namespace
}  // namespace inlay
