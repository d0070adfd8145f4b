#include "core/formats/quantized_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/core/formats/quantized_test_util.h"

namespace inlay {
namespace {

using ::testing::HasSubstr;

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
      SCOPED_TRACE(testing::Message() << "case " << seed);
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

enum class ZeroStorage { kNone, kBytes, kPacked };

struct CtCase {
  std::string format;
  int bits;
  std::string strategy;
  int64_t rows, columns;  // a scale's; -1: all
  ZeroStorage zeros;
  bool scattered;
  DType scale_dtype;
  int64_t n, k;
  std::string dtype;
};

// Also of the fp8 method: its names differ.
Checkpoint MakeCt(const CtCase& c, uint32_t seed) {
  Draw draw(seed);
  const bool is_float = c.format == "float-quantized";
  const bool packed = c.format == "pack-quantized";
  Json weights = {{"num_bits", c.bits},
                  {"type", is_float ? "float" : "int"},
                  {"symmetric", c.zeros == ZeroStorage::kNone},
                  {"strategy", c.strategy},
                  {"group_size", nullptr},
                  {"block_structure", nullptr},
                  {"actorder", nullptr}};
  if (c.strategy == "group") weights["group_size"] = c.columns;
  if (c.strategy == "block") weights["block_structure"] = {c.rows, c.columns};
  if (c.scattered) weights["actorder"] = "group";
  Checkpoint out{
      {{"quant_method", "compressed-tensors"},
       {"format", c.format},
       {"quantization_status", "compressed"},
       {"ignore", {"lm_head"}},
       {"config_groups",
        {{"group_0", {{"targets", {"Linear"}}, {"weights", weights}}}}}},
      std::make_shared<MemoryWeights>(seed % 2 == 0),
      c.n,
      c.k,
      {}};
  const int64_t cell_rows = c.rows < 0 ? c.n : c.rows;
  const int64_t cell_columns = c.columns < 0 ? c.k : c.columns;
  const int64_t down = (c.n - 1) / cell_rows + 1;
  const int64_t across = (c.k - 1) / cell_columns + 1;
  const int half = 1 << (c.bits - 1);
  auto codes = is_float ? draw.Ints(c.n * c.k, 0, 255)
                        : draw.Ints(c.n * c.k, -half, half - 1);
  const auto zeros = c.zeros == ZeroStorage::kNone
                         ? std::vector<int>(static_cast<size_t>(down * across))
                         : draw.Ints(down * across, -half, half - 1);
  const auto scales = draw.Scales(down * across);
  std::vector<int32_t> index;
  for (int64_t i = 0; i < c.k; ++i) {
    index.push_back(static_cast<int32_t>(i / cell_columns));
  }
  if (c.scattered) {
    std::shuffle(index.begin(), index.end(), draw.engine());
    out.weights->Add("l.weight_g_idx", DType::kI32, {c.k}, index.data());
  }
  const auto at = [](int64_t i) { return static_cast<size_t>(i); };
  const int64_t fields = 32 / c.bits;
  if (packed) {
    AddPacked(*out.weights, "l.weight_packed", c.n, c.k / fields, c.bits,
              [&](int64_t o, int64_t w, int f) {
                return codes[at(o * c.k + w * fields + f)] + half;
              });
    const int64_t shape[] = {c.n, c.k};
    out.weights->Add("l.weight_shape", DType::kI64, {2}, shape);
  } else {
    std::vector<uint8_t> bytes;
    for (int& code : codes) {
      if (is_float && (code & 127) == 127) code = 0;  // NaN
      bytes.push_back(static_cast<uint8_t>(code));
    }
    out.weights->Add("l.weight", is_float ? DType::kF8E4M3 : DType::kI8,
                     {c.n, c.k}, bytes.data());
  }
  std::vector<int64_t> shape = {down, across};
  if (c.strategy == "tensor") shape = {1};
  AddFloats(*out.weights, "l.weight_scale", c.scale_dtype, shape, scales);
  if (c.zeros == ZeroStorage::kBytes) {
    const std::vector<int8_t> bytes(zeros.begin(), zeros.end());
    out.weights->Add("l.weight_zero_point", DType::kI8, shape, bytes.data());
  } else if (c.zeros == ZeroStorage::kPacked) {
    AddPacked(*out.weights, "l.weight_zero_point", (c.n - 1) / fields + 1,
              across, c.bits, [&](int64_t w, int64_t g, int f) {
                const int64_t o = w * fields + f;
                return o < c.n ? zeros[at(o * across + g)] + half : 0;
              });
  }
  for (int64_t o = 0; o < c.n; ++o) {
    for (int64_t i = 0; i < c.k; ++i) {
      const int64_t cell = o / cell_rows * across + index[at(i)];
      const int code = codes[at(o * c.k + i)];
      out.dense.push_back(double{scales[at(cell)]} *
                          (is_float
                               ? double{F8E4M3ToF32(static_cast<uint8_t>(code))}
                               : double(code - zeros[at(cell)])));
    }
  }
  return out;
}

constexpr char kPack[] = "pack-quantized";
constexpr char kInt[] = "int-quantized";
constexpr char kFloat[] = "float-quantized";
constexpr auto kNone = ZeroStorage::kNone;
constexpr auto kBytes = ZeroStorage::kBytes;
constexpr auto kPacked = ZeroStorage::kPacked;

TEST(QuantizedSourceTest, CompressedTensors) {
  const DType bf16 = DType::kBF16, f16 = DType::kF16, f32 = DType::kF32;
  const CtCase cases[] = {
      {kPack, 4, "group", 1, 128, kNone, false, bf16, 9, 256, "u4_g128"},
      {kPack, 4, "group", 1, 128, kPacked, false, bf16, 9, 256, "u4_g128"},
      {kPack, 4, "group", 1, 128, kBytes, false, f32, 9, 256, "u4_g128"},
      {kPack, 4, "group", 1, 32, kPacked, true, f16, 16, 96, "u4_g32"},
      {kPack, 4, "channel", 1, -1, kNone, false, bf16, 5, 128, "u4_g128"},
      {kPack, 4, "channel", 1, -1, kPacked, false, bf16, 5, 32, "u4_g32"},
      {kPack, 4, "tensor", -1, -1, kNone, false, bf16, 5, 32, "u4_g32"},
      {kPack, 8, "group", 1, 64, kNone, true, bf16, 6, 128, "i8_g32"},
      {kPack, 8, "channel", 1, -1, kNone, false, bf16, 6, 128, "i8_g128"},
      {kPack, 8, "channel", 1, -1, kPacked, false, bf16, 6, 128, "i8_g128"},
      {kInt, 8, "channel", 1, -1, kNone, false, bf16, 7, 256, "i8_g128"},
      {kInt, 8, "channel", 1, -1, kBytes, false, f32, 7, 96, "i8_g32"},
      {kInt, 8, "tensor", -1, -1, kBytes, false, f32, 7, 96, "i8_g32"},
      {kInt, 4, "group", 1, 32, kNone, false, bf16, 3, 64, "i8_g32"},
      {kFloat, 8, "tensor", -1, -1, kNone, false, f32, 3, 128, "f8_g128"},
      {kFloat, 8, "channel", 1, -1, kNone, false, bf16, 3, 160, "f8_g32"},
      {kFloat, 8, "block", 128, 128, kNone, false, f32, 150, 448, "f8_g32"},
      {kFloat, 8, "block", 64, 128, kNone, false, bf16, 130, 384, "f8_g128"},
  };
  uint32_t seed = 1;
  for (const CtCase& c : cases) {
    SCOPED_TRACE(testing::Message() << "case " << seed - 1);
    CheckLayer(MakeCt(c, seed++), c.dtype, c.scattered);
  }
}

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

TEST(QuantizedSourceTest, InputCodesAreToldOf) {
  const Json token = {{"num_bits", 8},
                      {"type", "int"},
                      {"strategy", "token"},
                      {"dynamic", true},
                      {"symmetric", true}};
  const auto told = [](const Json& inputs) {
    Checkpoint checkpoint = MakeCt(
        {kInt, 8, "channel", 1, -1, kNone, false, DType::kBF16, 7, 256, ""}, 1);
    Json& group = checkpoint.config["config_groups"].begin().value();
    group["input_activations"] = inputs;
    const auto source = OpenQuantized(checkpoint.config, checkpoint.weights);
    EXPECT_TRUE(source.ok()) << source.status();
    return source.ok() ? (*source)->Find("l.weight")->input_codes
                       : InputCodes::kNone;
  };
  EXPECT_EQ(told(token), InputCodes::kInt8);
  EXPECT_EQ(told(nullptr), InputCodes::kNone);
  const auto with = [&](const char* key, const Json& value) {
    Json other = token;
    other[key] = value;
    return other;
  };
  EXPECT_EQ(told(with("dynamic", false)), InputCodes::kNone);
  EXPECT_EQ(told(with("dynamic", "local")), InputCodes::kNone);
  EXPECT_EQ(told(with("strategy", "tensor")), InputCodes::kNone);
  EXPECT_EQ(told(with("symmetric", false)), InputCodes::kNone);
  EXPECT_EQ(told(with("num_bits", 4)), InputCodes::kNone);
  EXPECT_EQ(told(with("type", "float")), InputCodes::kFp8);
}

// An fp8 checkpoint out of one of compressed-tensors.
Checkpoint MakeFp8(const CtCase& c, bool inverse) {
  const Checkpoint ct = MakeCt(c, 5);
  Checkpoint out = ct;
  out.config = {{"quant_method", "fp8"},
                {"fmt", "e4m3"},
                {"activation_scheme", "dynamic"}};
  if (c.strategy == "block") {
    out.config["weight_block_size"] = {c.rows, c.columns};
  }
  out.weights = std::make_shared<MemoryWeights>(true);
  for (const WeightInfo& info : ct.weights->weights()) {
    std::vector<std::byte> bytes(info.bytes);
    EXPECT_TRUE(ct.weights->Read(info, 0, absl::MakeSpan(bytes)).ok());
    const bool scale = info.name == "l.weight_scale";
    out.weights->Add(info.name + (scale && inverse ? "_inv" : ""), info.dtype,
                     info.shape, bytes.data());
  }
  return out;
}

TEST(QuantizedSourceTest, Fp8) {
  const DType f32 = DType::kF32;
  const CtCase tensor = {kFloat, 8,   "tensor", -1,  -1,       kNone,
                         false,  f32, 3,        128, "f8_g128"};
  const CtCase block = {kFloat, 8,   "block", 128, 128,     kNone,
                        false,  f32, 150,     448, "f8_g32"};
  CheckLayer(MakeFp8(tensor, true), "f8_g128", false);
  CheckLayer(MakeFp8(tensor, false), "f8_g128", false);
  CheckLayer(MakeFp8(block, true), "f8_g32", false);
  const float scale = 1;
  Checkpoint with_input = MakeFp8(tensor, false);
  with_input.config["activation_scheme"] = "static";
  with_input.weights->Add("l.input_scale", DType::kF32, {}, &scale);
  CheckLayer(with_input, "f8_g128", false);
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

TEST(QuantizedSourceTest, CompressedTensorsBitByBit) {
  const auto weights = std::make_shared<MemoryWeights>(false);
  const uint32_t codes[4] = {0x76543210, 0, 0xfedcba98, 0};
  const int64_t shape[] = {1, 32};
  const float scale = 0.25f;
  weights->Add("l.weight_packed", DType::kI32, {1, 4}, codes);
  weights->Add("l.weight_shape", DType::kI64, {2}, shape);
  weights->Add("l.weight_scale", DType::kF32, {1, 1}, &scale);
  const Json config = {
      {"quant_method", "compressed-tensors"},
      {"format", kPack},
      {"config_groups",
       {{"a",
         {{"targets", {"re:.*"}},
          {"weights", {{"num_bits", 4}, {"strategy", "channel"}}}}}}}};
  const auto source = OpenQuantized(config, weights);
  ASSERT_TRUE(source.ok()) << source.status();
  const auto bytes = ReadAllOf(**source, *(*source)->Find("l.weight"));
  const uint8_t want[24] = {0,    0,    0x80, 0x3e, 0,    0,    0,    0xc0,
                            0x80, 0x91, 0xa2, 0xb3, 0xc4, 0xd5, 0xe6, 0xf7};
  EXPECT_EQ(std::memcmp(bytes.data(), want, 24), 0);
}

// Scales that are not exact products: one rounding each of scale * code,
// scale * zero and their sum.
TEST(QuantizedSourceTest, Float32ScalesRoundOnce) {
  Checkpoint checkpoint = MakeCt(
      {kPack, 4, "group", 1, 32, kPacked, false, DType::kF32, 8, 64, "u4_g32"},
      3);
  const auto weights = std::make_shared<MemoryWeights>(true);
  for (const WeightInfo& info : checkpoint.weights->weights()) {
    std::vector<std::byte> bytes(info.bytes);
    ASSERT_TRUE(checkpoint.weights->Read(info, 0, absl::MakeSpan(bytes)).ok());
    if (info.name == "l.weight_scale") {
      for (size_t i = 0; i < bytes.size(); i += 4) {
        float scale;
        std::memcpy(&scale, bytes.data() + i, 4);
        scale *= 1.0f / 3;
        std::memcpy(bytes.data() + i, &scale, 4);
      }
    }
    weights->Add(info.name, info.dtype, info.shape, bytes.data());
  }
  const auto source = OpenQuantized(checkpoint.config, weights);
  ASSERT_TRUE(source.ok()) << source.status();
  const WeightInfo* info = (*source)->Find("l.weight");
  const auto values = DecodeBlocks(info->dtype, ReadAllOf(**source, *info));
  for (size_t i = 0; i < values.size(); ++i) {
    const double largest = 16 * 256 * 0x1p-14 / 3;  // of scale * code
    EXPECT_NEAR(values[i], checkpoint.dense[i] / 3, 4 * 0x1p-24 * largest);
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
