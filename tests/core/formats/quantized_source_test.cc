// GPTQ's and AWQ's layers, as they come out of a source; bands of a large one;
// what passes through a source unchanged.
#include "core/formats/quantized_source.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "tests/core/formats/integer_checkpoints.h"

namespace inlay {
namespace {

TEST(QuantizedSourceTest, Gptq) {
  const GptqCase cases[] = {
      {4, 128, false, false, 24, 256, "u4_g128"},
      {4, 128, false, true, 24, 384, "u4_g128"},
      {4, 128, true, true, 8, 256, "u4_g128"},
      {4, 32, true, false, 16, 160, "u4_g32"},
      {4, 64, false, true, 16, 192, "u4_g32"},
      {4, -1, false, false, 8, 256, "u4_g128"},
      {4, -1, true, false, 8, 96, "u4_g32"},
      {4, 128, false, false, 8, 448, "u4_g32"},  // a cut group
      {4, 128, false, true, 8, 448, "u4_g32"},
      {8, 128, false, false, 12, 256, "i8_g128"},
      {8, 32, true, true, 12, 64, "i8_g32"},
      {2, 128, false, false, 32, 256, "u4_g128"},
      {2, 32, true, true, 16, 96, "u4_g32"},
      {3, 32, false, true, 64, 160, "u4_g32"},
      {3, 128, true, false, 32, 448, "u4_g32"},  // a cut group
      {5, 32, false, false, 32, 96, "i8_g32"},
      {6, 128, true, true, 16, 256, "i8_g128"},
      {7, 64, false, false, 96, 128, "i8_g32"},
  };
  uint32_t seed = 1;
  for (const GptqCase& c : cases) {
    for (const bool mapped : {false, true}) {
      SCOPED_TRACE(::testing::Message() << "case " << seed);
      CheckLayer(MakeGptq(c, seed, mapped), c.dtype, c.scattered);
      if (!c.scattered) {
        CheckLayer(MakeGptq(c, seed, mapped, false), c.dtype, false);
      }
    }
    ++seed;
  }
}

TEST(QuantizedSourceTest, Awq) {
  CheckLayer(MakeAwq(128, 24, 256, 1), "u4_g128", false);
  CheckLayer(MakeAwq(128, 24, 256, 2), "u4_g128", false);
  CheckLayer(MakeAwq(64, 8, 192, 3), "u4_g32", false);
  CheckLayer(MakeAwq(32, 40, 96, 4), "u4_g32", false);
  CheckLayer(MakeAwq(-1, 8, 384, 5), "u4_g128", false);
}

// Bytes by hand: every field of a word, the zeros' 1, and the block's order.
TEST(QuantizedSourceTest, GptqBitByBit) {
  const auto weights = std::make_shared<MemoryWeights>(true);
  std::vector<uint32_t> codes(4 * 8, 0);
  codes[0 * 8 + 2] = 0x76543210;      // output 2, inputs 0 to 7
  codes[3 * 8 + 2] = 0xfedcba98;      // inputs 24 to 31
  const uint32_t zeros = 0x00000f00;  // output 2: 15 + 1, wraps to 0
  std::vector<float> scales(8, 0.5f);
  weights->Add("l.qweight", DType::kI32, {4, 8}, codes.data());
  weights->Add("l.qzeros", DType::kI32, {1, 1}, &zeros);
  weights->Add("l.scales", DType::kF32, {1, 8}, scales.data());
  const auto source =
      OpenQuantized({{"quant_method", "gptq"}, {"bits", 4}}, weights);
  ASSERT_TRUE(source.ok()) << source.status();
  const WeightInfo* info = (*source)->Find("l.weight");
  ASSERT_EQ(info->bytes, 8u * 24);
  const auto bytes = ReadAllOf(**source, *info);
  const uint8_t row2[24] = {0,    0,    0,    0x3f, 0,    0,    0,    0,
                            0,    1,    2,    3,    4,    5,    6,    7,
                            0x80, 0x90, 0xa0, 0xb0, 0xc0, 0xd0, 0xe0, 0xf0};
  EXPECT_EQ(std::memcmp(bytes.data() + 2 * 24, row2, 24), 0);
  float min;
  std::memcpy(&min, bytes.data() + 3 * 24 + 4, 4);
  // The carry of its neighbour's 15 makes it 2.
  EXPECT_EQ(min, -2 * 0.5f);
  std::memcpy(&min, bytes.data() + 4 * 24 + 4, 4);
  EXPECT_EQ(min, -1 * 0.5f);
}

TEST(QuantizedSourceTest, AwqBitByBit) {
  const auto weights = std::make_shared<MemoryWeights>(true);
  std::vector<uint32_t> codes(32, 0);
  codes[17] = 0x76543210;
  const uint32_t zeros = 0xfedcba98;
  const std::vector<float> scales(8, 1.0f);
  weights->Add("l.qweight", DType::kI32, {32, 1}, codes.data());
  weights->Add("l.qzeros", DType::kI32, {1, 1}, &zeros);
  weights->Add("l.scales", DType::kF32, {1, 8}, scales.data());
  const auto source =
      OpenQuantized({{"quant_method", "awq"}, {"bits", 4}}, weights);
  ASSERT_TRUE(source.ok()) << source.status();
  const auto bytes = ReadAllOf(**source, *(*source)->Find("l.weight"));
  for (int field = 0; field < 8; ++field) {
    const auto row = static_cast<size_t>(kAwqOrder[field]) * 24;
    float min;
    std::memcpy(&min, bytes.data() + row + 4, 4);
    EXPECT_EQ(min, -(8.0f + static_cast<float>(field)));
    // Input 17 is the high nibble of byte 1.
    EXPECT_EQ(bytes[row + 8 + 1], std::byte(field << 4));
  }
}

// More than one band: codes of 8 MB are staged at once.
TEST(QuantizedSourceTest, ManyBands) {
  CheckLayer(MakeGptq({4, 128, false, true, 72, 1 << 17, "u4_g128"}, 3, true),
             "u4_g128", true);
}

TEST(QuantizedSourceTest, OthersPassThrough) {
  Checkpoint checkpoint = MakeAwq(128, 8, 128, 2);
  const std::vector<float> norm = {1, 2, 3, 4};
  checkpoint.weights->Add("a.norm.weight", DType::kF32, {4}, norm.data());
  checkpoint.weights->Add("l.bias", DType::kF32, {4}, norm.data());
  checkpoint.weights->Add("z.weight", DType::kF32, {2, 2}, norm.data());
  const auto source = OpenQuantized(checkpoint.config, checkpoint.weights);
  ASSERT_TRUE(source.ok()) << source.status();
  std::vector<std::string> names;
  for (const WeightInfo& info : (*source)->weights()) {
    names.push_back(info.name);
  }
  EXPECT_EQ(names, (std::vector<std::string>{"a.norm.weight", "l.bias",
                                             "l.weight", "z.weight"}));
  const WeightInfo* info = (*source)->Find("z.weight");
  EXPECT_EQ((*source)->Mapped(*info),
            checkpoint.weights->Mapped(*checkpoint.weights->Find("z.weight")));
  EXPECT_EQ(ReadAllOf(**source, *info).size(), 16u);
  std::byte one;
  const WeightInfo* weight = (*source)->Find("l.weight");
  EXPECT_EQ((*source)->Read(*weight, weight->bytes, {&one, 1}).code(),
            absl::StatusCode::kOutOfRange);
  EXPECT_EQ((*source)->Read(*weight, UINT64_MAX, {&one, 1}).code(),
            absl::StatusCode::kOutOfRange);
  EXPECT_EQ((*source)->Read(WeightInfo{"no"}, 0, {&one, 1}).code(),
            absl::StatusCode::kNotFound);
  EXPECT_EQ((*source)->Mapped(WeightInfo{"l.qweight"}), nullptr);
}

}  // namespace
}  // namespace inlay
