// GPTQ's and AWQ's layers, as they come out of a source; bands of a large one;
// what passes through a source unchanged.
#include "core/formats/quantized_source.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "tests/core/formats/quantized_test_util.h"

namespace inlay {
namespace {

constexpr int kAwqOrder[] = {0, 2, 4, 6, 1, 3, 5, 7};

struct GptqCase {
  int bits;
  int64_t group_size;  // -1: all
  bool v2;
  bool scattered;  // g_idx
  int64_t n, k;
  std::string dtype;
};

Checkpoint MakeGptq(const GptqCase& c, uint32_t seed, bool mapped,
                    bool with_index = true) {
  Draw draw(seed);
  Checkpoint out{{{"quant_method", "gptq"},
                  {"bits", c.bits},
                  {"group_size", c.group_size},
                  {"desc_act", c.scattered},
                  {"sym", false},
                  {"checkpoint_format", c.v2 ? "gptq_v2" : "gptq"}},
                 std::make_shared<MemoryWeights>(mapped),
                 c.n,
                 c.k,
                 {}};
  const int most = (1 << c.bits) - 1;
  const int64_t group = c.group_size < 0 ? c.k : c.group_size;
  const int64_t groups = (c.k - 1) / group + 1;
  const int64_t fields = 32 / c.bits;
  std::vector<int32_t> index;
  for (int64_t i = 0; i < c.k; ++i) {
    index.push_back(static_cast<int32_t>(i / group));
  }
  if (c.scattered) std::shuffle(index.begin(), index.end(), draw.engine());
  const auto codes = draw.Ints(c.k * c.n, 0, most);  // [k, n]
  const auto zeros = draw.Ints(groups * c.n, c.v2 ? 0 : 1, most);
  const auto scales = draw.Scales(groups * c.n);
  const auto at = [](int64_t i) { return static_cast<size_t>(i); };
  AddPacked(*out.weights, "l.qweight", c.k / fields, c.n, c.bits,
            [&](int64_t r, int64_t o, int f) {
              return codes[at((r * fields + f) * c.n + o)];
            });
  AddPacked(*out.weights, "l.qzeros", groups, c.n / fields, c.bits,
            [&](int64_t g, int64_t w, int f) {
              return zeros[at(g * c.n + w * fields + f)] - (c.v2 ? 0 : 1);
            });
  AddFloats(*out.weights, "l.scales", DType::kF16, {groups, c.n}, scales);
  if (with_index) {
    out.weights->Add("l.g_idx", DType::kI32, {c.k}, index.data());
  }
  for (int64_t o = 0; o < c.n; ++o) {
    for (int64_t i = 0; i < c.k; ++i) {
      const int64_t g = index[at(i)] * c.n + o;
      out.dense.push_back(double{scales[at(g)]} *
                          (codes[at(i * c.n + o)] - zeros[at(g)]));
    }
  }
  return out;
}

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

Checkpoint MakeAwq(int64_t group_size, int64_t n, int64_t k, uint32_t seed) {
  Draw draw(seed);
  Checkpoint out{{{"quant_method", "awq"},
                  {"bits", 4},
                  {"group_size", group_size},
                  {"version", "GEMM"},
                  {"zero_point", true}},
                 std::make_shared<MemoryWeights>(seed % 2 == 0),
                 n,
                 k,
                 {}};
  const int64_t group = group_size < 0 ? k : group_size;
  const int64_t groups = k / group;
  const auto codes = draw.Ints(k * n, 0, 15);  // [k, n]
  const auto zeros = draw.Ints(groups * n, 0, 15);
  const auto scales = draw.Scales(groups * n);
  const auto at = [](int64_t i) { return static_cast<size_t>(i); };
  const auto add = [&](const std::string& name, int64_t rows,
                       const std::vector<int>& values) {
    AddPacked(*out.weights, name, rows, n / 8, 4,
              [&](int64_t r, int64_t c, int f) {
                return values[at(r * n + c * 8 + kAwqOrder[f])];
              });
  };
  add("l.qweight", k, codes);
  add("l.qzeros", groups, zeros);
  AddFloats(*out.weights, "l.scales", DType::kF16, {groups, n}, scales);
  for (int64_t o = 0; o < n; ++o) {
    for (int64_t i = 0; i < k; ++i) {
      const int64_t g = i / group * n + o;
      out.dense.push_back(double{scales[at(g)]} *
                          (codes[at(i * n + o)] - zeros[at(g)]));
    }
  }
  return out;
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
