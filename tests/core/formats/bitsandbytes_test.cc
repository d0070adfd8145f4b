// bitsandbytes checkpoints: what each layout stands for, and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "tests/core/formats/format_test_util.h"
#include "tests/core/formats/quantized_test_util.h"

namespace inlay {
namespace {

using ::testing::HasSubstr;

struct FourBits {
  const char* type = "nf4";
  bool nested = false;
  int64_t block = 64;
  int64_t n = 3;
  int64_t k = 128;
  DType storage = DType::kU8;
  bool names_method = true;
  int64_t nested_block = 256;
};

// The parts of a layer before they become tensors, for tests to spoil.
struct Parts {
  Json config;
  Json state;
  std::string type;
  DType storage = DType::kU8;
  std::vector<uint8_t> codes;
  std::vector<float> absmax, map, nested_absmax, nested_map;
  std::vector<uint8_t> coded;
  std::vector<double> dense;
};

std::vector<float> LevelsOf(const std::string& type) {
  const float* levels = type == "nf4" ? kNf4Levels : kBnbFp4Levels;
  return {levels, levels + 16};
}

Parts Draw4(const FourBits& c, uint32_t seed) {
  Draw draw(seed);
  Parts parts;
  parts.config = {{"load_in_4bit", true}, {"bnb_4bit_quant_type", c.type}};
  if (c.names_method) parts.config["quant_method"] = "bitsandbytes";
  parts.state = {{"quant_type", c.type},
                 {"blocksize", c.block},
                 {"dtype", "bfloat16"},
                 {"shape", {c.n, c.k}}};
  parts.type = c.type;
  parts.storage = c.storage;
  const auto at = [](int64_t i) { return static_cast<size_t>(i); };
  const int64_t count = c.n * c.k;
  const int64_t scales = (count - 1) / c.block + 1;
  parts.map = LevelsOf(c.type);
  const auto codes = draw.Ints(count, 0, 15);
  for (int64_t i = 0; i < count; i += 2) {
    const int lower = i + 1 < count ? codes[at(i + 1)] : 0;
    parts.codes.push_back(static_cast<uint8_t>(codes[at(i)] << 4 | lower));
  }
  parts.absmax = draw.Scales(scales);
  if (c.nested) {
    parts.state["nested_blocksize"] = c.nested_block;
    parts.state["nested_dtype"] = "float32";
    parts.state["nested_offset"] = 0.125;
    parts.nested_absmax = draw.Scales((scales - 1) / c.nested_block + 1);
    for (int i = 0; i < 256; ++i) {
      parts.nested_map.push_back(static_cast<float>(i - 100) / 128.0f);
    }
    for (int64_t i = 0; i < scales; ++i) {
      parts.coded.push_back(static_cast<uint8_t>(draw.Int(0, 255)));
      const float product = parts.nested_map[parts.coded.back()] *
                            parts.nested_absmax[at(i / c.nested_block)];
      parts.absmax[at(i)] = product + 0.125f;
    }
  }
  for (int64_t i = 0; i < count; ++i) {
    parts.dense.push_back(parts.absmax[at(i / c.block)] *
                          parts.map[at(codes[at(i)])]);
  }
  return parts;
}

Checkpoint Make(const Parts& parts, int64_t n, int64_t k,
                const std::string& state_text = "") {
  Checkpoint out{parts.config, std::make_shared<MemoryWeights>(true), n, k,
                 parts.dense};
  const auto size = [](const auto& values) {
    return static_cast<int64_t>(values.size());
  };
  MemoryWeights& weights = *out.weights;
  const auto element = static_cast<int64_t>(RowBytes(parts.storage, 1));
  weights.Add("l.weight", parts.storage, {size(parts.codes) / element, 1},
              parts.codes.data());
  if (!parts.coded.empty()) {
    weights.Add("l.weight.absmax", DType::kU8, {size(parts.coded)},
                parts.coded.data());
    AddFloats(weights, "l.weight.nested_absmax", DType::kF32,
              {size(parts.nested_absmax)}, parts.nested_absmax);
    AddFloats(weights, "l.weight.nested_quant_map", DType::kF32,
              {size(parts.nested_map)}, parts.nested_map);
  } else {
    AddFloats(weights, "l.weight.absmax", DType::kF32, {size(parts.absmax)},
              parts.absmax);
  }
  AddFloats(weights, "l.weight.quant_map", DType::kF32, {size(parts.map)},
            parts.map);
  const std::string text =
      state_text.empty() ? DumpJson(parts.state) : state_text;
  weights.Add("l.weight.quant_state.bitsandbytes__" + parts.type, DType::kU8,
              {size(text)}, text.data());
  return out;
}

TEST(BitsAndBytesTest, FourBits) {
  const FourBits cases[] = {
      {.type = "nf4"},
      {.type = "fp4"},
      {.type = "nf4", .nested = true},
      {.type = "fp4", .nested = true, .n = 5, .k = 192},
      {.type = "nf4", .block = 128},
      // Blocks run on over the ends of rows, and the last is cut.
      {.type = "nf4", .block = 128, .n = 5, .k = 64},
      {.type = "fp4", .block = 4096, .n = 7, .k = 192},
      {.type = "nf4", .nested = true, .block = 256, .n = 9, .k = 64},
      // Several blocks of coded scales.
      {.type = "nf4", .nested = true, .n = 70, .k = 256},
      {.type = "nf4", .nested = true, .n = 9, .k = 128, .nested_block = 5},
      {.type = "nf4", .storage = DType::kBF16},
      {.type = "fp4", .storage = DType::kF32},
      {.type = "nf4", .names_method = false},
  };
  uint32_t seed = 1;
  for (const FourBits& c : cases) {
    SCOPED_TRACE(::testing::Message() << "case " << seed - 1);
    CheckLayer(Make(Draw4(c, seed++), c.n, c.k),
               std::string(c.type) == "nf4" ? "nf4" : "bnb_fp4", false);
  }
}

// Where runs of 64 columns do not share a scale: rows that end within blocks,
// and at a byte's half; blocks of 32.
TEST(BitsAndBytesTest, FourBitsThatNoBlockFits) {
  const FourBits cases[] = {
      {.type = "nf4", .n = 5, .k = 40},
      {.type = "fp4", .nested = true, .n = 9, .k = 96},
      {.type = "nf4", .nested = true, .n = 70, .k = 100, .nested_block = 5},
      {.type = "fp4", .block = 4096, .n = 60, .k = 200},
      {.type = "nf4", .n = 7, .k = 33},
      {.type = "fp4", .n = 3, .k = 1},
      {.type = "nf4", .block = 32, .n = 3, .k = 128},
      {.type = "fp4", .block = 32, .n = 4, .k = 7, .storage = DType::kBF16},
  };
  uint32_t seed = 41;
  for (const FourBits& c : cases) {
    SCOPED_TRACE(::testing::Message() << "case " << seed - 41);
    CheckLayer(Make(Draw4(c, seed++), c.n, c.k), "f32", false);
  }
}

// What bitsandbytes 0.50.2 makes of bytes and scales
// (cdequantize_blockwise_cpu_nf4_fp32 of its library for CPUs, and fp4's).
constexpr uint8_t kNf4Codes[] = {
    0x82, 0xb7, 0x0e, 0xee, 0x7f, 0x1a, 0x50, 0x39, 0xbe, 0xf0, 0x7e,
    0xc2, 0x34, 0x7f, 0x06, 0x6e, 0xd0, 0x8f, 0x5d, 0xc7, 0x51, 0x24,
    0x47, 0xe3, 0x40, 0x43, 0x00, 0x02, 0x6b, 0x6e, 0x54, 0x55, 0x94};
constexpr float kNf4Scales[] = {0.75f, 1.5f};
constexpr float kNf4Values[] = {
    0.0596852228f,  -0.393804789f,  0.253436446f,   0.0f,
    -0.75f,         0.542217612f,   0.542217612f,   0.542217612f,
    0.0f,           0.75f,          -0.522144616f,  0.18458423f,
    -0.138580069f,  -0.75f,         -0.296188116f,  0.120697647f,
    0.253436446f,   0.542217612f,   0.75f,          -0.75f,
    0.0f,           0.542217612f,   0.330532372f,   -0.393804789f,
    -0.296188116f,  -0.213331044f,  0.0f,           0.75f,
    -0.75f,         -0.0682875291f, -0.0682875291f, 0.542217612f,
    0.421962738f,   -0.75f,         0.0596852228f,  0.75f,
    -0.138580069f,  0.421962738f,   0.330532372f,   0.0f,
    -0.138580069f,  -0.522144616f,  -0.393804789f,  -0.213331044f,
    -0.213331044f,  0.0f,           0.542217612f,   -0.296188116f,
    -0.213331044f,  -0.75f,         -0.213331044f,  -0.296188116f,
    -0.75f,         -0.75f,         -0.75f,         -0.393804789f,
    -0.0682875291f, 0.253436446f,   -0.0682875291f, 0.542217612f,
    -0.138580069f,  -0.213331044f,  -0.138580069f,  -0.138580069f,
    0.241395295f,   -0.426662087f};
constexpr uint8_t kFp4Codes[] = {
    0xa0, 0x65, 0x68, 0x5d, 0x64, 0xc4, 0x98, 0x0b, 0xb8, 0xd4, 0x54,
    0x4a, 0x87, 0x21, 0xa9, 0x9a, 0x01, 0xad, 0x21, 0x9e, 0xb5, 0x9c,
    0xf6, 0xa1, 0x5e, 0xf6, 0xf1, 0x5a, 0x1d, 0x83, 0x0b, 0xb7, 0xce};
constexpr float kFp4Scales[] = {0.75f, 1.5f, 0.375f};
constexpr float kFp4Values[] = {
    -256, 0,    64,   192, 64,   0,    192,  -192, 64,   128,  -128,
    128,  -2,   0,    0,   -384, -384, 0,    -192, 128,  192,  128,
    128,  -256, 0,    96,  256,  2,    -256, -2,   -2,   -256, 0,
    4,    -512, -384, 512, 4,    -4,   -128, -768, 384,  -4,   -256,
    -192, 128,  -512, 4,   384,  -128, -192, 128,  -192, 4,    384,
    -512, 4,    -384, 0,   768,  0,    -768, -768, 192,  -64,  -32};

TEST(BitsAndBytesTest, FourBitsAsTheirLibraryDoes) {
  const struct {
    const char* type;
    int64_t block;
    absl::Span<const uint8_t> codes;
    absl::Span<const float> absmax;
    absl::Span<const float> wanted;
    float unit;  // of these
  } cases[] = {
      {"nf4", 64, kNf4Codes, kNf4Scales, kNf4Values, 1.0f},
      {"fp4", 32, kFp4Codes, kFp4Scales, kFp4Values, 0x1p-9f},
  };
  for (const auto& [type, block, codes, absmax, wanted, unit] : cases) {
    SCOPED_TRACE(type);
    Parts parts = Draw4({.type = type, .block = block, .n = 3, .k = 22}, 1);
    parts.codes.assign(codes.begin(), codes.end());
    parts.absmax.assign(absmax.begin(), absmax.end());
    const Checkpoint checkpoint = Make(parts, 3, 22);
    const auto source = OpenQuantized(checkpoint.config, checkpoint.weights);
    ASSERT_TRUE(source.ok()) << source.status();
    const WeightInfo* info = (*source)->Find("l.weight");
    EXPECT_EQ(info->dtype, DType::kF32);
    const auto bytes = ReadAllOf(**source, *info);
    ASSERT_EQ(bytes.size(), wanted.size() * sizeof(float));
    std::vector<float> values(wanted.size());
    std::memcpy(values.data(), bytes.data(), bytes.size());
    for (size_t i = 0; i < values.size(); ++i) {
      EXPECT_EQ(values[i], unit * wanted[i]) << i;
    }
  }
}

// Bytes by hand: the upper nibble is the first element.
TEST(BitsAndBytesTest, FourBitsBitByBit) {
  Parts parts = Draw4({.n = 1, .k = 64}, 1);
  std::fill(parts.codes.begin(), parts.codes.end(), uint8_t{0x77});
  parts.codes[0] = 0xf0;
  parts.codes[8] = 0x12;
  parts.absmax = {0.5f};
  const Checkpoint checkpoint = Make(parts, 1, 64);
  const auto source = OpenQuantized(checkpoint.config, checkpoint.weights);
  ASSERT_TRUE(source.ok()) << source.status();
  const auto bytes = ReadAllOf(**source, *(*source)->Find("l.weight"));
  std::vector<uint8_t> want(36, 0x77);
  const uint8_t half[4] = {0, 0, 0, 0x3f};
  std::copy_n(half, 4, want.begin());
  want[4] = 0x1f;  // elements 0 and 16
  want[5] = 0x20;  // elements 1 and 17
  EXPECT_EQ(std::memcmp(bytes.data(), want.data(), 36), 0);
}

Checkpoint MakeInt8(int64_t n, int64_t k, uint32_t seed, bool with_format) {
  Draw draw(seed);
  Checkpoint out{{{"quant_method", "bitsandbytes"}, {"load_in_8bit", true}},
                 std::make_shared<MemoryWeights>(false),
                 n,
                 k,
                 {}};
  const std::vector<int> codes = draw.Ints(n * k, -127, 127);
  const std::vector<int8_t> bytes(codes.begin(), codes.end());
  const std::vector<float> most = draw.Scales(n);
  out.weights->Add("l.weight", DType::kI8, {n, k}, bytes.data());
  AddFloats(*out.weights, "l.SCB", DType::kF32, {n}, most);
  const uint8_t rows = 0;
  if (with_format) out.weights->Add("l.weight_format", DType::kU8, {}, &rows);
  for (size_t i = 0; i < codes.size(); ++i) {
    const float scale = most[i / static_cast<size_t>(k)] / 127.0f;
    out.dense.push_back(scale * static_cast<float>(codes[i]));
  }
  return out;
}

TEST(BitsAndBytesTest, EightBits) {
  CheckLayer(MakeInt8(7, 256, 1, true), "i8_g128", false);
  CheckLayer(MakeInt8(7, 96, 2, false), "i8_g32", false);
  Checkpoint unnamed = MakeInt8(3, 128, 3, true);
  unnamed.config.erase("quant_method");
  CheckLayer(unnamed, "i8_g128", false);
  // Inputs are not rounded: outliers would need more than 8 bits.
  const auto source = OpenQuantized(unnamed.config, unnamed.weights);
  ASSERT_TRUE(source.ok());
  EXPECT_EQ((*source)->Find("l.weight")->input_codes, InputCodes::kNone);
}

void ExpectOpenError(const Checkpoint& checkpoint, absl::StatusCode code,
                     const std::string& text) {
  ExpectError(OpenQuantized(checkpoint.config, checkpoint.weights).status(),
              code, text);
}

TEST(BitsAndBytesErrors, States) {
  using Edit = std::function<void(Parts&)>;
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const struct {
    Edit edit;
    absl::StatusCode code;
    const char* text;
  } cases[] = {
      {[](Parts& p) { p.state.erase("shape"); }, kInvalid, "shape"},
      {[](Parts& p) { p.state["shape"] = {384}; }, kInvalid, "shape"},
      {[](Parts& p) {
         p.state["shape"] = {3, -128};
       },
       kInvalid, "shape"},
      {[](Parts& p) {
         p.state["shape"] = {3.0, 128};
       },
       kInvalid, "shape"},
      {[](Parts& p) {
         p.state["shape"] = {UINT64_MAX, 128};
       },
       kInvalid, "shape"},
      {[](Parts& p) {
         p.state["shape"] = {0, 128};
       },
       kInvalid, "0 outputs"},
      {[](Parts& p) {
         p.state["shape"] = {4, 128};
       },
       kInvalid, "256"},
      {[](Parts& p) { p.state.erase("blocksize"); }, kInvalid, "blocksize"},
      {[](Parts& p) { p.state["blocksize"] = 0; }, kInvalid, "blocksize"},
      {[](Parts& p) { p.state["blocksize"] = "64"; }, kInvalid, "blocksize"},
      {[](Parts& p) { p.state["blocksize"] = 32; }, kInvalid, "asks for 12"},
      {[](Parts& p) { p.state["blocksize"] = 128; }, kInvalid, "absmax"},
      {[](Parts& p) { p.state["quant_type"] = "fp4"; }, kInvalid, "quant_type"},
      {[](Parts& p) { p.type = "fp4"; }, kInvalid, "quant_type"},
      {[](Parts& p) { p.type = "int4"; }, kUnsupported, "bitsandbytes__int4"},
      {[](Parts& p) { p.map[3] += 1e-3f; }, kUnsupported, "code 3"},
      {[](Parts& p) { p.map.push_back(1); }, kInvalid, "quant_map"},
      {[](Parts& p) { p.map[3] = kNan; }, kInvalid, "quant_map"},
      {[](Parts& p) { p.codes.pop_back(); }, kInvalid, "191 bytes"},
      {[](Parts& p) { p.absmax.pop_back(); }, kInvalid, "5 elements"},
      {[](Parts& p) { p.absmax[5] = kNan; }, kInvalid, "absmax"},
      {[](Parts& p) { p.absmax[0] = kInfinity; }, kInvalid, "absmax"},
      {[](Parts& p) { p.config["bnb_4bit_quant_type"] = "int4"; }, kUnsupported,
       "int4"},
      {[](Parts& p) { p.config["load_in_4bit"] = 1; }, kInvalid,
       "load_in_4bit"},
      {[](Parts& p) { p.config["llm_int8_skip_modules"] = 3; }, kInvalid,
       "llm_int8_skip_modules"},
  };
  EXPECT_TRUE(
      OpenQuantized(Draw4({}, 1).config, Make(Draw4({}, 1), 3, 128).weights)
          .ok());
  for (const auto& [edit, code, text] : cases) {
    SCOPED_TRACE(text);
    Parts parts = Draw4({}, 1);
    edit(parts);
    ExpectOpenError(Make(parts, 3, 128), code, text);
  }
  const std::pair<Edit, const char*> nested[] = {
      {[](Parts& p) { p.state.erase("nested_blocksize"); }, "nested_blocksize"},
      {[](Parts& p) { p.state["nested_blocksize"] = -1; }, "nested_blocksize"},
      {[](Parts& p) { p.state["nested_blocksize"] = 4; }, "nested_absmax"},
      {[](Parts& p) { p.state.erase("nested_offset"); }, "nested_offset"},
      {[](Parts& p) { p.state["nested_offset"] = "0"; }, "nested_offset"},
      {[](Parts& p) { p.state["nested_offset"] = 1e40; }, "nested_offset"},
      {[](Parts& p) { p.nested_absmax[0] = kNan; }, "nested_absmax"},
      {[](Parts& p) { p.nested_absmax[0] = 3e38f, p.nested_map[9] = 2.0f; },
       "infinite"},
      {[](Parts& p) { p.nested_map[255] = kInfinity; }, "nested_quant_map"},
      {[](Parts& p) { p.nested_map.pop_back(); }, "nested_quant_map"},
      {[](Parts& p) { p.coded.pop_back(); }, "5 elements"},
  };
  for (const auto& [edit, text] : nested) {
    SCOPED_TRACE(text);
    Parts parts = Draw4({.nested = true}, 1);
    edit(parts);
    ExpectOpenError(Make(parts, 3, 128), kInvalid, text);
  }
  for (const char* text : {"{", "[]", "\"nf4\"", "NaN", "\xff"}) {
    ExpectOpenError(Make(Draw4({}, 1), 3, 128, text), kInvalid, "quant_state");
  }
  ExpectOpenError(Make(Draw4({}, 1), 3, 128, std::string(70000, ' ')), kInvalid,
                  "65536");
}

// Of a whole layer without one of its tensors, or with it of another type.
TEST(BitsAndBytesErrors, Companions) {
  const auto with = [](const Checkpoint& from, const std::string& name,
                       std::optional<DType> dtype) {
    Checkpoint out = from;
    out.weights = std::make_shared<MemoryWeights>(true);
    for (const WeightInfo& info : from.weights->weights()) {
      const std::byte* data = from.weights->Mapped(info);
      if (info.name != name) {
        out.weights->Add(info.name, info.dtype, info.shape, data);
      } else if (dtype.has_value()) {
        const std::vector<std::byte> zeros(info.bytes * 8 + 16);
        out.weights->Add(info.name, *dtype, info.shape, zeros.data());
      }
    }
    return out;
  };
  const Checkpoint plain = Make(Draw4({}, 1), 3, 128);
  const Checkpoint nested = Make(Draw4({.nested = true}, 1), 3, 128);
  for (const char* name : {"l.weight", "l.weight.absmax", "l.weight.quant_map",
                           "l.weight.quant_state.bitsandbytes__nf4"}) {
    SCOPED_TRACE(name);
    ExpectOpenError(with(plain, name, std::nullopt), kMissing, name);
    ExpectOpenError(with(plain, name, DType::kI64), kInvalid, name);
  }
  for (const char* name :
       {"l.weight.nested_absmax", "l.weight.nested_quant_map"}) {
    SCOPED_TRACE(name);
    ExpectOpenError(with(nested, name, std::nullopt), kMissing, name);
    ExpectOpenError(with(nested, name, DType::kI64), kInvalid, name);
  }
}

TEST(BitsAndBytesErrors, EightBits) {
  const auto spoilt = [](const char* name, DType dtype,
                         std::vector<int64_t> shape, const void* data) {
    Checkpoint out = MakeInt8(3, 128, 1, false);
    const auto weights = std::make_shared<MemoryWeights>(true);
    for (const WeightInfo& info : out.weights->weights()) {
      if (info.name == name) continue;
      weights->Add(info.name, info.dtype, info.shape,
                   ReadAllOf(*out.weights, info).data());
    }
    if (data != nullptr) weights->Add(name, dtype, std::move(shape), data);
    out.weights = weights;
    return out;
  };
  const float scales[3] = {1, std::numeric_limits<float>::quiet_NaN(), 1};
  const int64_t zeros[64] = {};  // 512 bytes
  const uint8_t col32 = 1;
  ExpectOpenError(spoilt("l.SCB", DType::kF32, {}, nullptr), kMissing, "l.SCB");
  ExpectOpenError(spoilt("l.SCB", DType::kF32, {3}, scales), kInvalid,
                  "finite");
  ExpectOpenError(spoilt("l.SCB", DType::kF32, {2}, zeros), kInvalid, "[3, 1]");
  ExpectOpenError(spoilt("l.SCB", DType::kI8, {3}, zeros), kInvalid, "i8");
  ExpectOpenError(spoilt("l.weight_format", DType::kU8, {}, &col32),
                  kUnsupported, "weight_format");
  ExpectOpenError(spoilt("l.weight_format", DType::kU8, {2}, zeros),
                  kUnsupported, "weight_format");
  ExpectOpenError(spoilt("l.weight", DType::kI8, {3, 100}, zeros), kUnsupported,
                  "k = 100");
  ExpectOpenError(spoilt("l.weight", DType::kI8, {384}, zeros), kInvalid,
                  "two dimensions");
}

}  // namespace
}  // namespace inlay
