// Tensors that hold q, k and v head by head, taken apart.
#include "core/formats/head_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "tests/support/memory_weights.h"

namespace inlay {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kHeads = 3;
constexpr int64_t kHeadDim = 4;
constexpr int64_t kInputs = 5;
constexpr int64_t kRows = 3 * kHeads * kHeadDim;
constexpr char kLayer[] = "gpt_neox.layers.0.attention.";

Json HeadsConfig() {
  return {{"model_type", "gpt_neox"}, {"num_attention_heads", kHeads}};
}

std::shared_ptr<MemoryWeights> Stored(bool mapped) {
  std::vector<uint16_t> numbers(kRows * kInputs);
  std::iota(numbers.begin(), numbers.end(), uint16_t{0});
  auto weights = std::make_shared<MemoryWeights>(mapped);
  const std::string name = std::string(kLayer) + "query_key_value";
  weights->Add(name + ".weight", DType::kBF16, {kRows, kInputs},
               numbers.data());
  weights->Add(name + ".bias", DType::kBF16, {kRows}, numbers.data());
  weights->Add(std::string(kLayer) + "dense.weight", DType::kBF16, {2, 2},
               numbers.data());
  return weights;
}

// The elements of a tensor, read in pieces of so many bytes.
std::vector<uint16_t> ReadPieces(const WeightSource& source,
                                 const WeightInfo& info, size_t piece) {
  std::vector<uint16_t> values(info.bytes / 2);
  const auto bytes =
      absl::MakeSpan(reinterpret_cast<std::byte*>(values.data()), info.bytes);
  for (size_t at = 0; at < bytes.size(); at += piece) {
    EXPECT_TRUE(source.Read(info, at, bytes.subspan(at, piece)).ok());
  }
  return values;
}

TEST(HeadSourceTest, PartsAreTheRowsOfTheirHeads) {
  for (const bool mapped : {false, true}) {
    const auto source = PresentHeads(HeadsConfig(), Stored(mapped));
    ASSERT_TRUE(source.ok()) << source.status();
    EXPECT_EQ((*source)->weights().size(), 7u);
    EXPECT_NE((*source)->Find(std::string(kLayer) + "dense.weight"), nullptr);
    int64_t part = 0;
    for (const char* name : {"q_proj", "k_proj", "v_proj"}) {
      SCOPED_TRACE(name);
      const WeightInfo* weight =
          (*source)->Find(std::string(kLayer) + name + ".weight");
      const WeightInfo* bias =
          (*source)->Find(std::string(kLayer) + name + ".bias");
      ASSERT_TRUE(weight != nullptr && bias != nullptr);
      EXPECT_EQ(weight->shape,
                (std::vector<int64_t>{kHeads * kHeadDim, kInputs}));
      EXPECT_EQ(bias->shape, (std::vector<int64_t>{kHeads * kHeadDim}));
      EXPECT_EQ((*source)->Mapped(*weight), nullptr);
      for (const size_t piece : {2, 6, 34, 1000}) {
        const auto rows = ReadPieces(**source, *weight, piece);
        const auto biases = ReadPieces(**source, *bias, piece);
        for (int64_t i = 0; i < kHeads * kHeadDim; ++i) {
          const int64_t row =
              i / kHeadDim * 3 * kHeadDim + part * kHeadDim + i % kHeadDim;
          EXPECT_EQ(biases[static_cast<size_t>(i)], row);
          for (int64_t j = 0; j < kInputs; ++j) {
            ASSERT_EQ(rows[static_cast<size_t>(i * kInputs + j)],
                      row * kInputs + j);
          }
        }
      }
      ++part;
    }
  }
}

TEST(HeadSourceTest, OtherModelsPassThrough) {
  const auto stored = Stored(false);
  EXPECT_EQ(*PresentHeads({{"model_type", "llama"}}, stored), stored);
  EXPECT_EQ(*PresentHeads(Json::object(), stored), stored);
}

TEST(HeadSourceTest, WhatContradictsItself) {
  Json config = HeadsConfig();
  config["num_attention_heads"] = 5;
  const auto status = PresentHeads(config, Stored(true)).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("query_key_value.bias\" has shape [36]"));
  config["num_attention_heads"] = -1;
  EXPECT_TRUE(
      absl::IsInvalidArgument(PresentHeads(config, Stored(true)).status()));
  // A part that is there besides.
  auto twice = Stored(true);
  const uint16_t zero = 0;
  twice->Add(std::string(kLayer) + "q_proj.bias", DType::kBF16, {1}, &zero);
  EXPECT_TRUE(
      absl::IsInvalidArgument(PresentHeads(HeadsConfig(), twice).status()));
}

}  // namespace
}  // namespace inlay
