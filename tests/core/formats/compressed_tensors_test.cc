// Layers of compressed-tensors, as they come out of a source, and of the fp8
// method, which are made of them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "core/formats/quantized_source.h"
#include "tests/core/formats/quantized_test_util.h"

namespace inlay {
namespace {

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
      // A strategy goes with any type.
      {kPack, 4, "block", 64, 128, kNone, false, bf16, 130, 384, "u4_g128"},
      {kPack, 4, "block", 16, 32, kBytes, false, f32, 40, 96, "u4_g32"},
      {kPack, 8, "block", 64, 128, kNone, false, f32, 70, 448, "i8_g32"},
      {kPack, 8, "tensor", -1, -1, kBytes, false, bf16, 6, 128, "i8_g128"},
      {kInt, 8, "block", 128, 128, kNone, false, f32, 150, 384, "i8_g128"},
      {kInt, 8, "block", 32, 64, kBytes, false, bf16, 40, 128, "i8_g32"},
      {kInt, 8, "group", 1, 128, kNone, false, bf16, 7, 256, "i8_g128"},
      {kInt, 8, "group", 1, 64, kBytes, false, f32, 7, 192, "i8_g32"},
      {kInt, 8, "group", 1, 32, kNone, true, bf16, 7, 96, "i8_g32"},
      {kFloat, 8, "group", 1, 128, kNone, false, bf16, 5, 256, "f8_g128"},
      {kFloat, 8, "group", 1, 32, kNone, false, f32, 5, 96, "f8_g32"},
      {kFloat, 8, "group", 1, 64, kNone, true, f32, 5, 192, "f8_g32"},
  };
  uint32_t seed = 1;
  for (const CtCase& c : cases) {
    SCOPED_TRACE(::testing::Message() << "case " << seed - 1);
    CheckLayer(MakeCt(c, seed++), c.dtype, c.scattered);
  }
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

// Groups that fit a layer's tensors alike but for the order of its columns, and
// for its inputs, which are kept where groups disagree.
TEST(QuantizedSourceTest, SeveralGroupsThatFit) {
  for (const bool scattered : {false, true}) {
    Checkpoint checkpoint = MakeCt({kPack, 4, "group", 1, 32, kNone, scattered,
                                    DType::kF32, 8, 96, "u4_g32"},
                                   4);
    Json& groups = checkpoint.config["config_groups"];
    Json other = groups["group_0"];
    other["weights"]["actorder"] = scattered ? Json() : Json("group");
    groups["a"] = other;  // before
    groups["z"] = other;
    CheckLayer(checkpoint, "u4_g32", scattered);
  }
  const auto told = [](const Json& first, const Json& second) {
    Checkpoint checkpoint = MakeCt(
        {kFloat, 8, "channel", 1, -1, kNone, false, DType::kBF16, 7, 256, ""},
        1);
    Json& groups = checkpoint.config["config_groups"];
    groups["group_1"] = groups["group_0"];
    groups["group_0"]["input_activations"] = first;
    groups["group_1"]["input_activations"] = second;
    const auto source = OpenQuantized(checkpoint.config, checkpoint.weights);
    EXPECT_TRUE(source.ok()) << source.status();
    return source.ok() ? (*source)->Find("l.weight")->input_codes
                       : InputCodes::kInt8;
  };
  const Json fp8 = {{"num_bits", 8},
                    {"type", "float"},
                    {"strategy", "token"},
                    {"dynamic", true}};
  EXPECT_EQ(told(fp8, fp8), InputCodes::kFp8);
  EXPECT_EQ(told(fp8, nullptr), InputCodes::kNone);
  EXPECT_EQ(told(nullptr, fp8), InputCodes::kNone);
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

}  // namespace
}  // namespace inlay
