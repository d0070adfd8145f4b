// Layers whose scales are exponents, of fp8's methods and of
// compressed-tensors, as they come out of a source.
#include <gtest/gtest.h>

#include <cmath>

#include "core/formats/quantized_source.h"
#include "tests/core/formats/quantized_test_util.h"

namespace inlay {
namespace {

// Layers whose scales are exponents, bytes, of rows x columns: e4m3, or e2m1 in
// pairs.
struct MxCase {
  Json config;
  bool is_fp4 = false;
  const char* codes = "";  // suffixes
  const char* scales = "";
  int64_t rows = 1;
  int64_t columns = 32;
  int64_t n = 0;
  int64_t k = 0;
};

Checkpoint MakeMx(const MxCase& c, DType pair_dtype, uint32_t seed) {
  Draw draw(seed);
  Checkpoint out{
      c.config, std::make_shared<MemoryWeights>(seed % 2 == 0), c.n, c.k, {}};
  const int64_t down = (c.n - 1) / c.rows + 1;
  const int64_t across = (c.k - 1) / c.columns + 1;
  const std::vector<int> exponents = draw.Ints(down * across, 100, 150);
  const std::vector<int> codes = draw.Ints(c.n * c.k, 0, c.is_fp4 ? 15 : 126);
  std::vector<uint8_t> bytes;
  for (int64_t i = 0; i < c.n * c.k; ++i) {
    const auto code = static_cast<uint8_t>(codes[static_cast<size_t>(i)]);
    constexpr double kLevels[] = {0, .5, 1, 1.5, 2, 3, 4, 6};
    const double level = c.is_fp4 ? kLevels[code & 7] * (code < 8 ? 1 : -1)
                                  : double{F8E4M3ToF32(code)};
    const int64_t cell = i / c.k / c.rows * across + i % c.k / c.columns;
    out.dense.push_back(
        std::ldexp(level, exponents[static_cast<size_t>(cell)] - 127));
    if (c.is_fp4 && i % 2 != 0) {
      bytes.back() = static_cast<uint8_t>(bytes.back() | code << 4);
    } else {
      bytes.push_back(code);
    }
  }
  out.weights->Add(std::string("l") + c.codes,
                   c.is_fp4 ? pair_dtype : DType::kF8E4M3,
                   {c.n, c.is_fp4 ? c.k / 2 : c.k}, bytes.data());
  const std::vector<uint8_t> stored(exponents.begin(), exponents.end());
  out.weights->Add(std::string("l") + c.scales, DType::kU8, {down, across},
                   stored.data());
  return out;
}

TEST(QuantizedSourceTest, ScalesThatAreExponents) {
  const auto fp8 = [](int64_t rows, int64_t columns) -> Json {
    return {{"quant_method", "fp8"},
            {"scale_fmt", "ue8m0"},
            {"expert_dtype", "fp4"},
            {"weight_block_size", {rows, columns}}};
  };
  const auto ct = [](const char* format, int bits) -> Json {
    const Json weights = {{"num_bits", bits},
                          {"type", "float"},
                          {"strategy", "group"},
                          {"group_size", 32}};
    return {{"quant_method", "compressed-tensors"},
            {"format", format},
            {"config_groups", {{"group_0", {{"weights", weights}}}}}};
  };
  const char* const inverse = ".weight_scale_inv";
  const char* const mxfp8 = "mxfp8-quantized";
  const char* const mxfp4 = "mxfp4-pack-quantized";
  uint32_t seed = 1;
  for (int turn = 0; turn < 2; ++turn) {
    const DType pairs = DType::kI8;
    CheckLayer(
        MakeMx({fp8(128, 128), false, ".weight", ".scale", 128, 128, 130, 384},
               pairs, seed++),
        "f8_g128", false);
    CheckLayer(MakeMx({fp8(1, 32), false, ".weight", inverse, 1, 32, 5, 96},
                      pairs, seed++),
               "f8_g32", false);
    CheckLayer(MakeMx({fp8(128, 128), true, ".weight", ".scale", 1, 32, 5, 96},
                      pairs, seed++),
               "mxfp4", false);
    CheckLayer(MakeMx({fp8(128, 128), true, ".weight", inverse, 1, 32, 3, 64},
                      pairs, seed++),
               "mxfp4", false);
    CheckLayer(
        MakeMx({ct(mxfp8, 8), false, ".weight", ".weight_scale", 1, 32, 5, 160},
               DType::kU8, seed++),
        "f8_g32", false);
    CheckLayer(MakeMx({ct(mxfp4, 4), true, ".weight_packed", ".weight_scale", 1,
                       32, 5, 160},
                      DType::kU8, seed++),
               "mxfp4", false);
  }
}

// The least is a subnormal number, the one above the largest is none.
TEST(QuantizedSourceTest, EndsOfExponents) {
  const std::vector<uint8_t> codes(128, 0x38);  // 1 in e4m3
  const uint8_t exponents[] = {0, 1, 254, 255};
  const auto weights = std::make_shared<MemoryWeights>(true);
  weights->Add("l.weight", DType::kF8E4M3, {4, 32}, codes.data());
  weights->Add("l.scale", DType::kU8, {4, 1}, exponents);
  const auto source = OpenQuantized(
      {{"quant_method", "fp8"}, {"weight_block_size", {1, 32}}}, weights);
  ASSERT_TRUE(source.ok()) << source.status();
  const WeightInfo& info = *(*source)->Find("l.weight");
  const auto values = DecodeBlocks(info.dtype, ReadAllOf(**source, info));
  EXPECT_EQ(values[0], 0x1p-127f);
  EXPECT_EQ(values[32], 0x1p-126f);
  EXPECT_EQ(values[64], 0x1p127f);
  EXPECT_TRUE(std::isnan(values[96]));
}

}  // namespace
}  // namespace inlay
